"""Healthy machines come out clean: every SKU, any number of GPUs, MIG, at work, any driver, any user, containers, no GPU at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fakes.faults import can_happen
from fakes.machine import Process
from fakes.skus import load_skus

from .clinic_room import FastHost, Room, UserHost, bare_machine, seen_by, told

if TYPE_CHECKING:
    from pathlib import Path

    from gpuclinic.clinic.checking import CheckAnswer
    from gpuclinic.observe.asking import Answer

SKUS = load_skus()
COUNTS = {"gh200": 1, "gb200": 4, "gb300": 4}
"""GPUs where a server has not eight."""


def _usual(sku: str) -> int:
    return COUNTS.get(sku, 2 if SKUS[sku].form in ("ws", "geforce") else 8)


def _is_clean(answer: CheckAnswer, *, coverage: str = "full") -> None:
    assert not told(answer.findings), "\n".join(told(answer.findings, info=True))
    required = [gap for gap in answer.not_looked_at if gap.required]
    assert not required, required
    assert answer.verdict == "ok"
    if coverage == "full":
        assert not answer.not_looked_at, answer.not_looked_at
    assert answer.coverage == coverage


def _of_each_kind() -> list[str]:
    """One SKU of each form and architecture."""
    kinds = {(sku.form, sku.architecture): name for name, sku in SKUS.items()}
    return sorted(kinds.values())


@pytest.mark.parametrize("sku", sorted(SKUS))
def test_an_idle_server_is_healthy(sku: str, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    server = room.server(sku, _usual(sku))
    answer = seen_by(server, monkeypatch, expect_gpus=server.gpus)
    _is_clean(answer)
    gpus = [fact for fact in answer.facts if fact.kind == "gpu"]
    assert [fact.fields.get("bus_id") for fact in gpus] == [server.address(gpu) for gpu in range(server.gpus)]


@pytest.mark.parametrize("sku", _of_each_kind())
def test_a_deep_look_finds_nothing_more(sku: str, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    _is_clean(seen_by(room.server(sku, _usual(sku)), monkeypatch, deep=True, seconds=2.0))


@pytest.mark.parametrize("sku", _of_each_kind())
def test_a_server_at_work_is_healthy(sku: str, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    server = room.server(sku, _usual(sku), [f"busy:{gpu}" for gpu in range(_usual(sku))])
    _is_clean(seen_by(server, monkeypatch, deep=True, seconds=1.0))


@pytest.mark.parametrize("gpus", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("sku", ["v100-sxm2-32gb", "l40s"])
def test_any_number_of_gpus(sku: str, gpus: int, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    _is_clean(seen_by(room.server(sku, gpus), monkeypatch))


@pytest.mark.parametrize("sku", [name for name in _of_each_kind() if can_happen(SKUS[name], "mig")])
def test_mig(sku: str, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    count = _usual(sku)
    _is_clean(seen_by(room.server(sku, count, [f"mig:{gpu}:2" for gpu in range(count)]), monkeypatch))


DRIVERS = {
    "450.248.02": ("v100-sxm2-32gb", "t4", "a100-sxm-40gb"),
    "470.256.02": ("v100-pcie-16gb", "a100-sxm-80gb", "rtx-a6000", "geforce-3090"),
    "515.105.01": ("a10", "a100-sxm-80gb"),
    "525.147.05": ("h100-pcie", "geforce-4090", "t4"),
    "535.261.03": ("h100-sxm", "l40s", "v100-sxm2-32gb"),
    "550.163.01": ("h100-sxm", "a100-sxm-80gb", "rtx-6000-ada"),
    "570.195.03": ("h200-sxm", "b200", "geforce-5090"),
    "590.44.01": ("h100-sxm", "b300"),
    "615.10": ("h100-sxm", "gb300"),
}


@pytest.mark.parametrize(("driver", "sku"), [(driver, sku) for driver, skus in DRIVERS.items() for sku in skus])
def test_drivers_old_and_new(driver: str, sku: str, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    _is_clean(seen_by(room.server(sku, min(2, _usual(sku)), driver=driver), monkeypatch))


@pytest.mark.parametrize("sku", ["h100-sxm", "rtx-a6000"])
def test_an_ordinary_user_is_told_what_was_not_looked_at(sku: str, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    server = room.server(sku, _usual(sku))
    answer = seen_by(server, monkeypatch, UserHost)
    _is_clean(answer, coverage="limited")
    assert "kernel.log" in {gap.check for gap in answer.not_looked_at}
    required = seen_by(server, monkeypatch, UserHost, require=["kernel.log"])
    assert required.verdict == "unknown"


def test_in_a_container(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    server = room.server("h100-sxm", 8, ["busy:0"])
    machine = server.machine
    hidden = ["dev/kmsg", "var/log/kern.log", "var/log/syslog", "var/log/dmesg", "lib/modules", "boot", "etc/modprobe.d", "etc/docker", "etc/slurm",
              "etc/cdi", "etc/nvidia-container-runtime", "run/slurmd.pid", "sys/fs/pstore", "sys/kernel/iommu_groups", "usr/lib/modules"]  # fmt: skip
    machine.processes = {1: Process(1, "/usr/bin/python3 serve.py", 0, ppid=0, cgroup="/")}
    machine.files |= dict.fromkeys(hidden) | {
        ".dockerenv": "",
        "proc/mounts": "overlay / overlay rw,relatime,lowerdir=/l,upperdir=/u,workdir=/w 0 0\nproc /proc proc rw 0 0\ntmpfs /dev tmpfs rw 0 0\n",
        "proc/1/environ": "PATH=/usr/bin\0container=docker\0NVIDIA_VISIBLE_DEVICES=all\0",
    }
    server.write()
    answer = seen_by(server, monkeypatch, UserHost)
    _is_clean(answer, coverage="limited")
    assert not [fact for fact in answer.facts if fact.kind == "gpu" and fact.fields.get("hung")]


def test_a_container_with_two_of_eight_gpus(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """sysfs shows the bus of the whole machine, NVML what the container was given."""
    server = room.server("h100-sxm", 8)
    server.machine.files[".dockerenv"] = ""
    server.machine.files["lib/modules"] = None
    server.set({f"{gpu}.hidden": 1 for gpu in range(2, 8)})
    answer = seen_by(server, monkeypatch)
    assert not told(answer.findings), told(answer.findings)
    assert answer.verdict == "ok"


def test_a_bmc_that_hangs_costs_only_its_sensors(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """The board's sensors are asked last and given up; what NVML said long before is not lost."""

    class Impatient(FastHost):
        def command(self, *argv: str, deadline: float = 2.0, most: int = 1 << 26) -> Answer:
            return super().command(*argv, deadline=0.5 if argv[0] == "ipmitool" else deadline, most=most)

    answer = seen_by(room.server("h100-sxm", 8, ["ipmi_hangs"]), monkeypatch, Impatient, deep=True)
    assert {gap.check for gap in answer.not_looked_at} == {"sensors.board"}
    assert answer.verdict == "ok"


@pytest.mark.parametrize(
    ("expected", "verdict", "ids"),
    [(8, "ok", set()), (4, "ok", set()), (9, "critical", {"gpu.count.fewer_than_expected"})],
)
def test_expected_number(
    expected: int, verdict: str, ids: set[str], room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = seen_by(room.server("h100-sxm"), monkeypatch, expect_gpus=expected)
    assert {f.id for f in answer.findings if f.severity != "info"} == ids
    assert answer.verdict == verdict


# ---- the command itself


def _command(environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    source = os.pathsep.join(path for path in sys.path if path.endswith("src"))
    environment = {**environment, "PYTHONPATH": source or os.environ.get("PYTHONPATH", "")}
    command = [sys.executable, "-m", "gpuclinic", "check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_the_command_on_a_healthy_server(room: Room) -> None:
    code, out, err = _command(room.server("h100-sxm").env, "--json", "--expect-gpus", "8")
    told_ = json.loads(out)
    assert not err
    assert [f for f in told_["findings"] if f["severity"] != "info"] == []
    assert (code, told_["verdict"]) == (0, "ok")


def test_the_command_on_a_sick_server(room: Room) -> None:
    server = room.server("h100-sxm", 8, ["lost:3"])
    code, out, _ = _command(server.env, "--json")
    [found] = [f for f in json.loads(out)["findings"] if f["severity"] != "info"]
    assert (code, found["id"], found["gpu"], found["gpu_index"]) == (2, "gpu.lost", server.address(3), 3)
    code, text, _ = _command({**server.env, "LANG": "C.UTF-8"})
    assert code == 2
    assert server.address(3) in text


@pytest.mark.parametrize("library", ["/nowhere/libnvidia-ml.so.1", "libnvidia-ml.so.1"])
def test_a_machine_without_gpus(library: str, tmp_path: Path) -> None:
    """No driver, no card and none expected: that is no verdict, and it is said in so many words."""
    environment = {**os.environ, "GPUCLINIC_ROOT": str(bare_machine(tmp_path)), "GPUCLINIC_NVML": library}
    code, out, err = _command(environment, "--json")
    answer = json.loads(out)
    assert not err
    assert (code, answer["verdict"]) == (3, "unknown")
    assert not [f for f in answer["findings"] if f["severity"] != "info"], answer["findings"]
    required = [gap for gap in answer["not_looked_at"] if gap["required"]]
    assert [gap["check"] for gap in required] == ["gpu.none"], required
    assert "no NVIDIA GPU" in required[0]["why"]
    code, text, _ = _command(environment, "--expect-gpus", "8")
    assert code == 2
    assert "8" in text
