"""Rows and events become alerts: each fault once, under its cause, until it is over; across restarts and reboots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.clinic.findings import from_judged, tops
from gpuclinic.diagnose.judge import Judged
from gpuclinic.diagnose.lasting import SEVERITY_OF
from gpuclinic.diagnose.sliding import Sliding
from gpuclinic.knowledge import Check, load_checks, read_toml, watched_rows
from gpuclinic.model import SEVERITIES, Fact, UserError, Where
from gpuclinic.watch._from_events import Events, Told
from gpuclinic.watch.alerts import Alert, Book, Change, alert_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from gpuclinic.diagnose.sliding import Turn
    from gpuclinic.model import Event, Tick
    from gpuclinic.store.history import Past
    from gpuclinic.watch.config import Rules as RulesConfig

_SAVE_EVERY_S = 30.0
_AFTER_BOOT_S = 600.0
"""What was told before a reboot and is not there so long after it was taken out."""
_DRIVER_LOADED = "nvrm.loaded"


class Rules:
    """Judges ticks. folder: where alerts.json lies; None keeps nothing.

    usual: facts `usual` of this server's past, asked now and then. repeated: what the history says of an Xid (serial, slot, code, days).
    host: this machine's name, for the texts. interval_s: between samples.
    """

    def __init__(
        self,
        config: RulesConfig,
        folder: Path | None = None,
        *,
        usual: Callable[[], list[Fact]] | None = None,
        repeated: Callable[[str | None, str | None, int, float], Past | None] | None = None,
        host: str | None = None,
        interval_s: float = 1.0,
        boot_id: str | None = None,
    ) -> None:
        self._config = config
        self._sliding = Sliding(watched_rows([*load_checks().checks, *own_rows(config.file)], config.for_s, config.off))
        self._events = Events(repeated)
        self._usual = usual
        self._usual_facts: list[Fact] = []
        self._usual_at = float("-inf")
        self._host = host
        self._interval_s = interval_s
        self._ends: dict[str, Told] = {}
        self._booted_mono: float | None = None
        self._saved_mono = float("-inf")
        self._dirty = False
        self.book = Book(folder)
        self._rebooted = boot_id is not None and self.book.boot_id is not None and boot_id != self.book.boot_id
        self.book.boot_id = boot_id or self.book.boot_id
        self._restore()

    def _restore(self) -> None:
        rows = [
            (a.rule, a.key, SEVERITIES.index(a.severity) + 1) for a in self.book.active.values() if a.source == "row"
        ]
        self._sliding.restore(rows)

    def active(self) -> list[Alert]:
        """The alerts that hold, worst first; those that another explains, too."""
        return sorted(self.book.active.values(), key=lambda a: (-SEVERITIES.index(a.severity), a.fired_at, a.id))

    def take(self, tick: Tick) -> list[Change]:
        """One more tick; what changed by it."""
        changes: list[Change] = []
        if self._rebooted or any(e.kind == "boot" for e in tick.events):
            self._rebooted = False
            changes += self._boot(tick)
        tick = self._completed(tick)
        for turn in self._sliding.take(tick):
            change = self._turned(turn, tick)
            if change is not None:
                changes.append(change)
        changes += self._told(tick)
        changes += self._quiet(tick)
        if changes:
            self._group()
            self._dirty = True
        if changes or (self._dirty and tick.mono - self._saved_mono > _SAVE_EVERY_S):
            self.book.save(tick.at)
            self._saved_mono, self._dirty = tick.mono, False
        return changes

    def close(self, now: float) -> None:
        """Writes what was not yet."""
        self.book.save(now)

    def _completed(self, tick: Tick) -> Tick:
        """The tick with how long it took, and with what the past says, as facts."""
        if self._usual is not None and tick.mono - self._usual_at > max(600.0, self._config.every_s):
            self._usual_at, self._usual_facts = tick.mono, self._usual()
        took = Fact(
            "sampling", "agent", {"took_s": round(tick.took_s, 1), "interval_s": self._interval_s},
            {"": Where("gpuclinic agent", None, f"a sample took {tick.took_s:.1f} s")}, "gpuclinic agent",
        )  # fmt: skip
        return msgspec.structs.replace(tick, facts=[*tick.facts, *self._usual_facts, took])

    def _boot(self, tick: Tick) -> list[Change]:
        """A reboot, planned or not, ends what only events told of. What rows told is judged anew: a full disk is full after it, too."""
        self._sliding.forget()
        self._restore()
        self._events.forget()
        self._booted_mono = tick.mono
        return [self._end(a, tick.at, "reboot") for a in list(self.book.active.values()) if a.source == "event"]

    def _turned(self, turn: Turn, tick: Tick) -> Change | None:
        if turn.now == 0:
            one = self.book.active.get(alert_id(turn.row.id, turn.key))
            return self._end(one, tick.at, "gone" if turn.gone else "ended") if one is not None else None
        judged = Judged(turn.row, "holds", SEVERITY_OF[turn.now], turn.fact)
        english, chinese = (from_judged(judged, lang, self._host) for lang in ("en", "zh"))
        began = tick.at - max(0.0, tick.mono - turn.since)
        held = self.book.active.get(alert_id(turn.row.id, turn.key))
        if held is None:
            serial = turn.fact.fields.get("serial") if turn.fact is not None else None
            alert = Alert(
                alert_id(turn.row.id, turn.key), turn.row.id, turn.key, english.subject, english.severity, began, tick.at, english, chinese,
                last_at=tick.at, serial=str(serial) if serial else None,
            )  # fmt: skip
            self.book.active[alert.id] = alert
            return Change("fired", alert, tick.at)
        held.severity, held.finding, held.finding_zh, held.last_at = english.severity, english, chinese, tick.at
        return Change("worsened" if turn.now > turn.was else "eased", held, tick.at)

    def _told(self, tick: Tick) -> list[Change]:
        out: list[Change] = []
        if any(e.kind == "kernel" and e.fields.get("signature") == _DRIVER_LOADED for e in tick.events):
            self._events.forget()
            out += self._end_events(tick.at, ("driver", "answers"), "driver")
        for gpu in {e.subject for e in tick.events if e.kind == "gpu_back"}:
            out += self._end_events(tick.at, ("answers",), "ended", gpu)
        for told in self._events.take(_of_interest(tick.events), tick.at):
            finding = told.finding
            if any(finding.id == name or finding.id.startswith(name.rstrip(".") + ".") for name in self._config.off):
                continue
            out += self._told_once(told, tick.at)
        return out

    def _told_once(self, told: Told, now: float) -> list[Change]:
        finding = told.finding
        identity = alert_id(finding.id, finding.gpu or finding.subject)
        self._ends[identity] = told
        held = self.book.active.get(identity)
        if held is None:
            alert = Alert(
                identity, finding.id, "", finding.subject, finding.severity, now, now, finding, told.finding_zh, "event",
                last_at=now, serial=told.serial,
            )  # fmt: skip
            self.book.active[identity] = alert
            return [Change("fired", alert, now)]
        held.times, held.last_at, self._dirty = held.times + 1, now, True
        if SEVERITIES.index(finding.severity) <= SEVERITIES.index(held.severity):
            return []
        held.severity, held.finding, held.finding_zh = finding.severity, finding, told.finding_zh
        return [Change("worsened", held, now)]

    def _end_events(self, now: float, ends: tuple[str, ...], why: str, gpu: str | None = None) -> list[Change]:
        out = []
        for alert in list(self.book.active.values()):
            if alert.source == "event" and _ends_by(alert.rule) in ends and gpu in (None, alert.finding.gpu):
                out.append(self._end(alert, now, why))
        return out

    def _quiet(self, tick: Tick) -> list[Change]:
        """Events that came no more, and hardware that is not there any more after a reboot."""
        out = []
        for alert in list(self.book.active.values()):
            if alert.source == "event":
                told = self._ends.get(alert.id)
                quiet = told.quiet_s if told is not None else _quiet_of(alert.rule)
                if tick.at - alert.last_at > quiet:
                    out.append(self._end(alert, tick.at, "quiet"))
        if self._booted_mono is not None and tick.mono - self._booted_mono > _AFTER_BOOT_S:
            self._booted_mono = None
            here = {(fact.kind, fact.key) for fact in tick.facts}
            over = {row.id: row.over for row in load_checks().checks}
            for alert in list(self.book.active.values()):
                kind = over.get(alert.rule)
                if alert.source == "row" and kind and (kind, alert.key) not in here:
                    out.append(self._end(alert, tick.at, "reboot"))
        return out

    def _end(self, alert: Alert, now: float, why: str) -> Change:
        alert.resolved_at, alert.why_ended = now, why
        self.book.active.pop(alert.id, None)
        self.book.over.append(alert)
        return Change("resolved", alert, now)

    def _group(self) -> None:
        """What one cause explains goes under it."""
        alerts = list(self.book.active.values())
        findings = [a.finding for a in alerts]
        owner = {id(f): a for f, a in zip(findings, alerts, strict=True)}
        for alert in alerts:
            alert.explains = []
        for alert, top in zip(alerts, tops(findings), strict=True):
            above = owner[id(top)]
            alert.explained_by = above.id if above is not alert else None
            if above is not alert and alert.rule not in above.explains:
                above.explains.append(alert.rule)


def own_rows(path: str) -> list[Check]:
    """Further rows of a file in the format of the shipped ones. Raises UserError with what is wrong in it."""
    if not path:
        return []
    from pathlib import Path

    from gpuclinic.diagnose.expression import ExpressionError, compiled

    try:
        raw: Any = read_toml(Path(path)).get("check", [])
        rows = msgspec.convert(raw, list[Check])
        for row in rows:
            for condition in (row.where, row.critical, row.warning, row.info):
                if condition:
                    compiled(condition)
    except OSError as problem:
        raise UserError(f"{path}: {problem.strerror or problem}") from problem
    except (ValueError, ExpressionError) as problem:
        raise UserError(f"{path}: {problem}") from problem
    return rows


def _of_interest(events: Iterable[Event]) -> list[Event]:
    return [e for e in events if e.kind in ("xid", "sxid", "kernel")]


def _ends_by(rule: str) -> str:
    return next((row.ends for row in load_checks().log_findings if row.id == rule), "")


def _quiet_of(rule: str) -> float:
    return next((row.fresh_s for row in load_checks().log_findings if row.id == rule and row.ends), 3600.0)
