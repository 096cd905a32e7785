"""What leaves the machine in a capture: secrets masked always, names replaced where that was asked for."""

from __future__ import annotations

import fnmatch
import functools
import re
import zlib
from typing import TYPE_CHECKING

from gpuclinic.knowledge import DATA
from gpuclinic.observe.archives import DAMAGE, Budget, buffered, compression, decompressed, problem_of
from gpuclinic.recognise.secret_names import kind_of
from gpuclinic.recognise.secrets import HIDDEN, mask, masked_cmdline

if TYPE_CHECKING:
    import io

    from gpuclinic.recognise.anonymising import Anonymiser

_MOST_UNPACKED = 64 << 20
_SEPARATORS = "\x1e\x1f\x1d\x1c"
"""Stand in for NUL while masking: the patterns take them for blanks."""
_ENVIRON = re.compile(r"root/proc/[^/]+/environ\Z")
_CMDLINE = re.compile(r"root/proc/\d+/cmdline\Z")
_ENV_LIST = re.compile(r"(\"(?:Env|env|Environment)\"\s*:\s*\[)((?:\s*\"(?:[^\"\\]|\\.)*\"\s*,?){0,5000})(\s*\])")
_ENV_PAIR = re.compile(
    r"(\{\s*\"(?:name|key)\"\s*:\s*\"([A-Z][A-Z0-9_]{0,200})\"\s*,\s*\"value\"\s*:\s*\")((?:[^\"\\]|\\.)*)(?=\"\s*\})"
)
_UNIT_LINE = re.compile(r"(?m)^[ \t]*(?:Default|Manager)?Environment=.*$")
_UNIT_ITEM = re.compile(
    r"([\"'])([A-Za-z_]\w*)=([^\"']*)(?=\1)|(?<![\w\"'=])()([A-Za-z_]\w*)=([^\s\"']+|\"[^\"]*\"|'[^']*')"
)
_ENV_ITEM = re.compile(r"\"([A-Za-z_]\w*)=(?:[^\"\\]|\\.)*\"")
_SECRET_NAME = re.compile(
    r"(?i)token|secret|passw|passphrase|credential|api_?key|access_?key|private_?key|_pat\Z|_jwt\Z|cookie"
)


@functools.cache
def kept_variables() -> re.Pattern[str]:
    """Names of environment variables that a capture keeps (tables/kept_variables.tsv)."""
    rows = (DATA / "tables" / "kept_variables.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return re.compile("|".join(fnmatch.translate(row.split("\t")[0]) for row in rows if row))


def _holds_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) or kind_of(name) is not None


class Scrubber:
    """Makes answers fit to leave the machine. variables: how many variables of processes were left out."""

    def __init__(self, anonymiser: Anonymiser | None = None) -> None:
        self._anonymiser = anonymiser
        self.variables = 0
        self.unreadable: list[str] = []

    def words(self, text: str) -> str:
        """A short text: a path, an argument, a reason."""
        text = mask(text)
        return text if self._anonymiser is None else self._anonymiser.text(text)

    def data(self, name: str, data: bytes) -> bytes:
        """What an answer holds. name: as in the snapshot ("root/proc/1/environ"), which tells what some of them are."""
        if _ENVIRON.fullmatch(name):
            data = self._environment(data)
        elif _CMDLINE.fullmatch(name):
            data = masked_cmdline(data)
        kind = compression(data[:16])
        if kind is not None:
            return self._packed(name, data, kind)
        text = data.decode("utf-8", "surrogateescape")
        clean = masked(text)
        if '"Env"' in clean or '"env"' in clean or '"Environment"' in clean:
            clean = _ENV_LIST.sub(lambda m: m[1] + _ENV_ITEM.sub(self._env_item, m[2]) + m[3], clean)
        if '"env' in clean:
            clean = _ENV_PAIR.sub(self._env_pair, clean)
        if "Environment=" in clean:
            clean = _UNIT_LINE.sub(lambda m: self._unit_line(m[0]), clean)
        if self._anonymiser is not None:
            if "\0" in clean and not name.startswith("root/proc/"):
                return self._anonymiser.binary(clean.encode("utf-8", "surrogateescape"))
            clean = self._anonymiser.text(clean)
        return data if clean is text else clean.encode("utf-8", "surrogateescape")

    def _environment(self, data: bytes) -> bytes:
        kept: list[bytes] = []
        for part in data.split(b"\0"):
            if not part:
                continue
            name = part.partition(b"=")[0].decode("utf-8", "replace")
            if kept_variables().match(name):
                kept.append(name.encode() + b"=" + HIDDEN.encode() if _holds_secret(name) else part)
            else:
                self.variables += 1
        return b"".join(part + b"\0" for part in kept)

    def _env_item(self, found: re.Match[str]) -> str:
        return found[0] if self._shown(found[1]) else f'"{found[1]}={HIDDEN}"'

    def _env_pair(self, found: re.Match[str]) -> str:
        return found[0] if self._shown(found[2]) else found[1] + HIDDEN

    def _unit_line(self, line: str) -> str:
        """Environment="NAME=value" OTHER=value of a unit."""
        start, _, rest = line.partition("=")
        return f"{start}=" + _UNIT_ITEM.sub(self._unit_item, rest)

    def _unit_item(self, found: re.Match[str]) -> str:
        name = found[2] or found[5]
        return found[0] if self._shown(name) else f"{found[1] or ''}{name}={HIDDEN}"

    def _shown(self, name: str) -> bool:
        """Whether a capture keeps what a variable holds; counts those that it does not keep."""
        shown = bool(kept_variables().match(name)) and not _holds_secret(name)
        self.variables += not shown
        return shown

    def _packed(self, name: str, data: bytes, kind: str) -> bytes:
        """A compressed file: unpacked, scrubbed, packed again; left out where it cannot be looked into."""
        import io

        try:
            stream = decompressed(buffered(io.BytesIO(data)), kind, len(data), Budget())
            plain = _up_to(stream, _MOST_UNPACKED)
            if not plain and problem_of(stream) is not None:
                raise OSError(problem_of(stream))
            inner = self.data(name, plain) if compression(plain[:16]) is None else b""
            return _packed_again(inner, kind)
        except (*DAMAGE, ImportError) as problem:
            self.unreadable.append(f"{name}: {problem}")
            return b""


def unpacked_text(data: bytes) -> str:
    """The text of an answer, unpacked where it is compressed; what cannot be unpacked is nothing."""
    import io

    kind = compression(data[:16])
    if kind is not None:
        try:
            data = _up_to(decompressed(buffered(io.BytesIO(data)), kind, len(data), Budget()), _MOST_UNPACKED)
        except DAMAGE:
            data = b""
    return data.decode("utf-8", "surrogateescape").replace("\0", "\n")


def _up_to(stream: io.BufferedReader, most: int) -> bytes:
    out = bytearray()
    while len(out) < most and (piece := stream.read(min(1 << 20, most - len(out)))):
        out += piece
    return bytes(out)


def _packed_again(data: bytes, kind: str) -> bytes:
    if kind == "xz":
        import lzma

        return lzma.compress(data, preset=1)
    if kind == "bz2":
        import bz2

        return bz2.compress(data)
    if kind == "zst":
        import importlib

        try:
            packed = importlib.import_module("zstandard").ZstdCompressor().compress(data)
        except ImportError:
            packed = importlib.import_module("compression.zstd").compress(data)
        return bytes(packed)
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def masked(text: str) -> str:
    """A text of any size with its secrets masked; the same object where there were none."""
    nul = next((c for c in _SEPARATORS if c not in text), None) if "\0" in text else None
    if nul is not None:
        text = text.replace("\0", nul)
    clean = mask(text)
    return clean.replace(nul, "\0") if nul is not None else clean
