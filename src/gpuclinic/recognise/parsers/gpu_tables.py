"""The shipped tables that turn a name into numbers: GPU model, PyTorch build, CUDA release."""

from __future__ import annotations

import csv
import functools
import re

from gpuclinic.knowledge import DATA

TABLES = DATA / "tables"


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of a table of the knowledge, each a dictionary by column name."""
    with (TABLES / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _plain(name: str) -> str:
    return re.sub(
        r"[\s_]+", " ", re.sub(r"^(?:nvidia|geforce nvidia)\s+", "", name.strip(), flags=re.IGNORECASE)
    ).lower()


@functools.cache
def _models() -> dict[str, dict[str, str]]:
    models: dict[str, dict[str, str]] = {}
    for row in read_table("gpu_models.tsv"):
        for column in ("gpu", "nvml_name"):
            models.setdefault(_plain(row[column]), row)
    return models


@functools.cache
def _families() -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile(f"(?:{row['pattern']})", re.IGNORECASE), row["compute_capability"])
        for row in read_table("gpu_families.tsv")
    ]


@functools.lru_cache(maxsize=256)
def gpu_model(name: str) -> dict[str, str] | None:
    """The row of a GPU by the name NVML gives it; the whole name counts, since parts lie ("GH200" holds "H200")."""
    return _models().get(_plain(name))


@functools.lru_cache(maxsize=256)
def compute_capability(name: str) -> str | None:
    """The compute capability of a GPU by its name, also a cut one ("Tesla V100-PCIE..."); None where not certain."""
    row = gpu_model(name)
    if row:
        return row["compute_capability"]
    plain = _plain(name)
    cut = re.match(r"(.*?)\s*\.\.\.$", plain)
    if cut:
        starts = {r["compute_capability"] for known, r in _models().items() if known.startswith(cut.group(1))}
        return starts.pop() if len(starts) == 1 and len(cut.group(1)) > 9 else None
    for pattern, capability in _families():
        if pattern.fullmatch(plain):
            return capability
    return None


@functools.cache
def _torch_builds() -> dict[tuple[str, str], dict[str, str]]:
    builds: dict[tuple[str, str], dict[str, str]] = {}
    for row in read_table("torch_builds.tsv"):
        builds[(row["torch"], row["cuda_build"])] = row
        if row["pypi_default"] == "yes":
            builds[(row["torch"], "")] = row
    return builds


def torch_build(version: str, cuda: str | None) -> dict[str, str] | None:
    """The row of a PyTorch wheel ("2.1.0", "12.1"); without a CUDA version the one of the default index."""
    short = ".".join(version.split("+")[0].split(".")[:2])
    return _torch_builds().get((short, cuda or ""))


@functools.cache
def _cuda() -> dict[str, str]:
    return {row["cuda"]: row["lowest_driver"] or row["toolkit_driver"] for row in read_table("cuda_drivers.tsv")}


def lowest_driver(cuda: str) -> str | None:
    """The oldest Linux driver that runs programs of this CUDA release ("12.1"), by minor-version compatibility."""
    return _cuda().get(".".join(cuda.split(".")[:2])) or None


def cuda_of_tag(tag: str) -> str | None:
    """The CUDA release of a wheel's local version: "cu121" is 12.1, "cu92" 9.2; None for anything else."""
    found = re.search(r"(?<![a-z])cu(\d{2,3})(?![0-9])", tag)
    if not found:
        return None
    digits = found.group(1)
    return f"{digits[:-1]}.{digits[-1]}"
