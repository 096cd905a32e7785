"""`nvidia-smi nvlink --status`, `-e`, `-c`: links of each GPU, their speed, state and error counters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_text import Draft, number, snake

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_GPU = re.compile(r"^[\s>|]*GPU (?P<index>\d{1,3}): (?P<name>.{1,80}?)(?: \(UUID: (?P<uuid>[^)]{1,60})\))?\s*$")
_LINK = re.compile(r"^[\s>|]*Link (?P<link>\d{1,2})(?:, | ?: ?)(?P<rest>\S.{0,120})$")
_SPEED = re.compile(r"^(\d{1,9}(?:\.\d{1,9})?) GB/s")
_PAIR = re.compile(r"^(?P<key>[A-Za-z][\w ./()-]{2,60}?)\s*:\s*(?P<value>\S.*)$")
_NO_LINKS = (
    ("as all links are inactive", "inactive"),
    ("does not have or support Nvlink", "unsupported"),
    ("Nvlink queries are not supported for Devices in MIG mode", "mig"),
    ("Unable to retrieve NVLink information", "unreadable"),
)
_ERRORS = ("error", "recovery", "replay", "crc")


def parse_nvlink(document: Document) -> list[Fact]:
    """Facts nvlink (one for each link) and nvlink_gpu (one for each GPU)."""
    facts: list[Fact] = []
    gpu: Draft | None = None
    links: dict[str, Draft] = {}
    for index, line in enumerate(document.lines()):
        if len(line) > 400:
            continue
        head = _GPU.match(line)
        if head:
            facts += _close(gpu, links)
            gpu, links = Draft(document, "nvlink_gpu", head["index"], index, line), {}
            gpu.fields.update(gpu_index=int(head["index"]), name=head["name"], uuid=head["uuid"])
            continue
        if gpu is None:
            continue
        for words, state in _NO_LINKS:
            if words.lower() in line.lower():
                gpu.put("state", state, index, line)
                break
        link = _LINK.match(line)
        if link:
            draft = links.get(link["link"])
            if draft is None:
                draft = Draft(document, "nvlink", f"{gpu.key}/{link['link']}", index, line)
                draft.fields.update(
                    gpu_index=gpu.fields["gpu_index"], gpu_key=gpu.key, link=int(link["link"]), name=gpu.fields["name"]
                )
                links[link["link"]] = draft
            _link(draft, link["rest"], index, line)
    return facts + _close(gpu, links)


def _link(draft: Draft, rest: str, index: int, line: str) -> None:
    speed = _SPEED.match(rest)
    if speed:
        draft.put("speed_gbs", float(speed.group(1)), index, line)
        draft.put("state", "active", index, line)
        return
    if "inactive" in rest.lower() or rest.lower().startswith(("disabled", "off")):
        draft.put("state", "inactive", index, line)
        return
    pair = _PAIR.match(rest)
    if pair:
        key = snake(pair["key"])[:60]
        value = number(pair["value"])
        if value is None:
            return
        draft.put(key, value, index, line)
        if any(word in key for word in _ERRORS) and "ber" not in key.split("_") and value > 0:
            known = draft.fields.get("errors")
            draft.put("errors", (known if isinstance(known, int | float) else 0) + value, index, line)
            draft.put("worst_error", pair["key"].strip(), index, line)


def _close(gpu: Draft | None, links: dict[str, Draft]) -> list[Fact]:
    if gpu is None:
        return []
    states = [d.fields.get("state") for d in links.values()]
    active, inactive = states.count("active"), states.count("inactive")
    if active or inactive:
        gpu.fields.update(links=active + inactive, active=active, inactive=inactive)
        bad = next((d for d in links.values() if d.fields.get("state") == "inactive"), None)
        if bad:
            gpu.lines["inactive"] = bad.lines["state"]
            gpu.fields["first_inactive"] = bad.fields["link"]
        gpu.fields.setdefault("state", "active" if not inactive else "partial" if active else "inactive")
    speeds = {d.fields.get("speed_gbs") for d in links.values() if d.fields.get("speed_gbs")}
    gpu.fields["speeds"] = len(speeds)
    facts = [d.fact() for d in links.values()]
    return [gpu.fact(), *facts] if links or gpu.fields.get("state") else []
