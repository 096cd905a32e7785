"""Who holds the GPUs, as `check` shows it: a block of the verbose text and `holders` of the JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuclinic.report.masking import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.model import Fact
    from gpuclinic.report._page import Page

_FIELDS = (
    "pid", "user", "program", "command", "gpus", "memory_mib", "types", "state", "age_s", "job", "runtime", "container_id", "pod_uid",
    "slurm_job", "slurm_step", "unit", "named_by_nvml", "listed", "zombie", "orphan", "visible_devices", "allocator",
)  # fmt: skip
_MOST = 200


def holders(facts: Iterable[Fact]) -> list[dict[str, Any]]:
    """Each process that NVML names on a GPU or that has one open, who holds most first; memory in MiB, age in seconds. Unknown is null."""
    every = list(facts)
    names = {str(f.fields.get("id")): f.key for f in every if f.kind == "container" and f.fields.get("id")}
    rows: list[dict[str, Any]] = []
    for fact in every:
        if fact.kind != "gpu_holder":
            continue
        row: dict[str, Any] = {name: fact.fields.get(name) for name in _FIELDS}
        row["container_name"] = names.get(str(fact.fields.get("container")))
        rows.append(row)
    return sorted(rows, key=lambda row: (-float(row["memory_mib"] or 0), int(row["pid"])))[:_MOST]


def put_holders(page: Page, facts: Iterable[Fact], w: dict[str, str]) -> None:
    """The block; nothing where no process holds a GPU."""
    rows = holders(facts)
    if not rows:
        return
    page.section(w["holders"].format(count=len(rows)))
    for row in rows:
        size = "?" if row["memory_mib"] is None else f"{row['memory_mib']:,.0f}"
        place = w["holders.row"].format(
            gpus=row["gpus"] or "?", mib=size, pid=row["pid"], user=row["user"] or "?", program=row["program"] or "?"
        )
        page.item(clean(" · ".join([place, *_belongs(row, w)])))


def _belongs(row: dict[str, Any], w: dict[str, str]) -> list[str]:
    """Container, pod, job or unit, and what is odd about it."""
    out: list[str] = []
    if row["slurm_job"]:
        out.append(f"Slurm {row['slurm_job']}" + (f".{row['slurm_step']}" if row["slurm_step"] else ""))
    if row["pod_uid"]:
        out.append(f"pod {row['pod_uid']}")
    if row["container_id"]:
        out.append(f"{row['runtime']} {row['container_name'] or str(row['container_id'])[:12]}")
    if row["unit"] and not out:
        out.append(str(row["unit"]))
    out += [w[f"holders.{odd}"] for odd in ("zombie", "orphan") if row[odd]]
    if not row["named_by_nvml"]:
        out.append(w["holders.open"])
    return out
