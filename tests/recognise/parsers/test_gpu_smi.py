from __future__ import annotations

import pytest
from gpu_helpers import kinds, one, run, sample

TABLE = """\
Mon Mar  6 21:50:01 2023
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 525.60.13    Driver Version: 525.60.13    CUDA Version: 12.0     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|                               |                      |               MIG M. |
|===============================+======================+======================|
|   0  NVIDIA A30          On   | 00000000:1A:00.0 Off |                    2 |
| N/A   41C    P0    29W / 165W |      0MiB / 24576MiB |      0%   E. Process |
|                               |                      |             Disabled |
+-------------------------------+----------------------+----------------------+
|   3  ERR!                ERR! | 0000B183:61:00.0 Off |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |      ERR! / 24576MiB |    ERR!         ERR! |
|                               |                      |                 ERR! |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| Processes:                                                                  |
|  GPU   GI   CI        PID   Type   Process name                  GPU Memory |
|        ID   ID                                                   Usage      |
|=============================================================================|
|    0   N/A  N/A     90112      C   [Not Found]                     10880MiB |
|    0   N/A  N/A      1511      G   /usr/lib/xorg/Xorg                  9MiB |
+-----------------------------------------------------------------------------+
"""


def test_table() -> None:
    facts = run("nvidia_smi_table:parse_table", TABLE)
    first, lost = kinds(facts, "gpu")
    assert first.key == "0000:1a:00.0"
    assert first.fields["persistence"] is True
    assert first.fields["ecc_uncorrected_volatile"] == 2
    assert first.fields["power_w"] == 29.0
    assert first.fields["power_limit_w"] == 165.0
    assert first.fields["compute_mode"] == "Exclusive_Process"
    assert first.fields["mig_mode"] == "Disabled"
    assert first.fields["fan_pct"] is None
    assert first.fields["processes"] == 2
    assert first.fields["process_memory_mib"] == 10889
    assert first.where("temperature_c").line == 10
    assert "41C" in first.where("temperature_c").text
    assert lost.key == "b183:61:00.0"
    assert lost.fields["error"] == "ERR!"
    assert lost.fields["error_cells"] == 12
    process = kinds(facts, "gpu_process")[0]
    assert process.fields["name_missing"] is True
    assert process.fields["memory_mib"] == 10880
    assert one(facts, "driver").fields["version"] == "525.60.13"
    assert one(facts, "gpu_count").fields["value"] == 2
    assert first.time is not None


def test_table_without_borders() -> None:
    text = "\n".join(" ".join(line.replace("|", " ").split()) for line in TABLE.split("\n"))
    facts = run("nvidia_smi_table:parse_table", text)
    first, _ = kinds(facts, "gpu")
    assert (first.fields["memory_total_mib"], first.fields["utilization_pct"], first.fields["processes"]) == (
        24576,
        0,
        2,
    )


def test_table_in_a_log() -> None:
    text = "\n".join(f"web-1  | {line}" for line in TABLE.split("\n"))
    assert len(kinds(run("nvidia_smi_table:parse_table", text), "gpu")) == 2


def test_fan_error_alone() -> None:
    text = TABLE.replace("| N/A   41C", "|ERR!   84C")
    gpu = kinds(run("nvidia_smi_table:parse_table", text), "gpu")[0]
    assert gpu.fields["fan_error"] is True
    assert gpu.fields["error_cells"] == 1
    assert gpu.fields["temperature_c"] == 84


@pytest.mark.parametrize(
    ("name", "driver", "cuda"),
    [
        ("linux-x86_64__nvidia-geforce-rtx-2080-super__610.57.04", "610.57.04", "13.3"),
        ("linux-x86_64__nvidia-h200__590.48.01", "590.48.01", "13.1"),
        ("windows-x86_64__nvidia-geforce-rtx-2080-super__591.86", "591.86", "13.1"),
    ],
)
def test_captures(name: str, driver: str, cuda: str) -> None:
    text = sample(f"nvidia-smi-captures/{name}.txt")
    table = run("nvidia_smi_table:parse_table", text)
    query = run("nvidia_smi_query:parse_query", text)
    for facts in (table, query):
        versions = {(f.fields.get("version"), f.fields.get("cuda_version")) for f in kinds(facts, "driver")}
        assert (driver, cuda) in versions
        assert len(kinds(facts, "gpu")) == 2
        for gpu in kinds(facts, "gpu"):
            assert gpu.fields["memory_total_mib"] > 8000  # type: ignore[operator]
            assert "error" not in gpu.fields
    for a, b in zip(kinds(table, "gpu"), kinds(query, "gpu"), strict=True):
        assert a.key == b.key
        assert abs(int(str(a.fields["temperature_c"])) - int(str(b.fields["temperature_c"]))) <= 6
    csv = max(kinds(run("nvidia_smi_csv:parse_csv", text), "gpu"), key=lambda f: len(f.fields))
    assert csv.fields["pcie_width"] in (8, 16)
    assert csv.fields["driver_version"] == driver


def test_query_mig_and_limits() -> None:
    text = sample("nvidia-smi-captures/linux-x86_64__nvidia-h100-mig__590.48.01.txt")
    gpu = kinds(run("nvidia_smi_query:parse_query", text), "gpu")[1]
    assert gpu.fields["mig_mode"] == "Enabled"
    assert gpu.fields["memory_total_mib"] == 81559
    assert gpu.fields["t_limit_c"] == 24
    assert gpu.fields["slowdown_t_limit_c"] == -2
    assert gpu.fields["default_power_limit_w"] == 700.0
    assert gpu.fields["fabric_state"] == "Completed"
    assert gpu.fields["processes"] == 3
    table = run("nvidia_smi_table:parse_table", text)
    assert len(kinds(table, "mig_device")) == 8


def test_query_with_display_filter_and_old_ecc() -> None:
    facts = run("nvidia_smi_query:parse_query", sample("azure-nhc/bad_nvsmi8_output.txt"))
    gpus = kinds(facts, "gpu")
    assert len(gpus) == 8
    assert gpus[0].fields["retired_pages_sbe"] == 60
    assert gpus[1].fields["retired_pages_pending"] is True
    old = """GPU 00000000:04:00.0
    Ecc Errors
        Volatile
            Single Bit
                Device Memory               : 7
                Total                       : 9
            Double Bit
                Device Memory               : 1
                Total                       : 1
        Aggregate
            Single Bit
                Total                       : 90
            Double Bit
                Total                       : 12
"""
    for text in (old, "\n".join(line.strip() for line in old.split("\n"))):
        gpu = one(run("nvidia_smi_query:parse_query", text), "gpu")
        assert gpu.fields["ecc_corrected_volatile"] == 9
        assert gpu.fields["ecc_uncorrected_volatile"] == 1
        assert gpu.fields["ecc_dram_corrected_volatile"] == 7
        assert gpu.fields["ecc_uncorrected_aggregate"] == 12


def test_query_without_indentation() -> None:
    text = sample("nvidia-smi-captures/linux-x86_64__nvidia-h200__590.48.01.txt")
    indented = kinds(run("nvidia_smi_query:parse_query", text), "gpu")[0].fields
    flat = kinds(run("nvidia_smi_query:parse_query", "\n".join(" ".join(x.split()) for x in text.split("\n"))), "gpu")[
        0
    ].fields
    for name in (
        "pcie_gen",
        "pcie_width_max",
        "power_limit_w",
        "sm_clock_mhz",
        "max_sm_clock_mhz",
        "memory_used_mib",
        "temperature_c",
    ):
        assert flat[name] == indented[name], name


def test_xml() -> None:
    facts = run("nvidia_smi_xml:parse_xml", sample("nvidia-smi-xml/nvidia-k8s-test-infra/mock/qx-gb200-lost.xml"))
    bad, lost = kinds(facts, "gpu")
    assert bad.fields["ecc_uncorrected_volatile"] == 5
    assert bad.fields["remap_failed"] is True
    assert bad.where("remap_failed").line == 215
    assert lost.fields["error"] == "GPU is lost"
    assert one(facts, "gpu_count").fields["value"] == 2


def test_xml_cut_in_the_middle() -> None:
    text = sample("nvidia-smi-xml/nvidia-k8s-test-infra/hardware/qx-h100.xml")
    assert len(kinds(run("nvidia_smi_xml:parse_xml", text), "gpu")) == 8
    cut = kinds(run("nvidia_smi_xml:parse_xml", text[: len(text) // 20]), "gpu")
    assert cut[0].fields["power_limit_w"] == 700.0
    lines_gone = kinds(run("nvidia_smi_xml:parse_xml", text.replace("\n", "")), "gpu")
    assert len(lines_gone) == 8


@pytest.mark.parametrize("name", ["a10g", "a100-sxm4-v12", "gtx-1070-ti", "rtx-3080-v13", "tesla-t4", "quadro-p400"])
def test_xml_old_and_new(name: str) -> None:
    gpu = one(run("nvidia_smi_xml:parse_xml", sample(f"nvidia-smi-xml/telegraf/{name}.xml")), "gpu")
    assert gpu.fields["temperature_c"] is not None
    assert gpu.fields["compute_capability"] is not None


def test_csv_series_is_thinned() -> None:
    rows = [
        f"2026/01/01 10:00:{i % 60:02d}.000, 0, 00000000:E3:00.0, P1, {90 + i % 9} %, 2, 5, {300 + i}.00 W"
        for i in range(500)
    ]
    text = (
        "timestamp, index, pci.bus_id, pstate, utilization.gpu [%], pcie.link.gen.current, pcie.link.gen.max, power.draw [W]\n"
        + "\n".join(rows)
    )
    facts = run("nvidia_smi_csv:parse_csv", text)
    assert len(kinds(facts, "gpu")) < 60
    series = one(facts, "gpu_series")
    assert series.fields["samples"] == 500
    assert series.fields["power_peak_w"] == 799.0
    assert series.where("power_peak_w").line == 501


def test_csv_mask_and_noheader() -> None:
    text = "$ nvidia-smi --query-gpu=index,clocks_throttle_reasons.active,temperature.gpu --format=csv,noheader\n0, 0x0000000000000048, 93\n"
    gpu = one(run("nvidia_smi_csv:parse_csv", text), "gpu")
    assert gpu.fields["throttle_active"] == "HW Slowdown, HW Thermal Slowdown"


def test_monitor() -> None:
    text = "# gpu   pwr gtemp mtemp    sm   mem  mclk  pclk\n# Idx     W     C     C     %     %   MHz   MHz\n    0   254    66     -    97    67  5508  1835\n    1     -     -     -     -     -     -     -\n"
    first, second = kinds(run("nvidia_smi_mon:parse_monitor", text), "gpu")
    assert first.fields["power_w"] == 254.0
    assert first.fields["utilization_pct"] == 97
    assert "power_w" not in second.fields


def test_list_and_mig() -> None:
    text = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-10c4e8f2)\n  MIG 3g.40gb     Device  0: (UUID: MIG-2f7c0d1e)\n"
    facts = run("nvidia_smi_list:parse_list", text)
    assert one(facts, "mig_device").fields["profile"] == "3g.40gb"
    assert one(facts, "gpu").fields["mig_devices"] == 1
    cut = run("nvidia_smi_list:parse_list", "$ nvidia-smi -L | head -1\n" + text)
    assert kinds(cut, "gpu_count") == []
