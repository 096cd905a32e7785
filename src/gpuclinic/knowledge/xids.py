"""What each Xid and SXid means, and how the line around the code sharpens that meaning.

The catalogue is data (`data/xid.tsv`, `data/nvlink5.tsv`); a code nobody has listed is an answer too, never an error.
The driver's own words in a line (Fatal, Nonfatal, "GPU Reset Required") outrank the catalogue.
"""

from __future__ import annotations

import functools
import re

import msgspec

from gpuclinic.knowledge._load import DATA

NVLINK5 = range(144, 151)
"""Xids of NVLink 5 (Blackwell), whose meaning depends on unit and status words."""

_NVLINK5_LINE = re.compile(
    r"\b(?P<units>[A-Z][A-Z0-9_]+(?:/[A-Z0-9_]+)?)\s+(?P<word>Non-?fatal|Fatal)\s+XC(?P<context>\d+)\s+i(?P<instance>\d+)"
    r"\s+Link\s+(?P<link>-?\d{1,4})(?:\s+\((?P<words>[0-9a-fA-Fx ]+)\)?)?",
    re.IGNORECASE,
)
_RECOVERY = re.compile(
    r"recovery action (?:has )?changed from\s+0x[0-9a-f]+\s*\([^)]*\)"
    r"\s*to\s+0x(?P<now>[0-9a-f]{1,16})\s*\((?P<now_name>[^)]*)\)",
    re.IGNORECASE,
)
_RECOVERY_NAMES = {
    "none": "none",
    "gpu reset required": "reset_gpu",
    "reset": "reset_gpu",
    "gpu reset": "reset_gpu",
    "node reboot required": "reboot",
    "reboot": "reboot",
    "drain p2p": "drain_node",
    "drain and reset": "reset_gpu",
    "recover imex domain": "fix_config",
}
_RECOVERY_NUMBERS = {0: "none", 1: "reset_gpu", 2: "reboot", 3: "drain_node", 4: "reset_gpu", 5: "fix_config"}


class XidInfo(msgspec.Struct, frozen=True):
    """One code of the catalogue.

    name: the driver's mnemonic, None where nobody has listed the code. cause: id it points at, empty for context.
    level: how sure the code alone names that cause. role: root, or consequence of something before it.
    action: what the catalogue says to do for the code itself; escalation: what comes next if that does not help.
    fault: who may be to blame, most likely first.
    """

    kind: str
    code: int
    name: str | None
    severity: str
    action: str
    escalation: tuple[str, ...]
    fault: tuple[str, ...]
    cause: str
    level: str
    role: str
    text_en: str
    text_zh: str
    source: str


class NvLinkFault(msgspec.Struct, frozen=True):
    """An NVLink 5 line (Xid 144 to 150), decoded.

    units: as printed, one or two names. link: None where the line says -1. reason: why a link went down, else None.
    look_at: where the catalogue says to look next: link, cable, peer, software, host, vendor or empty.
    """

    units: str
    fatal: bool
    link: int | None
    words: tuple[int, ...]
    reason: int | None
    action: str
    look_at: str


class _Rule(msgspec.Struct, frozen=True):
    """One row of nvlink5.tsv."""

    units: frozenset[str]
    reason: int | None
    status: int
    fatal: bool
    action: str
    look_at: str


def _rows(name: str) -> list[dict[str, str]]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    head = lines[0].split("\t")
    return [dict(zip(head, line.split("\t"), strict=True)) for line in lines[1:] if line]


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


@functools.cache
def catalogue() -> dict[tuple[str, int], XidInfo]:
    """Every listed code, by kind ("xid", "sxid") and number."""
    return {
        (row["kind"], int(row["code"])): XidInfo(
            kind=row["kind"],
            code=int(row["code"]),
            name=row["mnemonic"],
            severity=row["severity"],
            action=row["action"],
            escalation=_listed(row["escalation"]),
            fault=_listed(row["fault"]),
            cause=row["cause"],
            level=row["level"],
            role=row["role"],
            text_en=row["text_en"],
            text_zh=row["text_zh"],
            source=row["source"],
        )
        for row in _rows("xid.tsv")
    }


def xid_info(kind: str, code: int) -> XidInfo:
    """What the catalogue says of a code; a record that says "unknown" where it says nothing."""
    found = catalogue().get((kind, code))
    if found is not None:
        return found
    word = "SXid" if kind == "sxid" else "Xid"
    return XidInfo(
        kind=kind,
        code=code,
        name=None,
        severity="warning",
        action="collect_evidence",
        escalation=("contact_vendor",),
        fault=(),
        cause="",
        level="context",
        role="root",
        text_en=f"{word} {code} is in no catalogue known here: keep the raw line and ask the vendor.",
        text_zh=f"{word} {code} 不在已知目录中：保留原始日志并联系厂商。",
        source="",
    )


@functools.cache
def _nvlink5_rules() -> dict[int, list[_Rule]]:
    found: dict[int, list[_Rule]] = {}
    for row in _rows("nvlink5.tsv"):
        found.setdefault(int(row["xid"]), []).append(
            _Rule(
                units=frozenset(row["units"].split("/")),
                reason=int(row["reason"]) if row["reason"] else None,
                status=int(row["status"], 16),
                fatal=row["fatal"] == "yes",
                action=row["action"],
                look_at=row["look_at"],
            )
        )
    return found


def _fits(rule: _Rule, reason: int, status: int) -> bool:
    if rule.reason is not None:
        return rule.reason == reason
    return rule.status == status or bool(rule.status & status)


def nvlink5_fault(code: int, text: str) -> NvLinkFault | None:
    """Decodes the text of Xid 144 to 150; None where it has not the form of such a line.

    The first word in brackets is the interrupt information: its bits 20 to 25 are the reason why a link went down.
    The second word is the error status. Bits of the status may be set together: the worst rule counts.
    """
    line = _NVLINK5_LINE.search(text) if code in NVLINK5 else None
    if line is None:
        return None
    words = tuple(int(word, 16) for word in (line["words"] or "").split() if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", word))
    fatal = line["word"].lower() == "fatal"
    units = line["units"].upper()
    reason = words[0] >> 20 & 0x3F if words else 0
    status = words[1] if len(words) > 1 else 0
    named = [rule for rule in _nvlink5_rules().get(code, []) if rule.units & set(units.split("/"))]
    fitting = [rule for rule in named if _fits(rule, reason, status)]
    agreeing = [rule for rule in fitting if rule.fatal == fatal] or fitting
    worst = max(agreeing, key=lambda rule: (rule.fatal, rule.action == "reset_gpu"), default=None)
    link_event = any(rule.reason is not None for rule in named)
    link = int(line["link"])
    agrees = worst is not None and worst.fatal == fatal
    return NvLinkFault(
        units=units,
        fatal=fatal,
        link=link if link >= 0 else None,
        words=words,
        reason=reason if link_event and words else None,
        action=worst.action if worst is not None and agrees else "reset_gpu" if fatal else "none",
        look_at=worst.look_at if worst else "",
    )


def recovery_action(text: str) -> str | None:
    """The action that an Xid 154 line asks for, in the contract's words; None where the text is no such line.

    Later lines of the same GPU take back earlier ones; "(None)" as the new state is "none".
    """
    line = _RECOVERY.search(text)
    if line is None:
        return None
    by_name = _RECOVERY_NAMES.get(" ".join(line["now_name"].lower().split()))
    return by_name or _RECOVERY_NUMBERS.get(int(line["now"], 16), "collect_evidence")


def _with_nvlink5(info: XidInfo, text: str) -> XidInfo:
    fault = nvlink5_fault(info.code, text)
    if fault is None:
        return info
    if fault.fatal:
        level, action = "strong", fault.action
        severity = "critical" if action == "reset_gpu" else "warning"
    else:
        level, action = "hint", fault.action if fault.action == "restart_app" else "none"
        severity = "warning" if action == "restart_app" else "info"
    role = "consequence" if fault.look_at == "peer" and not fault.fatal else "root"
    return msgspec.structs.replace(
        info, level=level, severity=severity, action=action, role=role, cause="hw.gpu.nvlink_error"
    )


def judge(kind: str, code: int, text: str = "", fatal_word: str = "") -> XidInfo:
    """The catalogue's record, sharpened by what the line itself says.

    text: what follows the code in the line. fatal_word: "Fatal" or "Non-fatal" as an SXid line prints it.
    """
    info = xid_info(kind, code)
    if kind == "sxid":
        return _with_fatal_word(info, fatal_word)
    if code in NVLINK5:
        return _with_nvlink5(info, text)
    if code in (94, 95) and re.search(r"\bRST: Yes", text):
        return msgspec.structs.replace(info, action="reset_gpu", severity="critical")
    if code == 154:
        action = recovery_action(text)
        if action:
            severity = "critical" if action in ("reset_gpu", "reboot") else "info" if action == "none" else "warning"
            return msgspec.structs.replace(info, action=action, severity=severity)
    return info


def _with_fatal_word(info: XidInfo, fatal_word: str) -> XidInfo:
    word = fatal_word.replace("-", "").replace(" ", "").lower()
    if word == "fatal":
        action = info.action if info.action in ("reset_gpu", "reboot", "reseat_or_power", "cool") else "reset_gpu"
        return msgspec.structs.replace(
            info, severity="critical", action=action, cause=info.cause or "hw.gpu.nvswitch_error", level="strong"
        )
    if word == "nonfatal":
        level = "hint" if info.cause and info.severity != "info" else "context"
        severity = "info" if info.severity == "info" else "warning"
        action = "none" if info.action in ("reset_gpu", "reboot", "reseat_or_power") else info.action
        return msgspec.structs.replace(
            info, severity=severity, action=action, level=level, cause=info.cause if level == "hint" else ""
        )
    return info
