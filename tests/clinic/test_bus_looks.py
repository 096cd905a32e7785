"""Looks at the bus, the fabric, sensors and power supplies, on servers that lie in a folder."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import pytest

from gpuclinic.clinic.checking import CheckOptions, check
from gpuclinic.clinic.looks import Wanted
from gpuclinic.clinic.looks.bus import look_at_acs, look_at_bus
from gpuclinic.clinic.looks.fabric import look_at_fabric
from gpuclinic.clinic.looks.sensors import look_at_board, look_at_power
from gpuclinic.model import Fact
from gpuclinic.observe.asking import Answer
from gpuclinic.observe.snapshot import Snapshot

if TYPE_CHECKING:
    from pathlib import Path

GPU, PORT, SWITCH = "0000:18:00.0", "0000:15:01.0", "0000:05:00.0"


def function(root: Path, address: str, above: tuple[str, ...] = (), **files: str | bytes) -> None:
    folder = root.joinpath("sys/devices/pci0000:15", *above, address)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())
    devices = root / "sys/bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    (devices / address).symlink_to("/".join(("../../../devices/pci0000:15", *above, address)))


def put(root: Path, path: str, text: str | bytes) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())


def server(
    tmp_path: Path, *, width: str = "16", config: bytes = b"\xde\x10" + bytes(62), driver: str = "nvidia"
) -> Path:
    root = tmp_path / "root"
    fast = {
        "current_link_speed": "32.0 GT/s PCIe",
        "max_link_speed": "32.0 GT/s PCIe",
        "max_link_width": "16",
        "power_state": "D0",
    }
    function(
        root,
        PORT,
        vendor="0x8086",
        device="0x352a",
        **{"class": "0x060400"},
        current_link_width=width,
        config=bytes(64),
        **fast,
    )
    function(
        root,
        GPU,
        (PORT,),
        vendor="0x10de",
        device="0x2330",
        **{"class": "0x030200"},
        current_link_width=width,
        config=config,
        **fast,
    )
    function(root, "0000:18:00.1", (PORT,), vendor="0x10de", device="0x22ba", **{"class": "0x040300"})
    (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True)
    (root / "sys/devices/pci0000:15" / PORT / GPU / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
    put(root, "proc/uptime", "864000.00 1.00\n")
    put(root, "proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme\n")
    put(root, "sys/class/dmi/id/sys_vendor", "Maker\n")
    put(root, "sys/class/dmi/id/product_name", "Server 8\n")
    return tmp_path


def facts(found: list[Fact], kind: str) -> dict[str, Fact]:
    return {fact.key: fact for fact in found if fact.kind == kind}


def test_the_bus_tells_gpus_and_what_stands_above_them(tmp_path: Path) -> None:
    seen = look_at_bus(Snapshot(server(tmp_path, width="8")), Wanted())
    devices = facts(seen.facts, "pci_device")
    assert set(devices) == {GPU, PORT}, "no sound function, no bridge without a GPU below"
    gpu = devices[GPU].fields
    assert (gpu["driver"], gpu["width"], gpu["width_possible"], gpu["rev_ff"], gpu["parent"]) == (
        "nvidia",
        8,
        16,
        False,
        PORT,
    )
    assert facts(seen.facts, "gpu_count")["pci"].fields["value"] == 1
    view = facts(seen.facts, "view")["host"].fields
    assert (view["limited"], view["virtual"], view["bare_metal"]) == (False, False, True)
    assert not seen.gaps


def test_a_lost_gpu_reads_ones(tmp_path: Path) -> None:
    seen = look_at_bus(Snapshot(server(tmp_path, config=b"\xff" * 64)), Wanted())
    assert facts(seen.facts, "pci_device")[GPU].fields["rev_ff"] is True


def test_a_gpu_of_a_virtual_machine_is_not_ours(tmp_path: Path) -> None:
    seen = look_at_bus(Snapshot(server(tmp_path, driver="vfio-pci")), Wanted())
    assert facts(seen.facts, "gpu_count")["pci"].fields == {"value": 0, "tool": "pci", "handed_over": 1}
    assert [gap.check for gap in seen.gaps] == ["gpu.none"]
    assert "virtual machines" in seen.gaps[0].why


def test_without_sysfs_it_is_said_that_nobody_could_look(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    seen = look_at_bus(Snapshot(tmp_path), Wanted())
    assert [(gap.check, gap.required) for gap in seen.gaps] == [("pci.bus", True)]


@pytest.mark.parametrize(
    ("path", "text", "container"),
    [
        ("/.dockerenv", "", "a Docker container"),
        ("/proc/mounts", "overlay / overlay rw 0 0\n", "a container"),
        ("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n", None),
    ],
)
def test_from_inside_a_container_the_view_is_limited(
    tmp_path: Path, path: str, text: str, container: str | None
) -> None:
    put(server(tmp_path) / "root", path, text)
    view = facts(look_at_bus(Snapshot(tmp_path), Wanted()).facts, "view")["host"].fields
    assert view.get("container") == container
    assert view["limited"] is (container is not None)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("gpus = 8\n", 8),
        ('gpus = 8\n[hosts."node1"]\ngpus = 4 # two trays\n', 4),
        ("[node2]\ngpus = 4\n", None),
        ("gpus = eight\n", None),
        ("\0[[[\n", None),
    ],
)
def test_the_inventory(tmp_path: Path, text: str, wanted: int | None) -> None:
    root = server(tmp_path) / "root"
    put(root, "/etc/gpuclinic/inventory.toml", text)
    put(root, "/proc/sys/kernel/hostname", "node1\n")
    counts = facts(look_at_bus(Snapshot(tmp_path), Wanted()).facts, "gpu_count")
    assert (counts["inventory"].fields["value"] if "inventory" in counts else None) == wanted


def test_acs_where_peers_are(tmp_path: Path) -> None:
    space = bytearray(4096)
    struct.pack_into("<IHH", space, 0x100, 0x0001000D, 0x1F, 0x1D)
    devices = [
        Fact("pci_device", PORT, {"is_bridge": True, "port": "root", "gpus_below": 2}, {}, ""),
        Fact("pci_device", GPU, {"is_gpu": True}, {}, ""),
        Fact("pci_device", "0000:19:00.0", {"is_gpu": True}, {}, ""),
    ]
    root = server(tmp_path) / "root"
    put(root, f"sys/devices/pci0000:15/{PORT}/config", bytes(space))
    seen = look_at_acs(Snapshot(tmp_path), Wanted(deep=True, facts=devices))
    assert facts(seen.facts, "pci_acs")[PORT].fields["acs_redirect"] is True
    assert not look_at_acs(Snapshot(tmp_path), Wanted(deep=True, facts=devices[:2])).facts, "one GPU has no peer"


def test_a_machine_without_a_fabric_is_asked_nothing(tmp_path: Path) -> None:
    class Silent(Snapshot):
        def command(self, *argv: str, deadline: float = 2.0, most: int = 1 << 20) -> Answer:
            raise AssertionError(argv)

    (tmp_path / "root").mkdir()
    seen = look_at_fabric(
        Silent(tmp_path), Wanted(facts=[Fact("gpu", "a", {"name": "NVIDIA GeForce RTX 4090"}, {}, "")])
    )
    assert not seen.facts
    assert not seen.gaps


def test_fabric_services_and_versions(tmp_path: Path) -> None:
    show = "Id=nvidia-fabricmanager.service\nLoadState=loaded\nActiveState=failed\n"
    put(
        tmp_path,
        "commands/systemctl-show-p-Id-LoadState-ActiveState-SubState-Result-ExecMainStatus-UnitFileState-NRestarts-nvidia-fabricmanager-nvlsm.txt",
        "",
    )
    put(tmp_path, "root/var/log/fabricmanager.log", "[INFO] Fabric Manager version 535.161.08 is running with ...\n")
    put(tmp_path, "root/proc/driver/nvidia-nvswitch/devices/0000:05:00.0", "x\n")

    class Answering(Snapshot):
        def command(self, *argv: str, deadline: float = 2.0, most: int = 1 << 20) -> Answer:
            return (
                Answer("systemctl", show.encode())
                if argv[0] == "systemctl"
                else super().command(*argv, deadline=deadline, most=most)
            )

    switches = [Fact("pci_device", SWITCH, {"is_nvswitch": True}, {}, "") for _ in range(2)]
    seen = look_at_fabric(Answering(tmp_path), Wanted(facts=switches))
    assert facts(seen.facts, "driver_component")["fabric manager"].fields["version"] == "535.161.08"
    assert facts(seen.facts, "fabric_need")["host"].fields["nvswitches"] == 2
    assert facts(seen.facts, "nvswitch_count")["driver"].fields["value"] == 1
    assert seen.texts[0][1].decode() == show


def test_kernel_sensors_with_their_own_limits(tmp_path: Path) -> None:
    base = "root/sys/class/hwmon/hwmon0"
    for name, text in {"name": "coretemp", "temp1_input": "101000", "temp1_crit": "100000", "temp1_label": "Package", "fan1_input": "0", "fan2_input": "0",
                       "fan2_min": "500", "fan2_alarm": "1", "in0_input": "12100", "temp2_input": "N/A", "temp3_input": "41000"}.items():  # fmt: skip
        put(tmp_path, f"{base}/{name}", f"{text}\n")
    bad = {str(f.fields["name"]): f.fields["bad"] for f in look_at_board(Snapshot(tmp_path), Wanted()).facts}
    assert bad == {
        "coretemp Package": True,
        "coretemp fan1": False,
        "coretemp fan2": True,
        "coretemp in0": False,
        "coretemp temp3": False,
    }


def test_power_supplies_that_may_not_be_read_are_a_gap(tmp_path: Path) -> None:
    class Refusing(Snapshot):
        def files(self, pattern: str, most: int = 1 << 16) -> dict[str, Answer]:
            return {pattern.replace("*", "0"): Answer(pattern, why="Permission denied", code=13)}

    (tmp_path / "root").mkdir()
    gaps = look_at_power(Refusing(tmp_path), Wanted()).gaps
    assert [gap.check for gap in gaps] == ["power.psu"]
    assert "--psu-watts" in gaps[0].why
    assert not look_at_power(Snapshot(tmp_path), Wanted()).gaps, "a machine without such a table"


def document(**device: object) -> str:
    own = {"index": 0, "bus_id": GPU, "name": "NVIDIA H100 80GB HBM3", "values": {"temperature_c": 31}, "errors": {}}
    return json.dumps({"gpuclinic_nvml": 1, "init": {"code": 0}, "count": 1, "devices": [{**own, **device}]})


def test_one_fault_is_one_finding(tmp_path: Path) -> None:
    folder = server(tmp_path, width="4", config=b"\xff" * 64)
    put(
        folder,
        "nvml.json",
        document(
            bus_id=None,
            values={},
            errors={"handle": {"code": 15, "error": "GPU is lost", "call": "nvmlDeviceGetHandleByIndex"}},
        ),
    )
    answer = check(Snapshot(folder), CheckOptions(only=["gpu", "pcie", "nvlink", "thermal", "power"]))
    told = [f for f in answer.findings if f.severity != "info"]
    assert [(f.id, f.gpu, f.implies) for f in told] == [("gpu.lost", GPU, ["gpu.bus.no_answer"])]


def test_a_guest_is_not_told_about_its_make_believe_slots(tmp_path: Path) -> None:
    folder = server(tmp_path, width="8")
    put(folder / "root", "sys/class/dmi/id/sys_vendor", "QEMU\n")
    put(folder, "nvml.json", document())
    answer = check(Snapshot(folder), CheckOptions(only=["pcie"]))
    assert not [f for f in answer.findings if f.severity != "info"]
