"""NVML that hangs in any one call: `check` answers in time, names the GPU, and reports all others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuclinic.observe import nvml
from gpuclinic.observe.nvml import Deadlines, ask_nvml

from .clinic_room import FastHost, Room, seen_by, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakes.server import Server
    from gpuclinic.clinic.checking import CheckAnswer

ANSWERS_WITHIN = 5.0
"""Seconds in which `check` has to answer, whatever NVML does."""
SHORT = Deadlines(init=1.2, device=0.6, whole=4.0)
"""Deadlines that a loaded machine keeps and a test can wait for."""
HANGS_FOR = "30"

GET = (
    "AccountingMode AddressingMode ApplicationsClock Architecture BAR1MemoryInfo BoardId BoardPartNumber Brand ClockInfo ComputeMode \
    ComputeRunningProcesses_v3 CudaComputeCapability CurrPcieLinkGeneration CurrPcieLinkWidth CurrentClocksEventReasons DecoderUtilization \
    DefaultApplicationsClock DisplayActive DisplayMode EccMode EncoderUtilization EnforcedPowerLimit FanSpeed FieldValues GpuFabricInfoV GpuMaxPcieLinkGeneration \
    GraphicsRunningProcesses_v3 GspFirmwareMode GspFirmwareVersion HandleByIndex_v2 InforomImageVersion MPSComputeRunningProcesses_v3 \
    MarginTemperature MaxClockInfo MaxCustomerBoostClock MaxPcieLinkGeneration MaxPcieLinkWidth MemoryErrorCounter MemoryInfo_v2 MigMode \
    MinorNumber ModuleId Name NumaNodeId NvLinkRemoteDeviceType NvLinkRemotePciInfo_v2 PciInfo_v3 PerformanceState PersistenceMode \
    PowerManagementDefaultLimit PowerManagementLimitConstraints RepairStatus RetiredPages RetiredPagesPendingStatus RowRemapperHistogram \
    Serial SramEccErrorStatus SupportedClocksEventReasons Temperature TemperatureThreshold TotalEccErrors TotalEnergyConsumption UUID \
    UnrepairableMemoryFlag_v1 UtilizationRates VbiosVersion ViolationStatus VirtualizationMode"
)
CALLS = [*(f"nvmlDeviceGet{name}" for name in GET.split()), "nvmlDeviceValidateInforom"]
"""All that the quick look asks of a GPU (test_the_list_has_every_call)."""
OF_THE_SYSTEM = {
    "nvmlInitWithFlags", "nvmlShutdown", "nvmlDeviceGetCount_v2", "nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion", "nvmlSystemGetProcessName",
}  # fmt: skip
TOGETHER = 7
GROUPS = [CALLS[start : start + TOGETHER] for start in range(0, len(CALLS), TOGETHER)]


class Patient(FastHost):
    """Asks NVML with the tests' deadlines."""

    def __init__(self, root: str = "") -> None:
        super().__init__(root, lambda deep, sample: ask_nvml(SHORT, deep=deep, sample=sample, root=root))


def _named(call: str) -> str:
    """As reports name a call: without the version of its symbol."""
    return call.rsplit("_v", 1)[0]


def _tells(answer: CheckAnswer, server: Server, hangs: dict[int, str]) -> None:
    """A critical finding for each GPU that hangs, which names the call, and nothing else; all others are reported."""
    above = [finding for finding in answer.findings if finding.severity != "info"]
    shown = "\n".join(told(answer.findings, info=True))
    assert {f.gpu: f.id for f in above} == {server.address(gpu): "gpu.hung" for gpu in hangs}, shown
    assert len(above) == len(hangs), shown
    for finding in above:
        index = next(gpu for gpu in hangs if server.address(gpu) == finding.gpu)
        assert finding.severity == "critical"
        assert finding.gpu_index == index
        assert _named(hangs[index]) in finding.title
    assert answer.verdict == "critical"
    read = {
        fact.fields["bus_id"]
        for fact in answer.facts
        if fact.kind == "gpu" and fact.fields.get("temperature_c") and not fact.fields.get("hung")
    }
    assert read == {server.address(gpu) for gpu in range(server.gpus) if gpu not in hangs}


def test_the_list_has_every_call(room: Room, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = room.server("h100-sxm", 8, ["busy:0"])
    trace = tmp_path / "trace"
    server.set({"trace": str(trace)})
    seen_by(server, monkeypatch)
    called = {line.split()[1] for line in trace.read_text().splitlines()}
    assert called - OF_THE_SYSTEM == set(CALLS)


@pytest.mark.parametrize("calls", GROUPS, ids=[f"{group[0]} to {group[-1]}" for group in GROUPS])
def test_seven_gpus_hang_in_a_call_each(calls: list[str], room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    server = room.server("h100-sxm")
    hangs = dict(enumerate(calls))
    server.set({f"{gpu}.hang.{call}": HANGS_FOR for gpu, call in hangs.items()})
    _tells(seen_by(server, monkeypatch, Patient), server, hangs)


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_one_gpu_hangs(call: str, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the deadlines that people get, and by the clock."""
    server = room.server("h100-sxm")
    server.set({f"3.hang.{call}": HANGS_FOR})
    started = time.monotonic()
    answer = seen_by(server, monkeypatch)
    assert time.monotonic() - started < ANSWERS_WITHIN
    _tells(answer, server, {3: call})


@pytest.mark.parametrize("sku", ["v100-sxm2-32gb", "geforce-4090"])
def test_other_models(sku: str, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    server = room.server(sku)
    server.set({"1.hang.temp": HANGS_FOR})
    _tells(seen_by(server, monkeypatch, Patient), server, {1: "nvmlDeviceGetTemperature"})


_FIRST = ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetTemperature"]


@pytest.mark.parametrize(
    "call", [call if call in _FIRST else pytest.param(call, marks=pytest.mark.slow) for call in CALLS]
)
def test_all_gpus_hang(call: str, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    server = room.server("h100-sxm")
    server.set({f"all.hang.{call}": HANGS_FOR})
    _tells(seen_by(server, monkeypatch, Patient), server, dict.fromkeys(range(8), call))


@pytest.mark.parametrize("stage", ["init", "count", "driver_version"])
def test_the_start_hangs(stage: str, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    server = room.server("h100-sxm")
    server.set({f"hang.{stage}": HANGS_FOR})
    answer = seen_by(server, monkeypatch, Patient)
    [found] = [f for f in answer.findings if f.severity != "info"]
    assert (found.id, found.severity, answer.verdict) == ("gpu.nvml.hung", "critical", "critical")


@pytest.mark.parametrize("stage", ["shutdown", "process_name"])
def test_what_hangs_when_all_is_told_costs_no_gpu(stage: str, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    server = room.server("h100-sxm", 8, ["busy:0"])
    server.set({f"hang.{stage}": HANGS_FOR})
    answer = seen_by(server, monkeypatch, Patient)
    assert len([f for f in answer.facts if f.kind == "gpu" and f.fields.get("temperature_c")]) == 8
    assert not [f for f in answer.findings if f.gpu and f.severity != "info"]


def test_the_deadlines_leave_room_for_the_rest() -> None:
    """NVML's own come first; what is asked after it took a quarter of a second where it was measured."""
    default = Deadlines()
    assert default.init <= default.whole
    assert default.whole <= ANSWERS_WITHIN - 0.5
    assert 2 * default.device <= default.whole, "the first child's deadline, then that of those that are asked alone"


# ---- children that cannot be killed


@pytest.fixture
def stuck() -> Iterator[Callable[[], list[int]]]:
    """Children of ours that live; those that a test left are ended after it."""

    def living() -> list[int]:
        return [int(pid) for pid in Path("/proc/thread-self/children").read_text("ascii").split() if _lives(int(pid))]

    before = set(living())
    yield lambda: sorted(set(living()) - before)
    for child in list(nvml._unreaped):
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
    nvml._unreaped.clear()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("times", [10, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_checks_leave_one_stuck_child_a_device(
    times: int, room: Room, monkeypatch: pytest.MonkeyPatch, stuck: Callable[[], list[int]], tmp_path: Path
) -> None:
    server = room.server("h100-sxm")
    server.set({"1.hang.temp": "3600", "3.hang.processes": "3600"})
    hangs = {1: "nvmlDeviceGetTemperature", 3: "nvmlDeviceGetComputeRunningProcesses"}

    class Unkillable(FastHost):
        def __init__(self, root: str = "") -> None:
            def ask(deep: bool, sample: int) -> dict[str, Any]:
                return ask_nvml(SHORT, deep=deep, sample=sample, root=root, runtime=tmp_path, end=lambda _pid: None)

            super().__init__(root, ask)

    for _ in range(times):
        answer = seen_by(server, monkeypatch, Unkillable)
        critical = {f.gpu: f.id for f in answer.findings if f.severity == "critical"}
        assert critical == {server.address(gpu): "gpu.hung" for gpu in hangs}, told(answer.findings)
    until = time.monotonic() + 5
    while len(stuck()) > len(hangs) and time.monotonic() < until:
        time.sleep(0.02)  # the last check's reader of files is about to be gone
    assert len(stuck()) == len(hangs)


# ---- the command itself, by the clock


@pytest.mark.slow
@pytest.mark.parametrize("key", ["3.hang.temp", "all.hang.temp", "hang.init", "hang.count", "3.hang.handle"])
def test_the_command_answers_in_time(key: str, room: Room) -> None:
    server = room.server("h100-sxm")
    server.set({key: HANGS_FOR})
    server.machine.hangs["nvidia-smi"] = 30.0
    server.write()
    source = os.pathsep.join(path for path in sys.path if path.endswith("src"))
    environment = {**server.env, "PYTHONPATH": source or os.environ.get("PYTHONPATH", "")}
    command = [sys.executable, "-m", "gpuclinic", "check", "--json"]
    subprocess.run(command, env=environment, capture_output=True, check=False)  # its caches
    started = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, check=False, text=True, timeout=60)
    taken = time.monotonic() - started
    assert done.returncode == 2
    assert json.loads(done.stdout)["verdict"] == "critical"
    assert taken < ANSWERS_WITHIN
