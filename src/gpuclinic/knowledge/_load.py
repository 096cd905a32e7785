"""Reads the knowledge files. TOML is for people; a packed copy in the cache is for speed."""

from __future__ import annotations

import functools
import hashlib
import sys
from pathlib import Path
from typing import Any

import msgspec

from gpuclinic import __version__
from gpuclinic.knowledge._records import CauseInfo, Rule, Signature
from gpuclinic.store import read_cache, write_cache

DATA = Path(__file__).parent / "data"


class Knowledge(msgspec.Struct, frozen=True):
    """All signatures, rules and causes. stamp: identifies this state of the files."""

    signatures: list[Signature]
    rules: list[Rule]
    causes: list[CauseInfo]
    stamp: str = ""


def read_toml(path: Path) -> dict[str, Any]:
    """One TOML file as a dictionary."""
    if sys.version_info >= (3, 11):
        import tomllib as toml
    else:
        import tomli as toml
    with path.open("rb") as file:
        return toml.load(file)


def _files() -> list[Path]:
    return sorted(
        [*(DATA / "signatures").glob("*.toml"), *(DATA / "rules").glob("*.toml"), *(DATA / "causes").glob("*.toml")]
    )


def _stamp(files: list[Path]) -> str:
    digest = hashlib.blake2b(f"{__version__} {sys.version_info[:2]} 2".encode(), digest_size=12)
    for path in files:
        status = path.stat()
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()


def parse_files(files: list[Path]) -> Knowledge:
    """Knowledge from TOML, without the cache."""
    raw: dict[str, list[Any]] = {"signature": [], "rule": [], "cause": []}
    for path in files:
        for kind, rows in read_toml(path).items():
            raw[kind].extend(rows)
    return Knowledge(
        msgspec.convert(raw["signature"], list[Signature]),
        msgspec.convert(raw["rule"], list[Rule]),
        msgspec.convert(raw["cause"], list[CauseInfo]),
    )


@functools.cache
def load() -> Knowledge:
    """The shipped knowledge, from the cache where it is current."""
    files = _files()
    stamp = _stamp(files)
    name = f"knowledge-{stamp}.msgpack"
    packed = read_cache(name)
    if packed is not None:
        try:
            return msgspec.msgpack.decode(packed, type=Knowledge)
        except msgspec.DecodeError:
            pass  # a torn or foreign cache file: the TOML is the truth
    fresh = msgspec.structs.replace(parse_files(files), stamp=stamp)
    write_cache(name, msgspec.msgpack.encode(fresh))
    return fresh
