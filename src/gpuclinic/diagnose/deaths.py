"""Who died, of which signal or exit code, as launchers, shells, schedulers and the kernel tell it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.diagnose.candidates import Candidate, Pool, Support
from gpuclinic.diagnose.evidence import Clock, Reading
from gpuclinic.model import LEVEL_CONFIDENCE, Signal, Where

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMES = {
    "SIGHUP": 1,
    "SIGINT": 2,
    "SIGILL": 4,
    "SIGABRT": 6,
    "SIGBUS": 7,
    "SIGFPE": 8,
    "SIGKILL": 9,
    "SIGSEGV": 11,
    "SIGPIPE": 13,
    "SIGTERM": 15,
}
_WORDS = {
    "killed": 9, "terminated": 15, "aborted": 6, "hangup": 1, "interrupt": 2, "segmentation fault": 11, "bus error": 7, "illegal instruction": 4,
    "floating point exception": 8, "段错误": 11, "已杀死": 9, "已终止": 15, "总线错误": 7, "已放弃": 6,
}  # fmt: skip
_SHELL_BASE = 128
_NOT_A_DEATH = frozenset(
    {
        "deepspeed.killing",
        "elastic.closing_signal",
        "systemd.exit_code",
        "systemd.stop_timeout",
        "signal.sent_kill",
        "run.exit_zero",
    }
)


class Death(msgspec.Struct):
    """One process that ended badly. number: the signal, or None for an exit code alone."""

    number: int | None
    exit: int | None
    pid: int | None
    rank: int | None
    host: str | None
    order: int
    moment: Clock | None
    places: list[Where]


def signal_number(groups: dict[str, str]) -> int | None:
    """The signal a line's groups tell, from a name, a number, a negative exit code or a shell's 128+n."""
    for name in ("signal", "signal_name", "signum"):
        text = groups.get(name, "").strip()
        if text.isdecimal() and 0 < int(text) < 65:
            return int(text)
        number = _NAMES.get(text.upper()) or _NAMES.get("SIG" + text.upper()) or _WORDS.get(text.lower())
        if number:
            return number
    code = re.fullmatch(r"-?\d{1,4}", groups.get("exit", ""))
    if code:
        value = int(code[0])
        if -64 <= value < 0:
            return -value
        if _SHELL_BASE < value < _SHELL_BASE + 65:
            return value - _SHELL_BASE
    return None


def table_pairs(signals: Iterable[Signal]) -> dict[int, int]:
    """order of a torchrun "exitcode : -9 (pid: 4711)" line → the rank that the line above it names."""
    pairs: dict[int, int] = {}
    last: dict[str, Signal] = {}
    for signal in signals:
        if signal.signature == "elastic.table_rank":
            last[signal.where.source] = signal
        elif signal.signature in ("elastic.table_exitcode", "elastic.table_signal"):
            above = last.get(signal.where.source)
            near = above is not None and (
                signal.where.line is None or above.where.line is None or 0 < signal.where.line - above.where.line < 8
            )
            if above is not None and near:
                pairs[signal.order] = int(above.groups["rank"])
    return pairs


def find_deaths(reading: Reading, pool: Pool) -> list[Death]:
    """Every death told, first ones first; lines about the same pid are joined."""
    pairs = table_pairs(reading.signals)
    killed = {s.pid for s in reading.signals if s.signature == "deepspeed.killing" and s.pid is not None}
    found: dict[tuple[str | None, int | None, int | None], Death] = {}
    for signal in reading.signals:
        if signal.signature in _NOT_A_DEATH or not ({"exit", "signal", "signum", "signal_name"} & signal.groups.keys()):
            continue
        number = signal_number(signal.groups)
        text = signal.groups.get("exit", "")
        code = int(text) if re.fullmatch(r"-?\d{1,4}", text) else None
        if number is None and code in (0, None):
            continue
        rank = pairs.get(signal.order, signal.rank)
        pid = signal.pid
        if signal.signature == "deepspeed.return_code":  # its launcher names the process in the line before
            pid = pid if pid is not None or len(killed) != 1 else next(iter(killed))
            rank = int(signal.groups["local_rank"]) if rank is None and "local_rank" in signal.groups else rank
        key = (None if pid else signal.host, pid, None if pid else rank)
        death = found.get(key)
        if death is None:
            found[key] = Death(
                number, code, pid, rank, signal.host, signal.order, pool.timeline.clock(signal), [signal.where]
            )
        else:
            death.number = death.number or number
            death.rank = rank if rank is not None else death.rank
            if len(death.places) < 6:
                death.places.append(signal.where)
    return sorted(
        found.values(), key=lambda d: (d.moment.seconds if d.moment and d.moment.clock == "wall" else 0.0, d.order)
    )


_OF_A_RANK = ("storage.", "net.", "host.disk_full", "host.limits")
_MEMORY_KILLS = ("host.oom_killer", "host.cgroup_oom", "host.memory_pressure", "process.killed")
_BY_SIGNAL = {
    9: ("process.killed", 0.36),
    11: ("process.segfault", 0.66),
    7: ("host.shm_exhausted", 0.5),
    4: ("compat.host_libs", 0.4),
}


def add_deaths(pool: Pool, deaths: list[Death]) -> None:
    """Candidates from how processes ended: weak, since a signal says what happened and not why."""
    for number, (cause, worth) in _BY_SIGNAL.items():
        mine = [d for d in deaths if d.number == number]
        if not mine:
            continue
        first = mine[0]
        support = Support(
            id=f"death.signal_{number}", worth=worth, places=first.places[:3], moment=first.moment, order=first.order,
            pid=first.pid, rank=first.rank, role="root",
        )  # fmt: skip
        pool.add(cause, support, host=None, source=first.places[0].source, subject={})


def add_exit_codes(pool: Pool, deaths: list[Death]) -> None:
    """The first process that ended with an exit code of its own: a hint that the program itself gave up."""
    first = next((d for d in deaths if d.number is None and d.exit is not None and 0 < d.exit < _SHELL_BASE), None)
    if first is not None:
        support = Support(
            id="death.exit_code", worth=0.3, places=first.places[:3], moment=first.moment, order=first.order, pid=first.pid, rank=first.rank,
        )  # fmt: skip
        pool.add("app.exception", support, host=None, source=first.places[0].source, subject={})


def attach(candidates: list[Candidate], deaths: list[Death]) -> None:
    """Gives the candidates of memory kills the rank of the victim, and the launcher's line as further evidence."""
    by_pid = {d.pid: d for d in deaths if d.pid is not None}
    killed = [d for d in deaths if d.number == 9 and (d.pid is not None or d.rank is not None)]
    ranks = {d.rank for d in deaths}
    only = next(iter(ranks)) if len(ranks) == 1 else None
    ranks = {d.rank for d in deaths if d.rank is not None}
    for candidate in candidates:
        if (
            candidate.rank is None
            and candidate.pid is None
            and len(ranks) == 1
            and candidate.cause.startswith("app.")
            and candidate.role == "root"
        ):
            candidate.rank = next(iter(ranks))
        if candidate.pid is None and len(killed) == 1 and candidate.cause in _MEMORY_KILLS:
            candidate.pid, candidate.rank = killed[0].pid, killed[0].rank
        elif (
            only is not None
            and candidate.pid is None
            and candidate.rank is None
            and candidate.cause.startswith(_OF_A_RANK)
        ):
            candidate.rank = only
        death = by_pid.get(candidate.pid) if candidate.pid is not None else None
        if death is None:
            continue
        if candidate.rank is None:
            candidate.rank = death.rank
        if candidate.cause.startswith("host.") and candidate.supports:
            candidate.supports.append(
                Support(
                    id="death.same_pid",
                    worth=LEVEL_CONFIDENCE["hint"],
                    places=death.places[:2],
                    moment=death.moment,
                    order=death.order,
                    pid=death.pid,
                )
            )
            candidate.strength = min(0.985, 1 - (1 - candidate.strength) * 0.6)


_FAULTS = (8, 11)


def without_other_signals(candidates: list[Candidate], reading: Reading, deaths: list[Death]) -> list[Candidate]:
    """A dumped core is no segmentation fault where another record has the signal that the process died of."""
    signals: dict[object, object] = {d.pid: d.number for d in deaths if d.pid is not None and d.number}
    signals |= {
        f.fields.get("pid"): f.fields["signal"] for f in reading.facts if f.kind == "death" and "signal" in f.fields
    }
    for candidate in candidates:
        if candidate.cause != "process.segfault":
            continue
        mere = [s for s in candidate.supports if s.id == "coredump.process" and signals.get(s.pid, 11) not in _FAULTS]
        if mere:
            candidate.supports = [s for s in candidate.supports if s not in mere]
            if candidate.supports:
                candidate.settle()
    return [c for c in candidates if c.supports]
