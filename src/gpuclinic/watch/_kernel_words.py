"""Lines of the kernel's log through the recogniser, as events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.knowledge import load
from gpuclinic.model import Event
from gpuclinic.recognise.engine import Confirmer, make_engine
from gpuclinic.recognise.identity import pci_address
from gpuclinic.recognise.scan import StreamScanner, strip_escapes

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from gpuclinic.knowledge import Signature
    from gpuclinic.model import Fact, Scalar
    from gpuclinic.observe.kernel_follow import KernelLine

_CODES = {"nvrm.xid": "xid", "nvrm.sxid": "sxid"}
_KEPT = ("pid", "name", "link", "device", "path", "need", "total")
_NUMBERS = frozenset(("pid", "link"))


class KernelWords:
    """Holds the engine; loading it takes a moment and some 15 MB, so one is made at the start and kept."""

    def __init__(self) -> None:
        knowledge = load()
        self._signatures = knowledge.signatures
        engine = make_engine(knowledge.signatures, knowledge.stamp)
        self._scanner = StreamScanner(engine, Confirmer(knowledge.signatures))

    def events(self, lines: list[KernelLine], gpu_at: Callable[[str | None], Fact | None]) -> list[Event]:
        """An event for each line that a signature knows, be it only context. gpu_at: the GPU at a PCI address."""
        if not lines:
            return []
        data = b"\n".join(strip_escapes(line.text.replace("\n", " ").encode()) for line in lines)
        self._scanner.reset()
        out: list[Event] = []
        for found in self._scanner.scan_bytes(data):
            if 1 <= found.line <= len(lines):
                out.append(self._event(lines[found.line - 1], found.matches, gpu_at))
        return out

    def _event(
        self, line: KernelLine, matches: list[tuple[int, re.Match[str]]], gpu_at: Callable[[str | None], Fact | None]
    ) -> Event:
        named = [(self._signatures[number], match) for number, match in matches]
        coded = next(((s, m) for s, m in named if s.id in _CODES), None)
        signature, match = coded or min(named, key=lambda pair: _rank(pair[0]))
        groups = {name: text for name, text in match.groupdict().items() if text is not None}
        address = pci_address(groups.get("gpu", ""))
        gpu = gpu_at(address)
        fields: dict[str, Scalar] = {"signature": signature.id, "priority": line.priority}
        for name in _KEPT:
            text = groups.get(name)
            if text is not None:
                fields[name] = int(text) if name in _NUMBERS and text.lstrip("-").isdecimal() else text[:200]
        if coded is not None and groups.get("code", "").isdecimal():
            fields["code"] = int(groups["code"])
        others = sorted({s.id for s, _ in named} - {signature.id})
        if others:
            fields["also"] = ",".join(others)[:400]
        serial = None
        if gpu is not None:
            fields["gpu_index"] = gpu.fields.get("index")
            serial = str(gpu.fields["serial"]) if gpu.fields.get("serial") else None
        kind = _CODES.get(signature.id, "kernel") if "code" in fields else "kernel"
        return Event(line.at, kind, address or "", line.text[:500], fields, serial, address)


def _rank(signature: Signature) -> tuple[bool, bool]:
    """What names a cause, as a root, comes first."""
    return signature.cause is None, signature.role != "root"
