"""The recorder's process: low priority beside the job, the usual one for the answer, none of it for a job that ended well."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from gpuclinic.watch.flight.beside import Options, record
from gpuclinic.watch.flight.front import Flight
from gpuclinic.watch.flight.recorder import Recorder

if TYPE_CHECKING:
    from gpuclinic.watch.flight.recorder import Taken


def nice() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.parametrize(
    ("status", "always", "rank", "answered"),
    [(256, False, False, True), (0, False, False, False), (0, True, False, True), (0, False, True, True)],
)
def test_priorities_and_who_is_answered(
    status: int, always: bool, rank: bool, answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("SLURM", "RANK", "OMPI", "PMI", "PBS", "LSF", "MPI"))]:
        monkeypatch.delenv(name)
    if rank:
        monkeypatch.setenv("RANK", "0")
    before, beside, at_the_end = nice(), [], []
    live = Recorder.run

    def run(self: Recorder) -> Taken:
        beside.append(nice())
        return live(self)

    def conclude(taken: Taken) -> str:
        assert taken.status == status
        at_the_end.append(nice())
        return "why"

    monkeypatch.setattr(Recorder, "run", run)
    told, tell = os.pipe()
    answer, answered_on = os.pipe()
    os.write(tell, json.dumps({"status": status, "at": time.time()}).encode() + b"\n")
    flight = Flight(["job"], os.getpid(), os.getpid(), time.time(), time.monotonic(), [], frozenset(), [])
    record(flight, told, answered_on, Options(always=always), conclude)
    for end in (told, tell, answered_on):
        os.close(end)
    text = os.read(answer, 100)
    os.close(answer)
    assert beside == [min(19, before + 10)]
    assert at_the_end == ([before] if answered else [])
    assert text == (b"why" if answered else b"")


def test_what_goes_wrong_beside_the_job_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: Recorder) -> Taken:
        raise ValueError("no such sample")

    monkeypatch.setattr(Recorder, "run", run)
    told, tell = os.pipe()
    answer, answered_on = os.pipe()
    flight = Flight(["job"], os.getpid(), os.getpid(), time.time(), time.monotonic(), [], frozenset(), [])
    record(flight, told, answered_on, Options(), lambda taken: "why")
    for end in (told, tell, answered_on):
        os.close(end)
    text = os.read(answer, 1000)
    os.close(answer)
    assert text == b"gpuclinic: the job was not recorded to its end (ValueError: no such sample)\n"
