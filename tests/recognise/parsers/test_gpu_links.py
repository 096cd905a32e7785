from __future__ import annotations

import pytest
from gpu_helpers import kinds, one, run, sample, sample_bytes

from gpuclinic.recognise.parsers.flight_recorder import is_dump, parse_dump
from gpuclinic.recognise.parsers.pickle_reader import NotPlainError, load_plain

LSPCI = """\
40:01.0 PCI bridge: Advanced Micro Devices, Inc. [AMD] Starship/Matisse GPP Bridge (prog-if 00 [Normal decode])
\tBus: primary=40, secondary=41, subordinate=42, sec-latency=0
\tCapabilities: [2a0 v1] Access Control Services
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
\tKernel driver in use: pcieport

41:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 PCIe 80GB] [10de:20b5] (rev a1)
\tRegion 0: Memory at <unassigned> (32-bit, non-prefetchable)
\tRegion 1: Memory at 1c000000000 (64-bit, prefetchable) [size=128G]
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x4 (downgraded)
\tKernel driver in use: nvidia

c1:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 80GB] (rev ff) (prog-if ff)
\t!!! Unknown header type 7f
"""


def test_lspci() -> None:
    facts = run("lspci:parse_lspci", LSPCI)
    devices = {f.key: f for f in kinds(facts, "pci_device")}
    bridge = devices["0000:40:01.0"]
    assert bridge.fields["acs_redirect"] is True
    assert bridge.fields["above_gpu"] is True
    gpu = devices["0000:41:00.0"]
    assert (gpu.fields["width"], gpu.fields["width_max"], gpu.fields["speed_gts"]) == (4, 16, 2.5)
    assert gpu.fields["width_downgraded"] is True
    assert gpu.fields["bar_unassigned"] is True
    assert gpu.fields["largest_bar_mib"] == 131072.0
    assert gpu.fields["id"] == "10de:20b5"
    gone = devices["0000:c1:00.0"]
    assert gone.fields["rev_ff"] is True
    assert gone.fields["unknown_header"] is True
    assert one(facts, "gpu_count").fields["value"] == 2


def test_lspci_of_a_whole_server() -> None:
    facts = run("lspci:parse_lspci", sample("gpud/lspci/lspci-vvv.txt"))
    assert one(facts, "gpu_count").fields["value"] == 8
    redirecting = [f for f in kinds(facts, "pci_device") if f.fields.get("acs_redirect")]
    assert redirecting
    assert not any(f.fields.get("above_gpu") for f in redirecting)


def test_nvlink() -> None:
    facts = run(
        "nvlink:parse_nvlink", sample("azure-nhc/bad_nvlink_status.txt") + sample("azure-nhc/good_nvlink_status.txt")
    )
    bad, good = kinds(facts, "nvlink_gpu")
    assert bad.fields["state"] == "inactive"
    assert good.fields["active"] == 12
    text = "GPU 0: GeForce RTX 2080 Ti (UUID: GPU-2a)\n\t Link 0: 25.781 GB/s\n\t Link 1: <inactive>\n"
    gpu = one(run("nvlink:parse_nvlink", text), "nvlink_gpu")
    assert (gpu.fields["state"], gpu.fields["active"], gpu.fields["inactive"]) == ("partial", 1, 1)
    assert gpu.where("inactive").line == 3
    errors = "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-2a)\n\t Link 0: Replay Errors: 12\n\t Link 0: Recovery Errors: 1\n\t Link 0: CRC Errors: 0\n"
    link = one(run("nvlink:parse_nvlink", errors), "nvlink")
    assert (link.fields["replay_errors"], link.fields["errors"]) == (12, 13)


def test_topo() -> None:
    facts = run("topo:parse_topo", sample("topo/ml-engineering-topo-3.txt"))
    assert len(kinds(facts, "topo")) == 28
    assert all(f.fields["nvlinks"] == 18 for f in kinds(facts, "topo"))
    text = "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m\nGPU0\t X \tPHB\tSYS\t0-31\t0\nGPU1\tPHB\t X \tSYS\t0-31\t0\nNIC0\tSYS\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
    pairs = {f.key: f.fields["path"] for f in kinds(run("topo:parse_topo", text), "topo")}
    assert pairs == {"GPU0-GPU1": "PHB", "GPU0-NIC0": "SYS", "GPU1-NIC0": "SYS"}


IBSTAT = """\
CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.39.1002
\tPort 1:
\t\tState: Down
\t\tPhysical state: Polling
\t\tRate: 10
\t\tBase lid: 65535
\t\tSM lid: 0
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tPort 1:
\t\tState: Initializing
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tLink layer: InfiniBand
"""
IBSTATUS = """\
Infiniband device 'mlx5_bond_0' port 1 status:
\tstate:\t\t 4: ACTIVE
\tphys state:\t 5: LinkUp
\trate:\t\t 25 Gb/sec (1X EDR)
\tlink_layer:\t Ethernet
"""
DEVINFO = """\
hca_id:\tmlx5_2
\ttransport:\t\t\tInfiniBand (0)
\tfw_ver:\t\t\t\t20.31.1014
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_DOWN (1)
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_mtu:\t\t1024 (3)
\t\t\tlink_layer:\t\tEthernet
"""


def test_rdma_ports() -> None:
    facts = {f.key: f.fields for f in run("rdma:parse_ports", IBSTAT + IBSTATUS + DEVINFO)}
    assert (facts["mlx5_0/1"]["state"], facts["mlx5_0/1"]["physical_state"], facts["mlx5_0/1"]["up"]) == (
        "DOWN",
        "Polling",
        False,
    )
    assert facts["mlx5_1/1"]["state"] == "INIT"
    assert (facts["mlx5_bond_0/1"]["up"], facts["mlx5_bond_0/1"]["rate_gbs"]) == (True, 25.0)
    assert (facts["mlx5_2/1"]["state"], facts["mlx5_2/1"]["active_mtu_bytes"]) == ("DOWN", 1024)


def test_rdma_others() -> None:
    link = "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1f0np0\nlink mlx5_1/1 state DOWN physical_state DISABLED\n"
    first, second = run("rdma:parse_links", link)
    assert (first.fields["up"], first.fields["netdev"]) == (True, "ens1f0np0")
    assert second.fields["physical_state"] == "Disabled"
    perf = "# Port counters: Lid 12 port 1 (CapMask: 0x5A00)\nPortSelect:......................1\nSymbolErrorCounter:..............65535\nLinkDownedCounter:...............3\n"
    counters = one(run("rdma:parse_perfquery", perf), "ib_counters")
    assert (counters.fields["symbol_error"], counters.fields["link_downed"]) == (65535, 3)
    sysfs = "/sys/class/infiniband/mlx5_0/ports/1/state:1: DOWN\n/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed:7\n"
    port, counter = run("rdma:parse_sys", sysfs)
    assert port.fields["state"] == "DOWN"
    assert counter.fields["link_downed"] == 7
    single = run("rdma:parse_sys", "4: ACTIVE\n", "root/sys/class/infiniband/mlx5_3/ports/1/state")
    assert single[0].key == "mlx5_3/1"
    nic = "$ ethtool -S ens1f0\nNIC statistics:\n     rx_packets: 10\n     rx_discards_phy: 55\n     rx_crc_errors_phy: 0\n     rx_prio3_pause: 9\n"
    assert one(run("rdma:parse_ethtool", nic), "nic_counters").fields == {
        "device": "ens1f0",
        "rx_discards_phy": 55,
        "rx_prio3_pause": 9,
    }
    gids = "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n---\nmlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0a00:0001\t10.0.0.1\tv2\tens1f0\n"
    assert one(run("rdma:parse_gids", gids), "gid").fields["roce"] == "v2"


@pytest.mark.parametrize(
    ("scenario", "group", "behind"), [("gpu_error_1st", "74", {12}), ("gpu_error_2nd", "72", {9, 14})]
)
def test_flight_recorder(scenario: str, group: str, behind: set[int]) -> None:
    last: dict[int, int] = {}
    for rank in range(16):
        data = sample_bytes(f"nccl-flight-recorder/{scenario}/_dump_{rank}")
        assert is_dump(data[:65536])
        for fact in kinds(parse_dump(f"x/_dump_{rank}", data), "collective_group"):
            if fact.fields["group"] == group:
                assert fact.fields["rank"] == rank
                last[rank] = int(str(fact.fields["last_enqueued"]))
    assert {rank for rank, seq in last.items() if seq < max(last.values())} == behind


def test_flight_recorder_of_a_rank_that_left_no_dump() -> None:
    found = set()
    ranks = ""
    for rank in (8, 10, 11, 12, 13, 15):
        data = sample_bytes(f"nccl-flight-recorder/lock_gil_1st/_dump_{rank}")
        for fact in kinds(parse_dump(f"_dump_{rank}", data), "collective_group"):
            if fact.fields["group"] == "72":
                found.add(str(fact.fields["rank"]))
                ranks = str(fact.fields["ranks"])
                assert fact.fields["size"] == 8
    assert set(ranks.split(",")) - found == {"9", "14"}


def test_flight_recorder_as_text_and_json() -> None:
    data = sample_bytes("nccl-flight-recorder/gpu_error_1st/_dump_12")
    facts = run("flight_recorder:parse_flight_recorder", data.decode("latin-1"), "_dump_12")
    assert any(f.fields["op"] == "nccl:all_to_all" for f in kinds(facts, "collective"))
    text = '{"version": "2.9", "pg_config": {"0": {"ranks": "[0, 1]", "desc": "default_pg"}}, "entries": [{"process_group": ["0", "default_pg"], "collective_seq_id": 5, "profiling_name": "nccl:all_reduce", "state": "started"}]}'
    facts = run("flight_recorder:parse_flight_recorder", text, "nccl_trace_rank_1")
    assert one(facts, "collective").fields["rank"] == 1


def test_pickles_that_call_are_refused() -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (print, ("never",))

    with pytest.raises(NotPlainError):
        load_plain(pickle.dumps({"entries": [Evil()]}))
    assert load_plain(pickle.dumps({"a": [1, (2, 3), "x", None, True, 1.5]}, protocol=4)) == {
        "a": [1, (2, 3), "x", None, True, 1.5]
    }
    for junk in (b"", b"\x80", b"\x80\x02}", b"\x80\x02e.", b"\x80\x02K\x01a."):
        with pytest.raises(NotPlainError):
            load_plain(junk)


def test_dcgm() -> None:
    facts = run("dcgm:parse_diag_json", sample("dcgm/diag-per_gpu_json.json"))
    assert one(facts, "dcgm_diag").fields["passed"] > 10  # type: ignore[operator]
    new = '{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory", "results": [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": 2, "status": "Fail", "warnings": [{"error_category": 1, "error_id": 21, "error_severity": 2, "warning": "GPU 2 failed"}]}]}]}]}}'
    test = one(run("dcgm:parse_diag_json", "$ dcgmi diag -r 2 -j\n" + new), "dcgm_test")
    assert (test.fields["gpu_index"], test.fields["error_id"], test.fields["status"]) == (2, 21, "fail")
    table = "| Diagnostic                | Result                                         |\n| PCIe                      | Fail - GPU: 3                                  |\n| Warning                   | GPU 3: link width 8                             |\n| Memory                    | Pass - All                                     |\n"
    test = one(run("dcgm:parse_diag_table", table), "dcgm_test")
    assert (test.fields["test"], test.fields["gpu_index"]) == ("PCIe", 3)
    assert "width 8" in str(test.fields["message"])


def test_metrics() -> None:
    text = 'DCGM_FI_DEV_XID_ERRORS{gpu="5",UUID="GPU-1",pci_bus_id="00000000:9A:00.0",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 79\nDCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="5",UUID="GPU-1",pci_bus_id="00000000:9A:00.0"} 0\n'
    gpus = run("metrics:parse_metrics", text)
    assert gpus[0].fields["last_xid"] == 79
    assert gpus[0].key == "0000:9a:00.0"


P2P_TEST = """\
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 673.20  13.15
     1  12.99 673.20
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 673.49   2.60
     1   2.12 672.33
Bidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 677.73  18.01
     1  19.25 678.32
"""


def test_direct_and_staged_bandwidth_of_each_pair() -> None:
    pairs = {f.key: f.fields for f in kinds(run("p2p:parse_p2p_test", P2P_TEST), "p2p_pair")}
    assert pairs["0-1"] == {"a": 0, "b": 1, "direct_gbs": 2.6, "staged_gbs": 13.15}
    assert set(pairs) == {"0-1", "1-0"}
