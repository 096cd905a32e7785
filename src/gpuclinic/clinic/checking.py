"""`check`: asks a host, judges the rows, reads the logs, and says whether the server is fit for work."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.clinic.bus_view import limit_view
from gpuclinic.clinic.environment_verdicts import verdict_facts
from gpuclinic.clinic.findings import from_judged, settled
from gpuclinic.clinic.logged import Now, logged
from gpuclinic.clinic.looks import LOOKS, Look, Seen, Wanted
from gpuclinic.clinic.looks._look import as_number, tells_time, zone_of
from gpuclinic.clinic.looks.from_texts import complete_from_texts
from gpuclinic.clinic.reading import Reader, Texts
from gpuclinic.clinic.stumbling import stumbled
from gpuclinic.clinic.untold import unjudged, untold
from gpuclinic.diagnose import diagnose
from gpuclinic.diagnose.evidence import Reading
from gpuclinic.diagnose.judge import Judged, Sample, judge
from gpuclinic.knowledge import load, load_checks
from gpuclinic.model import Fact, Finding, Gap, UserError
from gpuclinic.recognise.expectations import complete

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.clinic.software_judge import SoftwareJudge
    from gpuclinic.diagnose.timeline import Timeline
    from gpuclinic.knowledge import Check
    from gpuclinic.observe.asking import Asked

_KEPT_FOR_LOGS = frozenset({"boot", "now", "uptime", "kernel", "quoted"})
"""Kinds of facts that place log lines in time; the other facts are judged by rows, not by the rules of `why`."""


class CheckOptions(msgspec.Struct):
    """only, skip, require: ids or beginnings of ids of looks and findings ("gpu.ecc"). The rest: see looks.Wanted."""

    deep: bool = False
    seconds: float = 0.0
    only: list[str] = []
    skip: list[str] = []
    require: list[str] = []
    expect_gpus: int | None = None
    psu_watts: float | None = None
    lang: str = "en"


class CheckAnswer(msgspec.Struct):
    """verdict: ok, warning, critical, unknown. coverage: full or limited. facts: of the newest sample, for reports and captures."""

    verdict: str
    coverage: str
    findings: list[Finding]
    looked_at: list[str]
    not_looked_at: list[Gap]
    lang: str
    host: str | None = None
    boot_id: str | None = None
    facts: list[Fact] = []
    seconds: float = 0.0


def chosen(identity: str, options: CheckOptions) -> bool:
    """An id is wanted: --only and --skip name it, or a beginning of it up to a dot."""
    if options.only and not any(_named(identity, name) for name in options.only):
        return False
    return not any(_named(identity, name) for name in options.skip)


def _named(identity: str, name: str) -> bool:
    return identity == name or identity.startswith(name.rstrip(".") + ".")


def check(
    host: Asked, options: CheckOptions, progress: Callable[[str], None] | None = None, software: SoftwareJudge | None = None
) -> CheckAnswer:  # fmt: skip
    """Takes all looks, twice or more where that was asked for, and judges what they brought.

    software: judges whether environments fit the GPUs and the driver; the rules stand above this room, so they are handed in.
    """
    started = host.clock()
    rows = _rows(options)
    looks = _looks(options, rows)
    if any(look.id == "gpu.nvml" for look in looks):
        host.begin_nvml(deep=options.deep)
    host.expect([argv for look in looks for argv in look.commands])
    wanted = Wanted(
        deep=options.deep,
        seconds=options.seconds,
        expect_gpus=options.expect_gpus,
        psu_watts=options.psu_watts,
    )
    seen = take_looks(host, looks, wanted, progress)
    limit_view(seen)
    reader = Reader(load())
    reader.read_host(Texts(seen.texts))
    steady = [fact for fact in reader.facts if fact.kind not in _sampled_kinds(seen)]
    if (told := _told_by_smi(steady)) and not any(f.kind in ("nvml", "gpu") for f in seen.facts):
        seen.fact(
            "nvml", "nvml", {"reason": "ok", "devices": told}, "nvidia-smi", devices=f"nvidia-smi tells of {told} GPUs"
        )
    steady = complete_from_texts(host, wanted, seen, steady, reader.signals)
    complete(seen.facts + steady, started, options.psu_watts)
    if software is not None and any(fact.kind == "environment" for fact in seen.facts):
        gpus = [] if any(fact.kind == "gpu" for fact in seen.facts) else steady
        seen.facts += verdict_facts([*seen.facts, *gpus], software, options.lang)
    window = [Sample(started, seen.facts + steady, dict(reader.counts))]
    window += _further(host, looks, wanted, options, steady, reader.counts, progress)
    judged = judge(rows, window)
    name = host.file("/proc/sys/kernel/hostname", 256)
    label = (name.line if name.ok else None) or host.label
    findings = [from_judged(one, options.lang, label) for one in judged if one.state == "holds"]
    findings += _from_logs(host, reader, seen.facts, steady, options)
    damage = getattr(host, "damage", None)
    if damage is not None:
        seen.gaps.append(Gap("snapshot", f"{damage}; only what came before that was looked at", required=True))
    seen.gaps += untold(host, [look.id for look in looks], window[-1].facts, seen.gaps)
    if not host.live and any(item.kind == "kernel log" for item in reader.read):
        seen.gaps = [gap for gap in seen.gaps if gap.check != "kernel.log"]  # it lay there under another name
    gaps = _gaps(_without_needless(seen.gaps, window[-1].facts), options, judged)
    gaps += unjudged(options.require, rows, judged, gaps)
    answer = _answer(findings, judged, gaps, options, window[-1].facts)
    answer.host, answer.seconds = label, host.clock() - started
    boot = host.file("/proc/sys/kernel/random/boot_id", 64)
    answer.boot_id = boot.line if boot.ok else None
    return answer


def as_recorded(host: Asked, options: CheckOptions) -> CheckOptions:
    """The options with what a capture was made with where the person asked for nothing else; the answer is then the same as it was there."""
    asked = getattr(host, "about", {}).get("asked")
    if not isinstance(asked, dict):
        return options
    seconds, gpus, watts = asked.get("seconds"), asked.get("expect_gpus"), asked.get("psu_watts")
    return msgspec.structs.replace(
        options,
        deep=options.deep or asked.get("deep") is True,
        seconds=options.seconds
        or (float(seconds) if isinstance(seconds, (int, float)) and 0 <= seconds <= 1e6 else 0.0),
        expect_gpus=options.expect_gpus
        if options.expect_gpus is not None
        else (gpus if isinstance(gpus, int) else None),
        psu_watts=options.psu_watts if options.psu_watts is not None else (watts if isinstance(watts, float) else None),
    )


def _rows(options: CheckOptions) -> list[Check]:
    every = load_checks().checks
    known = {row.id for row in every} | {look.id for look in LOOKS} | {row.id for row in load_checks().log_findings}
    for name in [*options.only, *options.skip, *options.require]:
        if not any(_named(identity, name) for identity in known):
            raise UserError(f"no such check: {name} (see gpuclinic check --list)")
    return [
        row
        for row in every
        if (chosen(row.id, options) or (chosen(row.look, options) and options.only))
        and not any(_named(row.id, name) for name in options.skip)
        and (options.deep or options.only or not row.deep)
    ]


def _looks(options: CheckOptions, rows: list[Check]) -> list[Look]:
    """All that the rows need, and those named themselves; the bus and the driver always, since the rest hangs on them."""
    needed = {row.look for row in rows}
    if not options.only:
        return [
            k for k in LOOKS if (options.deep or not k.deep) and not any(_named(k.id, name) for name in options.skip)
        ]
    logs = any(chosen(row.id, options) for row in load_checks().log_findings)
    wanted = {k.id for k in LOOKS if k.id in needed or chosen(k.id, options) or (logs and k.id == "kernel.log")}
    wanted |= {"pci.bus", "gpu.nvml"} | {name for k in LOOKS if k.id in wanted for name in k.after}
    return [k for k in LOOKS if k.id in wanted]


def take_looks(host: Asked, looks: list[Look], wanted: Wanted, progress: Callable[[str], None] | None) -> Seen:
    """Takes the looks in their order; each is shown what those before it have seen."""
    out = Seen()
    for look in looks:
        if progress is not None:
            progress(look.id)
        module, _, name = look.function.partition(":")
        function = getattr(importlib.import_module(f"gpuclinic.clinic.looks.{module}"), name)
        wanted.facts = out.facts
        got = _of_look(look, function, host, wanted)
        out.facts += got.facts
        out.texts += got.texts
        out.gaps += got.gaps
    return out


def _of_look(look: Look, function: Callable[[Asked, Wanted], Seen], host: Asked, wanted: Wanted) -> Seen:
    """What a look brings; one that stumbles over what a machine answered says so, and costs only what it would have brought."""
    try:
        return function(host, wanted)
    except (UserError, MemoryError):
        raise
    except Exception as problem:  # noqa: BLE001 - it becomes a gap
        return Seen(gaps=[Gap(look.id, stumbled(problem), required=look.required)])


def _sampled_kinds(seen: Seen) -> set[str]:
    """Kinds of GPU facts that NVML brought: the same from a text beside it would be judged twice."""
    return {fact.kind for fact in seen.facts} & {"gpu", "gpu_process", "nvlink", "nvlink_gpu", "mig_device"}


def _further(
    host: Asked, looks: list[Look], wanted: Wanted, options: CheckOptions, steady: list[Fact], counts: dict[str, int],
    progress: Callable[[str], None] | None,
) -> list[Sample]:  # fmt: skip
    """The samples after the first, one a second or so until the time is over."""
    out: list[Sample] = []
    most = min(120, getattr(host, "samples", 121) - 1)  # a snapshot made by hand holds one moment: it shows no rates
    if options.seconds <= 0 or most <= 0:
        return out
    again = [look for look in looks if look.sampled]
    rest = [fact for fact in wanted.facts if fact.kind not in _KINDS_SAMPLED]
    begun = host.clock()
    step = max(1.0, options.seconds / 30)
    while True:
        host.wait(min(step, max(0.0, begun + options.seconds - host.clock())))
        wanted.sample += 1
        at = host.clock()
        got = take_looks(host, again, wanted, progress)
        kinds = {fact.kind for fact in got.facts}
        facts = got.facts + [f for f in rest if f.kind not in kinds] + steady
        complete(facts, at, options.psu_watts)
        out.append(Sample(at, facts, dict(counts)))
        if at >= begun + options.seconds or len(out) >= most:
            return out


_KINDS_SAMPLED = frozenset({"gpu", "gpu_process", "nvlink", "nvlink_gpu", "nvml", "gpu_count"})


def _from_logs(
    host: Asked, reader: Reader, seen: list[Fact], texts: list[Fact], options: CheckOptions
) -> list[Finding]:
    """What the machine's own logs say happened, each cause as the finding that the table names for it."""
    told = {
        (place.source, place.line) for fact in texts if fact.fields.get("of_restart") for place in fact.lines.values()
    }
    signals = [s for s in reader.signals if (s.where.source, s.where.line) not in told]
    facts = [fact for fact in reader.facts if fact.kind in _KEPT_FOR_LOGS]
    sources = {item.path: item.kind for item in reader.read}
    result = diagnose(Reading(signals, facts, reader.counts, sources, boots=reader.boots), load())
    if not result.candidates and not result.unknown_codes:
        return []
    up = host.file("/proc/uptime", 64)
    crashes = {f.key: number for f in seen if f.kind == "crash_record" and (number := as_number(f.fields.get("at")))}
    switches = frozenset(f.key for f in seen if f.kind == "pci_device" and f.fields.get("is_nvswitch"))
    up_s = as_number(up.line) if up.ok else None
    asked_at = _asked_at(host, reader, result.timeline)
    now = Now(asked_at, up_s, zone_of(host, asked_at), crashes, _answering(seen), switches, tells_time(host))
    return [found for found in logged(result, signals, options.lang, now) if chosen(found.id, options)]


def _asked_at(host: Asked, reader: Reader, timeline: Timeline) -> float:
    """Unix time on the examined machine; of a snapshot that does not tell when it was made, the time of its newest log line."""
    if tells_time(host):
        return host.clock()
    moments = [(s.time, timeline.clock(s)) for s in reader.signals if s.time is not None and not s.time.uptime]
    dated = [clock.seconds for stamp, clock in moments if clock is not None and not stamp.yearless]
    yearless = [clock.seconds for _, clock in moments if clock is not None]
    return max(dated or yearless, default=host.clock())


def _answering(seen: list[Fact]) -> frozenset[str]:
    """GPUs that could be read without a complaint."""
    return frozenset(
        str(fact.fields.get("bus_id") or fact.key)
        for fact in seen
        if fact.kind == "gpu"
        and not any(fact.fields.get(name) for name in ("error", "hung", "unreadable", "unreachable"))
    )


def _told_by_smi(facts: list[Fact]) -> int:
    """How many GPUs nvidia-smi told of in full, where NVML did not; 0 where it left some out."""
    told = {
        f.key for f in facts if f.kind == "gpu" and f.fields.get("tool") != "nvml" and not f.fields.get("unreachable")
    }
    counts = [
        as_number(f.fields.get("value")) for f in facts if f.kind == "gpu_count" and f.key.startswith("nvidia-smi")
    ]
    return len(told) if len(told) >= max((n for n in counts if n is not None), default=0) else 0


def _without_needless(gaps: list[Gap], facts: list[Fact]) -> list[Gap]:
    """The gaps; that NVML did not answer is no required one where nvidia-smi told of every GPU all the same."""
    if not _told_by_smi(facts):
        return gaps
    return [msgspec.structs.replace(gap, required=False) if gap.check == "gpu.nvml" else gap for gap in gaps]


def _gaps(gaps: list[Gap], options: CheckOptions, judged: list[Judged]) -> list[Gap]:
    """Gaps once each; those that --require or --only names are required."""
    out: dict[tuple[str, str], Gap] = {}
    named = [*options.require, *options.only]
    for gap in gaps:
        wanted = not options.only or any(_named(gap.check, name) for name in options.only)
        required = (gap.required and wanted) or any(_named(gap.check, name) for name in named)
        out.setdefault((gap.check, gap.why), msgspec.structs.replace(gap, required=required))
    seen = {one.row.id for one in judged if one.state in ("holds", "no")}
    for one in judged:
        if one.state == "short" and one.row.id not in seen and any(_named(one.row.id, name) for name in named):
            why = (
                "needs two samples; give --deep or --seconds"
                if one.row.rate
                else f"needs {one.row.for_s:g} s of samples"
            )
            out.setdefault((one.row.id, why), Gap(one.row.id, why, required=False))
    return list(out.values())


def _answer(
    findings: list[Finding], judged: list[Judged], gaps: list[Gap], options: CheckOptions, facts: list[Fact]
) -> CheckAnswer:
    findings = settled(findings)
    severities = {finding.severity for finding in findings}
    if "critical" in severities:
        verdict = "critical"
    elif any(gap.required for gap in gaps):
        verdict = "unknown"
    else:
        verdict = "warning" if "warning" in severities else "ok"
    looked = sorted({one.row.id for one in judged if one.state in ("holds", "no")})
    return CheckAnswer(verdict, "limited" if gaps else "full", findings, looked, gaps, options.lang, facts=facts)
