"""Found lines become Signals: time, identity, and a cap on storms of the same line."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpuclinic.model import Signal, Stamp, Where
from gpuclinic.recognise.identity import file_identity, pci_address, prefix_identity
from gpuclinic.recognise.timestamps import find_stamp

if TYPE_CHECKING:
    from gpuclinic.knowledge import Signature
    from gpuclinic.recognise.scan import Found

_FIRST_KEPT = 48
_LAST_KEPT = 8
_IDENTITIES_KEPT = 400
_SUBJECTS_KEPT = 100
_ALWAYS_KEPT = 4000
_KEYS = frozenset(
    ("gpu", "gpu_index", "uuid", "rank", "local_rank", "pid", "host", "code", "device", "peer", "job", "name")
)
_SUBJECTS = _KEYS - {"pid", "job", "name"}
_DIGITS = "0123456789"
_KERNEL = re.compile(
    r"^(?:<\d+>)?\[ *\d+\.\d{6}\]|^\d{1,3},\d+,\d+,|\bkernel: |\bkernel\[\d+\]: "
    r"|^\[\S{1,4} (?:\S{3,5} +\d+|\d+月 +\d+) [\d:]{8} \d{4}\] |^kern +:|\bkern: +\w+: \[|<\d+>\[ *\d+\.\d{6}\]"
    r"|\[ *\d{1,8}\.\d{6}\] |^\[ *\+\d+\.\d{6}\] |^\[[^\W\d]{3,5} ?\d{1,2} \d\d:\d\d\] "
)


def is_kernel_line(line: str) -> bool:
    """The line is a kernel message, however it was transported."""
    return _KERNEL.search(line[:200]) is not None


class _Kept(NamedTuple):
    line: int
    turn: int
    number: int
    found: Found
    match: re.Match[str]


class SignalMaker:
    """Turns the found lines of one source, or of one region of it, into signals: `take` each, `join` regions, `finish`.

    node_hosts, job_hosts: the machines that the machine's own log, and those that jobs, named in their lines.
    """

    def __init__(self, source: str, signatures: list[Signature], host: str | None, *, kernel: bool) -> None:
        self._source = source
        self._signatures = signatures
        self._host = host
        self._kernel = kernel
        self._file = file_identity(source)
        self._stamps: dict[int, Stamp] = {}
        self._turn = 0
        self._last: tuple[int, Stamp] | None = None
        self._kept: list[tuple[int, int, Signal, int]] = []
        self._tails: dict[int, deque[_Kept]] = {}
        self._late: dict[int, deque[tuple[int, int, Signal, int]]] = {}
        self._counts: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._seen: set[tuple[Any, ...]] = set()
        self._subjects: dict[int, set[tuple[Any, ...]]] = {}
        self.node_hosts: set[str] = set()
        self.job_hosts: set[str] = set()

    def twin(self) -> SignalMaker:
        """A maker for another region of the same source, that knows what there was plenty of already."""
        twin = SignalMaker(self._source, self._signatures, self._host, kernel=self._kernel)
        twin._before = dict(self._counts)
        twin._seen = set(self._seen)
        twin._subjects = {number: set(known) for number, known in self._subjects.items()}
        return twin

    def know_stamps(self, stamps: dict[int, Stamp]) -> None:
        """Time stamps by line number, where lines do not carry their own (`dmesg -H`)."""
        self._stamps = stamps

    def take(self, found: Found) -> None:
        """Adds the signals of one line."""
        for number, match in found.matches:
            signature = self._signatures[number]
            if "kernel" in signature.where and not (self._kernel or is_kernel_line(found.text)):
                continue
            count = self._counts[number] = self._counts.get(number, 0) + 1
            self._turn += 1
            kept = _Kept(found.line, self._turn, number, found, match)
            plenty = count + self._before.get(number, 0) > _FIRST_KEPT
            if plenty and signature.id.startswith("boot.") and count < _ALWAYS_KEPT:
                plenty = False
            if plenty and not self._is_new(number, match, _quick_prefix(found.text)):
                self._tails.setdefault(number, deque(maxlen=_LAST_KEPT)).append(kept)
                continue
            self._kept.append((kept.line, kept.turn, self._signal(kept), number))

    def _is_new(self, number: int, match: re.Match[str], prefix: str) -> bool:
        """A subject, or a process of it, of which a signature has not spoken yet; many processes hide no new subject."""
        key = (number, *_identities(match, _KEYS), prefix)
        if key in self._seen:
            return False
        subject = (*_identities(match, _SUBJECTS), prefix)
        known = self._subjects.setdefault(number, set())
        new = subject not in known and len(known) < _SUBJECTS_KEPT
        if len(self._seen) < _IDENTITIES_KEPT + _FIRST_KEPT:
            self._seen.add(key)
        elif not new:
            return False
        if new:
            known.add(subject)
        return True

    def join(self, other: SignalMaker, lines: int) -> None:
        """Adds what a later region found, behind so many lines of this one."""
        turns = self._turn
        for line, turn, signal, number in other._kept:
            self._kept.append((line + lines, turns + turn, _moved(signal, lines), number))
        for number, tail in other._tails.items():
            late = self._late.setdefault(number, deque(maxlen=_LAST_KEPT))
            for kept in tail:
                late.append((kept.line + lines, turns + kept.turn, _moved(other._signal(kept), lines), number))
        for number, count in other._counts.items():
            self._counts[number] = self._counts.get(number, 0) + count
        self._seen |= other._seen
        for number, known in other._subjects.items():
            self._subjects.setdefault(number, set()).update(known)
        self._turn += other._turn
        self.node_hosts |= other.node_hosts
        self.job_hosts |= other.job_hosts

    def _settled(self) -> list[tuple[int, int, Signal, int]]:
        entries = list(self._kept)
        for tail in self._tails.values():
            entries.extend((kept.line, kept.turn, self._signal(kept), kept.number) for kept in tail)
        for late in self._late.values():
            entries.extend(late)
        entries.sort(key=lambda entry: entry[:2])
        return entries

    def _signal(self, kept: _Kept) -> Signal:
        found, match = kept.found, kept.match
        groups = _folded(match)
        identity = prefix_identity(found.text, match.start())
        start = max(0, match.start() - 200)
        text = found.text.strip() if len(found.text) <= 500 else found.text[start : start + 500].strip()
        time = self._stamps.get(found.line) or find_stamp(found.text) or _stamp_before(found.before)
        if time is None and self._last is not None and self._last[0] <= found.line:
            time = msgspec.structs.replace(self._last[1], earliest=True)
        elif time is not None:
            self._last = (found.line, time)
        rank = identity.rank if identity.rank is not None else self._file.rank
        if identity.host is not None:
            (self.node_hosts if identity.on_node else self.job_hosts).add(identity.host)
        return Signal(
            signature=self._signatures[kept.number].id,
            where=Where(self._source, found.line, text),
            order=0,
            groups=groups,
            time=time,
            host=groups.get("host") or identity.host or self._host,
            rank=_number(groups.get("rank"), rank),
            pid=_number(groups.get("pid"), identity.pid if identity.pid is not None else self._file.pid),
            gpu=pci_address(groups["gpu"]) if "gpu" in groups else None,
            gpu_index=_number(groups.get("gpu_index"), identity.gpu_index),
            gpu_uuid=groups.get("uuid"),
        )

    def finish(self, first_order: int) -> list[Signal]:
        """All signals kept, in the order of their lines, numbered from first_order on."""
        entries = self._settled()
        return [msgspec.structs.replace(e[2], order=first_order + n) for n, e in enumerate(entries)]

    def counts(self) -> dict[str, int]:
        """How often each signature matched, storms included."""
        return {self._signatures[number].id: count for number, count in self._counts.items()}


def _moved(signal: Signal, lines: int) -> Signal:
    """The signal with its line counted from the source's start."""
    where = msgspec.structs.replace(signal.where, line=(signal.where.line or 0) + lines)
    return msgspec.structs.replace(signal, where=where)


def _identities(match: re.Match[str], keys: frozenset[str]) -> list[str | None]:
    """The groups that tell one subject from another."""
    return [value for name, value in match.groupdict().items() if name.rstrip(_DIGITS) in keys]


_LONGEST_NUMBER = 24


def _folded(match: re.Match[str]) -> dict[str, str]:
    """The named groups that took part, but numbers that no program prints. An expression cannot use a name twice, so pid2 means pid."""
    groups: dict[str, str] = {}
    for name, value in match.groupdict().items():
        if value is not None and not (len(value) > _LONGEST_NUMBER and value.isdecimal()):
            groups[name] = value
            groups.setdefault(name.rstrip(_DIGITS), value)
    return groups


def _quick_prefix(text: str) -> str:
    """A prefix as "[rank3]:" that makes the same message another rank's."""
    if text[:1] in "[(":
        end = text.find("]" if text[0] == "[" else ")", 1, 40)
        inside = text[: end + 1]
        return inside if ":" not in inside and "." not in inside else ""
    return ""


def _stamp_before(before: bytes) -> Stamp | None:
    """The time of the nearest earlier line that has one."""
    if not before:
        return None
    for line in reversed(before.decode("utf-8", "replace").split("\n")[-30:]):
        stamp = find_stamp(line)
        if stamp is not None:
            return msgspec.structs.replace(stamp, earliest=True)
    return None


def _number(text: str | None, otherwise: int | None) -> int | None:
    if text is None or not text.isdecimal() or len(text) > 12:
        return otherwise
    return int(text)
