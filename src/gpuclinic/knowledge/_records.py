"""What a row of knowledge looks like once it is loaded. Every row names its source."""

from __future__ import annotations

from typing import Any

import msgspec


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message family, as some software prints it.

    pattern: Python regular expression without look-around or back-references (Hyperscan compiles it too); its named
    groups become the signal's identity: gpu, gpu_index, uuid, pid, rank, host, name, and any other.
    unless: expressions of which none may match the line.
    where: kinds of text in which it counts ("kernel", "nccl", ...); empty means anywhere.
    cause: what it points at; empty for context.
    level: decisive, strong, likely, hint, context: how much it proves alone (model.LEVEL_CONFIDENCE).
    role: "root", or "consequence" for lines that by nature follow from something else.
    fatal: the line alone shows that something failed; False where healthy runs print it too.
    frequent: healthy runs print it all the time; of a huge log only its beginning and its end are searched for it.
    cleared_by: ids of signatures that, coming later for the same subject, take it back ("nfs: server OK").
    match and nomatch: lines that must and must not match; the tests run them all.
    """

    id: str
    pattern: str
    source: str
    match: list[str]
    nomatch: list[str] = []
    unless: list[str] = []
    ignore_case: bool = False
    where: list[str] = []
    cause: str = ""
    level: str = "context"
    role: str = "root"
    fatal: bool = True
    frequent: bool = False
    action: str = ""
    cleared_by: list[str] = []
    title_en: str = ""
    title_zh: str = ""
    advice_en: str = ""
    advice_zh: str = ""
    command: str = ""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A conclusion from facts and signals together.

    each: a fact kind; the rule is judged once for each fact of it, with its fields as names. Empty: judged once.
    when: a condition in the small language of diagnose.expression.
    evidence: fields of the fact at hand, "fact:KIND", "fact:KIND:FIELD" (those with the same FIELD) or "signal:ID" whose places are shown.
    drops: causes that are not believed where this holds (facts beat guesses); "*" for all but decisive ones.
    holds and holds_not: inputs as {kind = [fields...], signals = [ids...]} that the tests judge.
    """

    id: str
    when: str
    source: str
    each: str = ""
    cause: str = ""
    level: str = "context"
    role: str = "root"
    fatal: bool = True
    action: str = ""
    evidence: list[str] = []
    drops: list[str] = []
    title_en: str = ""
    title_zh: str = ""
    advice_en: str = ""
    advice_zh: str = ""
    command: str = ""
    holds: list[dict[str, list[Any]]] = []
    holds_not: list[dict[str, list[Any]]] = []


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to do: text in both languages, a command with {gpu} {gpu_index} {pid} {host} {rank} places, and what it risks."""

    en: str
    zh: str
    command: str = ""
    risk: str = "none"


class CauseInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cause: stable id, whose it is (domain), default action, and its texts."""

    id: str
    layer: str
    domain: str
    action: str
    severity: str
    title_en: str
    title_zh: str
    text_en: str
    text_zh: str
    source: str
    steps: list[Step] = []
    missing: list[Step] = []
