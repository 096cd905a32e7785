"""What Slurm's configuration says of one node: its GPUs, their device files, and whether jobs are kept to theirs. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.model import digits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuclinic.model import Scalar

_MOST_NAMES = 65536
_PAIR = re.compile(r"(?P<name>[A-Za-z]\w*)\s*=\s*(?P<value>\"[^\"]*\"|\S+)")


def split_list(text: str) -> list[str]:
    """The entries of a host list; commas inside brackets do not part ("gpu[1,3],cpu1")."""
    return [piece for piece in re.split(r",(?![^\[\]]*\])", text[:20_000]) if piece]


def expanded(text: str) -> Iterator[str]:
    """Every name of a host list or file list: "gpu[01-03,7]" gives gpu01 gpu02 gpu03 gpu7; at most some ten thousand."""
    count = 0
    for piece in split_list(text):
        pending = [piece]
        while pending and count < _MOST_NAMES:
            name = pending.pop()
            found = re.search(r"\[([\d,-]+)\]", name)
            if found is None:
                count += 1
                yield name
                continue
            inner = [f"{name[: found.start()]}{number}{name[found.end() :]}" for number in _numbers(found[1])]
            pending.extend(reversed(inner[: _MOST_NAMES - count]))


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        low, _, high = part.partition("-")
        first, last = digits(low), digits(high or low)
        if first is not None and last is not None:
            for number in range(first, min(last, first + 20_000) + 1):
                yield str(number).zfill(len(low))


def in_list(name: str, text: str) -> bool:
    """A host is named by a host list; no list is written out for that."""
    for piece in split_list(text):
        pattern = "".join(
            f"(?P<n{place}>\\d+)" if part.startswith("[") else re.escape(part)
            for place, part in enumerate(re.split(r"(\[[\d,-]+\])", piece))
        )
        match = re.fullmatch(pattern, name)
        if match and all(
            _number_in(match[f"n{place}"], part[1:-1])
            for place, part in enumerate(re.split(r"(\[[\d,-]+\])", piece))
            if part.startswith("[")
        ):
            return True
    return False


def _number_in(number: str, ranges: str) -> bool:
    for part in ranges.split(","):
        low, _, high = part.partition("-")
        same_width = len(number) == len(low) or not low.startswith("0")
        first, one, last = digits(low), digits(number), digits(high or low)
        if same_width and None not in (first, one, last) and (first or 0) <= (one or 0) <= (last or 0):
            return True
    return False


def gpus_in_gres(gres: str) -> int | None:
    """GPUs of a Gres= value ("gpu:a100:8,nvme:1", "gpu:h100:4(S:0)", "gpu"); None where it names none. Shares (shard, mps) are no GPUs."""
    total = None
    for piece in split_list(gres.strip('"')):
        match = re.fullmatch(r"gpu(?::[A-Za-z_][\w.-]*)?(?::(?P<count>\d{1,9}))?(?:\([^)]*\))?", piece)
        if match:
            total = (total or 0) + int(match["count"] or 1)
    return total


class NodeConfig(NamedTuple):
    """known: the node stands in slurm.conf. gpus: configured there. shared: the GRES shard or mps is configured."""

    known: bool
    gpus: int | None
    shared: bool
    settings: dict[str, str]


def _records(text: str) -> Iterator[dict[str, str]]:
    """Lines as name (lower case) and value; a backslash at its end continues a line."""
    joined = re.sub(r"\\\s*\n", " ", text[: 8 << 20])
    for line in joined.splitlines()[:100_000]:
        bare = line.split("#", 1)[0].strip()
        if bare and "=" in bare:
            yield {match["name"].lower(): match["value"].strip('"') for match in _PAIR.finditer(bare[:8000])}


_SETTINGS = (
    "prologflags",
    "taskplugin",
    "proctracktype",
    "grestypes",
    "accountingstoragetres",
    "selecttype",
    "slurmdpidfile",
    "slurmdspooldir",
)


def node_config(text: str, name: str) -> NodeConfig:
    """slurm.conf as it is for this node; name: its short host name."""
    settings: dict[str, str] = {}
    default = ""
    known = False
    gres: str | None = None
    for row in _records(text):
        if "nodename" in row:
            if row["nodename"].upper() == "DEFAULT":
                default = row.get("gres", default)
            elif in_list(name, row["nodename"]) or in_list(name, row.get("nodehostname", "")):
                known = True
                gres = row.get("gres", default)
            continue
        settings.update({k: v for k, v in row.items() if k in _SETTINGS})
    gpus = gpus_in_gres(gres) if gres else None
    return NodeConfig(known, gpus, bool(gres and re.search(r"\b(?:shard|mps):", gres)), settings)


class GresFiles(NamedTuple):
    """files: device files of this node's GPUs; autodetect: "nvml", "rsmi", ... or None; shared: shard or mps lines."""

    files: tuple[str, ...]
    autodetect: str | None
    shared: bool


def gres_files(text: str, name: str) -> GresFiles:
    """gres.conf as it is for this node."""
    files: list[str] = []
    autodetect: str | None = None
    shared = False
    for row in _records(text):
        if "nodename" in row and not in_list(name, row["nodename"]):
            continue
        autodetect = row.get("autodetect", autodetect)
        kind = row.get("name", "").lower()
        shared = shared or kind in ("shard", "mps")
        if kind == "gpu":
            files += list(expanded(row.get("file", "")))[:1024] or list(expanded(row.get("multiplefiles", "")))[:1024]
    plain = tuple(dict.fromkeys(f for f in files if re.fullmatch(r"/dev/nvidia\d{1,3}", f)))
    off = (autodetect or "off").lower() == "off"
    return GresFiles(plain, None if off else autodetect, shared)


def constrains_devices(text: str | None) -> bool:
    """cgroup.conf keeps jobs to the devices they were given."""
    return any(row.get("constraindevices", "").lower() == "yes" for row in _records(text or ""))


def slurm_fields(
    config: NodeConfig,
    files: GresFiles | None,
    present: list[str] | None,
    real: int | None,
    *,
    constrained: bool | None,
) -> dict[str, Scalar]:
    """Fields of `slurm_node`. present: device nodes that exist, None where unknown; real: GPUs that this machine has, likewise."""
    absent = [f for f in files.files if f not in present] if files and present is not None else []
    return {
        "configured_gpus": config.gpus,
        "real_gpus": real,
        "gres_files": len(files.files) if files else None,
        "gres_absent": ",".join(absent[:16]) or None,
        "autodetect": files.autodetect if files else None,
        "shared_gres": config.shared or bool(files and files.shared),
        "constrain_devices": constrained,
    }
