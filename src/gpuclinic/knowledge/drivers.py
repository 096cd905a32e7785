"""What is known of driver branches: how long they are kept up, which GPUs they drive, on which kernels they do not build."""

from __future__ import annotations

import calendar
import csv
import functools
import re
from typing import NamedTuple

from gpuclinic.knowledge._load import DATA


class Architecture(NamedTuple):
    """Of a PCI device. module: "open", "proprietary" or "either"; first_branch, last_branch: that drive it, None where open-ended."""

    name: str
    module: str
    first_branch: int | None
    last_branch: int | None


class Branch(NamedTuple):
    """name: "535". kind: LTSB, production ... end: Unix time of its end of life, None where not published.

    latest: the end was not published, and is known to lie before that time only.
    """

    name: str
    kind: str
    end: float | None
    latest: bool
    source: str


class BadPair(NamedTuple):
    """A driver that does not work on a kernel without a patch."""

    what_en: str
    what_zh: str
    fixed_in: str
    source: str


def _rows(name: str) -> list[dict[str, str]]:
    with (DATA / "tables" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@functools.cache
def _architectures() -> tuple[tuple[int, int, Architecture], ...]:
    return tuple(
        (
            int(row["first_id"], 16),
            int(row["last_id"], 16),
            Architecture(row["architecture"], row["module"], _whole(row["first_branch"]), _whole(row["last_branch"])),
        )
        for row in _rows("gpu_architectures.tsv")
    )


def _whole(text: str) -> int | None:
    return int(text) if text else None


def architecture_of(device_id: str) -> Architecture | None:
    """By the PCI device id ("2330"); None for ids of no known range."""
    if not re.fullmatch(r"[0-9a-fA-F]{4}", device_id):
        return None
    number = int(device_id, 16)
    return next((found for first, last, found in _architectures() if first <= number <= last), None)


@functools.cache
def _branches() -> dict[str, Branch]:
    return {
        row["branch"]: Branch(
            row["branch"],
            row["type"],
            _end(row["end_of_life"].removeprefix("by ")),
            row["end_of_life"].startswith("by "),
            row["source"],
        )
        for row in _rows("driver_branches.tsv")
    }


def _end(text: str) -> float | None:
    """The last moment of a month "2026-06"."""
    found = re.fullmatch(r"(\d{4})-(\d\d)", text)
    if not found:
        return None
    year, month = int(found[1]), int(found[2])
    return float(calendar.timegm((year + month // 12, month % 12 + 1, 1, 0, 0, 0)))


def branch_of(version: str) -> Branch | None:
    """The branch of a driver's version; None where the table has none."""
    return _branches().get(version.partition(".")[0])


def bad_pair(driver: str, kernel: str) -> BadPair | None:
    """What is known to go wrong with this driver on this kernel; versions as they stand in file names."""
    mine, its = _numbers(driver), _numbers(kernel)
    for row in _rows("driver_kernels.tsv"):
        if not _numbers(row["driver_from"]) <= mine < _numbers(row["driver_below"]):
            continue
        if its >= _numbers(row["kernel_from"]) and (not row["kernel_below"] or its < _numbers(row["kernel_below"])):
            return BadPair(row["what_en"], row["what_zh"], row["fixed_in"], row["source"])
    return None


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: of a kernel's, what stands before the distribution's own number."""
    found = re.match(r"\d{1,9}(?:\.\d{1,9})*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
