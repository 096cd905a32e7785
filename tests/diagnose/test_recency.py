"""Old faults with work done in peace since, and drivers that answer again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic import examine
from gpuclinic.observe import Places

if TYPE_CHECKING:
    from pathlib import Path

OLD = "2026-01-02T03:11:09+0000 gn07 kernel: EDAC MC0: 812 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0\n"
STEP = "2026-02-{day:02d}T09:00:00+0000 gn07 trainer[1]: step {day}00/5000 loss 2.1\n"
EVENTS = (
    "   6 | 03/05/2024 | 10:25:30 | Power Supply PS2 Status | Failure detected | Asserted\n"
    "   7 | 03/06/2024 | 10:31:02 | Power Supply PS1 Status | Presence detected | Asserted\n"
)
MISMATCH = "# nvidia-smi\nFailed to initialize NVML: Driver/library version mismatch\n# reboot\n# nvidia-smi -L\n"
CARD = "GPU 0: NVIDIA L40S (UUID: GPU-11f3a7c2-1111-2222-3333-0123456789ab)\n"


def _best(folder: Path, **files: str) -> float:
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text)
    causes = examine(Places([str(folder)])).causes
    return causes[0].confidence if causes else 0.0


def test_a_fault_after_which_work_went_on_for_weeks(tmp_path: Path) -> None:
    steps = "".join(STEP.format(day=day) for day in range(1, 20))
    assert _best(tmp_path, journal=OLD + steps) < 0.5


def test_an_event_log_is_never_emptied(tmp_path: Path) -> None:
    assert _best(tmp_path, sel=EVENTS, date="Thu Feb 12 09:00:01 UTC 2026\n") < 0.5


def test_a_fresh_event_counts(tmp_path: Path) -> None:
    assert _best(tmp_path, sel=EVENTS, date="Wed Mar  6 11:00:00 UTC 2024\n") > 0.5


def test_a_driver_that_lists_its_cards_later_is_in_order(tmp_path: Path) -> None:
    assert _best(tmp_path, terminal=MISMATCH + CARD) < 0.5


def test_a_driver_that_listed_its_cards_before_is_not(tmp_path: Path) -> None:
    assert _best(tmp_path, terminal=CARD + MISMATCH) > 0.9


def test_a_crash_before_a_long_time_up(tmp_path: Path) -> None:
    last = "kim      pts/0        10.0.0.9         Tue Feb  3 09:00 - crash (00:10)\n"
    up = " 10:02:11 up {} days,  0:50,  1 user,  load average: 8.00, 8.01, 8.05\n"
    steps = "".join(STEP.format(day=day) for day in range(1, 20))
    assert _best(tmp_path, last=last, up=up.format(37), train=steps) < 0.5
    assert _best(tmp_path, last=last, up=up.format(1), train=steps) > 0.5


def test_a_browser_that_was_killed_is_no_fault_of_a_run_that_ended_well(tmp_path: Path) -> None:
    line = "Mar 12 10:00:00 ws kernel: [811.1] Memory cgroup out of memory: Killed process 9911 ({}) total-vm:1kB, anon-rss:2kB\n"
    assert _best(tmp_path, kern=line.format("chrome"), train="step 1 loss 2\ntraining finished\n") < 0.5
