"""A fault in the machine's log is the cause only of what something ties to it; a number that nothing shows is told as that."""

from __future__ import annotations

from typing import Any

import pytest

from clinic.asked_fake import FakeAsked, kmsg
from gpuclinic.clinic import Answer, examine
from gpuclinic.clinic.gathering import Question, gather, parse_job
from gpuclinic.observe import Places

CARD, OTHER_CARD = "0000:9a:00.0", "0000:3b:00.0"
GSP = (
    "NVRM: Xid (PCI:0000:9a:00): 119, pid=41004, name=python3, Timeout after 6s of waiting for RPC response from GPU4 GSP! "
    "Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4)."
)
LOST = "NVRM: Xid (PCI:0000:9a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
LOCKUP = "watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [kworker/12:1:77]"
FAULTS = (GSP, LOST, LOCKUP)
KERNEL_THREAD = 0x200000


def ask(host: FakeAsked, **question: Any) -> Answer:
    return examine(Places([]), "en", None, gather(host, Question(**question)))


def process(
    pid: int, name: str, *, state: str = "S", ppid: int = 1, flags: int = 4194304, **more: object
) -> dict[str, object]:
    """Files of /proc about one process."""
    rest = f"{ppid} 1 1 0 -1 {flags} 9 0 0 0 5 0 0 0 20 0 1 0 90 16961536 2443" + " 0" * 28
    folder = f"/proc/{pid}"
    return {
        f"{folder}/stat": f"{pid} ({name}) {state} {rest}\n",
        f"{folder}/status": f"Name:\t{name}\nTgid:\t{pid}\nPid:\t{pid}\nTracerPid:\t0\nUid:\t0\t0\t0\t0\n",
        f"{folder}/cmdline": b"" if flags & KERNEL_THREAD else name.encode() + b"\0",
        f"{folder}/cgroup": "0::/\n",
        f"{folder}/wchan": "0",
        f"{folder}/fd/0": "/dev/null",
        **{f"{folder}/{key}": value for key, value in more.items()},
    }


MACHINE: dict[str, object] = {
    **process(1, "systemd", ppid=0),
    **process(2, "kthreadd", ppid=0, flags=KERNEL_THREAD),
    **process(812, "sshd"),
    "/proc/driver/nvidia/gpus/0000:9a:00.0/information": "Model: \t\t NVIDIA H100\nDevice Minor: \t 4\n",
    "/proc/driver/nvidia/gpus/0000:3b:00.0/information": "Model: \t\t NVIDIA H100\nDevice Minor: \t 1\n",
}


def machine(*lines: str, **files: object) -> FakeAsked:
    return FakeAsked({**MACHINE, "/dev/kmsg": kmsg(*lines), **files})


@pytest.mark.parametrize("line", FAULTS)
@pytest.mark.parametrize("pid", [1, 2, 812])
def test_a_process_that_has_nothing_to_do_with_gpus(pid: int, line: str) -> None:
    answer = ask(machine(line), pid=pid)
    assert not answer.causes
    assert answer.outcome in ("nothing_wrong", "not_enough_evidence")
    assert any("nothing ties it" in note and "gpuclinic why --live" in note for note in answer.notes)


@pytest.mark.parametrize("line", FAULTS)
@pytest.mark.parametrize("pid", [120_000, 99, 5_000_000])
def test_a_number_that_no_process_is_shown_to_have_had(pid: int, line: str) -> None:
    host = machine(line, **{"/proc/stat": "processes 99000\n"})
    answer = ask(host, pid=pid)
    assert (answer.outcome, answer.causes) == ("not_enough_evidence", [])
    assert str(pid) in answer.notes[0]
    assert not any("auditctl" in item["command"] for item in answer.missing)


def test_a_number_above_all_others_where_numbers_may_have_begun_anew() -> None:
    answer = ask(machine(GSP, **{"/proc/stat": "processes 5000000\n"}), pid=120_000)
    assert (answer.outcome, answer.causes) == ("not_enough_evidence", [])
    assert "nothing shows that there was one" in answer.notes[0]
    wrapped = {"/proc/stat": "processes 500000\n", "/proc/sys/kernel/pid_max": "131072\n"}
    assert [c.id for c in ask(machine("usb 1-1: new high-speed USB device", **wrapped), pid=120_000).causes] == [
        "process.killed"
    ]


def test_of_a_dead_process_the_fault_of_another_is_a_guess_at_most() -> None:
    answer = ask(machine(GSP), pid=43214)
    assert answer.outcome == "hint"
    assert all(cause.confidence < 0.5 for cause in answer.causes)
    assert answer.causes[0].id == "process.killed"


@pytest.mark.parametrize("line", FAULTS)
def test_a_job_that_nobody_knows(line: str) -> None:
    answer = ask(machine(line), job=parse_job("999"))
    assert (answer.outcome, answer.causes) == ("not_enough_evidence", [])


def test_the_process_that_the_line_names() -> None:
    answer = ask(machine(GSP), pid=41004)
    assert (answer.outcome, answer.causes[0].id) == ("cause", "hw.gpu.gsp_failure")


@pytest.mark.parametrize("line", [GSP, LOST])
def test_a_process_that_holds_the_card(line: str) -> None:
    holder = process(41900, "python3", **{"fd/10": "/dev/nvidiactl", "fd/11": "/dev/nvidia4"})
    answer = ask(machine(line, **holder), pid=41900)
    assert answer.outcome == "cause"
    assert answer.causes[0].gpu == CARD
    parent = process(41800, "bash")
    child = process(41900, "python3", ppid=41800, **{"fd/11": "/dev/nvidia4"})
    assert ask(machine(line, **parent, **child), pid=41800).causes[0].gpu == CARD


def test_a_process_on_another_card() -> None:
    holder = process(41900, "python3", **{"fd/10": "/dev/nvidiactl", "fd/11": "/dev/nvidia1"})
    answer = ask(machine(GSP, **holder), pid=41900)
    assert all(cause.confidence < 0.5 for cause in answer.causes)


def test_without_a_question_for_a_process_the_fault_is_the_cause() -> None:
    answer = ask(machine(GSP))
    assert (answer.outcome, answer.causes[0].id) == ("cause", "hw.gpu.gsp_failure")


class Moving(FakeAsked):
    """A machine on which something is different at the second look."""

    def __init__(self, files: dict[str, Any], later: dict[str, Any]) -> None:
        super().__init__(files)
        self._later = later

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for path, held in self._later.items():
            if held is None:
                self._files.pop(path, None)
            else:
                self._files[path] = held


def test_a_child_that_waits_for_the_disk_for_a_moment_is_not_stuck() -> None:
    parent, child = process(900, "make"), process(7347, "modinfo", state="D", ppid=900, wchan="folio_wait_bit")
    stuck = ask(Moving({**MACHINE, **parent, **child}, {}), pid=900)
    assert [c.id for c in stuck.causes] == ["kernel.hung_task"]
    running = process(7347, "modinfo", state="R", ppid=900)
    gone: dict[str, Any] = dict.fromkeys(child)
    for later in (running, gone):
        assert not ask(Moving({**MACHINE, **parent, **child}, later), pid=900).causes


@pytest.mark.parametrize("pid", [1, 2])
def test_what_init_and_kthreadd_started_is_not_part_of_them(pid: int) -> None:
    child = process(7347, "modinfo", state="D", ppid=pid, wchan="folio_wait_bit")
    assert not ask(FakeAsked({**MACHINE, **child}), pid=pid).causes


@pytest.mark.parametrize("how", ["gone", "zombie", "another"])
def test_a_process_that_dies_while_it_is_asked(how: str) -> None:
    before = process(900, "python3")
    later: dict[str, Any] = {
        "gone": dict.fromkeys(before),
        "zombie": {"/proc/900/stat": str(before["/proc/900/stat"]).replace(") S ", ") Z ").rsplit(" ", 1)[0] + " 9\n"},
        "another": {"/proc/900/stat": str(before["/proc/900/stat"]).replace(" 0 90 16961536 ", " 0 95 16961536 ")},
    }[how]
    answer = ask(Moving({**MACHINE, **before}, later), pid=900)
    assert not any("is running" in note for note in answer.notes)
    assert answer.causes[0].id == "process.killed"
    assert any("dead (SIGKILL)" in note if how == "zombie" else "ended while" in note for note in answer.notes)
