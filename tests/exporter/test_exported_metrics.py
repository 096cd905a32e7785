"""What a page of metrics says of made facts, under our names and under dcgm-exporter's."""

from __future__ import annotations

import subprocess

import pytest
from exported import DRIVER, GPU, KEY, NOBODY, fact, gpu, read_page, shot, tool, xid
from hypothesis import given
from hypothesis import strategies as st

from gpuclinic.knowledge.metrics import metrics
from gpuclinic.knowledge.otel import otel_names
from gpuclinic.model import Finding
from gpuclinic.watch.alerts import Alert
from gpuclinic.watch.exporter.assignments import Assignments
from gpuclinic.watch.exporter.dcgm import dcgm_families, long_address
from gpuclinic.watch.exporter.exposition import Family, Sample, in_openmetrics, in_text, labels, wants_openmetrics
from gpuclinic.watch.exporter.families import CRITICAL_XIDS, MOST_SERIES, own_families
from gpuclinic.watch.exporter.kubelet import PodDevice
from gpuclinic.watch.exporter.otlp import logs_request, metrics_request, of_alert, of_event

OWN = (("gpu", "1"), ("uuid", GPU["uuid"]), ("pci_bus_id", KEY), ("model", GPU["name"]))


def finding(**other: object) -> Finding:
    fields = {
        "id": "gpu.hung", "severity": "critical", "component": "gpu", "subject": "GPU 1", "title": "GPU 1 hangs", "detail": "", "cause": "hw.gpu.lost",
        "action": "reboot", "steps": [{"text": "reboot"}], "observed": None, "expected": None, "evidence": [], "gpu": KEY, "gpu_index": 1,
    }  # fmt: skip
    return Finding(**{**fields, **other})


def alert(**other: object) -> Alert:
    one = finding()
    fields = {
        "id": "abcd1234",
        "rule": one.id,
        "key": KEY,
        "subject": one.subject,
        "severity": "critical",
        "since": 1.0,
        "fired_at": 2.0,
    }
    return Alert(**{**fields, "finding": one, "finding_zh": one, **other})


def page(*facts: object, **others: object) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    return read_page(in_text(own_families(shot(*facts, **others), NOBODY)))


def test_numbers_are_in_base_units_and_carry_the_card() -> None:
    found = page(gpu(), DRIVER)
    assert found["gpuclinic_gpu_utilization_ratio"] == {OWN: 0.57}
    assert found["gpuclinic_gpu_memory_used_bytes"] == {OWN: 1 << 30}
    assert found["gpuclinic_gpu_sm_clock_hertz"] == {OWN: 1.98e9}
    assert found["gpuclinic_gpu_pcie_sent_bytes_per_second"] == {OWN: 7000}
    assert found["gpuclinic_gpu_row_remap_pending"] == {OWN: 0}
    info = dict(next(iter(found["gpuclinic_gpu_info"])))
    assert (info["serial"], info["driver"]) == ("165", "580.105.08")


def test_what_a_card_has_not_is_left_out_and_never_0() -> None:
    found = page(gpu(temperature_c=None, fan_pct=None))
    assert "gpuclinic_gpu_temperature_celsius" not in found
    assert "gpuclinic_gpu_fan_speed_ratio" not in found


def test_a_gpu_that_hangs_keeps_its_identity_and_loses_its_values() -> None:
    lost = fact(
        "gpu",
        KEY,
        index=1,
        uuid=GPU["uuid"],
        bus_id=KEY,
        name=GPU["name"],
        hung=True,
        hung_call="nvmlDeviceGetTemperature",
    )
    found = page(lost)
    assert found["gpuclinic_gpu_up"] == {OWN: 0}
    assert found["gpuclinic_gpus_readable"] == {(): 0}
    assert found["gpuclinic_gpus_present"] == {(): 1}
    assert "gpuclinic_gpu_power_watts" not in found


def test_xids_are_counters_from_0() -> None:
    before = page(gpu())["gpuclinic_gpu_xids_total"]
    assert {dict(pairs)["xid"] for pairs in before} == {str(code) for code in CRITICAL_XIDS}
    assert set(before.values()) == {0.0}
    assert {48, 79, 95, 119} <= set(CRITICAL_XIDS)
    after = page(gpu(), events=(xid(79), xid(79), xid(31)))
    counted = {dict(pairs)["xid"]: value for pairs, value in after["gpuclinic_gpu_xids_total"].items() if value}
    assert counted == {"79": 2, "31": 1}
    assert after["gpuclinic_xids_total"][(("xid", "79"), ("severity", "critical"))] == 2


def test_reasons_for_lowered_clocks_are_series_of_the_reasons_that_the_card_knows() -> None:
    found = page(gpu())["gpuclinic_gpu_throttled"]
    on = {dict(pairs)["reason"] for pairs, value in found.items() if value}
    assert on == {"sw_power_cap", "hw_thermal_slowdown"}
    assert len(found) == 9
    assert page(gpu())["gpuclinic_gpu_throttle_reasons"] == {OWN: 0x44}
    assert "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS" in dcgm(gpu())


def test_alerts_are_series() -> None:
    found = page(gpu(), alerts=(alert(), alert(id="x", explained_by="abcd1234")))
    active = [dict(pairs) for pairs in found["gpuclinic_alert_active"]]
    assert [(one["rule"], one["gpu"], one.get("explained_by", "")) for one in active] == [
        ("gpu.hung", "1", ""),
        ("gpu.hung", "1", "abcd1234"),
    ]
    assert found["gpuclinic_alerts"] == {
        (("severity", "info"),): 0,
        (("severity", "warning"),): 0,
        (("severity", "critical"),): 2,
    }


def test_a_metric_of_very_many_series_is_cut_and_that_is_said() -> None:
    groups = [fact("cgroup", f"/job{number}", oom_kill_count=0) for number in range(MOST_SERIES + 7)]
    found = page(*groups)
    assert len(found["gpuclinic_cgroup_oom_kills_total"]) == MOST_SERIES
    assert found["gpuclinic_series_left_out"] == {(): 7}


def test_parts_of_gpus_say_whose_they_are() -> None:
    link = fact("nvlink", "1/3", gpu_index=1, link=3, replay_errors=2)
    mig = fact(
        "mig_device", "1/0", gpu_index=1, device=0, gi=7, ci=0, profile="1g.10gb", uuid="MIG-x", memory_used_mib=1
    )
    found = page(gpu(), link, mig)
    assert found["gpuclinic_nvlink_replay_errors_total"] == {(*OWN, ("link", "3")): 2}
    (pairs,) = found["gpuclinic_mig_memory_used_bytes"]
    assert dict(pairs)["mig_profile"] == "1g.10gb"


NAMES = st.text(max_size=400)


@given(NAMES, NAMES)
def test_names_of_others_break_no_page(name: str, mount: str) -> None:
    disk = fact("fs", mount, mount=mount, size_mib=5, device=name, type="ext4")
    text = in_text(own_families(shot(gpu(name=name or None), disk), NOBODY))
    read_page(text)
    assert all(len(line) < 2500 for line in text.splitlines())
    modern = in_openmetrics(own_families(shot(gpu(name=name or None), disk), NOBODY))
    assert modern.endswith("# EOF\n")


def test_both_formats() -> None:
    families = [
        Family("a_total", "counter", 'says "so" \\ and\nso', [Sample(labels(("x", 'q"\\\n')), 3)]), Family("b_bytes", "gauge", "b", [Sample(labels(), 0.1)]),
        Family("c_info", "info", "c", [Sample(labels(("v", "1")), 1)]), Family("none", "gauge", "n"),
    ]  # fmt: skip
    assert in_text(families) == (
        '# HELP a_total says "so" \\\\ and so\n# TYPE a_total counter\na_total{x="q\\"\\\\?"} 3\n'
        '# HELP b_bytes b\n# TYPE b_bytes gauge\nb_bytes 0.1\n# HELP c_info c\n# TYPE c_info gauge\nc_info{v="1"} 1\n'
    )
    assert in_openmetrics(families) == (
        '# TYPE a counter\n# HELP a says \\"so\\" \\\\ and so\na_total{x="q\\"\\\\?"} 3\n'
        '# TYPE b_bytes gauge\n# UNIT b_bytes bytes\n# HELP b_bytes b\nb_bytes 0.1\n# TYPE c info\n# HELP c c\nc_info{v="1"} 1\n# EOF\n'
    )


@pytest.mark.parametrize(
    ("accept", "modern"),
    [
        ("", False), ("*/*", False), ("text/plain", False), ("application/openmetrics-text", False), ("application/openmetrics-text; version=1.0.0", True),
        ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text;version=1.0.0;q=0.1, text/plain;q=0.9", False), ("application/openmetrics-text;version=1.0.0;q=x", False),
    ],
)  # fmt: skip
def test_the_format_that_is_asked_for(accept: str, modern: bool) -> None:
    assert wants_openmetrics(accept) is modern


# ---- dcgm-exporter's names


def dcgm(*facts: object, given: Assignments = NOBODY, label: str = "hostname", **others: object) -> str:
    return in_text(dcgm_families(shot(*facts, **others), given, "node17", label))


def test_a_line_is_written_as_dcgm_exporter_writes_it() -> None:
    text = dcgm(gpu(), DRIVER, label="Hostname")
    whose = (
        'gpu="1",UUID="GPU-11111111-2222-3333-4444-555555555555",pci_bus_id="00000000:3B:00.0",device="nvidia1",'
        'modelName="NVIDIA H100 80GB HBM3",Hostname="node17",DCGM_FI_DRIVER_VERSION="580.105.08"'
    )
    for name, value in (
        ("SM_CLOCK", "1980"), ("GPU_TEMP", "61"), ("POWER_USAGE", "312.5"), ("TOTAL_ENERGY_CONSUMPTION", "12500"), ("GPU_UTIL", "57"), ("FB_USED", "1024"),
    ):  # fmt: skip
        assert f"DCGM_FI_DEV_{name}{{{whose}}} {value}\n" in text
    assert f"DCGM_FI_PROF_PCIE_TX_BYTES{{{whose}}} 7000\n" in text
    assert 'hostname="node17"' in dcgm(gpu(), DRIVER)


def test_the_last_xid_stays_and_0_is_none() -> None:
    assert read_page(dcgm(gpu()))["DCGM_FI_DEV_XID_ERRORS"].popitem()[1] == 0
    ((pairs, value),) = read_page(dcgm(gpu(), events=(xid(31), xid(79))))["DCGM_FI_DEV_XID_ERRORS"].items()
    assert value == 79
    assert dict(pairs)["err_code"] == "79"


def test_jobs_make_a_series_each_and_pods_name_container_namespace_pod() -> None:
    jobs = Assignments({"1": ["771204", "771205"]})
    found = read_page(dcgm(gpu(), given=jobs))["DCGM_FI_DEV_GPU_TEMP"]
    assert [pairs[-1] for pairs in found] == [("hpc_job", "771204"), ("hpc_job", "771205")]
    pods = Assignments({}, [PodDevice("ml", "train-0", "main", "nvidia.com/gpu", GPU["uuid"])])
    (pairs,) = read_page(dcgm(gpu(), given=pods))["DCGM_FI_DEV_GPU_TEMP"]
    assert pairs[-3:] == (("container", "main"), ("namespace", "ml"), ("pod", "train-0"))


def test_memory_of_mig_instances_stands_for_that_of_the_whole() -> None:
    mig = fact(
        "mig_device",
        "1/0",
        gpu_index=1,
        device=0,
        gi=7,
        profile="1g.10gb",
        uuid="MIG-x",
        memory_used_mib=10,
        memory_total_mib=100,
    )
    found = read_page(dcgm(gpu(), mig, given=Assignments({"1.7": ["5"]})))
    ((pairs, value),) = found["DCGM_FI_DEV_FB_FREE"].items()
    assert value == 90
    assert {("GPU_I_PROFILE", "1g.10gb"), ("GPU_I_ID", "7"), ("hpc_job", "5")} <= set(pairs)
    (whole,) = found["DCGM_FI_DEV_GPU_TEMP"]
    assert "hpc_job" not in dict(whole)


def test_addresses() -> None:
    assert long_address("0000:3b:00.0") == "00000000:3B:00.0"
    assert long_address("10000:3b:00.0") == "00010000:3B:00.0"
    assert long_address("GPU-x") == "GPU-x"


def test_promtool_finds_nothing_to_say() -> None:
    promtool = tool("promtool", "prometheus")
    everything = [
        fact(kind, "k", **{m.field: 1 for m in metrics() if m.kind == kind})
        for kind in {m.kind for m in metrics()} - {"gpu"}
    ]
    card = gpu(**{m.field: 1 for m in metrics() if m.kind == "gpu"})
    text = in_text(own_families(shot(card, DRIVER, *everything, alerts=(alert(),)), Assignments({"1": ["5"]})))
    assert {m.name for m in metrics()} <= set(read_page(text))
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


# ---- OpenTelemetry


def test_numbers_have_opentelemetrys_names_where_it_has_some() -> None:
    request = metrics_request(shot(gpu(), DRIVER), NOBODY, "boot")
    (scope,) = request["resourceMetrics"][0]["scopeMetrics"]
    named = {metric["name"]: metric for metric in scope["metrics"]}
    assert len(named) == len(scope["metrics"])
    (point,) = named["hw.gpu.utilization"]["gauge"]["dataPoints"]
    told = {one["key"]: one["value"].get("stringValue") for one in point["attributes"]}
    assert point["asDouble"] == pytest.approx(0.57)
    assert (told["hw.type"], told["hw.id"], told["hw.gpu.task"]) == ("gpu", GPU["uuid"], "general")
    assert named["hw.energy"]["sum"]["isMonotonic"] is True
    assert named["hw.energy"]["sum"]["dataPoints"][0]["startTimeUnixNano"].isdecimal()
    assert "gpuclinic_gpu_energy_joules_total" not in named
    assert "gpuclinic_gpu_sm_clock_hertz" in named
    states = {
        one["attributes"][-1]["value"]["stringValue"]: one["asInt"] for one in named["hw.status"]["sum"]["dataPoints"]
    }
    assert states == {"ok": "1", "degraded": "0", "failed": "0"}
    for (kind, field), name in otel_names().items():
        assert any((m.kind, m.field) == (kind, field) for m in metrics())
        assert name.source


def test_events_and_findings_are_logs() -> None:
    request = logs_request([of_event(xid(79)), of_alert(alert(), "fired", 5.0)])
    first, second = request["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert first["body"] == {"stringValue": "Xid 79"}
    assert {"key": "gpuclinic.code", "value": {"intValue": "79"}} in first["attributes"]
    assert (second["severityText"], second["timeUnixNano"]) == ("ERROR", "5000000000")
