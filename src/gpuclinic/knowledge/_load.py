"""Reads the knowledge files. TOML is for people; a packed copy in the cache is for speed."""

from __future__ import annotations

import functools
import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gpuclinic import __version__
from gpuclinic.knowledge._records import CauseInfo, Rule, Signature
from gpuclinic.store import read_cache, toml_loads, write_cache

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
DATA = Path(__file__).parent / "data"


class Knowledge(msgspec.Struct, frozen=True):
    """All signatures, rules and causes. stamp: identifies this state of the files."""

    signatures: list[Signature]
    rules: list[Rule]
    causes: list[CauseInfo]
    stamp: str = ""


def read_toml(path: Path) -> dict[str, Any]:
    """One TOML file as a dictionary."""
    return toml_loads(path.read_text(encoding="utf-8"))


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
    return _cached(
        f"knowledge-{stamp}.msgpack", lambda: msgspec.structs.replace(parse_files(files), stamp=stamp), Knowledge
    )


def packed(name: str, files: list[Path], parse: Callable[[dict[str, list[Any]]], _T], shape: type[_T]) -> _T:
    """Tables of TOML files, their arrays of the same name joined, from the cache where it is current."""

    def fresh() -> _T:
        raw: dict[str, list[Any]] = {}
        for path in files:
            for kind, rows in read_toml(path).items():
                raw.setdefault(kind, []).extend(rows)
        return parse(raw)

    return _cached(f"{name}-{_stamp(files)}.msgpack", fresh, shape)


def packed_files(name: str, files: list[Path], fresh: Callable[[], _T], shape: type[_T]) -> _T:
    """What `fresh` makes of the files, from the cache where it is current."""
    return _cached(f"{name}-{_stamp(files)}.msgpack", fresh, shape)


def _cached(name: str, fresh: Callable[[], _T], shape: type[_T]) -> _T:
    held = read_cache(name)
    if held is not None:
        try:
            return msgspec.msgpack.decode(held, type=shape)
        except msgspec.DecodeError:
            pass  # a torn or foreign cache file: the TOML is the truth
    made = fresh()
    write_cache(name, msgspec.msgpack.encode(made))
    return made
