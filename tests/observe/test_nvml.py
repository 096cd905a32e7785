"""NVML asked through the true bindings and a fake library that refuses, hangs and crashes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from nvml_server import SHORT, Asked, asked

from gpuclinic.model import Document
from gpuclinic.observe import nvml
from gpuclinic.observe._nvml_answers import Answers
from gpuclinic.observe._nvml_journal import LOADING, SIZE, Journal, Now, now, records
from gpuclinic.observe._stuck import Ledger, Stuck, start_time, waited_for_a_processor
from gpuclinic.observe.nvml import Deadlines, ask_nvml, begin_nvml
from gpuclinic.recognise.parsers.nvml import parse_nvml

__all__ = ["asked"]


def reason(document: dict[str, Any]) -> str:
    facts = parse_nvml(Document("nvml", json.dumps(document)))
    return str(next(f.fields["reason"] for f in facts if f.kind == "nvml"))


def children() -> list[int]:
    """Children of this process that still live."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


# ---- what a healthy server says


def test_a_healthy_server_is_told_whole(asked: Asked) -> None:
    document = asked.document("h100-sxm", 8)
    assert document["init"] == {"code": 0}
    assert document["count"] == 8
    assert document["library"] == os.environ["GPUCLINIC_NVML"] == document["asked_for"]
    assert document["system"]["driver_version"].startswith("5")
    assert [d["index"] for d in document["devices"]] == list(range(8))
    for device in document["devices"]:
        assert device["hung"] is None
        assert {e["code"] for e in device["errors"].values()} <= {3, 13}
        assert device["bus_id"].startswith("0000:")
        assert device["values"]["memory_total_mib"] == 81559
        assert device["values"]["ecc_uncorrected_volatile"] == 0
        assert device["values"]["fabric_state"] == "Completed"
        assert len(device["nvlinks"]) == 18
    assert document["stuck"] == []
    assert reason(document) == "ok"
    json.dumps(document)


SKUS = (
    "t4",
    "v100-sxm2-32gb",
    "a100-sxm-80gb",
    "l40s",
    "h100-pcie",
    "gh200",
    "b200",
    "gb300",
    "geforce-4090",
    "rtx-a6000",
)


@pytest.mark.parametrize("sku", SKUS)
def test_no_sku_has_anything_unreadable(asked: Asked, sku: str) -> None:
    document = asked.document(sku, 1)
    (gpu,) = [f for f in parse_nvml(Document("nvml", json.dumps(document))) if f.kind == "gpu"]
    assert "unreadable" not in gpu.fields
    assert "denied" not in gpu.fields
    assert "error" not in gpu.fields
    assert isinstance(gpu.fields["temperature_c"], int)


def test_sixteen_devices_stay_small(asked: Asked) -> None:
    document = asked.document("b200", 16)
    assert len(document["devices"]) == 16
    assert len(json.dumps(document)) < 400_000


def test_an_older_library_lacks_functions_and_nothing_else(asked: Asked) -> None:
    from fakes.library import build_library

    asked.build("a100-sxm-80gb", 2)
    document = asked.ask(library=str(build_library(450)))
    assert document["init"]["code"] == 0
    (first, _) = document["devices"]
    assert first["values"]["temperature_c"] > 0
    assert first["values"]["memory_total_mib"] > 0  # by the first version of the question
    assert first["errors"]["t_limit_c"]["code"] == 13


def test_mig_devices_and_processes(asked: Asked) -> None:
    asked.build("a100-sxm-80gb", 1, {
        "0.mig.mode": "1", "0.mig.pending": "1", "0.mig.0.uuid": "MIG-1", "0.mig.0.gi": "1", "0.mig.0.ci": "0", "0.mig.0.memory.total": "9856",
        "0.mig.0.memory.used": "120", "0.mig.0.profile": "1g.10gb",
        "0.proc.compute": "4242:1073741824:1:0,4243:N/A", "0.proc.graphics": "4243:1048576",
    })  # fmt: skip
    (device,) = asked.ask(deep=True)["devices"]
    by_pid = {row["pid"]: row for row in device["processes"]}
    assert by_pid[4242]["memory_mib"] == 1024
    assert (by_pid[4242]["gi"], by_pid[4242]["ci"]) == (1, 0)
    assert by_pid[4243]["type"] == "C+G"
    assert device["values"]["mig_mode"] == "Enabled"
    assert [row["device"] for row in device["mig"]] == [0]
    assert device["mig"][0]["gi"] == 1


def test_throughput_is_asked_only_where_wanted(asked: Asked) -> None:
    asked.build("h100-sxm", 1)
    assert "pcie_tx_kbs" not in asked.ask()["devices"][0]["values"]
    assert "pcie_tx_kbs" in asked.ask(deep=True)["devices"][0]["values"]


def test_the_same_from_a_process_with_threads(asked: Asked) -> None:
    forked = asked.document("a100-sxm-80gb", 2)
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        spawned = asked.ask(Deadlines(init=10.0, device=5.0, whole=20.0))
    finally:
        release.set()
        thread.join()
    assert spawned["init"] == {"code": 0}
    assert [sorted(d["values"]) for d in spawned["devices"]] == [sorted(d["values"]) for d in forked["devices"]]


def test_beside_other_work(asked: Asked) -> None:
    asked.build("b200", 8, {"2.hang.temp": "30"})
    finish = begin_nvml(SHORT, runtime=asked.runtime)
    beside, alone = finish(), asked.ask()
    assert [d["index"] for d in beside["devices"] if d["hung"]] == [2]
    assert [sorted(d["values"]) for d in beside["devices"]] == [sorted(d["values"]) for d in alone["devices"]]


def test_a_process_beside_that_dies_is_told(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_has_one_thread", lambda: True)  # a runner of tests may have more
    asked.build("h100-sxm", 1, {"hang.init": "30"})
    before = set(children())
    finish = begin_nvml(Deadlines(20.0, 20.0, 20.0), runtime=asked.runtime)
    (pid,) = set(children()) - before
    os.kill(pid, signal.SIGKILL)
    document = finish()
    assert "did not answer" in document["init"]["error"]
    assert reason(document) == "failed"
    assert set(children()) == before


def test_no_descriptor_and_no_child_is_left(asked: Asked) -> None:
    asked.build("h100-sxm", 2, {"1.hang.temp": "30"})
    asked.ask()
    before = sorted(Path("/proc/self/fd").iterdir())
    mine = children()
    asked.ask()
    assert sorted(Path("/proc/self/fd").iterdir()) == before
    assert children() == mine


def test_a_child_holds_none_of_our_pipes(asked: Asked) -> None:
    """Whoever reads our output must see its end, though a child hangs for ever."""
    asked.build("h100-sxm", 1, {"0.hang.temp": "30"})
    script = (
        "from pathlib import Path;from gpuclinic.observe.nvml import ask_nvml,Deadlines\n"
        f"d=ask_nvml(Deadlines(5.0,0.5,9.0),runtime=Path({str(asked.runtime)!r}),end=lambda pid:print(pid))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=25, check=True)
    pid = int(done.stdout)
    for _ in range(200):  # the parent's death takes it along
        if start_time(pid) is None:
            break
        time.sleep(0.05)
    else:
        os.kill(pid, signal.SIGKILL)
        pytest.fail("the child outlived its parent though it could die")


# ---- NVML does not load or start


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("9", "driver_not_loaded"),
        ("18", "mismatch"),
        ("4", "no_permission"),
        ("999", "failed"),
        ("12", "library_missing"),
    ],
)
def test_start_refused(asked: Asked, code: str, expected: str) -> None:
    asked.build("h100-sxm", 2, {"init": code})
    document = asked.ask()
    assert document["init"]["code"] == int(code)
    assert document["init"]["error"]
    assert document["devices"] == []
    assert reason(document) == expected


def test_driver_runs_but_its_device_node_is_absent(asked: Asked) -> None:
    built = asked.build("h100-sxm", 2, {"init": "9"})
    (built.root / "dev" / "nvidiactl").unlink()
    document = asked.ask()
    assert document["init"]["control_device"] == "missing"
    assert reason(document) == "no_device_nodes"


def test_no_devices(asked: Asked) -> None:
    asked.build("h100-sxm", 2, {"count": "0"})
    document = asked.ask()
    assert document["count"] == 0
    assert reason(document) == "no_devices"


def test_library_missing(asked: Asked) -> None:
    document = asked.ask(library=str(asked.folder / "libnvidia-ml.so.1"))
    assert document["init"]["load"] == "missing"
    assert reason(document) == "library_missing"
    assert document["library"] is None


def test_library_that_is_no_library(asked: Asked) -> None:
    path = asked.folder / "libnvidia-ml.so.1"
    path.write_text("not found\n" * 400)
    document = asked.ask(library=str(path))
    assert document["init"]["machine"] == "no ELF file"
    assert reason(document) == "library_foreign"


def test_library_of_another_processor(asked: Asked) -> None:
    built = asked.build("h100-sxm", 1)
    path = asked.folder / "libnvidia-ml.so.1"
    data = bytearray(built.library.read_bytes())
    struct.pack_into("<H", data, 18, 183 if data[18] != 183 else 62)
    path.write_bytes(data)
    document = asked.ask(library=str(path))
    assert document["init"]["machine"] in ("64-bit aarch64", "64-bit x86-64")
    assert reason(document) == "library_foreign"


def test_library_that_is_no_nvml(asked: Asked) -> None:
    asked_for = next((n for n in ("libm.so.6", "libc.so.6") if shutil.which("true")), "libm.so.6")
    document = asked.ask(library=asked_for)
    assert "no NVML" in document["init"]["error"]
    assert reason(document) == "library_foreign"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_library_that_may_not_be_read(asked: Asked) -> None:
    path = asked.folder / "libnvidia-ml.so.1"
    path.write_bytes(b"x")
    path.chmod(0)
    assert reason(asked.ask(library=str(path))) == "library_unreadable"


def test_found_as_the_loader_finds_it(asked: Asked) -> None:
    built = asked.build("h100-sxm", 1)
    env = {**built.env, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    env.pop("GPUCLINIC_NVML")
    script = "import json;from gpuclinic.observe.nvml import *;print(json.dumps(ask_nvml(Deadlines(9.0,5.0,20.0))))"
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, check=True, timeout=60)
    document = json.loads(done.stdout)
    assert document["asked_for"] == "libnvidia-ml.so.1"
    assert document["library"] == str(built.library)
    assert document["count"] == 1


# ---- one device refuses


@pytest.mark.parametrize(
    ("code", "words"), [(15, "GPU is lost"), (16, "GPU requires reset"), (999, "Unknown Error"), (10, "Timeout")]
)
def test_one_sensor_refused_and_nothing_else(asked: Asked, code: int, words: str) -> None:
    asked.build("h100-sxm", 2, {"1.err.temp": str(code)})
    healthy, sick = asked.ask()["devices"]
    assert sick["errors"]["temperature_c"] == {
        "code": code,
        "error": words,
        "call": "nvmlDeviceGetTemperature",
        "of": "GPU",
    }
    assert "temperature_c" in healthy["values"]
    assert set(sick["values"]) == set(healthy["values"]) - {"temperature_c"}


def test_lost_device_does_not_stop_the_rest(asked: Asked) -> None:
    document = asked.document("h100-sxm", 4, g2__lost="1")
    assert document["devices"][2]["errors"]["handle"]["code"] == 15
    assert all("temperature_c" in document["devices"][i]["values"] for i in (0, 1, 3))


def test_device_that_needs_a_reset(asked: Asked) -> None:
    document = asked.document("h100-sxm", 2, g1__reset_required="1")
    codes = {e["code"] for e in document["devices"][1]["errors"].values()}
    assert 16 in codes
    assert document["devices"][0]["values"]["temperature_c"]


def test_corrupted_inforom_is_a_value(asked: Asked) -> None:
    document = asked.document("h100-sxm", 1, g0__err__validate_inforom="14")
    assert document["devices"][0]["values"]["inforom_valid"] is False


# ---- calls that never return

HANGS = (
    ("handle", "nvmlDeviceGetHandleByIndex"),
    ("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v3"),
    ("nvmlDeviceGetName", "nvmlDeviceGetName"),
    ("memory", "nvmlDeviceGetMemoryInfo"),
    ("temp", "nvmlDeviceGetTemperature"),
    ("util", "nvmlDeviceGetUtilizationRates"),
    ("throttle", "nvmlDeviceGetCurrentClocksEventReasons"),
    ("ecc", "nvmlDeviceGet"),
    ("fields", "nvmlDeviceGetFieldValues"),
    ("remap_histogram", "nvmlDeviceGetRowRemapperHistogram"),
    ("sram", "nvmlDeviceGetSramEccErrorStatus"),
    ("power_constraints", "nvmlDeviceGetPowerManagementLimitConstraints"),
    ("temp_threshold", "nvmlDeviceGetTemperatureThreshold"),
    ("violation", "nvmlDeviceGetViolationStatus"),
    ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    ("validate_inforom", "nvmlDeviceValidateInforom"),
    ("gsp", "nvmlDeviceGetGsp"),
    ("fabric", "nvmlDeviceGetGpuFabricInfoV"),
    ("nvlink_remote", "nvmlDeviceGetNvLinkRemotePciInfo"),
    ("processes", "nvmlDeviceGetComputeRunningProcesses"),
)


@pytest.mark.parametrize(("key", "call"), HANGS)
def test_a_call_that_hangs_costs_one_device_and_keeps_what_was_told(asked: Asked, key: str, call: str) -> None:
    document = asked.document("h100-sxm", 3, **{f"g1__hang__{key}": "30"})
    first, sick, last = document["devices"]
    assert sick["hung"]["call"].startswith(call)
    assert sick["hung"]["after_s"] >= 0.5
    assert "stuck" not in sick["hung"]
    for device in (first, last):
        assert device["hung"] is None
        assert device["values"]["temperature_c"] > 0
        assert len(device["nvlinks"]) == 18
    order = [name for name, _ in HANGS]
    if order.index(key) > order.index("nvmlDeviceGetName"):
        assert sick["bus_id"]
        assert sick["name"]
    if order.index(key) > order.index("fields"):
        assert sick["values"]["remap_pending"] is False
    if key == "processes":
        assert set(sick["values"]) == set(first["values"])
    assert document["seconds"] < SHORT.whole + 1
    assert list(asked.runtime.iterdir()) == []  # it died of the kill


def test_a_call_that_hangs_everywhere_costs_one_deadline_more(asked: Asked) -> None:
    document = asked.document("h100-sxm", 6, all__hang__temp="30")
    assert [d["hung"]["call"] for d in document["devices"]] == ["nvmlDeviceGetTemperature"] * 6
    assert document["seconds"] < 6 * SHORT.device


@pytest.mark.parametrize(("key", "call"), [("hang.init", "nvmlInitWithFlags"), ("hang.count", "nvmlDeviceGetCount")])
def test_start_hangs(asked: Asked, key: str, call: str) -> None:
    asked.build("h100-sxm", 2, {key: "30"})
    document = asked.ask(Deadlines(init=0.6, device=0.5, whole=3.0))
    assert document["init"]["call"] == call
    assert document["init"]["hung_s"] >= 0.6
    assert reason(document) == "hung"


def test_the_loader_hangs(asked: Asked) -> None:
    path = asked.folder / "libnvidia-ml.so.1"
    os.mkfifo(path)
    document = asked.ask(Deadlines(init=0.5, device=0.5, whole=3.0), library=str(path))
    assert document["init"]["call"] == "dlopen"
    assert reason(document) == "hung"


def test_a_machine_without_a_free_processor_is_no_driver_that_hangs(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "waited_for_a_processor", lambda _pid: 1000.0)
    asked.build("h100-sxm", 2, {"hang.init": "30"})
    document = asked.ask(Deadlines(init=0.5, device=0.5, whole=3.0))
    assert "hung_s" not in document["init"]
    assert "processor" in document["init"]["error"]
    assert reason(document) == "failed"
    device = asked.document("h100-sxm", 2, g1__hang__temp="30")["devices"][1]
    assert device["hung"] is None
    assert "processor" in device["not_asked"]


def test_a_library_that_is_not_there_does_not_hang() -> None:
    answers = Answers()
    answers.init.update(code=None, error="not found", load="missing")
    answers.hung(Now(LOADING, 0.0, "", 0.0), 4.0, 0.0)
    assert reason({"gpuclinic_nvml": 1, **answers.document(4.0)}) == "library_missing"
    slow = Answers()
    slow.hung(Now(LOADING, 0.0, "", 0.0), 4.0, 0.0)
    assert reason({"gpuclinic_nvml": 1, **slow.document(4.0)}) == "failed"
    assert slow.init["load"] == "no_answer"


def test_names_of_processes_hang_last(asked: Asked) -> None:
    document = asked.document("h100-sxm", 2, g0__proc__compute="4242:1048576", hang__process_name="30")
    assert document["names_hung"]["call"] == "nvmlSystemGetProcessName"
    assert document["devices"][0]["processes"][0]["pid"] == 4242
    assert all(d["hung"] is None for d in document["devices"])


def test_the_time_for_everything(asked: Asked) -> None:
    asked.build("h100-sxm", 3, {"all.hang.temp": "30"})
    document = asked.ask(Deadlines(init=2.0, device=30.0, whole=0.8))
    assert [d["hung"] for d in document["devices"]] == [None] * 3  # a call that had no fair time is not called hung
    assert "no time was left" in document["devices"][0]["not_asked"]
    assert all("time for everything" in d["not_asked"] for d in document["devices"][1:])
    assert document["devices"][0]["name"]


def test_a_start_that_hangs_beside_another_call_blames_no_device(asked: Asked) -> None:
    asked.build("h100-sxm", 3, {"1.hang.temp": "30"})

    def end(pid: int) -> None:
        asked.server.set({"hang.init": "30"})
        nvml.kill(pid)

    document = asked.ask(Deadlines(init=1.0, device=1.0, whole=8.0), end=end)
    assert document["devices"][1]["hung"]
    assert document["devices"][2]["hung"] is None
    assert "did not start again" in document["devices"][2]["not_asked"]


def test_a_slow_device_leaves_out_what_comes_late(asked: Asked) -> None:
    asked.build("h100-sxm", 1, {"cost": "1", "cost.violation": "130000"})
    document = asked.ask(Deadlines(init=5.0, device=1.0, whole=8.0))
    (device,) = document["devices"]
    assert device["hung"] is None  # no call of it was slow enough
    assert "processes" in device.get("left_out", ()) or "no time was left" in device["not_asked"]
    assert document["slow_calls"][0][0].startswith("nvmlDeviceGetViolationStatus")


# ---- children that cannot be killed


def left_alive(asked: Asked) -> list[str]:
    return sorted(json.loads(path.read_bytes())["subject"] for path in asked.runtime.iterdir())


def test_a_child_that_cannot_be_killed_is_noted_and_its_device_left_alone(asked: Asked) -> None:
    asked.build("h100-sxm", 3, {"1.hang.temp": "60"})
    first = asked.ask(end=lambda _pid: None)
    pid = first["devices"][1]["hung"]["stuck"]["pid"]
    assert first["stuck"][0]["subject"] == "gpu-1"
    assert left_alive(asked) == ["gpu-1"]
    second = asked.ask(end=lambda _pid: None)
    hung = second["devices"][1]["hung"]
    assert hung["call"] == "nvmlDeviceGetTemperature"
    assert hung["stuck"]["pid"] == pid
    assert hung["stuck"]["state"]
    assert second["devices"][1]["bus_id"] == first["devices"][1]["bus_id"]
    assert second["devices"][2]["values"]["temperature_c"]
    assert [f.fields["hung_pid"] for f in parse_nvml(Document("nvml", json.dumps(second))) if f.fields.get("hung")] == [
        pid
    ]
    os.kill(pid, signal.SIGKILL)
    while start_time(pid) is not None and Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
        time.sleep(0.01)
    asked.build("h100-sxm", 3)
    third = asked.ask()
    assert third["devices"][1]["values"]["temperature_c"]
    assert left_alive(asked) == []


@pytest.mark.parametrize("times", [12, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_runs_leave_one_stuck_child_a_device(asked: Asked, times: int) -> None:
    asked.build("h100-sxm", 4, {"1.hang.temp": "3600", "3.hang.processes": "3600"})
    before = set(children())
    for _ in range(times):
        document = asked.ask(end=lambda _pid: None)
        assert [d["hung"] is not None for d in document["devices"]] == [False, True, False, True]
    assert left_alive(asked) == ["gpu-1", "gpu-3"]
    assert len(set(children()) - before) == 2


def test_a_start_that_cannot_be_killed_is_not_tried_again(asked: Asked) -> None:
    asked.build("h100-sxm", 2, {"hang.init": "60"})
    first = asked.ask(Deadlines(0.5, 0.5, 2.0), end=lambda _pid: None)
    assert first["init"]["stuck"]["pid"]
    second = asked.ask(Deadlines(0.5, 0.5, 2.0), end=lambda _pid: pytest.fail("a second child was started"))
    assert second["init"]["stuck"]["pid"] == first["init"]["stuck"]["pid"]
    assert second["init"]["hung_s"] is None
    assert reason(second) == "hung"


def test_ledger_ignores_what_is_not_its_own(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    mine = Stuck("gpu-0", os.getpid(), start_time(os.getpid()) or 0, time.time(), "nvmlDeviceGetTemperature", None)
    ledger.write(mine)
    (path,) = tmp_path.iterdir()
    assert ledger.living() == {"gpu-0": mine}
    base = path.name.removesuffix("gpu-0.json")
    (tmp_path / f"{base}gpu-1.json").write_text("{")
    (tmp_path / f"{base}gpu-2.json").write_text(
        json.dumps({**mine._asdict(), "subject": "gpu-2", "started": 1})
    )  # pid reused
    (tmp_path / f"{base}gpu-3.json").write_text(json.dumps({**mine._asdict(), "pid": "1; rm"}))
    (tmp_path / f"{base}gpu-4.json").write_text("[" * 5000)
    (tmp_path / f"{base}gpu-5.json").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / f"{base}gpu-6.json")
    (tmp_path / "nvml-stuck-otherboot-gpu-7.json").write_text(json.dumps({**mine._asdict(), "subject": "gpu-7"}))
    (tmp_path / "notes.txt").write_text("keep")
    assert ledger.living() == {"gpu-0": mine}
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        [path.name, "nvml-stuck-otherboot-gpu-7.json", "notes.txt"]
    )
    ledger.forget(mine)
    assert ledger.living() == {}


def test_time_without_a_processor(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/schedstat").write_text("348334403 2615893750 34\n")
    assert waited_for_a_processor(7, tmp_path) == pytest.approx(2.61589375)
    assert waited_for_a_processor(8, tmp_path) == 0.0


def test_ledger_without_a_folder() -> None:
    ledger = Ledger(None)
    ledger.write(Stuck("init", 1, 1, 1.0, "x"))
    assert ledger.living() == {}


def test_a_ledger_that_cannot_be_written_is_no_error(asked: Asked) -> None:
    asked.build("h100-sxm", 2, {"1.hang.temp": "30"})
    file = asked.folder / "file"
    file.write_text("")
    document = ask_nvml(SHORT, runtime=file)
    assert document["devices"][1]["hung"]


# ---- a library that crashes or lies

CRASHING = """
#include <signal.h>
#include <string.h>
int nvmlInitWithFlags(unsigned flags) { (void)flags; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)(unsigned long)(i + 1); return 0; }
int nvmlDeviceGetName(void *h, char *s, unsigned n) { (void)n; strcpy(s, "X"); s[1] = (char)('0' + (unsigned long)h); s[2] = 0; return 0; }
int nvmlDeviceGetUUID(void *h, char *s, unsigned n) { (void)h; memset(s, 0xff, n); s[n - 1] = 0; return 0; }
int nvmlDeviceGetTemperature(void *h, int k, unsigned *t) { (void)k; *t = 40; if (h == (void *)2) raise(SIGSEGV); return 0; }
int nvmlDeviceGetPerformanceState(void *h, int *p) { (void)h; *p = -7; return 0; }
int nvmlDeviceGetArchitecture(void *h, unsigned *p) { (void)h; *p = 77; return 0; }
int nvmlDeviceGetBrand(void *h, unsigned *p) { (void)h; *p = 0xfffffff0u; return 0; }
"""


def test_a_library_that_crashes_and_lies(asked: Asked) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on PATH")
    source, target = asked.folder / "lib.c", asked.folder / "libnvidia-ml.so.1"
    source.write_text(CRASHING)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", target, source], check=True)
    document = asked.ask(library=str(target))
    first, sick, last = document["devices"]
    assert sick["crashed"] == {"call": "nvmlDeviceGetTemperature", "of": "GPU", "signal": signal.SIGSEGV, "error": None}
    assert sick["name"] == "X2"
    assert first["values"]["temperature_c"] == last["values"]["temperature_c"] == 40
    assert first["errors"]["uuid"]["code"] is None
    assert first["values"]["architecture"] == "unknown (77)"
    facts = parse_nvml(Document("nvml", json.dumps(document)))
    assert [f.fields.get("crash_call") for f in facts if f.kind == "gpu"] == [
        None,
        "nvmlDeviceGetTemperature/GPU",
        None,
    ]


def test_without_the_bindings(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert reason(asked.ask()) == "bindings_missing"


def test_no_process_can_be_started(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(nvml, "_has_one_thread", lambda: True)
    monkeypatch.setattr(nvml.os, "fork", refuse)
    document = asked.ask()
    assert "no child process" in document["init"]["error"]
    assert reason(document) == "failed"


# ---- the journal


def test_journal_survives_torn_and_foreign_bytes() -> None:
    import mmap

    with mmap.mmap(-1, SIZE) as memory:
        journal = Journal(memory)
        journal.stage(3)
        journal.calling("nvmlDeviceGetTemperature/GPU")
        journal.tell("value", 3, "temperature_c", 40, "x")
        journal.tell("big", "x" * (1 << 17))
        assert now(memory)[:1] == (3,)
        assert now(memory).call == "nvmlDeviceGetTemperature/GPU"
        assert list(records(memory)) == [["value", 3, "temperature_c", 40, "x"]]
        memory[0:8] = struct.pack("<Q", 1 << 60)
        memory[256:260] = b"\xff{[\n"
        assert all(isinstance(record, list) for record in records(memory))
