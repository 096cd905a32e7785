"""A machine too busy to answer in time: what could not be looked at is neither an end nor work that gets on."""

from __future__ import annotations

import errno

import msgspec
import pytest

from clinic.asked_fake import NOW, FakeAsked
from clinic.test_gathered_deaths import PID, ask, living
from gpuclinic.clinic.gathering._two_looks import IO, STATS, Seen, add_progress, look
from gpuclinic.observe.asking import Answer
from gpuclinic.recognise.proc_files import parse_stat

LATE = "no answer within 2 s"
STAT = (
    "{pid} ({name}) {state} {parent} 1 1 0 -1 4194304 113 0 0 0 {ticks} 5 0 0 20 0 1 0 {start} 2981888 227" + " 0" * 27
)


class Slow(FakeAsked):
    """One on which patterns over all processes have no answer in time from the numbered look on; alone: nor has the one file."""

    def __init__(self, files: dict[str, object], late: set[int], *, alone: bool = False) -> None:
        super().__init__(files)
        self.late, self.alone, self.looks = late, alone, 0

    def files(self, pattern: str, most: int = 1 << 16) -> dict[str, Answer]:
        if pattern == STATS:
            self.looks += 1
        if pattern in (STATS, IO) and self.looks in self.late:
            return {pattern: Answer(f"files {pattern}", why=LATE, at=self.now)}
        return super().files(pattern, most)

    def file(self, path: str, most: int = 1 << 20, *, end: bool = False) -> Answer:
        if self.alone and self.looks in self.late and path == f"/proc/{PID}/stat":
            return Answer(f"file {path}", why="no answer within 1 s", at=self.now)
        return msgspec.structs.replace(super().file(path, most, end=end), at=self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds


def stuck() -> dict[str, object]:
    return {**living("D", wchan="__iomap_dio_rw"), f"/proc/{PID}/io": "rchar: 91234\nwchar: 4096\n"}


@pytest.mark.parametrize("late", [{1}, {2}, {1, 2}])
def test_a_late_look_is_no_progress(late: set[int]) -> None:
    answer = ask(Slow(stuck(), late), pid=PID)
    assert (answer.outcome, answer.causes[0].id, answer.causes[0].pid) == ("cause", "kernel.hung_task", PID)
    assert "CPU 0 %" in answer.notes[0]


@pytest.mark.parametrize("late", [{1}, {2}, {1, 2}])
def test_a_look_that_failed_is_no_end(late: set[int]) -> None:
    answer = ask(Slow(stuck(), late, alone=True), pid=PID)
    assert "process.killed" not in [c.id for c in answer.causes]
    assert answer.outcome != "nothing_wrong"
    assert "is running" in answer.notes[0]
    assert "CPU ? %" in answer.notes[0]


def test_children_count_only_where_both_looks_saw_them() -> None:
    def seen(ticks: int, *, whole: bool) -> Seen:
        texts = [
            STAT.format(pid=5, name="sh", state="S", parent=1, ticks=10, start=9),
            STAT.format(pid=6, name="python3", state="R", parent=5, ticks=ticks, start=9),
        ]
        stats = {s.pid: s for text in texts[: 2 if whole else 1] if (s := parse_stat(text)) is not None}
        return Seen(sorted(stats), stats, {5: 100, 6: 10_000} if whole else {5: 100}, NOW, whole, unread=False)

    for first, second, idle in ((True, True, False), (False, True, True), (True, False, True)):
        fields: dict[str, str | int | float | bool | None] = {}
        add_progress(seen(500, whole=first), seen(600, whole=second), 1.0, fields, {})
        assert fields["idle"] is idle, (first, second)


def test_a_process_that_is_gone_is_gone_on_a_slow_machine_too() -> None:
    host = Slow({}, {1})
    found = look(host, PID)
    assert not found.stats
    assert not found.unread
    assert host.file(f"/proc/{PID}/stat").code == errno.ENOENT


def test_services_that_were_not_told_in_time_are_told() -> None:
    host = FakeAsked(commands={"systemctl show *": "!no answer within 4 s", "journalctl": "!no answer within 4 s"})
    answer = ask(host, pid=PID)
    assert {"systemctl show", "journalctl"} <= {gap.path for gap in answer.not_read}
    assert not any("usermod" in item["command"] for item in answer.missing)  # no right is missing
