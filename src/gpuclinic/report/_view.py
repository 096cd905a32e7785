"""What every written form of an answer shares: texts about one cause, in the answer's language, cleaned for show."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.recognise.timestamps import find_stamp
from gpuclinic.report._layout import ranges
from gpuclinic.report._words import words
from gpuclinic.report.masking import clean

if TYPE_CHECKING:
    from gpuclinic.clinic import Answer
    from gpuclinic.model import Cause, ReadItem, Stamp, Where

_SUB_HEALTHY = {"reset_gpu", "reboot"}
_FAULTY = {"rma", "reseat_or_power"}


class Follower(NamedTuple):
    """Consequences of one kind, taken together."""

    title: str
    where: str
    times: int
    evidence: Where | None


def percent(confidence: float) -> int:
    """Per cent, never rounded up to 100."""
    return min(99, max(1, round(confidence * 100)))


def sure(confidence: float, lang: str, key: str = "sure") -> str:
    """Confidence in per cent and in words."""
    w = words(lang)
    step = next((s for s in ("0.9", "0.75", "0.5") if confidence >= float(s)), "0")
    return w[key].format(percent=percent(confidence), word=w[f"word.{step}"])


def diagnosis(root: Cause, lang: str) -> list[str]:
    """How sure, whose it is, and the id: in Chinese on two lines."""
    w = words(lang)
    whose = w["whose"].format(domain=domain(root, lang))
    values = {"sure": sure(root.confidence, lang), "level": sure(root.confidence, lang, "level")}
    return w["diagnosis"].format(whose=whose, id=root.id, **values).split("\n")


def domain(cause: Cause, lang: str) -> str:
    """Whose it is; in Chinese with the grade of a node's fault."""
    w = words(lang)
    text = w.get(f"domain.{cause.domain}", cause.domain)
    grade = ""
    if cause.domain == "node" and cause.id.startswith("hw."):
        grade = (
            w["grade.sub_healthy"]
            if cause.action in _SUB_HEALTHY
            else w["grade.faulty"]
            if cause.action in _FAULTY
            else ""
        )
    return f"{text}{w['comma']}{grade}" if grade else text


def when(text: str | None) -> str:
    """A time as people write it."""
    if not text:
        return ""
    text = re.sub(r"\.(\d{1,6})", lambda m: "." + m[1][:3] if m[1].strip("0") else "", text.replace("T", " ", 1))
    return text.replace("+00:00", " UTC")


def _about(cause: Cause, lang: str) -> list[str]:
    """GPU, rank, process and host, as far as known."""
    w = words(lang)
    parts: list[str] = []
    if len(cause.gpus) > 1 and not cause.gpu:
        shown = ", ".join(cause.gpus[:4]) + ("…" if len(cause.gpus) > 4 else "")
        parts.append(w["gpus"].format(count=len(cause.gpus)) + w["colon"] + shown)
    elif cause.gpu and cause.gpu_index is not None and ":" in cause.gpu:
        parts.append(w["gpu.both"].format(gpu=cause.gpu, index=cause.gpu_index))
    elif cause.gpu and ":" in cause.gpu:
        parts.append(w["gpu"].format(gpu=cause.gpu))
    elif cause.gpu or cause.gpu_index is not None:
        parts.append(w["gpu.index"].format(index=cause.gpu or cause.gpu_index))
    if cause.rank is not None:
        parts.append(w["rank"].format(ranks=cause.rank))
    if cause.pid is not None:
        parts.append(w["pid"].format(pid=cause.pid))
    if cause.host:
        parts.append(w["host"].format(host=cause.host))
    return parts


def where(cause: Cause, lang: str, *, with_time: bool = True, unlike: Cause | None = None) -> str:
    """GPU, rank, process, host and time, as far as known; unlike: without what is the same for that cause."""
    parts = _about(cause, lang)
    if unlike is not None:
        known = set(_about(unlike, lang))
        parts = [part for part in parts if part not in known]
    if with_time and cause.time and (unlike is None or cause.time != unlike.time):
        parts.append(when(cause.time))
    return " · ".join(clean(part).replace(" ", "\u00a0") for part in parts)


def place(evidence: Where) -> str:
    """file:line, as editors open it."""
    return clean(evidence.source if evidence.line is None else f"{evidence.source}:{evidence.line}")


def followers(answer: Answer, role: str) -> list[Follower]:
    """Causes of a role, those with the same title taken together, in order."""
    w = words(answer.lang)
    root = answer.causes[0] if answer.causes else None
    groups: dict[tuple[str, str], list[Cause]] = {}
    for cause in answer.causes:
        if cause.role == role:
            groups.setdefault((cause.id, cause.title), []).append(cause)
    out: list[Follower] = []
    for (_, title), group in groups.items():
        places = [c.rank for c in group if c.rank is not None]
        if len(group) == 1:
            text = where(group[0], answer.lang, unlike=root)
        elif places:
            key = "ranks" if len(set(places)) > 1 else "rank"
            text = w[key].format(ranks=ranges(places))
        else:
            text = clean(
                " · ".join(
                    dict.fromkeys(filter(None, (where(c, answer.lang, with_time=False, unlike=root) for c in group)))
                )
            )
        first = next((e for c in group for e in c.evidence), None)
        out.append(Follower(clean(title), text, len(group), first))
    return out


def lines_read(items: list[ReadItem], lang: str) -> str:
    """How much was read."""
    w = words(lang)
    files = w["files.one"] if len(items) == 1 else w["files.many"].format(count=len(items))
    return w["read.count"].format(files=files, lines=f"{sum(item.lines or 0 for item in items):,}")


def timeline(answer: Answer) -> list[tuple[str, Where]]:
    """The evidence of all causes in time order, each with its time as written; those without a time last, by place."""
    dated: list[tuple[float, int, str, Where]] = []
    undated: list[tuple[str, Where]] = []
    seen: set[tuple[str, int | None, str]] = set()
    year = next((int(c.time[:4]) for c in answer.causes if c.time and c.time[:4].isdecimal()), None)
    for cause in answer.causes:
        for number, evidence in enumerate(cause.evidence):
            key = (evidence.source, evidence.line, evidence.text)
            if key in seen:
                continue
            seen.add(key)
            moment = _moment(find_stamp(evidence.text), year)
            if moment is None and number == 0 and cause.time:
                moment = (dt.datetime.fromisoformat(cause.time).replace(tzinfo=dt.timezone.utc), when(cause.time))
            if moment is None:
                undated.append(("", evidence))
            else:
                dated.append((moment[0].timestamp(), len(dated), moment[1], evidence))
    dated.sort(key=lambda row: row[:2])
    undated.sort(key=lambda row: (row[1].source, row[1].line or 0))
    return [(text, evidence) for _, _, text, evidence in dated] + undated


def _moment(stamp: Stamp | None, year: int | None) -> tuple[dt.datetime, str] | None:
    """A stamp of the wall clock as a moment and as text; a year that the log leaves out is taken from elsewhere."""
    if stamp is None or stamp.uptime:
        return None
    try:
        moment = dt.datetime.fromtimestamp(stamp.seconds, dt.timezone.utc)
        if stamp.yearless and year is not None:
            moment = moment.replace(year=year)
    except (OverflowError, ValueError, OSError):
        return None
    text = moment.strftime("%m-%d %H:%M:%S" if stamp.yearless else "%Y-%m-%d %H:%M:%S")
    return moment, text + (" UTC" if stamp.zoned else "")
