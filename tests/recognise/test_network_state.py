"""RDMA ports, interfaces, bonds, names: facts out of small texts of /proc, /sys and /etc."""

from __future__ import annotations

import pytest

from gpuclinic.recognise import network_state as network


def ports(states: dict[str, str], rates: dict[str, str] | None = None) -> dict[str, str]:
    files: dict[str, str] = {}
    for device, state in states.items():
        place = f"/sys/class/infiniband/{device}/ports/1"
        files[f"{place}/state"] = f"{state}\n"
        files[f"{place}/phys_state"] = "5: LinkUp\n" if state == "4: ACTIVE" else "2: Polling\n"
        files[f"{place}/link_layer"] = "InfiniBand\n"
        files[f"{place}/rate"] = (rates or {}).get(device, "400 Gb/sec (4X NDR)\n")
        files[f"{place}/counters/link_downed"] = "0\n"
    return files


def test_ports_know_their_siblings() -> None:
    names = [f"mlx5_{n}" for n in range(8)]
    files = ports(dict.fromkeys(names, "4: ACTIVE") | {"mlx5_3": "1: DOWN"}, {"mlx5_5": "100 Gb/sec (1X NDR)\n"})
    boards = {f"/sys/class/infiniband/{name}/board_id": "MT_0000000838\n" for name in names}
    found = {f.key: f.fields for f in network.rdma_ports(files, boards, {}) if f.kind == "ib_port"}
    down = found["mlx5_3/1"]
    assert (down["state"], down["physical_state"], down["peers"], down["peers_up"], down["link_downed"]) == (
        "DOWN",
        "Polling",
        7,
        7,
        0,
    )
    slow = found["mlx5_5/1"]
    assert (slow["rate_gbs"], slow["rate_typical_gbs"], slow["link_width"]) == (100.0, 400.0, 1)


def test_second_ports_of_cards_are_no_siblings_of_the_first() -> None:
    files = ports({"mlx5_0": "4: ACTIVE", "mlx5_1": "1: DOWN", "mlx5_2": "4: ACTIVE", "mlx5_3": "1: DOWN"})
    boards = {f"/sys/class/infiniband/mlx5_{n}/board_id": "MT_0000000359\n" for n in range(4)}
    devices = {
        f"/sys/class/infiniband/mlx5_{n}/device": f"../../../0000:{0x18 + n // 2:02x}:00.{n % 2}" for n in range(4)
    }
    found = {f.key: f.fields for f in network.rdma_ports(files, boards, devices) if f.kind == "ib_port"}
    assert found["mlx5_1/1"]["peers_up"] == 0
    assert found["mlx5_1/1"]["address"] == "0000:18:00.1"


def test_virtual_functions_are_no_siblings() -> None:
    files = ports({"mlx5_0": "4: ACTIVE", "mlx5_1": "1: DOWN"})
    found = {f.key: f.fields for f in network.rdma_ports(files, {}, {}, frozenset(["mlx5_1"])) if f.kind == "ib_port"}
    assert found["mlx5_1/1"]["virtual"] is True
    assert found["mlx5_0/1"]["peers"] == 0


def test_interfaces_and_their_kind() -> None:
    files = {
        "/sys/class/net/ens3/carrier": "1\n", "/sys/class/net/ens3/speed": "100000\n", "/sys/class/net/ens3/mtu": "1500\n", "/sys/class/net/ens3/flags": "0x1003\n",
        "/sys/class/net/ens3/duplex": "full\n", "/sys/class/net/ens3/statistics/rx_errors": "10\n", "/sys/class/net/ens3/statistics/rx_packets": "1000\n",
        "/sys/class/net/ens4/carrier": "1\n", "/sys/class/net/ens4/speed": "200000\n", "/sys/class/net/ens4/mtu": "9000\n",
        "/sys/class/net/veth1/carrier": "1\n", "/sys/class/net/usb0/speed": "-1\n",
    }  # fmt: skip
    devices = {
        "/sys/class/net/ens3/device": "../../../0000:18:00.0",
        "/sys/class/net/ens4/device": "../../../0000:19:00.0",
        "/sys/class/net/usb0/device": "../../../3-1:2.0",
    }
    models = {"/sys/class/net/ens3/device/device": "0x1021\n", "/sys/class/net/ens4/device/device": "0x1021\n"}
    found = {fact.key: fact.fields for fact in network.interfaces(files, devices, models)}
    ens3 = found["ens3"]
    assert (
        ens3["speed_mbps"],
        ens3["speed_typical_mbps"],
        ens3["mtu_typical"],
        ens3["mtu_agreeing"],
        ens3["peers_up"],
    ) == (100000, 200000, 9000, 1, 1)
    assert (ens3["enabled"], ens3["errors"], ens3["errors_ppm"]) == (True, 10, 10000.0)
    assert found["veth1"]["physical"] is False
    assert found["usb0"]["usb"] is True
    assert "speed_mbps" not in found["usb0"]


def test_bonds() -> None:
    text = """Ethernet Channel Bonding Driver: v5.15
Bonding Mode: IEEE 802.3ad Dynamic link aggregation
MII Status: up

Slave Interface: ens1f0
MII Status: up
Speed: 100000 Mbps
Duplex: full
Link Failure Count: 0

Slave Interface: ens1f1
MII Status: down
Speed: Unknown
Link Failure Count: 7
"""
    facts = network.bonds({"/proc/net/bonding/bond0": text})
    assert facts[0].fields == {
        "name": "bond0",
        "mode": "IEEE 802.3ad Dynamic link aggregation",
        "up": True,
        "members": 2,
        "members_up": 1,
    }
    assert facts[2].fields == {"bond": "bond0", "name": "ens1f1", "up": False, "failures": 7, "speed_most_mbps": 100000}


@pytest.mark.parametrize(
    ("hosts", "leads"),
    [
        ("127.0.0.1 localhost\n127.0.1.1 node17\n", "loopback"),
        ("127.0.0.1 localhost\n10.0.0.17 node17.cluster node17\n", "local"),
        ("127.0.0.1 localhost\n10.0.0.71 node17\n", "elsewhere"),
        ("127.0.0.1 localhost\n", "none"),
        ("127.0.0.1 localhost\n127.0.1.1 node17\n10.0.0.17 node17\n", "local"),
    ],
)
def test_where_the_own_name_leads(hosts: str, leads: str) -> None:
    trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.17\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n"
    assert network.local_addresses(trie) == ["10.0.0.17"]
    fields = network.own_name("node17\n", hosts, "nameserver 10.0.0.1\n", "hosts: files dns\n", ["10.0.0.17"])[0].fields
    assert (fields["leads"], fields["nameservers"], fields["localhost_loopback"]) == (leads, 1, True)


def test_counters_of_tcp_and_softnet() -> None:
    snmp = "Tcp: RtoAlgorithm OutSegs RetransSegs InErrs\nTcp: 1 900 30 0\n"
    assert network.tcp_counters(snmp)[0].fields == {"segments_out": 900, "segments_again": 30, "errors_in": 0}
    assert network.softnet("00000010 00000001 00000002 0\n0000000a 0 0 0\n")[0].fields == {
        "processed": 26,
        "dropped": 1,
        "squeezed": 2,
    }
    assert network.resolution("a", "", False, 0.1, "status 2")[0].fields["resolved"] is False


@pytest.mark.parametrize("text", ["", "\x00" * 100, "9" * 5000, "Slave Interface: " * 900, "10.0.0.1 a\n" * 900])
def test_hostile_texts_cost_nothing(text: str) -> None:
    network.rdma_ports(
        {
            "/sys/class/infiniband/a/ports/1/rate": text,
            "/sys/class/infiniband/a/ports/1/state": text,
            "/sys/class/infiniband/a/ports/1/counters/link_downed": text,
        },
        {},
        {},
    )
    network.interfaces(
        {"/sys/class/net/a/speed": text, "/sys/class/net/a/flags": text, "/sys/class/net/a/statistics/rx_errors": text},
        {},
        {},
    )
    network.bonds({"/proc/net/bonding/bond0": text})
    network.own_name(text, text, text, text, [])
    network.tcp_counters(text)
    network.softnet(text)
