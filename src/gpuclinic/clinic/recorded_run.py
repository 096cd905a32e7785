"""Whom a bundle of `gpuclinic run` is about: the logs in it are narrowed to the job as those of a running machine are to a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.diagnose.subject import Subject

if TYPE_CHECKING:
    from gpuclinic.model import Fact, ReadItem

_OWN = ("stdout.log", "stderr.log")


def subject_of_run(facts: list[Fact], read: list[ReadItem]) -> Subject | None:
    """The subject of the one run that was read; None for none, and for several, whose logs tell of one another."""
    runs = [fact for fact in facts if fact.kind == "run"]
    if len(runs) != 1:
        return None
    run = runs[0]
    folder = run.source.rpartition("/")[0]
    beside = {item.path for item in read if item.path.startswith(f"{folder}/" if folder else "")}
    mine = {path for path in beside if path.rpartition("/")[2] in _OWN}
    same = run.fields.get("same_pids") is not False
    pids = {int(text) for text in str(run.fields.get("pids") or "").split(",") if text.isdecimal()}
    pid, began, ended = (run.fields.get(name) for name in ("pid", "began_s", "ended_s"))
    offset, boot = run.fields.get("offset_s"), run.fields.get("boot_s")
    return Subject(
        asked="pid" if same else "recent",
        pid=pid if isinstance(pid, int) and same else None,
        pids=pids | ({pid} if isinstance(pid, int) else set()) if same else set(),
        units=set(), containers=set(), jobs=set(), others=set(), gpus=set(),
        cgroups={path for path in str(run.fields.get("cgroups") or "").split("\n") if path},
        since=_float(began), until=_float(ended), began=_float(began), ended=_float(ended), boot=_float(boot), now=_float(ended) or 0.0,
        mine=mine, live=beside - mine, offset=_float(offset) or 0.0, gone=True, existed=True,
        python="python" in str(run.fields.get("command")),
    )  # fmt: skip


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
