"""CUDA_VISIBLE_DEVICES of a process against the GPUs that exist, by the rules of the CUDA programming guide."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

_LARGEST = 1024


class Visible(NamedTuple):
    """asked: entries given. seen: how many of them CUDA takes (it stops at the first that does not exist).

    none_meant: "", "-1", "NoDevFiles" ...: the person wanted no GPU. bad: entries that do not exist. repeated: given twice,
    which makes CUDA show no device. ordinals: those that are plain numbers and valid.
    """

    asked: int
    seen: int
    none_meant: bool
    bad: tuple[str, ...]
    repeated: tuple[str, ...]
    ordinals: tuple[int, ...]


def visible(value: str, gpus: int | None, uuids: Collection[str] = ()) -> Visible:
    """gpus: how many the process can choose from, None where that is unknown. uuids: of GPUs and MIG devices that exist; none: unknown."""
    entries = [entry.strip() for entry in value[:4000].split(",")]
    if not any(entries) or re.fullmatch(r"-\d+|NoDevFiles|none|void", entries[0]):
        return Visible(0, 0, True, (), (), ())
    taken: list[str] = []
    bad: list[str] = []
    repeated: list[str] = []
    for entry in entries:
        if not _exists(entry, gpus, uuids):
            bad.append(entry)
        elif entry in taken:
            repeated.append(entry)
        elif not bad:
            taken.append(entry)
    seen = 0 if repeated else len(taken)
    ordinals = tuple(int(entry) for entry in taken if entry.isdecimal())
    return Visible(len(entries), seen, False, tuple(bad[:8]), tuple(repeated[:8]), ordinals)


def _exists(entry: str, gpus: int | None, uuids: Collection[str]) -> bool:
    if re.fullmatch(r"\d{1,4}", entry):
        return int(entry) < (gpus if gpus is not None else _LARGEST)
    if entry.startswith(("GPU-", "MIG-")):
        known = [uuid for uuid in uuids if uuid.startswith(entry[:4])]
        return not known or any(uuid.startswith(entry) for uuid in known) or entry.startswith("MIG-GPU-")
    return False
