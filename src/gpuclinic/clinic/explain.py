"""`explain`: what a code, an error name, a cause, a signature or a pasted line means."""

from __future__ import annotations

import difflib
import io
import re
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.clinic.answer import fill
from gpuclinic.clinic.looks import LOOKS
from gpuclinic.knowledge import load, load_checks
from gpuclinic.knowledge.audit import load_audit
from gpuclinic.knowledge.causes import cause_ids, cause_info
from gpuclinic.knowledge.codes import TOPICS, CodeInfo, all_names, by_code, by_name
from gpuclinic.knowledge.xids import NVLINK5, XidInfo, catalogue, judge, nvlink5_fault, xid_info
from gpuclinic.model import LEVEL_CONFIDENCE, SEVERITIES, UserError

if TYPE_CHECKING:
    from gpuclinic.clinic.looks import Look
    from gpuclinic.knowledge import Check, LogFinding, Rule, Signature
    from gpuclinic.knowledge.audit import AuditFinding

_ASKED = re.compile(
    r"(?P<topic>sxid|xid|exit|signal|sig|errno|cuda|cudnn|cublas|nccl|nvml|slurm|k8s|kubernetes|kubectl"
    r"|cause|finding|rule|signature|退出码|退出状态|返回|信号|returncode|return|rc)"
    r"(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_FILLER = re.compile(
    r"[\s_:=#(：]*(?:(?:error|err|code|status|result|return|returncode|state|reason|exit|signal|job|node|pod|event|number|no\.?)(?![A-Za-z_])"
    r"|错误码?|码|状态|原因|值)[\s:=#(：]*",
    re.IGNORECASE,
)  # fmt: skip
_TOPIC_WORDS = {
    "sig": "signal", "信号": "signal", "退出码": "exit", "退出状态": "exit", "返回": "exit",
    "return": "exit", "returncode": "exit", "rc": "exit",
    "kubernetes": "k8s", "kubectl": "k8s", "rule": "finding", "signature": "finding",
}  # fmt: skip
_NUMBER = re.compile(r"[-+]?(?:0x[0-9a-fA-F]{1,8}|\d{1,10})")
_XID_LINE = re.compile(r"\bXid \([^)]{1,60}\): (?P<code>\d{1,5})(?P<text>[^\n]*)")
_SXID_LINE = re.compile(
    r"\bSXid \([^)]{1,60}\): (?P<code>\d{1,5})(?:, (?P<word>Fatal|Non-?fatal))?(?P<text>[^\n]*)", re.IGNORECASE
)
_TOKEN = re.compile(
    r"\b[A-Za-z][A-Za-z0-9]*(?:_[A-Z0-9]+)+\b|\b(?:cuda|nccl)[A-Z]\w+\b|\bSIG[A-Z]{2,8}\b"
    r"|\bE[A-Z]{3,14}\b|\b[A-Z]{0,4}[A-Z][a-z]+[A-Z]\w+\b"
)
_ESCALATIONS: dict[str, tuple[str, ...]] = {
    "restart_app": ("collect_evidence",),
    "reset_gpu": ("reboot", "reseat_or_power", "rma"),
    "reboot": ("reseat_or_power", "rma"),
    "reseat_or_power": ("rma",),
    "reinstall_driver": ("reboot",),
    "drain_node": ("reboot", "rma"),
    "collect_evidence": ("contact_vendor",),
}
_PLACE = re.compile(r"\{(\w+)\}")
_SIGNAL_EXITS = range(129, 193)


class Explanation(msgspec.Struct, frozen=True):
    """What is known of a topic. name: None where nobody has listed it. also: other names of the same thing.

    decoded: what the line itself added (NVLink 5). suggestions: topics that may have been meant.
    condition: when a finding holds, in the language of rules. steps: what to do where the cause's steps do not fit.
    """

    topic: str
    code: int | str | None
    name: str | None
    severity: str
    action: str
    text: str
    cause: str | None = None
    fault: tuple[str, ...] = ()
    escalation: tuple[str, ...] = ()
    source: str = ""
    also: tuple[str, ...] = ()
    decoded: dict[str, Any] = {}
    suggestions: tuple[str, ...] = ()
    condition: str = ""
    steps: tuple[dict[str, str], ...] = ()


def explain(topic: str, lang: str = "en") -> Explanation:
    """Explains a topic as a person types or pastes it."""
    text = " ".join(topic.split()) if "\n" not in topic.strip() else topic.strip()
    if not text:
        raise UserError("nothing to explain: give a code, a name or a line, for instance: gpuclinic explain xid 79")
    return _asked(text, lang) or _named(text, lang) or _line(text, lang) or _unknown(text, lang)


def _asked(text: str, lang: str) -> Explanation | None:
    """`xid 79` and the like: a topic and a code or name, with words as "error" or "code" between them."""
    found = _ASKED.fullmatch(text)
    if found is None:
        return None
    word, code = found["topic"].lower(), found["rest"].strip(" \t:=#_：")
    while code:
        answer = _asked_for(_TOPIC_WORDS.get(word, word), code, lang)
        if answer is not None:
            return answer
        shorter = _FILLER.sub("", code, count=1) if _FILLER.match(code) else ""
        code = shorter if shorter != code else ""
    return None


def _asked_for(topic: str, code: str, lang: str) -> Explanation | None:
    digits = re.fullmatch(r"(" + _NUMBER.pattern + r")(?:[\s:,;()：，].{0,200})?", code, re.DOTALL)
    number = _integer(digits[1]) if digits else None
    if topic in ("xid", "sxid"):
        return _from_xid(xid_info(topic, number), lang) if number is not None and number >= 0 else None
    if topic in ("cause", "finding"):
        return _identity(code, lang)
    if topic == "exit":
        return _exit(code, number, lang)
    if number is not None:
        rows = by_code(topic, number) or by_name(code, topic)
        return _from_code(rows, lang) if rows else _unlisted(topic, number, lang)
    rows = by_name(code, topic) or by_name(f"{topic}{code}", topic)
    return _from_code(rows, lang) if rows else None


def _integer(text: str) -> int:
    return int(text, 16) if "0x" in text.lower() else int(text)


def _exit(code: str, number: int | None, lang: str) -> Explanation | None:
    pair = re.fullmatch(r"(\d{1,3}):(\d{1,3})", code)  # Slurm's exit:signal
    if pair:
        number = -int(pair[2]) if pair[2] != "0" else int(pair[1])
    if number is None:
        rows = by_name(code, "exit") or by_name(code, "signal")
        return _from_code(rows, lang) if rows else None
    rows = by_code("exit", number)
    if rows:
        return _from_code(rows, lang)
    signal = -number if number < 0 else number - 128 if number in _SIGNAL_EXITS else None
    behind = by_code("signal", signal) if signal is not None else []
    if not behind:
        return _unlisted("exit", number, lang)
    head = f"退出码 {number} 表示被信号 {signal} 终止：" if lang == "zh" else f"Ended by signal {signal}: "
    found = _from_code(behind, lang)
    return msgspec.structs.replace(found, topic="exit", code=number, text=head + found.text)


def _named(text: str, lang: str) -> Explanation | None:
    """A bare name: SIGKILL, ENOSPC, a cause id, a signature's or rule's id."""
    rows = by_name(text)
    if rows:
        return _from_code(rows, lang)
    return _identity(text, lang)


def _identity(identity: str, lang: str) -> Explanation | None:
    wanted = identity.strip().casefold()
    for known in cause_ids():
        if known == wanted and known != "unknown":
            return _from_cause(known, lang)
    for check in load_checks().checks:
        if check.id == wanted:
            return _from_check(check, lang)
    for look in LOOKS:
        if look.id == wanted:
            return _from_look(look, lang)
    if wanted == "gpu.none":
        return _no_gpu(lang)
    logged = [row for row in load_checks().log_findings if row.id == wanted]
    if logged:
        return _from_log_finding(logged, lang)
    if wanted in load_audit():
        return _from_audit(load_audit()[wanted], lang)
    knowledge = load()
    rows: list[Signature | Rule] = [*knowledge.rules, *knowledge.signatures]
    for row in rows:
        if row.id.casefold() == wanted:
            return _from_row(row, lang, "finding", {})
    return None


def _line(text: str, lang: str) -> Explanation | None:
    """A pasted line, or several: Xids decoded, all else as the signatures recognise it."""
    switch = _SXID_LINE.search(text)
    if switch:
        return _from_xid(judge("sxid", int(switch["code"]), switch["text"], switch["word"] or ""), lang)
    gpu = _XID_LINE.search(text)
    if gpu:
        code = int(gpu["code"])
        found = _from_xid(judge("xid", code, gpu["text"]), lang)
        fault = nvlink5_fault(code, gpu["text"]) if code in NVLINK5 else None
        if fault is None:
            return found
        words = [f"0x{word:08x}" for word in fault.words]
        decoded = {
            "units": fault.units,
            "fatal": fault.fatal,
            "link": fault.link,
            "reason": fault.reason,
            "words": words,
        }
        return msgspec.structs.replace(found, decoded={**decoded, "look_at": fault.look_at or None})
    best = _recognised(text)
    if best is None or not best[0].cause:
        named = _mentioned(text, lang)
        if named is not None:
            return named
    return _from_row(best[0], lang, "line", best[1]) if best else None


def _recognised(text: str) -> tuple[Signature, dict[str, str]] | None:
    """The signature that says most about the text: most certain first, causes before consequences."""
    from gpuclinic.recognise.engine import Confirmer, make_engine
    from gpuclinic.recognise.scan import StreamScanner

    knowledge = load()
    scanner = StreamScanner(make_engine(knowledge.signatures, knowledge.stamp), Confirmer(knowledge.signatures))
    stream = io.BytesIO(text.encode("utf-8", "replace") + b"\n")
    best: tuple[tuple[bool, float], Signature, dict[str, str]] | None = None
    for found in scanner.scan(stream.readinto):
        for number, match in found.matches:
            signature = knowledge.signatures[number]
            worth = (signature.role == "root" and bool(signature.cause), LEVEL_CONFIDENCE[signature.level])
            if best is None or worth > best[0]:
                best = (worth, signature, {k: v for k, v in match.groupdict().items() if v is not None})
    return (best[1], best[2]) if best else None


def _mentioned(text: str, lang: str) -> Explanation | None:
    """A known name or a clear "Xid 79" somewhere in the text."""
    found = re.search(r"\b(s?xid)\b[^\d\n]{0,12}(\d{1,5})\b", text, re.IGNORECASE)
    if found:
        return _from_xid(xid_info(found[1].lower(), int(found[2])), lang)
    for token in _TOKEN.findall(text):
        rows = by_name(token)
        if rows:
            return _from_code(rows, lang)
    return None


def _unknown(text: str, lang: str) -> Explanation:
    suggestions = near(text)
    if lang == "zh":
        words = "未能识别。" + (
            f"是否想查：{'、'.join(suggestions)}？"
            if suggestions
            else "请粘贴完整日志行，或用 gpuclinic why 分析整个文件。"
        )
    elif suggestions:
        words = f"Not recognised. Did you mean: {', '.join(suggestions)}?"
    else:
        words = "Not recognised. Paste the whole line, or let gpuclinic why read the whole file."
    return Explanation("line", None, None, "warning", "collect_evidence", words, suggestions=tuple(suggestions))


def near(text: str) -> list[str]:
    """Topics that may have been meant, at most six."""
    if _NUMBER.fullmatch(text):
        number = _integer(text)
        found = [f"{kind} {number}" for kind in ("xid", "sxid") if (kind, number) in catalogue()]
        return (found + [f"{topic} {number}" for topic in ("exit", *TOPICS[:-1]) if by_code(topic, number)])[:6]
    knowledge = load()
    names = [
        *cause_ids(),
        *load_audit(),
        *all_names(),
        *(r.id for r in knowledge.rules),
        *(s.id for s in knowledge.signatures),
    ]
    folded = {name.casefold(): name for name in reversed(names) if name != "unknown"}
    wanted = text.casefold()
    close = difflib.get_close_matches(wanted, folded, n=4, cutoff=0.6)
    part = [key for key in folded if len(wanted) > 3 and wanted in key]
    tail = difflib.get_close_matches(wanted, [key.rsplit(".", 1)[-1] for key in folded if "." in key], n=2, cutoff=0.75)
    ends = [key for key in folded for end in tail if key.endswith("." + end)]
    return list(dict.fromkeys(folded[key] for key in (*close, *part, *ends)))[:6]


def _from_xid(info: XidInfo, lang: str) -> Explanation:
    return Explanation(
        topic=info.kind,
        code=info.code,
        name=info.name,
        severity=info.severity,
        action=info.action,
        text=info.text_zh if lang == "zh" else info.text_en,
        cause=info.cause or None,
        fault=info.fault,
        escalation=info.escalation,
        source=info.source,
    )


def _from_code(rows: list[CodeInfo], lang: str) -> Explanation:
    row = rows[0]
    return Explanation(
        topic=row.topic,
        code=row.code,
        name=row.name,
        severity=row.severity,
        action=row.action,
        text=row.text_zh if lang == "zh" else row.text_en,
        cause=row.cause or None,
        fault=(cause_info(row.cause).domain,) if row.cause else (),
        escalation=_ESCALATIONS.get(row.action, ()),
        source=row.source,
        also=tuple(other.name for other in _same(row) if other.name != row.name),
    )


def _same(row: CodeInfo) -> list[CodeInfo]:
    return by_code(row.topic, row.code) if row.topic == "cuda" else []


def _unlisted(topic: str, number: int, lang: str) -> Explanation:
    if lang == "zh":
        text = f"{topic} {number} 不在已知列表中：请保留完整日志行，并查阅产生它的软件的文档。"
    else:
        text = f"{topic} {number} is in no list known here: keep the whole line and look it up with what printed it."
    return Explanation(topic, number, None, "warning", "collect_evidence", text, escalation=("contact_vendor",))


def _from_cause(identity: str, lang: str) -> Explanation:
    info = cause_info(identity)
    text = f"{info.title_zh}。{info.text_zh}" if lang == "zh" else f"{info.title_en}. {info.text_en}"
    return Explanation(
        topic="cause",
        code=identity,
        name=info.title_zh if lang == "zh" else info.title_en,
        severity=info.severity,
        action=info.action,
        text=text,
        cause=identity,
        fault=(info.domain,),
        escalation=_ESCALATIONS.get(info.action, ()),
        source=info.source,
    )


def _from_check(row: Check, lang: str) -> Explanation:
    """A finding of `check`: what it says, when it holds, what to do."""
    suffix = "zh" if lang == "zh" else "en"
    info = cause_info(row.cause) if row.cause else None
    title = re.sub(r" {2,}", " ", _PLACE.sub("…", getattr(row, f"title_{suffix}")))
    plain = _PLACE.sub(" …", getattr(row, f"detail_{suffix}")) or (getattr(info, f"text_{suffix}") if info else "")
    severity = next(s for s in reversed(SEVERITIES) if getattr(row, s))
    when = "; ".join(f"{s}: {' '.join(getattr(row, s).split())}" for s in reversed(SEVERITIES) if getattr(row, s))
    held = f" ({row.for_s:g} s)" if row.for_s else ""
    action = row.action or (info.action if info else "none")
    stop = "。" if lang == "zh" else ". "
    return Explanation(
        "finding", row.id, title, severity, action, f"{title}{stop}{plain}".strip(), cause=row.cause or None,
        escalation=_ESCALATIONS.get(action, ()), source=row.source, condition=f"{row.over or 'host'}: {when}{held}",
        steps=tuple({"text": getattr(step, suffix), "command": step.command} for step in row.steps),
    )  # fmt: skip


def _from_audit(row: AuditFinding, lang: str) -> Explanation:
    """A finding of `audit`: what it says, what it is told apart from, what to do."""
    suffix = "zh" if lang == "zh" else "en"
    title, detail, alike = (
        re.sub(r" {2,}", " ", _PLACE.sub("…", getattr(row, f"{part}_{suffix}")))
        for part in ("title", "detail", "alike")
    )
    stop = "。" if lang == "zh" else ". "
    return Explanation(
        "finding", row.id, title, row.severity, row.action, stop.join(part.rstrip("。.") for part in (title, detail, alike) if part) + stop.strip(),
        source=row.source, condition=row.grade or "",
        steps=tuple({"text": getattr(step, suffix), "command": _PLACE.sub("…", step.command)} for step in row.steps),
    )  # fmt: skip


def _from_look(look: Look, lang: str) -> Explanation:
    """What `check` looks at; it stands among what could not be looked at by this name."""
    rows = [row.id for row in load_checks().checks if row.look == look.id]
    shown = ", ".join(rows[:12]) + (" …" if len(rows) > 12 else "")
    text = (
        f"check 的一个检查对象；以下 {len(rows)} 项结论依据它：{shown}。"
        if lang == "zh"
        else f"A look of check; {len(rows)} findings rest on it: {shown}."
    )
    return Explanation("finding", look.id, look.id, "info", "none", text, source="clinic/looks/_table.py")


def _no_gpu(lang: str) -> Explanation:
    text = (
        "PCI 总线上没有 NVIDIA GPU，也没有声明应有的数量，因此无法判断。"
        "若本就没有 GPU，用 --expect-gpus 0；若应有 N 块，用 --expect-gpus N，缺卡即为严重。"
        if lang == "zh"
        else "No NVIDIA GPU stands on the PCI bus and nobody said how many there should be, so check cannot tell whether that is right. "
        "--expect-gpus 0 says it is; --expect-gpus N makes every missing one critical."
    )
    return Explanation("finding", "gpu.none", "gpu.none", "info", "none", text, source="docs/contract.md")


def _from_log_finding(rows: list[LogFinding], lang: str) -> Explanation:
    """A finding that this machine's logs tell: which causes become it."""
    causes = ", ".join(dict.fromkeys(row.cause for row in rows))
    worst = max((row.severity for row in rows if row.severity in SEVERITIES), key=SEVERITIES.index, default="info")
    text = (
        f"本机日志显示发生过以下原因之一：{causes}。时间越久，级别越低。"
        if lang == "zh"
        else f"The logs of this machine show one of these causes: {causes}. The older it is, the milder it counts."
    )
    exact = [row.cause for row in rows if "*" not in row.cause]
    action = cause_info(exact[0]).action if len(exact) == 1 and len(rows) == 1 else "collect_evidence"
    return Explanation("finding", rows[0].id, rows[0].id, worst, action, text, source="knowledge/data/checks/logs.toml")


def _from_row(row: Signature | Rule, lang: str, topic: str, groups: dict[str, str]) -> Explanation:
    """A signature or a rule, with the texts of its cause."""
    suffix = "zh" if lang == "zh" else "en"
    title = fill(getattr(row, f"title_{suffix}"), groups)
    if not row.cause:
        plain = "背景信息，本身不是故障原因。" if lang == "zh" else "Context for a diagnosis; no fault by itself."
        return Explanation(
            topic, row.id, title or row.id, "info", "none", " ".join(filter(None, (title, plain))), source=row.source
        )
    info = cause_info(row.cause)
    stop = "。" if lang == "zh" else ". "
    parts = [(title or getattr(info, f"title_{suffix}")).rstrip(".。"), getattr(info, f"text_{suffix}")]
    if row.role == "consequence":
        parts.append(
            "这类信息通常是后果，真正原因在更早的日志里。"
            if lang == "zh"
            else "Such a line mostly follows from something earlier."
        )
    return Explanation(
        topic=topic,
        code=row.id,
        name=title or getattr(info, f"title_{suffix}"),
        severity=info.severity if row.fatal else "info",
        action=row.action or info.action,
        text=stop.join(parts[:2]) + (" " if lang != "zh" else "") + "".join(parts[2:]),
        cause=row.cause,
        fault=(info.domain,),
        escalation=_ESCALATIONS.get(row.action or info.action, ()),
        source=row.source,
    )
