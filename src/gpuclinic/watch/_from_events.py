"""What events say as findings: an Xid, a line of the kernel's log. The same path as `check` takes with logs, so that both say the same."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpuclinic.clinic.logged import Now, logged
from gpuclinic.diagnose import diagnose
from gpuclinic.diagnose.evidence import Reading
from gpuclinic.knowledge import load, load_checks
from gpuclinic.model import Event, Finding, Signal, Stamp, Where

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.store.history import Past

_CODED = {"xid": "nvrm.xid", "sxid": "nvrm.sxid"}
_TOGETHER_S = 600.0
"""What happened within so long is diagnosed together: a fault's consequences follow it within minutes."""
_MOST = 200
_OF_ONE = 30
"""A storm of one signature keeps so many lines."""
_QUIET_S = 3600.0
"""A fault that only events tell of, and that no reboot ends, is over after an hour without one."""
REPEATS_DAYS = 14.0


class Told(NamedTuple):
    """A finding that new events led to. quiet_s: it is over after so long without another. ends: what ends it (as a LogFinding says)."""

    finding: Finding
    finding_zh: Finding
    at: float
    quiet_s: float
    ends: str
    serial: str | None


class Events:
    """The events of the last minutes. repeated: what the history says of a code (serial, slot, code, days)."""

    def __init__(self, repeated: Callable[[str | None, str | None, int, float], Past | None] | None = None) -> None:
        self._recent: collections.deque[tuple[Event, Signal]] = collections.deque(maxlen=_MOST)
        self._order = 0
        self._repeated = repeated
        self._rows = {row.id: row for row in reversed(load_checks().log_findings)}

    def forget(self) -> None:
        """Another boot, or the driver was loaded anew: what was before counts no more."""
        self._recent.clear()

    def take(self, events: list[Event], now: float) -> list[Told]:
        """The findings that these new events are part of."""
        fresh = [(event, signal) for event in events if (signal := self._signal(event)) is not None]
        if not fresh:
            return []
        while self._recent and self._recent[0][0].at < now - _TOGETHER_S:
            self._recent.popleft()
        for event, signal in fresh:
            if sum(s.signature == signal.signature and s.gpu == signal.gpu for _, s in self._recent) < _OF_ONE:
                self._recent.append((event, signal))
        signals = [signal for _, signal in self._recent]
        result = diagnose(Reading(signals, [], dict(collections.Counter(s.signature for s in signals)), {}), load())
        english, chinese = (logged(result, signals, lang, Now(now)) for lang in ("en", "zh"))
        new = {signal.where for _, signal in fresh}
        told = []
        for one, other in zip(english, chinese, strict=True):
            its = [e for e, s in self._recent if s.where in one.evidence] or [
                e for e, s in fresh if one.gpu is None or s.gpu == one.gpu
            ]
            if new.isdisjoint(one.evidence) and not any(s.gpu == one.gpu for _, s in fresh):
                continue  # told before; nothing new of it
            row = self._rows.get(one.id)
            quiet = row.fresh_s if row is not None and row.ends else _QUIET_S
            serial = next((e.serial for e in its if e.serial), None)
            sentences = self._sentences(its)
            told.append(
                Told(_with(one, sentences[0]), _with(other, sentences[1]), now, quiet, row.ends if row else "", serial)
            )
        return told

    def _signal(self, event: Event) -> Signal | None:
        groups = {k: str(v) for k, v in event.fields.items() if v is not None and k != "signature"}
        if event.kind in _CODED:
            signature = _CODED[event.kind]
            if not str(event.fields.get("code", "")).isdecimal():
                return None
            text = event.text or f"NVRM: {event.kind.capitalize()} (PCI:{event.subject}): {event.fields['code']}"
        elif event.kind == "kernel" and event.fields.get("signature"):
            signature, text = str(event.fields["signature"]), event.text
        else:
            return None
        self._order += 1
        where = event.evidence[0] if event.evidence else Where("events", self._order, text)
        pid, index = event.fields.get("pid"), event.fields.get("gpu_index")
        return Signal(
            signature, where, self._order, groups, time=Stamp(event.at, zoned=True), pid=pid if isinstance(pid, int) else None,
            gpu=event.subject if ":" in event.subject else None, gpu_index=index if isinstance(index, int) else None,
        )  # fmt: skip

    def _sentences(self, events: list[Event]) -> tuple[str, str]:
        """That the same Xid came before, and whether it moved with the card."""
        xids = [e for e in events if e.kind == "xid" and isinstance(e.fields.get("code"), int)]
        if self._repeated is None or not xids:
            return "", ""
        event = xids[-1]
        code = int(str(event.fields["code"]))
        past = self._repeated(event.serial, event.slot or event.subject, code, REPEATS_DAYS)
        if past is None or max(len(past.by_serial), len(past.by_slot)) < 2:
            return "", ""
        return _repeats(code, past, event.slot or event.subject)


def _repeats(code: int, past: Past, slot: str) -> tuple[str, str]:
    card, here = len(past.by_serial), len(past.by_slot)
    moved = len(set(past.slots)) > 1
    if card >= 2 and moved:
        return (
            f"{_ordinal(card)} Xid {code} of this card in {REPEATS_DAYS:g} days, and it moved with the card to another slot: the card is at fault.",
            f"{REPEATS_DAYS:g} 天内该卡第 {card} 次出现 Xid {code}，且换槽后仍跟随该卡：问题在卡上。",
        )
    if here > card:
        return (
            f"{_ordinal(here)} Xid {code} in slot {slot} in {REPEATS_DAYS:g} days, of more than one card: it stays with the slot.",
            f"{REPEATS_DAYS:g} 天内槽位 {slot} 第 {here} 次出现 Xid {code}，且换过卡：问题留在槽位上。",
        )
    return (
        f"{_ordinal(card)} Xid {code} of this card in {REPEATS_DAYS:g} days.",
        f"{REPEATS_DAYS:g} 天内该卡第 {card} 次出现 Xid {code}。",
    )


def _ordinal(number: int) -> str:
    words = ("", "First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth")
    return words[number] if number < len(words) else f"{number}th"


def _with(finding: Finding, sentence: str) -> Finding:
    if not sentence:
        return finding
    return msgspec.structs.replace(finding, detail=f"{sentence} {finding.detail}".strip())
