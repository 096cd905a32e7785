"""Faults of the collective library itself: known ones by version and message, and runs that a switch cures."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuclinic.diagnose.candidates import Pool, Support
from gpuclinic.knowledge.library_bugs import FEATURE_SWITCH, PEER_SWITCH, Bug, bugs, numbers
from gpuclinic.model import LEVEL_CONFIDENCE, Signal

if TYPE_CHECKING:
    from gpuclinic.diagnose.evidence import Reading

_WELL = frozenset(
    [
        "run.completed", "run.exit_zero", "run.served",
        "run.serving", "run.health_ok", "nccl.tests_ok", "elastic.finished",
        "vllm.throughput", "run.results_written",
    ]
)  # fmt: skip
_GOES = frozenset(
    [
        "run.step", "run.epoch", "run.tqdm", "run.megatron", "run.meters", "run.meters_reversed", "run.hf_log",
        "nccl.tests_bandwidth",
    ]
)  # fmt: skip
_MANY_STEPS = 3
_EXCUSE = 0.7
"""From this strength on a fault of what the feature needs explains better why the job runs without the feature."""
_TROUBLE = (
    "nccl.shm_cuda_failure", "nccl.cuda_peer", "nccl.cuda_failure",
    "nccl.nvls_bind", "nccl.nvls_bind_no_memory", "nccl.wrapper",
    "nccl.tests_failed", "nccl.cumem_host_failed",
    "c10d.watchdog_timeout", "c10d.watchdog_timeout_no_rank", "cuda.illegal_access",
    "python.core_dumped", "ucx.caught_signal", "nccl.tests_wrong_values",
    "vllm.rpc_timeout", "vllm.no_broadcast_block", "app.hang", "glibc.heap_corruption",
    "nccl.proxy_uds", "elastic.worker_failed", "note.hangs",
)  # fmt: skip


def add_library_bugs(pool: Pool, reading: Reading) -> None:
    """Candidates net.nccl_bug and kernel.iommu_acs from versions, messages and pairs of runs."""
    by_id = reading.by_id()
    _known(pool, by_id)
    _cured_by_switch(pool, reading)
    _told_by_person(pool, by_id)


def _known(pool: Pool, by_id: dict[str, list[Signal]]) -> None:
    told = [
        s
        for s in [*by_id.get("nccl.version", ()), *by_id.get("nccl.version_in_error", ())]
        if s.groups.get("version") and s.groups.get("library", "NCCL") == "NCCL"
    ]
    versions = {numbers(s.groups["version"]) for s in told}
    for bug in bugs():
        lines = [s for name in bug.signals for s in by_id.get(name, ())]
        context = [s for name in bug.context for s in by_id.get(name, ())]
        if lines and (context or not bug.context) and any(bug.lowest <= v < bug.below for v in versions):
            _add(pool, lines[0], f"nccl_bug.{bug.id}", bug.level, [*lines[:2], *context[:1], *told[:1]], _texts(bug))


def _texts(bug: Bug) -> dict[str, str]:
    return {
        "title_en": f"A known fault of this NCCL version: {bug.what}",
        "title_zh": f"该 NCCL 版本的已知缺陷（{bug.id}）",
        "advice_en": f"Use another NCCL version (fixed in: {bug.fixed_in}). Workaround: {bug.workaround}.",
        "advice_zh": f"更换 NCCL 版本（修复于：{bug.fixed_in}）。临时办法：{bug.workaround}。",
    }


def _cured_by_switch(pool: Pool, reading: Reading) -> None:
    """Of two logs of the same job one failed, and the other, with a switch of the library set, did not."""
    by_source: dict[str, list[Signal]] = defaultdict(list)
    for signal in reading.signals:
        by_source[signal.where.source].append(signal)
    failed = {source: line for source, signals in by_source.items() if (line := _failure(signals)) is not None}
    for source, signals in by_source.items():
        if source in failed or not _ran(signals):
            continue
        for setting in signals:
            name = _switch(setting)
            if setting.signature not in ("nccl.env", "nccl.env_on_command") or not (
                FEATURE_SWITCH.match(name) or PEER_SWITCH.match(name)
            ):
                continue
            others = [line for other, line in failed.items() if not _sets(by_source[other], name)]
            if others:
                value = setting.groups.get("value") or setting.groups.get("value2") or ""
                _accuse(pool, others[0], setting, f"{name}={value.rstrip('.')}")
                return


def _switch(setting: Signal) -> str:
    return setting.groups.get("name") or setting.groups.get("name2") or ""


def _sets(signals: list[Signal], name: str) -> bool:
    return any(s.signature.startswith("nccl.env") and _switch(s) == name for s in signals)


def _failure(signals: list[Signal]) -> Signal | None:
    return next((s for name in _TROUBLE for s in signals if s.signature == name), None)


def _ran(signals: list[Signal]) -> bool:
    return any(s.signature in _WELL for s in signals) or sum(s.signature in _GOES for s in signals) >= _MANY_STEPS


def _told_by_person(pool: Pool, by_id: dict[str, list[Signal]]) -> None:
    """A note says that the job runs with a switch set."""
    for told in by_id.get("nccl.switch_helps", ()):
        if not (FEATURE_SWITCH.match(_switch(told)) or PEER_SWITCH.match(_switch(told))):
            continue
        failure = next((s for name in _TROUBLE for s in by_id.get(name, ())), None)
        if failure is not None:
            _accuse(pool, failure, told, f"{told.groups.get('name', '')}={told.groups.get('value', '')}")
            return


def _accuse(pool: Pool, failure: Signal, setting: Signal, switch: str) -> None:
    name = switch.split("=")[0]
    if PEER_SWITCH.match(name):
        _add(pool, failure, "peer_access.switch_cures", "strong", [setting, failure], {}, cause="kernel.iommu_acs")
        return
    if name == "NCCL_MNNVL_ENABLE":
        _add(pool, failure, "imex.switch_cures", "likely", [setting, failure], {}, cause="driver.imex")
        return
    texts = {
        "title_en": f"The job runs with {switch} and fails without: a fault of the collective library",
        "title_zh": f"设置 {switch} 后正常、不设则失败：通信库自身的缺陷",
        "advice_en": f"Keep {switch} until another NCCL version is installed.",
        "advice_zh": f"更换 NCCL 版本之前保留 {switch}。",
    }
    needs = ("driver.imex", "driver.fabric_manager", "hw.gpu.nvlink_error", "hw.gpu.nvswitch_error")
    excused = any(c.cause in needs and c.strength >= _EXCUSE for c in pool.all())
    _add(pool, failure, "nccl_bug.switch_cures", "hint" if excused else "decisive", [failure, setting], texts)


def _add(
    pool: Pool,
    line: Signal,
    name: str,
    level: str,
    shown: list[Signal],
    texts: dict[str, str],
    cause: str = "net.nccl_bug",
) -> None:
    support = Support(
        id=name, worth=LEVEL_CONFIDENCE[level], places=list(dict.fromkeys(s.where for s in shown)),
        moment=pool.timeline.clock(line), order=line.order,
        texts=texts, groups=line.groups, rank=line.rank, pid=line.pid,
    )  # fmt: skip
    pool.add(cause, support, host=line.host, source=line.where.source, subject={"gpu_index": line.gpu_index})
