"""Joins the rules into one verdict."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.compat.arch_rules import has_cuda_name, judge_arch
from gpuclinic.compat.context import Context, context_of
from gpuclinic.compat.cuda_rules import cuda_row, floor_of, judge_cuda, reach_of
from gpuclinic.compat.driver_rules import about_card, judge_driver
from gpuclinic.compat.finding import Finding
from gpuclinic.compat.library_rules import judge_libraries
from gpuclinic.compat.package_rules import judge_packages
from gpuclinic.compat.question import Answer, Problem, Question
from gpuclinic.compat.resolve import Chosen, Resolution, builds_of, resolve, wheels_of
from gpuclinic.compat.versions import numbers
from gpuclinic.knowledge.compat import tables

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_PROBLEMS = 40


class Judged(msgspec.Struct):
    """A verdict with what led to it. problems: most decisive first."""

    verdict: str
    problems: list[Finding]
    unknown: list[Finding]
    context: Context
    resolution: Resolution


def judge(question: Question, lang: str = "en") -> Answer:
    """The verdict by the rules; "unknown" wherever a rule or a row is missing. Never raises for what it was given."""
    from gpuclinic.compat.install import line_that_works

    judged = decide(question)
    install = line_that_works(question, judged) if judged.context.wanted else None
    problems = [_problem(finding, lang) for finding in judged.problems[:MOST_PROBLEMS]]
    return Answer(
        judged.verdict, problems, install, [_said(finding, "why", lang) for finding in judged.unknown[:MOST_PROBLEMS]],
        [_read_as(one) for one in judged.resolution.chosen], _notes(judged, lang), _left_out(judged),
    )  # fmt: skip


def decide(question: Question) -> Judged:
    """The verdict alone, without texts and without a line to install."""
    context = context_of(question)
    resolution = resolve(context)
    findings = list(_findings(context, resolution))
    problems = _unique([f for f in findings if not f.unknown])
    unknown = _unique([f for f in findings if f.unknown])
    problems.sort(key=lambda f: int(_row(f).get("rank", 50)))
    verdict = "fails" if problems else "unknown" if unknown else "works"
    return Judged(verdict, problems, unknown, context, resolution)


def _findings(context: Context, resolution: Resolution) -> Iterator[Finding]:
    for bad in context.bad:
        yield Finding("unknown.not_read", {"text": bad}, bad)
    if context.not_read:  # it may be what fails
        yield Finding("unknown.not_read", {"text": "; ".join(text[:120] for text in context.not_read[:3])}, "want")
    yield from judge_driver(context)
    reach, about_package = reach_of(context)
    yield from about_package
    yield from judge_packages(context, resolution)
    yield from judge_cuda(context, resolution, reach)
    yield from judge_arch(context, resolution, reach)
    yield from judge_libraries(context, resolution)
    yield from _unlisted(context, resolution)
    yield from _not_found(context, resolution)


def _unlisted(context: Context, resolution: Resolution) -> Iterator[Finding]:
    """Packages that no table knows: what can be for GPUs, or stands alone, is unknown; the rest of a listing does not matter."""
    judged = 0
    unheard: list[Chosen] = []
    for one in resolution.chosen:
        if wheels_of(one.name) or builds_of(one.name):
            judged += 1
        elif role_of(one.name) is None and not (one.wanted is not None and one.wanted.built_for.torch):
            unheard.append(one)
    for one in unheard:
        if has_cuda_name(one.name) or (not judged and not context.installed):
            yield Finding("unknown.package", {"package": one.label}, one.label)


def _not_found(context: Context, resolution: Resolution) -> Iterator[Finding]:
    """A machine on which no GPU or no driver was found: what is built for GPUs cannot be said to work there."""
    if not context.of_host or not (uses_gpu(resolution) or not context.wanted):
        return
    if not context.cards and not context.unknown_gpus:
        yield Finding("unknown.no_gpu", {}, "gpu")
    if not context.driver and not all(card.kind == "jetson" for card in context.cards):
        yield Finding("unknown.no_driver", {}, "driver")


def uses_gpu(resolution: Resolution) -> bool:
    """Whether a build among the packages is for GPUs."""
    return any(one.build is not None and one.build.cuda != "none" for one in resolution.chosen)


def role_of(name: str) -> str | None:
    """What a package without a GPU rule of its own is for; None where no table names it."""
    return next((row.role for row in tables().packages if re.fullmatch(row.pattern, name)), None)


def _unique(findings: list[Finding]) -> list[Finding]:
    seen: set[tuple[str, str]] = set()
    kept = []
    for finding in findings:
        key = (finding.text, finding.subject)
        if key not in seen:
            seen.add(key)
            kept.append(finding)
    return kept


def _row(finding: Finding) -> dict[str, str]:
    return tables().texts[finding.text]


def _said(finding: Finding, field: str, lang: str) -> str:
    """A text of a row, its places filled."""
    row = _row(finding)
    text = row.get(f"{field}_{lang}") or row.get(f"{field}_en", "")
    return re.sub(r"\{(\w+)\}", lambda m: finding.values.get(m[1], m[0])[:200], text)


def _problem(finding: Finding, lang: str) -> Problem:
    row = _row(finding)
    return Problem(
        row["cause"], _said(finding, "title", lang), _said(finding, "why", lang), finding.source or row["source"],
        _said(finding, "fix", lang), finding.subject,
    )  # fmt: skip


def _read_as(one: Chosen) -> str:
    """ "torch 2.9.0 (CUDA 12.8; demanded by vllm)"."""
    parts = []
    if one.cuda:
        parts.append("no CUDA" if one.cuda == "none" else f"CUDA {one.cuda}")
    if one.implied_by:
        parts.append(f"demanded by {one.implied_by}")
    return one.label + (f" ({'; '.join(parts)})" if parts else "")


def _left_out(judged: Judged) -> list[str]:
    """What a verdict "works" is without."""
    context = judged.context
    if judged.verdict != "works" or not uses_gpu(judged.resolution):
        return []
    gpu = bool(context.cards or context.unknown_gpus)
    return [name for name, there in (("gpu", gpu), ("driver", bool(context.driver))) if not there]


def _notes(judged: Judged, lang: str) -> list[str]:
    notes = []
    if judged.context.not_read and judged.verdict == "fails":
        finding = Finding("unknown.not_read", {"text": ", ".join(judged.context.not_read)[:200]})
        notes.append(_said(finding, "why", lang))
    unheard = [
        one.name for one in judged.resolution.chosen
        if not wheels_of(one.name) and not builds_of(one.name) and role_of(one.name) is None and not has_cuda_name(one.name)
    ]  # fmt: skip
    if unheard and judged.verdict != "unknown":
        notes.append(_said(Finding("unknown.package", {"package": ", ".join(unheard)[:200]}), "why", lang))
    if not judged.context.wanted:
        told = [about_card(card) for card in judged.context.cards]
        notes += [_said(about, "why", lang) for about in told if about is not None]
    return [*notes, *_not_given(judged, lang)]


def _not_given(judged: Judged, lang: str) -> Iterator[str]:
    """What was not said is not judged; what it would have to be is."""
    context = judged.context
    builds = [one for one in judged.resolution.chosen if one.build is not None and one.build.cuda != "none"]
    if judged.verdict != "works":
        return
    if not context.driver:
        rows = [(one, row) for one in builds if (row := cuda_row(one.cuda)) is not None]
        if rows:
            one, row = max(rows, key=lambda pair: numbers(floor_of(pair[1])))
            yield _said(
                Finding("note.driver", {"package": one.label, "cuda": row.release, "floor": floor_of(row)}), "why", lang
            )
    if not context.cards and not context.unknown_gpus:
        for one in builds:
            build = one.build
            if build is None or not (build.sass or build.lowest):
                continue
            sass = (
                ", ".join("sm_" + token.replace(".", "") for token in build.sass.split())
                or f"sm_{build.lowest.replace('.', '')} …"
            )
            yield _said(Finding("note.gpu", {"package": one.label, "sass": sass}), "why", lang)
            return
