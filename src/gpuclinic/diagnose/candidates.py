"""Signals and rules become candidates: one for each cause and subject, with a strength."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.diagnose.evidence import Clock, EvidenceView, Reading, fields_of
from gpuclinic.diagnose.expression import holds
from gpuclinic.knowledge.xids import judge
from gpuclinic.model import LEVEL_CONFIDENCE, Fact, Signal, Where

if TYPE_CHECKING:
    from gpuclinic.diagnose.timeline import Timeline
    from gpuclinic.knowledge import Knowledge, Rule, Signature

_MOST_EVIDENCE = 40
_DATED = frozenset({"sel_event", "death", "kill"})
"""Facts that tell of one event; the others tell of a state that was so when somebody looked."""
_BY_CODE = {"nvrm.xid": "xid", "nvrm.sxid": "sxid", "nvrm.xid_reported": "xid", "nvrm.xid_condition": "xid"}
"""Signatures without a cause of their own: the code decides."""


class Support(msgspec.Struct):
    """One reason for a candidate: a signature or a rule, what it is worth, and the lines that show it."""

    id: str
    worth: float
    places: list[Where]
    moment: Clock | None = None
    last_moment: Clock | None = None
    order: int = 0
    last_order: int = 0
    fatal: bool = True
    role: str = "root"
    count: int = 1
    texts: dict[str, str] = {}
    groups: dict[str, str] = {}
    action: str = ""
    rank: int | None = None
    pid: int | None = None


class Candidate(msgspec.Struct):
    """A possible cause with its subject and all that supports it. strength: probability before rivals are weighed."""

    cause: str
    host: str | None
    source: str
    supports: list[Support]
    gpu: str | None = None
    gpu_index: int | None = None
    gpu_uuid: str | None = None
    gpus: list[str] = []
    pid: int | None = None
    rank: int | None = None
    moment: Clock | None = None
    order: int = 0
    strength: float = 0.0
    role: str = "root"
    action: str = ""
    notes: list[str] = []
    explained_by: Candidate | None = None
    sources: set[str] = set()

    def add(self, support: Support) -> None:
        """Joins a further reason."""
        self.supports.append(support)
        if support.places:
            self.sources.add(support.places[0].source)

    def settle(self) -> None:
        """Computes strength, role, first moment, pid and rank from the supports."""
        ranked = sorted(self.supports, key=lambda s: (-s.worth, s.order))
        best = ranked[0]
        doubt = 1.0 - best.worth
        for other in ranked[1:6]:
            if other.id != best.id:
                doubt *= 1.0 - 0.4 * other.worth
        self.strength = min(0.985, 1.0 - doubt)
        self.role = (
            best.role if all(s.role == "consequence" for s in self.supports if s.worth >= best.worth - 0.15) else "root"
        )
        timed = [s for s in self.supports if s.moment is not None and s.worth >= 0.3]
        first = min(self.supports, key=lambda s: s.order)
        self.order = first.order
        self.moment = min(
            (s.moment for s in timed if s.moment), key=lambda m: (m.clock != "wall", m.seconds), default=None
        )
        self.action = self.action or next((s.action for s in ranked if s.action), "")
        near = [s for s in ranked if s.worth >= best.worth - 0.12] + ranked
        self.pid = self.pid if self.pid is not None else next((s.pid for s in near if s.pid is not None), None)
        self.rank = self.rank if self.rank is not None else next((s.rank for s in near if s.rank is not None), None)


class Pool:
    """Collects candidates by cause and subject."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._by_key: dict[tuple[Any, ...], Candidate] = {}
        self.dropped: dict[str, list[Where]] = {}

    def all(self) -> list[Candidate]:
        """Every candidate, settled, strongest first."""
        found = list(self._by_key.values())
        for candidate in found:
            candidate.settle()
        found.sort(key=lambda c: (-c.strength, c.order))
        return found

    def add(self, cause: str, support: Support, *, host: str | None, source: str, subject: dict[str, Any]) -> Candidate:
        """Adds a reason to the candidate of this cause and subject, or starts one."""
        hardware = cause.startswith(("hw.", "driver.", "kernel."))
        gpu = subject.get("gpu") if hardware else None
        key = (cause, host, gpu)
        candidate = self._by_key.get(key)
        if candidate is None and hardware and gpu is None:
            candidate = next((c for k, c in self._by_key.items() if k[0] == cause and k[1] in (host, None)), None)
        if candidate is None:
            candidate = self._by_key.setdefault(
                key, Candidate(cause=cause, host=host, source=source, supports=[], gpus=[], notes=[], sources=set())
            )
        for name in ("gpu", "gpu_index", "gpu_uuid"):
            if getattr(candidate, name) is None and subject.get(name) is not None:
                setattr(candidate, name, subject[name])
        if subject.get("gpu") and subject["gpu"] not in candidate.gpus:
            candidate.gpus.append(subject["gpu"])
        candidate.add(support)
        return candidate


def add_signals(pool: Pool, reading: Reading, signatures: dict[str, Signature]) -> None:
    """Every signal whose signature names a cause, and every Xid and SXid by the catalogue."""
    cleared = _cleared(reading, signatures, pool.timeline)
    grouped: dict[tuple[Any, ...], Support] = {}
    for signal in reading.signals:
        if id(signal) in cleared:
            continue
        view = _view_of(signal, signatures)
        if view is None:
            continue
        cause, identity, worth, role, fatal, action, texts = view
        key = (cause, identity, signal.host, signal.gpu, signal.pid, signal.rank, signal.where.source)
        support = grouped.get(key)
        if support is not None:
            support.count += 1
            support.last_order = signal.order
            support.last_moment = pool.timeline.clock(signal)
            if len(support.places) < _MOST_EVIDENCE:
                support.places.append(signal.where)
            continue
        support = grouped[key] = Support(
            id=identity, worth=worth, places=[signal.where], moment=pool.timeline.clock(signal), order=signal.order,
            last_order=signal.order, fatal=fatal, role=role, texts=texts, groups=signal.groups, action=action, rank=signal.rank, pid=signal.pid,
        )  # fmt: skip
        subject = {"gpu": signal.gpu, "gpu_index": signal.gpu_index, "gpu_uuid": signal.gpu_uuid}
        pool.add(cause, support, host=signal.host, source=signal.where.source, subject=subject)


def _view_of(
    signal: Signal, signatures: dict[str, Signature]
) -> tuple[str, str, float, str, bool, str, dict[str, str]] | None:
    """(cause, id, worth, role, fatal, action, texts) of a signal, or None for context."""
    if signal.signature in _BY_CODE:
        kind = _BY_CODE[signal.signature]
        code = signal.groups.get("code", "")
        info = (
            judge(kind, int(code), signal.where.text, signal.groups.get("fatal_word", ""))
            if code.isdecimal() and len(code) < 9
            else None
        )
        if info is None or not info.cause:
            return None
        fatal = info.severity != "info"
        told = signal.signature not in ("nvrm.xid", "nvrm.sxid")
        name = f"reported.{kind}.{code}" if told else f"{kind}.{code}"
        return info.cause, name, LEVEL_CONFIDENCE[info.level] * (0.95 if told else 1.0), info.role, fatal, "", {}
    signature = signatures.get(signal.signature)
    if signature is None or not signature.cause:
        return None
    texts = {
        k: getattr(signature, k)
        for k in ("title_en", "title_zh", "advice_en", "advice_zh", "command")
        if getattr(signature, k)
    }
    worth = LEVEL_CONFIDENCE[signature.level]
    return signature.cause, signature.id, worth, signature.role, signature.fatal, signature.action, texts


def _cleared(reading: Reading, signatures: dict[str, Signature], timeline: Timeline) -> set[int]:
    """Signals that a later one takes back."""
    by_id = reading.by_id()
    out: set[int] = set()
    for signature in signatures.values():
        if not signature.cleared_by or signature.id not in by_id:
            continue
        clearing = [s for c in signature.cleared_by for s in by_id.get(c, ())]
        for signal in by_id[signature.id]:
            for other in clearing:
                same = all(
                    signal.groups.get(k) == other.groups.get(k)
                    for k in signal.groups.keys() & other.groups.keys() - {"pid"}
                )
                if same and _later(other, signal, timeline):
                    out.add(id(signal))
    return out


def _later(other: Signal, signal: Signal, timeline: Timeline) -> bool:
    first, second = timeline.clock(signal), timeline.clock(other)
    if first is not None and second is not None and first.clock == second.clock:
        return second.seconds >= first.seconds
    return other.where.source == signal.where.source and other.order > signal.order


def add_rules(pool: Pool, reading: Reading, knowledge: Knowledge) -> None:
    """Every rule that holds; its drops are remembered in the pool."""
    view = EvidenceView(reading)
    by_kind: dict[str, list[Fact]] = {}
    for fact in reading.facts:
        by_kind.setdefault(fact.kind, []).append(fact)
    by_id = reading.by_id()
    for rule in knowledge.rules:
        subjects: list[Fact | None] = list(by_kind.get(rule.each, ())) if rule.each else [None]
        for subject in subjects:
            if holds(rule.when, fields_of(subject) if subject else {}, view):
                places = _rule_places(rule, subject, by_kind, by_id)
                for cause in rule.drops:
                    pool.dropped.setdefault(cause, []).extend(places)
                if rule.cause:
                    _add_rule(pool, rule, subject, places)


def _rule_places(
    rule: Rule, fact: Fact | None, by_kind: dict[str, list[Fact]], by_id: dict[str, list[Signal]]
) -> list[Where]:
    places: list[Where] = []
    for name in rule.evidence:
        if name.startswith("fact:"):
            kind, _, same = name[5:].partition(":")  # "fact:process:pid": those of the same pid as the fact at hand
            agreeing = [
                f
                for f in by_kind.get(kind, ())
                if not same or (fact is not None and f.fields.get(same) == fact.fields.get(same))
            ]
            places.extend(f.where() for f in agreeing[:3])
        elif name.startswith("signal:"):
            places.extend(s.where for s in by_id.get(name[7:], ())[:2])
        elif fact is not None and fact.lines.get(name) is not None:
            places.append(fact.lines[name])
    if fact is not None and not places:
        places.append(fact.where())
    return list(dict.fromkeys(p for p in places if p.text or p.line))


def _add_rule(pool: Pool, rule: Rule, fact: Fact | None, places: list[Where]) -> None:
    texts = {
        k: getattr(rule, k) for k in ("title_en", "title_zh", "advice_en", "advice_zh", "command") if getattr(rule, k)
    }
    fields = fact.fields if fact else {}
    groups = {k: str(v) for k, v in fields.items() if v is not None}
    if fact is not None:
        groups.setdefault("key", fact.key)
    pid, rank = fields.get("pid"), fields.get("rank")
    dated = fact is not None and fact.kind in _DATED and fact.time is not None and not fact.time.yearless
    moment = Clock("wall", fact.time.seconds) if dated and fact is not None and fact.time is not None else None
    support = Support(
        id=rule.id, worth=LEVEL_CONFIDENCE[rule.level], places=places, moment=moment, order=10**9, fatal=rule.fatal, role=rule.role, texts=texts,
        groups=groups, action=rule.action, pid=pid if isinstance(pid, int) else None, rank=rank if isinstance(rank, int) else None,
    )  # fmt: skip
    index = fields.get(
        "gpu_index", fields.get("index") if fact is not None and fact.kind in ("gpu", "gpu_series") else None
    )
    subject = {
        "gpu": fields.get("bus_id") or fields.get("gpu"),
        "gpu_index": index if isinstance(index, int) else None,
        "gpu_uuid": fields.get("uuid"),
    }
    pool.add(rule.cause, support, host=fact.host if fact else None, source=fact.source if fact else "", subject=subject)
