"""From whatever a person or a driver calls a GPU to its compute capability and kind."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.compat.versions import Numbers, capability, numbers
from gpuclinic.knowledge.compat import tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuclinic.knowledge.compat import Gpu

MOST_KINDS = 32


class Card(NamedTuple):
    """kind: data_centre, geforce, workstation, jetson, or "" where only the capability is known. machine: of one soldered to a CPU, else ""."""

    label: str
    capability: Numbers
    kind: str
    first_driver: str
    machine: str

    @property
    def cc(self) -> str:
        """ "8.6"."""
        return ".".join(map(str, self.capability))


def _rows_for(plain: str) -> Iterator[Gpu]:
    """The rows that can name it, those first that hold its first word as it stands: to compile all patterns takes longer than all else."""
    first = re.match(r"[a-z]*\d*", plain)
    word = first[0] if first else ""
    rows = tables().gpus
    if word:
        yield from (row for row in rows if word in row.pattern)
    yield from (row for row in rows if not word or word not in row.pattern)


def cards_of(text: str) -> tuple[list[Card], list[str]]:
    """The GPUs that a text names, and the parts of it that no table knows."""
    cards: list[Card] = []
    unknown: list[str] = []
    for part in re.split(r"\s*(?:[,;+|\n]|\band\b|(?<!\w)&(?!\w))\s*", text.strip()[:2000])[:MOST_KINDS]:
        if not part:
            continue
        card = card_of(part)
        if card is None:
            unknown.append(part[:80])
        elif card not in cards:
            cards.append(card)
    if not cards and not unknown:
        unknown.append(text.strip()[:80])
    return cards, unknown


def card_of(text: str) -> Card | None:
    """One GPU; None where no table knows it."""
    plain = re.sub(r"^\s*(?:gpu\s*\d+\s*:\s*|[1-9]\d{0,3}\s*[x×*]\s*)", "", text.strip(), flags=re.IGNORECASE)
    plain = re.sub(r"\s*(?:\(uuid:.*|(?<![a-z])[x×*]\s*\d{1,4})\s*$", "", plain, flags=re.IGNORECASE)
    direct = capability(
        re.sub(r"^(?:cuda\s+)?(?:compute[_ ]?cap(?:ability)?|capability|cc)\s*[:=]?\s*", "", plain, flags=re.IGNORECASE)
    )
    if direct is not None:
        known = any(numbers(row.capability) == direct for row in tables().architectures)
        return Card(text.strip(), direct, "", "", "") if known else None
    device = re.search(r"(?:10de:|0x)([0-9a-f]{4})(?:10de)?\b|^([0-9a-f]{4})$", plain, re.IGNORECASE)
    if device and not re.fullmatch(r"\d0[5-9]0", plain):
        named = _pci().get((device[1] or device[2]).upper())
        if named:
            label = f"{text.strip()} ({named})"
            return _named(named, label)
    return _named(plain, text.strip())


def _named(text: str, label: str) -> Card | None:
    """By the product; where the chip is named, too ("GK208 [GeForce GT 730]"), it decides the capability: some products had several."""
    product, chip = _by_name(text, label), _by_chip(text, label)
    return product._replace(capability=chip.capability) if product and chip else product or chip


def vendor_of(text: str) -> str:
    """Whose the accelerator is, where it is known not to be NVIDIA's; else ""."""
    lower = text.lower()
    if "nvidia" in lower or "geforce" in lower:
        return ""
    return next((row.vendor for row in tables().vendors if re.search(row.pattern, lower)), "")


def _by_chip(text: str, label: str) -> Card | None:
    """From lspci's "GA102GL [RTX A6000]": where no table has the product, the chip tells its capability, though not what kind of card it is."""
    found = re.match(r"(?:nvidia (?:corporation )?)?(g[fkmpvahb]\d{2}[\dxb]|tu\d{3}|ad\d{3})", text.strip().lower())
    if not found:
        return None
    row = next((row for row in tables().chips if re.fullmatch(row.pattern, found[1])), None)
    return Card(label, numbers(row.capability), "geforce" if "geforce" in text.lower() else "", "", "") if row else None


@functools.cache
def _pci() -> dict[str, str]:
    return {row.device: row.name for row in tables().pci}


@functools.lru_cache(512)
def _by_name(name: str, label: str) -> Card | None:
    plain = normal(name)
    for row in _rows_for(plain):
        if re.fullmatch(row.pattern, plain):
            return Card(label, numbers(row.capability), row.kind, row.first_driver, row.machine)
    return None


_NOISE = re.compile(
    r"\b(?:nvidia|corporation|geforce|tesla|gpus?|graphics( card| device)?|cards?|accelerators?|hgx|ac|oem|vgpu|tensor core|superchip|lhr|"
    r"systems?|board|"
    r"per|sxm\d?|pcie?|nvl\d*|hbm\d?e?|gddr\dx?|\d+ ?g(?:i?b)?|mig( .*)?|laptop|notebook|mobile|max q|server|workstation|embedded|edition|"
    r"instances?|aws|gcp|azure|with|design|(?:ga|ad|tu|gv|gp|gm|gk)\d{3}\w*(?= .)|gh100|gb1\d\d|gb20[2-9]|"
    r"architecture|blackwell architecture|active|founders)\b"
)


def normal(name: str) -> str:
    """A name without makers, memory sizes, form factors and punctuation: "NVIDIA A100-SXM4-40GB" -> "a100"."""
    text = re.sub(r"\((r|tm)\)|[®™]", "", name.lower())
    text = re.sub(r"\bdgx[- _]?(?:station[- _]?)?(?=[abh]\d|gb\d|gh\d)", " ", text)
    text = re.sub(r"[-_./,()\[\]:]+", " ", text)
    text = re.sub(r"\b(rtx|gtx|gt|titan|mx|quadro|pro)(?=\d)", r"\1 ", text)
    text = re.sub(r"\bmx (?=\d)", "mx", text)
    text = re.sub(r"(?<=\d)(ti|super)\b", r" \1", text)
    text = re.sub(r"\b(\d0[5-9]0) ?d\b", r"\1 d", text)
    text = re.sub(r"\bgrid (v100|a100|t4|p40|p4|m60|a10|a40)\w*( \d+[abcq])?$", r"\1", text)
    text = re.sub(
        r"\b(a100|a10|a16|a2|a30|a40|l4|l40|l40s|h100|h100l|h200|t4|v100\w?|p40|rtx ?\w+) \d+[abcq]$", r"\1", text
    )
    text = _NOISE.sub(" ", text)
    text = re.sub(r"\bh100l?\b", "h100", text)
    return re.sub(r"\s+", " ", text).strip()
