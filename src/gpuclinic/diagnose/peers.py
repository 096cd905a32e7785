"""What two hosts of one job tell differently: versions of the library, its settings, MTU and GID of their ports."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuclinic.diagnose.candidates import Pool, Support
from gpuclinic.model import LEVEL_CONFIDENCE, Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.diagnose.evidence import Reading

_RDMA_TROUBLE = ("nccl.ib_", "ucx.", "c10d.watchdog", "rdma.perftest")
_TROUBLE = (*_RDMA_TROUBLE, "nccl.wrapper", "nccl.recv_", "nccl.connect_", "nccl.bootstrap_size", "nccl.peer_closed")
_HARMLESS = ("nccl.ib_using", "nccl.ib_qp_info", "nccl.ib_no_device")
_PORT_SETTINGS = frozenset(
    ["NCCL_IB_GID_INDEX", "NCCL_IB_TC", "NCCL_IB_SL", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ROCE_VERSION_NUM"]
)
_TWO = 2
_MTU_BYTES = {"1": "256", "2": "512", "3": "1024", "4": "2048", "5": "4096"}


def add_differences(pool: Pool, reading: Reading) -> None:
    """Candidates from what differs between hosts, where something failed between them."""
    by_id = reading.by_id()
    names = [name for name in by_id if name not in _HARMLESS]
    if any(name.startswith(_RDMA_TROUBLE) for name in names):
        infos = by_id.get("nccl.ib_qp_info", [])
        _differ(pool, infos, lambda s: _MTU_BYTES.get(s.groups.get("mtu", "")), "MTU", "net.roce_config", "strong")
        _differ(pool, infos, lambda s: s.groups.get("gid_index"), "GID index", "net.roce_config", "likely")
        for name in sorted(_PORT_SETTINGS):
            told = [s for s in by_id.get("nccl.env", ()) if s.groups.get("name") == name]
            _differ(pool, told, lambda s: s.groups.get("value", "").rstrip("."), name, "net.roce_config", "likely")
    _both_ways(pool, by_id.get("ofi.efa_unreachable", []))
    if any(name.startswith(_TROUBLE) for name in names):
        mixed = "strong" if "nccl.bootstrap_truncated" in by_id else "likely"
        _differ(
            pool,
            by_id.get("nccl.version", []),
            lambda s: s.groups.get("version"),
            "NCCL",
            "compat.nccl_version",
            mixed,
        )


def _both_ways(pool: Pool, signals: list[Signal]) -> None:
    """Hosts that each find the other silent are both alive: the way between them is closed."""
    first: dict[str, Signal] = {}
    for signal in signals:
        if signal.host:
            first.setdefault(signal.host, signal)
    if len(first) >= _TWO:
        shown = list(first.values())[:3]
        support = Support(
            id="peers.both_ways",
            worth=LEVEL_CONFIDENCE["strong"],
            places=[s.where for s in shown],
            moment=pool.timeline.clock(shown[0]),
            order=shown[0].order,
            rank=shown[0].rank,
            pid=shown[0].pid,
        )
        pool.add("net.unreachable", support, host=None, source=shown[0].where.source, subject={})


def _differ(
    pool: Pool, signals: list[Signal], value: Callable[[Signal], str | None], what: str, cause: str, level: str
) -> None:
    """One candidate if the hosts' values have none in common."""
    told: dict[str, dict[str, Signal]] = defaultdict(dict)
    for signal in signals:
        text = value(signal)
        if signal.host and text:
            told[signal.host].setdefault(text, signal)
    hosts = list(told)
    for second in hosts[1:]:
        first = hosts[0]
        if set(told[first]) & set(told[second]):
            continue
        (mine, shown), (other, other_shown) = next(iter(told[first].items())), next(iter(told[second].items()))
        texts = {
            "title_en": f"{what} differs between the hosts: {mine} on {first}, {other} on {second}",
            "title_zh": f"各主机的 {what} 不一致：{first} 为 {mine}，{second} 为 {other}",
        }
        support = Support(
            id=f"peers.{cause}", worth=LEVEL_CONFIDENCE[level], places=[shown.where, other_shown.where],
            moment=pool.timeline.clock(shown), order=shown.order, texts=texts,
        )  # fmt: skip
        pool.add(cause, support, host=None, source=shown.where.source, subject={})
        return
