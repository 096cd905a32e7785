"""Every fault alone and some in pairs: the right finding, on the right device, as grave as it is, and nothing else (fault_matrix.toml)."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fakes.faults import FAULTS, can_happen
from fakes.skus import load_skus
from gpuclinic.model import SEVERITIES

from .clinic_room import Room, seen_by, told

if TYPE_CHECKING:
    from fakes.server import Server
    from gpuclinic.model import Finding

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib  # type: ignore[no-redef]

TABLE: dict[str, list[dict[str, Any]]] = tomllib.loads((Path(__file__).parent / "fault_matrix.toml").read_text("utf-8"))
SKUS = load_skus()
NOT_SEEN_BY_CHECK = {
    "device_rights": "the fake's device nodes are plain files, since making true ones needs root",
    "ipmi_hangs": "no fault of the machine; test_healthy.py",
    "mtu_mixed": "the fake has one interface only, so that nothing says which MTU is the odd one",
    "nic_missing": "nothing says how many there should be",
    "own_name_missing": "names are only asked of the machine that the check runs on",
    "p2p_broken": "peer access is asked of nvidia-smi topo, which check does not start",
    "shm_small": "the fake has no file systems of its own",
    "storage_hog": "nine of 112 processors are no fault",
    "toolkit_missing": "Docker without GPUs is no fault",
}


def _sku(row: dict[str, Any]) -> str:
    return str(row.get("sku", "h100-sxm"))


def _cases(rows: list[dict[str, Any]]) -> list[Any]:
    """In the order of SKUs, so that a server is built once and healed in between."""
    out = []
    for row in sorted(rows, key=_sku):
        named = "+".join(row["faults"]) + "".join(
            f" {k}" for k in ("deep", "seconds", "expect_gpus", "files") if k in row
        )
        marks = [pytest.mark.slow] if row.get("slow") else []
        out.append(pytest.param(row, id=f"{_sku(row)} {named}", marks=marks))
    return out


def _places(server: Server, wanted: dict[str, Any]) -> list[tuple[str | None, str | None]]:
    """Address and subject of each finding that is meant."""
    gpu, subject = wanted.get("gpu"), wanted.get("subject")
    if gpu is None:
        return [(None, subject)]
    return [(server.address(one), subject) for one in (range(server.gpus) if gpu == "each" else [int(gpu)])]


def _is(finding: Finding, identity: str, severity: str, place: tuple[str | None, str | None]) -> bool:
    address, subject = place
    return (
        finding.id == identity
        and finding.severity == severity
        and finding.gpu == address
        and (subject is None or fnmatch.fnmatchcase(finding.subject, subject))
    )


def _judge(row: dict[str, Any], room: Room, patch: pytest.MonkeyPatch) -> None:
    server = room.server(_sku(row), faults=row["faults"])
    if "files" in row:
        server.machine.files.update(row["files"])
        server.write()
    options = {key: row[key] for key in ("deep", "expect_gpus") if key in row}
    answer = seen_by(server, patch, seconds=float(row.get("seconds", 0)), **options)
    shown = "\n".join(told(answer.findings, info=True))
    left = [finding for finding in answer.findings if finding.severity != "info"]
    for wanted in row["expect"]:
        for place in _places(server, wanted):
            fits = [f for f in answer.findings if _is(f, wanted["id"], wanted["severity"], place)]
            assert len(fits) == 1, f"{wanted} on {place}: {len(fits)} of these:\n{shown}"
            assert wanted.get("says", "") in fits[0].title, shown
            left = [finding for finding in left if finding is not fits[0]]
            index = fits[0].gpu_index
            assert index is None or server.address(index) == place[0], "another index than the address has"
    assert not left, f"more than was wrong:\n{shown}"
    worst = max((wanted["severity"] for wanted in row["expect"]), key=SEVERITIES.index, default="info")
    assert answer.verdict == row.get("verdict", "ok" if worst == "info" else worst)


@pytest.mark.parametrize("row", _cases(TABLE["fault"]))
def test_one_fault(row: dict[str, Any], room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    _judge(row, room, monkeypatch)


@pytest.mark.parametrize("row", _cases(TABLE["pair"]))
def test_two_faults(row: dict[str, Any], room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    _judge(row, room, monkeypatch)


def test_the_table_has_every_fault() -> None:
    """Each fault of the fakes stands in the table, or says why not; and only on SKUs where it can happen."""
    rows = [*TABLE["fault"], *TABLE["pair"]]
    named = {fault.partition(":")[0] for row in rows for fault in row["faults"]}
    assert not FAULTS.keys() - named - NOT_SEEN_BY_CHECK.keys()
    for row in rows:
        for fault in row["faults"]:
            assert can_happen(SKUS[_sku(row)], fault.partition(":")[0]), f"{fault} on {_sku(row)}"
    assert len({tuple(row["faults"]) for row in TABLE["fault"]}) >= 60
    assert len(TABLE["pair"]) >= 10


EVERYWHERE = [
    {"faults": [fault], "expect": [{"id": identity, "severity": severity, **place}]}
    for fault, identity, severity, place in (
        ("lost:0", "gpu.lost", "critical", {"gpu": 0}),
        ("missing:1", "gpu.missing_in_driver", "critical", {"gpu": 1}),
        ("reset_required:1", "gpu.needs_reset", "critical", {"gpu": 1}),
        ("hang:temp:0", "gpu.hung", "critical", {"gpu": 0}),
        ("unreadable:1:temp", "gpu.unreadable", "warning", {"gpu": 1}),
        ("inforom:0", "gpu.inforom_corrupt", "warning", {"gpu": 0}),
        ("ecc_ue:1", "gpu.ecc.uncorrectable", "critical", {"gpu": 1}),
        ("hot:1", "thermal.gpu.over_limit", "critical", {"gpu": 1}),
        ("clocks_locked:0", "gpu.clocks.low_under_load", "warning", {"gpu": 0}),
        ("process_gone:1", "process.gpu.dead_holder", "warning", {"subject": "43210", "gpu": 1}),
        ("zombie:0", "process.gpu.zombie_holder", "warning", {"subject": "43211", "gpu": 0}),
        ("module_not_loaded", "driver.module.not_loaded", "critical", {}),
        ("module_mismatch", "driver.library.mismatch", "critical", {}),
        ("nouveau", "driver.nouveau.bound", "critical", {}),
        ("dkms_broken", "driver.module.next_kernel", "warning", {}),
    )
]


@pytest.mark.slow
@pytest.mark.parametrize("sku", sorted(SKUS))
def test_the_gravest_on_every_model(sku: str, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    for row in EVERYWHERE:
        if all(can_happen(SKUS[sku], fault.partition(":")[0]) for fault in row["faults"]):
            _judge({**row, "sku": sku}, room, monkeypatch)
