"""The fakes themselves: real bindings run on them, every SKU loads, every fault shows and heals, a hang hangs."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from fakes.faults import FAULTS, can_happen
from fakes.library import NoCompilerError, build_library, symbols
from fakes.server import Server, build_server
from fakes.skus import load_skus
from gpuclinic.model import Document
from gpuclinic.recognise.parsers.nvidia_smi_xml import parse_xml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SKUS = load_skus()
FALLBACKS = ("h100-sxm", "b200", "v100-sxm2-32gb", "rtx-a6000")
Servers = "Callable[[str], Server]"


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Server]:
    """A healthy server of a SKU, built once and healed for each test."""
    built: dict[str, Server] = {}

    def get(sku: str) -> Server:
        if sku not in built:
            try:
                built[sku] = build_server(tmp_path_factory.mktemp("fake") / sku, sku, 8 if sku in FALLBACKS else 2)
            except NoCompilerError as problem:
                pytest.skip(str(problem))
        else:
            built[sku].reset()
        return built[sku]

    return get


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Server], Any]]:
    """nvidia-ml-py on the library of a server, initialised."""
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    started: list[bool] = []

    def start(server: Server, *, init: bool = True) -> Any:
        monkeypatch.setenv("FAKE_NVML_SCENARIO", str(server.scenario_file))
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(server.library)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        if init:
            pynvml.nvmlInit()
            started.append(True)
        return pynvml

    yield start
    for _ in started:
        pynvml.nvmlShutdown()


def smi_facts(server: Server) -> list[dict[str, Any]]:
    """The GPUs as this project's own parser reads the fake nvidia-smi -q -x."""
    shown = subprocess.run(
        [server.bin / "nvidia-smi", "-q", "-x"], capture_output=True, text=True, check=False, env=server.env
    )
    return [dict(fact.fields) for fact in parse_xml(Document("nvidia-smi -q -x", shown.stdout)) if fact.kind == "gpu"]


def run(server: Server, *argv: str) -> subprocess.CompletedProcess[str]:
    """One of the server's commands."""
    return subprocess.run(
        [str(server.bin / argv[0]), *argv[1:]], capture_output=True, text=True, check=False, env=server.env
    )


# ---- healthy servers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sku", SKUS)
def test_a_sku_loads_and_nvml_smi_bus_and_proc_agree(sku: str, servers: Any, nvml: Any) -> None:
    server = servers(sku)
    n = nvml(server)
    facts = smi_facts(server)
    assert n.nvmlDeviceGetCount() == server.gpus == len(facts)
    for index, fact in enumerate(facts):
        handle = n.nvmlDeviceGetHandleByIndex(index)
        address = n.nvmlDeviceGetPciInfo(handle).busId.lower().removeprefix("0000")
        device = server.root / "sys/bus/pci/devices" / address
        assert n.nvmlDeviceGetName(handle) == SKUS[sku].name == fact["name"]
        assert address == fact["bus_id"] == server.address(index)
        assert n.nvmlDeviceGetMemoryInfo(handle).total == SKUS[sku].memory["total"] << 20
        assert n.nvmlDeviceGetMemoryInfo(handle).total >> 20 == fact["memory_total_mib"]
        assert n.nvmlDeviceGetTemperature(handle, 0) == fact["temperature_c"]
        assert (device / "device").read_text() == f"0x{SKUS[sku].device:04x}\n"
        assert (device / "driver").resolve().name == "nvidia"
        assert n.nvmlDeviceGetCurrPcieLinkWidth(handle) == int((device / "current_link_width").read_text())
        assert fact["uuid"] in (server.root / f"proc/driver/nvidia/gpus/{address}/information").read_text()
        assert (server.root / f"dev/nvidia{index}").exists()


@pytest.mark.parametrize("sku", SKUS)
def test_every_getter_answers_or_says_not_supported(sku: str, servers: Any, nvml: Any) -> None:
    server = servers(sku)
    n = nvml(server)
    handle = n.nvmlDeviceGetHandleByIndex(0)
    plain = [name for name in dir(n) if re.fullmatch(r"nvmlDeviceGet\w+", name)]
    answered = 0
    refused: dict[str, int] = {}
    for name in plain:
        try:
            getattr(n, name)(handle)
            answered += 1
        except n.NVMLError as problem:
            refused[name] = problem.value
        except (TypeError, AttributeError, KeyError, ValueError, ctypes.ArgumentError):
            continue  # wants more arguments
    assert answered >= 40
    usual = {
        n.NVML_ERROR_NOT_SUPPORTED,
        n.NVML_ERROR_NOT_FOUND,
        n.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        n.NVML_ERROR_INVALID_ARGUMENT,
    }
    assert {name: code for name, code in refused.items() if code not in usual} == {}


def test_all_symbols_are_exported_and_older_drivers_lack_the_newer_ones() -> None:
    try:
        newest, old = ctypes.CDLL(str(build_library())), ctypes.CDLL(str(build_library(450)))
    except NoCompilerError as problem:
        pytest.skip(str(problem))
    for name in symbols():
        assert hasattr(newest, name), name
    assert hasattr(old, "nvmlDeviceGetTemperature")
    assert not hasattr(old, "nvmlDeviceGetMemoryInfo_v2")
    assert not hasattr(old, "nvmlDeviceGetGpuFabricInfoV")


def test_field_values_carry_their_own_return_codes(servers: Any, nvml: Any) -> None:
    server = servers("h100-sxm")
    server.set({"2.ecc.ue.vol.dram": 3, "2.field.94": "!999", "2.nvlink.5.state": 0})
    n = nvml(server)
    values = n.nvmlDeviceGetFieldValues(
        n.nvmlDeviceGetHandleByIndex(2), [4, 94, 31, 91, (165, 5), (165, 6), 193, 230, 9999]
    )
    assert [value.nvmlReturn for value in values] == [0, 999, 3, 0, 0, 0, 0, 0, 2]
    assert values[0].value.ullVal == 3
    assert [values[at].value.uiVal for at in (3, 4, 5, 7)] == [18, 0, 1, 0]
    assert values[6].value.siVal == -8


def test_processes_and_mig(servers: Any, nvml: Any) -> None:
    server = servers("a100-sxm-80gb")
    server.inject("busy:0", "mig:1:3")
    n = nvml(server)
    (process,) = n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(0))
    assert (server.root / f"proc/{process.pid}/fd/12").readlink().as_posix() == "/dev/nvidia0"
    assert n.nvmlSystemGetProcessName(process.pid).endswith("python3")
    whole = n.nvmlDeviceGetHandleByIndex(1)
    instances = []
    for index in range(n.nvmlDeviceGetMaxMigDeviceCount(whole)):
        try:
            instances.append(n.nvmlDeviceGetMigDeviceHandleByIndex(whole, index))
        except n.NVMLError_NotFound:
            break
    assert len(instances) == 3
    assert n.nvmlDeviceGetUUID(instances[0]).startswith("MIG-")
    assert n.nvmlDeviceGetMemoryInfo(instances[0]).total == 10240 << 20


def test_counters_grow_by_read_and_by_time(servers: Any, nvml: Any) -> None:
    server = servers("h100-sxm")
    server.set({"5.ecc.ue.vol": "2+1", "5.pcie.replays": "10+1000/s"})
    n = nvml(server)
    handle = n.nvmlDeviceGetHandleByIndex(5)
    assert [n.nvmlDeviceGetTotalEccErrors(handle, 1, 0) for _ in range(3)] == [2, 3, 4]
    first = n.nvmlDeviceGetPcieReplayCounter(handle)
    time.sleep(0.05)
    assert n.nvmlDeviceGetPcieReplayCounter(handle) > first >= 10


def test_bindings_that_others_wrote_run_on_it(servers: Any) -> None:
    for module, argv in (("nvitop", ["-1"]), ("gpustat", ["--json"])):
        if importlib.util.find_spec(module) is None:
            continue
        server = servers("h100-sxm")
        done = subprocess.run(
            [sys.executable, "-m", module, *argv],
            env=server.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert "H100" in done.stdout
        return
    pytest.skip("neither nvitop nor gpustat is installed")


# ---- faults ----------------------------------------------------------------------------------------------------------


def sku_for(name: str) -> str:
    """A SKU on which the fault can happen."""
    return next(sku for sku in FALLBACKS if can_happen(SKUS[sku], name))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_changes_something_and_reset_heals_it(name: str, servers: Any) -> None:
    server: Server = servers(sku_for(name))
    healthy_files, healthy_scenario = dict(server.render()), dict(server.scenario)
    server.inject(name)
    assert (server.render(), dict(server.scenario)) != (healthy_files, healthy_scenario)
    assert FAULTS[name].what
    server.reset()
    assert server.render() == healthy_files
    written = {
        path.relative_to(server.folder).as_posix()
        for path in server.folder.rglob("*")
        if not path.is_dir() or path.is_symlink()
    }
    files = {
        path for path in healthy_files if not (server.folder / path).is_dir() or (server.folder / path).is_symlink()
    }
    assert written - {"scenario", "trace"} == files  # what another test asked for may lie there


def test_a_lost_gpu_is_lost_everywhere(servers: Any, nvml: Any) -> None:
    server = servers("h100-sxm")
    server.inject("lost:3")
    n = nvml(server)
    assert n.nvmlDeviceGetCount() == 8
    with pytest.raises(n.NVMLError_GpuIsLost):
        n.nvmlDeviceGetHandleByIndex(3)
    device = server.root / "sys/bus/pci/devices" / server.address(3)
    assert (device / "config").read_bytes()[:64] == b"\xff" * 64
    assert (
        f"{server.address(3)} 3D controller: NVIDIA Corporation NVIDIA H100 80GB HBM3 (rev ff)"
        in run(server, "lspci", "-vvv").stdout
    )
    shown = run(server, "nvidia-smi", "-q", "-x")
    assert shown.returncode == 15
    assert [fact.get("error") for fact in smi_facts(server)] == [None] * 3 + ["GPU is lost"] + [None] * 4
    for text in (
        run(server, "dmesg").stdout,
        run(server, "journalctl", "-k", "-b").stdout,
        (server.root / "var/log/kern.log").read_text(),
    ):
        assert re.search(rf"NVRM: Xid \(PCI:{server.address(3)[:-2]}\): 79, .*GPU has fallen off the bus", text)


@pytest.mark.parametrize(("fault", "code", "smi"), [
    ("no_driver", 9, 9), ("module_mismatch", 18, 18), ("no_permission", 4, 4), ("nvml_error:999", 999, 255), ("nouveau", 9, 9)])  # fmt: skip
def test_what_stops_nvml_stops_nvidia_smi(fault: str, code: int, smi: int, servers: Any, nvml: Any) -> None:
    server = servers("h100-sxm")
    server.inject(fault)
    n = nvml(server, init=False)
    with pytest.raises(n.NVMLError) as problem:
        n.nvmlInit()
    assert problem.value.value == code
    assert run(server, "nvidia-smi", "-L").returncode == smi
    assert (server.root / "proc/driver/nvidia/version").exists() == (fault not in ("no_driver", "nouveau"))


@pytest.mark.parametrize(("fault", "path", "pattern"), [
    ("pcie_width:1:8", "root/sys/bus/pci/devices/{gpu1}/current_link_width", r"^8\n"),
    ("aer_corrected:5:30000", "root/sys/bus/pci/devices/{gpu5}/aer_dev_correctable", r"BadTLP 30000\n[\s\S]*TOTAL_ERR_COR 30000"),
    ("nouveau", "root/proc/modules", r"^nouveau "),
    ("dkms_missing_for_next_kernel", "root/boot/grub/grub.cfg", r"vmlinuz-6\.8\.0-90-generic"),
    ("kernel_log:NVRM: a: b", "root/var/log/kern.log", r"kernel: \[.*\] NVRM: a: b\n"),
    ("psu_failed:2", "answers/ipmitool/6", r"PS2 Status +\| 0x0b +\| cr"),
    ("ib_down:1", "root/sys/class/infiniband/mlx5_1/ports/1/state", r"^1: DOWN"),
    ("zombie:4:77", "root/proc/77/status", r"State:\tZ \(zombie\)"),
    ("governor", "root/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", r"powersave"),
    ("service_down:slurmd", "answers/systemctl/slurmd", r"ActiveState=failed"),
    ("cdi_stale", "root/etc/cdi/nvidia.yaml", r"libcuda\.so\.570\.172\.08"),
    ("shm_small:64M", "root/proc/mounts", r"/dev/shm tmpfs .*size=64m"),
    ("read_only:/raid", "root/proc/mounts", r"/raid xfs ro"),
])  # fmt: skip
def test_a_fault_shows_where_a_real_server_shows_it(fault: str, path: str, pattern: str, servers: Any) -> None:
    server: Server = servers("h100-sxm")
    server.inject(fault)
    names = {f"gpu{index}": server.address(index) for index in range(server.gpus)}
    assert re.search(pattern, (server.folder / path.format(**names)).read_text(), re.MULTILINE)


@pytest.mark.parametrize(("fault", "field", "value"), [
    ("ecc_ue:2:3", "ecc_dram_uncorrected_volatile", 3), ("remap_pending:2", "remap_pending", True), ("remap_failed:2", "remap_failed", True),
    ("compute_mode:2:2", "compute_mode", "Prohibited"), ("recovery_action:2:1", "recovery_action", "Reset"), ("unreadable:2", "error", "Unknown Error"),
    ("reset_required:2", "error", "GPU requires reset"), ("pcie_gen:2:1", "pcie_gen", 1), ("sram_threshold:2", "sram_threshold_exceeded", True),
    ("ecc_off:2", "ecc_mode", "Disabled"), ("throttle:2:power_brake", "throttle_active", "HW Slowdown, HW Power Brake Slowdown")])  # fmt: skip
def test_nvidia_smi_tells_the_fault_of_the_right_gpu(fault: str, field: str, value: object, servers: Any) -> None:
    server = servers("h100-sxm")
    before = smi_facts(server)
    server.inject(fault)
    after = smi_facts(server)
    assert after[2].get(field) == value
    assert [fact for index, fact in enumerate(after) if index != 2] == [
        fact for index, fact in enumerate(before) if index != 2
    ]


def test_a_process_that_is_gone_is_in_nvml_and_not_in_proc(servers: Any, nvml: Any) -> None:
    server = servers("h100-sxm")
    server.inject("process_gone:4:4321")
    n = nvml(server)
    (process,) = n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(4))
    assert process.pid == 4321
    assert not (server.root / "proc/4321").exists()


def test_an_unknown_fault_is_refused(servers: Any) -> None:
    with pytest.raises(KeyError):
        servers("h100-sxm").inject("no_such_fault:1")


# ---- time ------------------------------------------------------------------------------------------------------------

HANGER = """
import ctypes, os, sys
n = ctypes.CDLL(sys.argv[1]); device = ctypes.c_void_p(); value = ctypes.c_uint()
assert n.nvmlInit_v2() == 0
assert n.nvmlDeviceGetHandleByIndex_v2(int(sys.argv[2]), ctypes.byref(device)) == 0
print("asking", flush=True)
n.nvmlDeviceGetTemperature(device, 0, ctypes.byref(value))
print("answered", flush=True)
"""


def test_a_hang_hangs_through_signals_and_only_its_own_call(servers: Any) -> None:
    server = servers("h100-sxm")
    server.inject("hang:temp:3:60")
    done = subprocess.run(
        [sys.executable, "-c", HANGER, server.library, "2"],
        env=server.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["asking", "answered"]
    with subprocess.Popen(
        [sys.executable, "-c", HANGER, server.library, "3"], env=server.env, stdout=subprocess.PIPE, text=True
    ) as hung:
        assert hung.stdout
        assert hung.stdout.readline() == "asking\n"
        time.sleep(0.3)
        hung.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            hung.wait(0.3)
        hung.kill()
        assert hung.stdout.read() == ""


def test_an_xid_event_arrives_and_an_idle_wait_takes_its_time(servers: Any, nvml: Any) -> None:
    server = servers("h100-sxm")
    n = nvml(server)
    events = n.nvmlEventSetCreate()
    for index in range(server.gpus):
        n.nvmlDeviceRegisterEvents(n.nvmlDeviceGetHandleByIndex(index), n.nvmlEventTypeXidCriticalError, events)
    begin = time.monotonic()
    with pytest.raises(n.NVMLError_Timeout):
        n.nvmlEventSetWait_v2(events, 150)
    assert time.monotonic() - begin >= 0.149
    server.inject("xid:3:94:Contained")
    found = n.nvmlEventSetWait_v2(events, 5000)
    assert (found.eventType, found.eventData) == (n.nvmlEventTypeXidCriticalError, 94)
    assert n.nvmlDeviceGetIndex(found.device) == 3
    n.nvmlEventSetFree(events)


def test_calls_cost_what_a_driver_takes(servers: Any, nvml: Any) -> None:
    server = servers("h100-sxm")
    server.set({"cost": 1, "cost.temp": 30_000, "trace": str(server.folder / "trace")})
    n = nvml(server)
    handle = n.nvmlDeviceGetHandleByIndex(1)
    begin = time.monotonic()
    n.nvmlDeviceGetTemperature(handle, 0)
    assert time.monotonic() - begin >= 0.03
    lines = (server.folder / "trace").read_text().splitlines()
    (server.folder / "trace").unlink()
    assert lines[-1] == f"{os.getpid()} nvmlDeviceGetTemperature 1"


# ---- commands --------------------------------------------------------------------------------------------------------


def test_commands_answer_as_they_are_asked(servers: Any, tmp_path: Path) -> None:
    server = servers("h100-sxm")
    assert run(server, "systemctl", "is-active", "nvidia-fabricmanager", "nothing").stdout.split() == [
        "active",
        "inactive",
    ]
    shown = run(server, "systemctl", "show", "-p", "Id,ActiveState", "slurmd", "docker").stdout
    assert re.findall(r"^Id=(.*)", shown, re.MULTILINE) == ["slurmd.service", "docker.service"]
    assert (
        json.loads(run(server, "journalctl", "-k", "-b", "-o", "json").stdout.splitlines()[0])["_TRANSPORT"] == "kernel"
    )
    assert "Restarting system" in run(server, "journalctl", "-b", "-1", "-n", "40", "-o", "short-iso").stdout
    assert len(run(server, "journalctl", "--list-boots").stdout.splitlines()) == 3
    assert run(server, "dkms", "status").stdout == "nvidia/580.105.08, 6.8.0-51-generic, x86_64: installed\n"
    assert run(server, "mokutil", "--sb-state").stdout == "SecureBoot disabled\n"
    assert "license:        Dual MIT/GPL" in run(server, "modinfo", "nvidia").stdout
    assert "NV18" in run(server, "nvidia-smi", "topo", "-m").stdout
    assert "26.562 GB/s" in run(server, "nvidia-smi", "nvlink", "-s").stdout
    assert run(server, "ipmitool", "sel", "elist").stdout == "SEL has no entries\n"
    for script in server.bin.iterdir():
        assert subprocess.run(["sh", "-n", script], check=False).returncode == 0, script.name
