"""The course of a diagnosis: candidates, refinement, cause graph, ranking."""

from __future__ import annotations

import time as _time
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.diagnose.candidates import Candidate, Pool, add_rules, add_signals
from gpuclinic.diagnose.concern import of_concern
from gpuclinic.diagnose.deaths import add_deaths, add_exit_codes, find_deaths
from gpuclinic.diagnose.decide import link, rank
from gpuclinic.diagnose.intrusion import add_intrusion
from gpuclinic.diagnose.library_bugs import add_library_bugs
from gpuclinic.diagnose.own import without_own_deaths
from gpuclinic.diagnose.peers import add_differences
from gpuclinic.diagnose.people import People
from gpuclinic.diagnose.quoted import without_quotations
from gpuclinic.diagnose.refine import refine
from gpuclinic.diagnose.sharing import add_sharing
from gpuclinic.diagnose.storage import add_stalled_saves
from gpuclinic.diagnose.timeline import Timeline
from gpuclinic.knowledge.causes import cause_info
from gpuclinic.knowledge.xids import xid_info
from gpuclinic.model import Where

if TYPE_CHECKING:
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.diagnose.subject import Subject
    from gpuclinic.knowledge import Knowledge


class Diagnosis(msgspec.Struct):
    """roots: unexplained candidates, likeliest first. looked_fine: nothing read speaks of a failure.

    unknown_codes: lines with Xids or SXids that nobody has listed; they are reported, never dropped.
    aside: faults of the machine that nothing ties to the process or job that was asked about, gravest first.
    """

    roots: list[Candidate]
    candidates: list[Candidate]
    timeline: Timeline
    looked_fine: bool
    unknown_codes: list[Where]
    aside: list[Candidate] = []

    def missing(self, lang: str) -> list[dict[str, str]]:
        """What would make the answer surer."""
        out: list[dict[str, str]] = []
        for root in self.roots[:1]:
            for step in cause_info(root.cause).missing:
                out.append({"what": step.zh if lang == "zh" else step.en, "why": "", "command": step.command})
        return out


def diagnose(reading: Reading, knowledge: Knowledge, subject: Subject | None = None) -> Diagnosis:
    """Ranks what may have been the cause. subject: the process or job that was asked about."""
    quiet = frozenset(s.id for s in knowledge.signatures if not s.cause and not s.id.startswith("nvrm."))
    reading = without_quotations(reading, quiet)
    reading = without_own_deaths(reading, {s.id: s.cause for s in knowledge.signatures if s.cause})
    years = [
        _time.gmtime(s.time.seconds).tm_year
        for s in reading.signals
        if s.time and not s.time.yearless and not s.time.uptime
    ]
    timeline = Timeline(reading.signals, years, reading.facts)
    pool = Pool(timeline)
    signatures = {s.id: s for s in knowledge.signatures}
    add_signals(pool, reading, signatures)
    add_rules(pool, reading, knowledge)
    add_library_bugs(pool, reading)
    add_differences(pool, reading)
    add_stalled_saves(pool, reading)
    deaths = find_deaths(reading, pool)
    add_deaths(pool, deaths)
    add_exit_codes(pool, deaths)
    add_sharing(pool, reading)
    add_intrusion(pool, reading)
    people = People(reading.signals, reading.facts)
    candidates = refine(pool.all(), pool, reading, people, deaths)
    aside: list[Candidate] = []
    if subject is not None:
        candidates, aside = of_concern(candidates, subject)
    link(candidates)
    roots = rank(candidates)
    for root in roots:
        people.complete(root, device_level=root.cause.startswith(("sec.cryptominer", "sec.hidden_process")))
    unknown = _unknown_codes(reading)
    told = bool(reading.signals) or bool(reading.facts)  # a text of which nothing was understood says nothing
    fine = told and not roots and not deaths and not unknown
    return Diagnosis(
        roots=roots, candidates=candidates, timeline=timeline, looked_fine=fine, unknown_codes=unknown, aside=aside
    )


def _unknown_codes(reading: Reading) -> list[Where]:
    """The first line of each Xid or SXid that is in no catalogue."""
    found: dict[tuple[str, str], Where] = {}
    for signal in reading.signals:
        kind = signal.signature.removeprefix("nvrm.")
        code = signal.groups.get("code", "")
        if kind in ("xid", "sxid") and code.isdecimal() and len(code) < 9 and xid_info(kind, int(code)).name is None:
            found.setdefault((kind, code), signal.where)
    return list(found.values())
