"""Which packages matter to GPUs, and where Python environments are (knowledge/data/tables/gpu_packages.tsv, environment_places.tsv)."""

from __future__ import annotations

import functools
from typing import NamedTuple

from gpuclinic.knowledge._load import DATA


class GpuPackage(NamedTuple):
    """module: the folder that it installs, empty where that does not tell. judged: the rules of compatibility know of it."""

    name: str
    module: str
    judged: bool
    role: str


class Place(NamedTuple):
    """place: a path; ~ is each home, * any name. depth, deep_depth: levels below it that are searched, in a quick and in a deep look.

    what: walk (search below), list (environments.txt in it names them), sites (folders of packages lie in it), root (of a container).
    """

    place: str
    what: str
    depth: int
    deep_depth: int


def _rows(name: str, cells: int) -> list[list[str]]:
    lines = (DATA / "tables" / name).read_text(encoding="utf-8").splitlines()[1:]
    return [row for line in lines if len(row := line.split("\t")) == cells]


@functools.cache
def gpu_packages() -> dict[str, GpuPackage]:
    """The packages that decide whether a program runs on a GPU, by name."""
    return {row[0]: GpuPackage(row[0], row[1], row[2] == "yes", row[3]) for row in _rows("gpu_packages.tsv", 5)}


@functools.cache
def environment_places() -> tuple[Place, ...]:
    """Where environments are looked for, in that order."""
    return tuple(Place(row[0], row[1], int(row[2]), int(row[3])) for row in _rows("environment_places.tsv", 5))


def environment_problem(code: str, about: str, lang: str) -> str:
    """What is wrong with an environment's files, as a sentence (tables/environment_problems.tsv); the code itself where the table has it not."""
    row = next((row for row in _problems() if row[0] == code), None)
    return row[2 if lang == "zh" else 1].replace("{about}", about) if row is not None else f"{code}: {about}"


@functools.cache
def _problems() -> list[list[str]]:
    return _rows("environment_problems.tsv", 3)


@functools.cache
def glibc_of_release(distribution: str, version: str) -> str | None:
    """The C library of a distribution's release (tables/c_libraries.tsv), by ID and VERSION_ID of os-release(5)."""
    rows = {(row[0], row[1]): row[2] for row in _rows("c_libraries.tsv", 4)}
    return rows.get((distribution, version)) or rows.get((distribution, version.partition(".")[0]))
