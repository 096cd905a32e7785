"""Found lines become Signals: time, identity, and a cap on storms of the same line."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import msgspec

from gpuclinic.knowledge import Signature
from gpuclinic.model import Signal, Stamp, Where
from gpuclinic.recognise.identity import file_rank, pci_address, prefix_identity
from gpuclinic.recognise.scan import Found
from gpuclinic.recognise.timestamps import find_stamp

_FIRST_KEPT = 48
_LAST_KEPT = 8
_IDENTITIES_KEPT = 400
_KERNEL = re.compile(
    r"^(?:<\d+>)?\[ *\d+\.\d{6}\]|^\d{1,3},\d+,\d+,|\bkernel: |\bkernel\[\d+\]: |^\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]{8} \d{4}\] |^kern +:|\bkern: +\w+: \[|<\d+>\[ *\d+\.\d{6}\]|\[ *\d{1,8}\.\d{6}\] "
)


def is_kernel_line(line: str) -> bool:
    """The line is a kernel message, however it was transported."""
    return _KERNEL.search(line[:200]) is not None


class SignalMaker:
    """Turns the found lines of one source into signals; `take` each, then `finish`."""

    def __init__(self, source: str, signatures: list[Signature], first_order: int, host: str | None, kernel: bool) -> None:
        self._source = source
        self._signatures = signatures
        self._order = first_order
        self._host = host
        self._kernel = kernel
        self._rank = file_rank(source)
        self._kept: list[Signal] = []
        self._tails: dict[int, deque[Signal]] = {}
        self.positions: dict[int, tuple[int, int]] = {}
        self._counts: dict[int, int] = {}
        self._seen: set[tuple[Any, ...]] = set()

    def take(self, found: Found) -> None:
        """Adds the signals of one line."""
        stamp: Stamp | None = None
        identity = None
        for number, match in found.matches:
            signature = self._signatures[number]
            if "kernel" in signature.where and not (self._kernel or is_kernel_line(found.text)):
                continue
            if identity is None:
                stamp = find_stamp(found.text) or _stamp_before(found.before)
                identity = prefix_identity(found.text)
            groups = _folded(match)
            count = self._counts[number] = self._counts.get(number, 0) + 1
            signal = self._make(signature, found, match, groups, stamp, identity)
            key = (number, signal.gpu, signal.pid, signal.rank, signal.host, groups.get("code"), groups.get("device"))
            if count <= _FIRST_KEPT or (key not in self._seen and len(self._seen) < _IDENTITIES_KEPT):
                self._kept.append(signal)
            else:
                self._tails.setdefault(number, deque(maxlen=_LAST_KEPT)).append(signal)
            if found.feeds_before is None:
                self.positions[signal.order] = (found.base, found.feeds)
            self._seen.add(key)

    def _make(
        self, signature: Signature, found: Found, match: re.Match[str], groups: dict[str, str], stamp: Stamp | None, identity: Any
    ) -> Signal:
        self._order += 1
        start = max(0, match.start() - 200)
        text = found.text.strip() if len(found.text) <= 500 else found.text[start : start + 500].strip()
        return Signal(
            signature=signature.id,
            where=Where(self._source, None if found.feeds_before is None else found.feeds_before + found.feeds + 1, text),
            order=self._order,
            groups=groups,
            time=stamp,
            host=groups.get("host") or identity.host or self._host,
            rank=_number(groups.get("rank"), identity.rank if identity.rank is not None else self._rank),
            pid=_number(groups.get("pid"), identity.pid),
            gpu=pci_address(groups["gpu"]) if "gpu" in groups else None,
            gpu_index=_number(groups.get("gpu_index"), identity.gpu_index),
            gpu_uuid=groups.get("uuid"),
        )

    def finish(self) -> list[Signal]:
        """All signals kept, in order. positions: where lines were not counted, each order's chunk offset and line feeds in the chunk."""
        kept = list(self._kept)
        for tail in self._tails.values():
            kept.extend(tail)
        kept.sort(key=lambda s: s.order)
        return kept

    def counts(self) -> dict[str, int]:
        """How often each signature matched, storms included."""
        return {self._signatures[number].id: count for number, count in self._counts.items()}

    @property
    def order(self) -> int:
        """The order number of the last signal made."""
        return self._order


def _folded(match: re.Match[str]) -> dict[str, str]:
    """The named groups that took part. An expression cannot use a name twice, so pid2 means pid."""
    groups: dict[str, str] = {}
    for name, value in match.groupdict().items():
        if value is not None:
            groups[name] = value
            groups.setdefault(name.rstrip("0123456789"), value)
    return groups


def _stamp_before(before: str) -> Stamp | None:
    """The time of the nearest earlier line that has one."""
    if not before:
        return None
    for line in reversed(before.split("\n")[-30:]):
        stamp = find_stamp(line)
        if stamp is not None:
            return msgspec.structs.replace(stamp, earliest=True)
    return None


def _number(text: str | None, otherwise: int | None) -> int | None:
    if text is None or not text.isdigit():
        return otherwise
    return int(text)
