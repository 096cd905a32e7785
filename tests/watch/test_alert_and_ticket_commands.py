"""`gpuclinic alert` and `gpuclinic ticket` as programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gpuclinic.knowledge.tickets import VENDORS, load_tickets
from gpuclinic.model import Fact, Tick
from gpuclinic.watch.config import Rules as RulesConfig
from gpuclinic.watch.rules import Rules

if TYPE_CHECKING:
    from pathlib import Path

CODE = "from gpuclinic.cli.main import entry; entry()"
GPU = "0000:9a:00.0"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CODE, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        env={**os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": "120", **environment},
    )  # fmt: skip


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """What an agent left: one alert that holds, under it another, and one that is over."""
    rules = Rules(RulesConfig(), tmp_path)
    for n in range(100):
        fields: dict[str, Any] = {"index": 3, "remap_pending": True, "reset_required": True, "inforom_valid": n > 20}
        rules.take(Tick(1_780_000_000.0 + n, float(n), [Fact("gpu", GPU, fields, {}, "nvml")]))
    rules.close(1_780_000_100.0)
    return tmp_path


def test_list_and_show(state: Path) -> None:
    told = run("alert", "list", STATE_DIRECTORY=str(state))
    assert told.returncode == 0
    assert "critical" in told.stdout
    assert "└" in told.stdout
    assert "InfoROM" not in told.stdout
    assert "may not run any more" in told.stdout
    assert "InfoROM" in run("alert", "list", "--all", STATE_DIRECTORY=str(state)).stdout
    data = json.loads(run("alert", "list", "--json", STATE_DIRECTORY=str(state)).stdout)
    identity = next(a["id"] for a in data["alerts"] if a["rule"] == "gpu.remap.pending")
    page = run("alert", "show", identity[:6], "--lang", "zh", STATE_DIRECTORY=str(state)).stdout
    assert "重映射" in page
    assert "hw.gpu.row_remap_pending" in page
    assert (
        json.loads(run("alert", "show", identity, "--json", STATE_DIRECTORY=str(state)).stdout)["rule"]
        == "gpu.remap.pending"
    )


def test_silence(state: Path) -> None:
    told = run("alert", "silence", "gpu.*", "--for", "2h", STATE_DIRECTORY=str(state))
    assert told.returncode == 0
    assert "silenced until" in run("alert", "list", STATE_DIRECTORY=str(state)).stdout
    run("alert", "silence", "gpu.*", "--for", "0s", STATE_DIRECTORY=str(state))
    assert "silenced until" not in run("alert", "list", STATE_DIRECTORY=str(state)).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["list"], 3, "no agent has written"), (["show"], 64, "which"), (["show", "zz"], 3, "no agent"), (["silence", "a.b"], 64, "how long"),
        (["silence", "a.b", "--for", "soon"], 64, "not a time"), (["test"], 64, "names no channel"), (["sing"], 64, "invalid choice"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(tmp_path: Path, arguments: list[str], code: int, word: str) -> None:
    told = run("alert", *arguments, STATE_DIRECTORY=str(tmp_path), GPUCLINIC_AGENT_CONFIG=str(tmp_path / "none.toml"))
    assert told.returncode == code, told.stderr
    assert word in told.stderr
    assert "Traceback" not in told.stderr
    assert len(told.stderr.splitlines()) == 1


def test_a_torn_file_is_told_and_left(tmp_path: Path) -> None:
    (tmp_path / "alerts.json").write_text("{")
    told = run("alert", "list", STATE_DIRECTORY=str(tmp_path))
    assert told.returncode == 3
    assert "not readable" in told.stderr
    assert (tmp_path / "alerts.json").read_text() == "{"


def test_channels_are_tried(tmp_path: Path) -> None:
    out = tmp_path / "out"
    config = tmp_path / "agent.toml"
    config.write_text(
        f"[[alerts.channels]]\nkind = 'command'\nurl = 'tee {out}'\nlang = 'zh'\n[[alerts.channels]]\nkind = 'webhook'\nurl = 'http://127.0.0.1:9/s3cr3t'\n"
    )
    told = run("alert", "test", "--config", str(config))
    assert told.returncode == 3
    assert told.stdout.splitlines()[0] == "1 command tee: sent"
    assert "2 webhook 127.0.0.1: failed" in told.stdout
    assert "s3cr3t" not in told.stdout + told.stderr
    assert "告警通道测试" in json.loads(out.read_text())["title"]
    assert run("alert", "test", "--config", str(config), "--channel", "1").returncode == 0
    assert run("alert", "test", "--config", str(config), "--channel", "7").returncode == 64


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A server whose GPU fell off the bus, as nvidia-smi, sysfs and the kernel log show it."""
    files = {
        "root/dev/kmsg": "3,101,500000000,-;NVRM: Xid (PCI:0000:9a:00): 79, pid=41822, name=python, GPU has fallen off the bus.\n"
        "3,102,100000000,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python, Ch 00000008\n",
        "root/proc/uptime": "600.0 1000.0\n", "root/proc/sys/kernel/hostname": "dgx-h100-03\n",
        "root/proc/version": "Linux version 5.15.0-105-generic\n",
        "root/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Jan 27 2024\n",
        "root/sys/bus/pci/devices/0000:9a:00.0/vendor": "0x10de\n", "root/sys/bus/pci/devices/0000:9a:00.0/class": "0x030200\n",
        "root/sys/class/dmi/id/product_serial": "ABC1234\n", "root/sys/class/dmi/id/chassis_serial": "To Be Filled By O.E.M.\n",
        "root/sys/class/dmi/id/product_name": "PowerEdge XE9680\n",
        "root/root/nvidia-bug-report.log.gz": "x",
        "root/run/cloud-init/instance-data.json": '{"v1": {"region": "cn-hangzhou", "availability_zone": "cn-hangzhou-i"}}',
        "root/var/lib/cloud/data/instance-id": "i-bp1abc\n",
        "root/var/lib/hyperv/.kvp_pool_3": "PhysicalHostName".ljust(512, "\0") + "AMS07XXX".ljust(2048, "\0"),
        "commands/nvidia-smi-query.txt": "",
        "snapshot.json": '{"time": "2026-03-02T04:12:00+00:00"}',
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / "server" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "server" / name).write_text(text)
    return tmp_path / "server"


@pytest.mark.parametrize(("vendor", "lang"), [(v, ("en", "zh")[n % 2]) for n, v in enumerate(VENDORS)])
def test_every_vendor_gets_a_report(server: Path, vendor: str, lang: str) -> None:
    told = run("ticket", "--for", vendor, "--host", str(server), "--lang", lang)
    assert told.returncode == 0, told.stderr
    assert "GPU has fallen off the bus." in told.stdout
    assert "Xid 79" in told.stdout
    assert "- [ ]" in told.stdout
    assert "log.gpu.fallen_off_bus" in told.stdout


def test_what_is_there_is_given_and_the_rest_is_missing(server: Path) -> None:
    dell = run("ticket", "--for", "dell", "--host", str(server), "--lang", "en").stdout
    given, _, missing = dell.partition("## Still missing")
    assert "ABC1234" in given
    assert "535.161.08" in given
    assert "racadm techsupreport" in missing
    smc = run("ticket", "--for", "supermicro", "--host", str(server), "--lang", "en").stdout
    assert "Serial number of the chassis" in smc.partition("## Still missing")[2]
    assert "nvidia-bug-report.log.gz, made" in smc.partition("## Still missing")[0]
    assert "AMS07XXX" in run("ticket", "--for", "azure", "--host", str(server), "--lang", "en").stdout
    ali = run("ticket", "--for", "aliyun", "--host", str(server), "--lang", "zh").stdout
    assert "i-bp1abc" in ali
    assert "cn-hangzhou-i" in ali


def test_a_gpu_that_is_not_there(server: Path) -> None:
    told = run("ticket", "--for", "nvidia", "--host", str(server), "--gpu", "5")
    assert told.returncode == 64
    assert "no GPU 5" in told.stderr


def test_the_table_is_whole() -> None:
    table = load_tickets()
    assert tuple(table.vendors) == VENDORS
    for vendor in table.vendors.values():
        assert vendor.source
        assert vendor.advice_en
        assert vendor.advice_zh
        assert not [p for p in vendor.pieces if p not in table.pieces]
    for piece in table.pieces.values():
        assert piece.source
        assert piece.command
        assert piece.en
        assert piece.zh
        assert any(piece.id in vendor.pieces for vendor in table.vendors.values())
