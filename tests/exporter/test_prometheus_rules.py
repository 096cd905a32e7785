"""Rules made from the check rows: promtool takes them, and asked about the rows' own examples they answer what the rows do."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from exported import NOBODY, REPOSITORY, shot, tool

from gpuclinic.diagnose.expression import reads
from gpuclinic.diagnose.judge import Sample, judge
from gpuclinic.knowledge import Check, load_checks, watched_rows
from gpuclinic.knowledge.dashboards import dashboards
from gpuclinic.model import Fact
from gpuclinic.watch.exporter import prometheus_rules as rules
from gpuclinic.watch.exporter.alertmanager import EXAMPLE
from gpuclinic.watch.exporter.dashboards import as_grafana
from gpuclinic.watch.exporter.exposition import number
from gpuclinic.watch.exporter.families import own_families
from gpuclinic.watch.exporter.promql import Untranslated, translated
from gpuclinic.watch.exporter.regexes import contains, literal

if TYPE_CHECKING:
    from pathlib import Path

ROWS = watched_rows(load_checks().checks)
_SPAN_S, _STEP_S = 120, 15
_OTHER = frozenset(("at", "severity"))
DASHED = {"gpu": "0000:3b:00.0"}


def facts_of(sample: dict[str, list[Any]]) -> list[Fact]:
    """An example's facts, with what every card and file system has: an index, an address, a size."""
    out = []
    for kind, listed in sample.items():
        if kind in _OTHER:
            continue
        for place, given in enumerate(listed):
            fields = dict(given)
            key = str(fields.pop("key", f"{kind}{place}"))
            if kind in ("gpu", "nvlink_gpu"):
                fields.setdefault("index" if kind == "gpu" else "gpu_index", place)
                fields.setdefault("uuid", f"GPU-{place}")
            if kind == "fs":
                fields.setdefault("size_mib", 10**6)
                key = str(fields.get("mount", key))
            if kind == "pressure":
                key = str(fields.get("resource", key))
            if kind in ("ib_port", "ib_counters"):
                fields.setdefault("device", key)
            out.append(Fact(kind, key, {"name": "NVIDIA H100", **fields} if kind == "gpu" else fields, {}, "example"))
    gpus = {f.fields["index"] for f in out if f.kind == "gpu"}
    for one in [f for f in out if f.kind == "nvlink_gpu" and f.fields["gpu_index"] not in gpus]:
        same = {
            name: one.fields[name] for name in ("uuid", "mig_mode", "sku_form", "sku_nvlink_by") if name in one.fields
        }
        out.append(
            Fact(
                "gpu",
                f"gpu{one.fields['gpu_index']}",
                {"index": one.fields["gpu_index"], "name": "NVIDIA H100", **same},
                {},
                "example",
            )
        )
    return out


def throttled(facts: list[Fact]) -> list[Fact]:
    """Reasons that an example gives in words, as the bits that series are made of."""
    from gpuclinic.recognise.parsers.nvidia_smi_fields import reasons_of_mask

    bits = {reasons_of_mask(1 << place)[0]: 1 << place for place in range(9)}
    out = []
    for fact in facts:
        words = fact.fields.get("throttle_active")
        mask = sum(bits.get(word, 0) for word in str(words).split(", ")) if words is not None else None
        out.append(
            fact if mask is None else msgspec.structs.replace(fact, fields={**fact.fields, "throttle_mask": mask})
        )
    return out


def series_of(samples: list[list[Fact]]) -> list[dict[str, str]]:
    """promtool's input series of one sample, or of two with a straight line between them."""
    pages = []
    for facts in samples:
        page: dict[str, float] = {}
        for family in own_families(shot(*throttled(facts)), NOBODY):
            for sample in family.samples:
                rest = ",".join(filter(None, ('instance="node17",job="gpuclinic"', sample.labels.text[1:-1])))
                page[f"{family.name}{{{rest}}}"] = float(sample.value)
        pages.append(page)
    steps = _SPAN_S // _STEP_S
    out = []
    for name, last in pages[-1].items():
        first = pages[0].get(name)
        values = (
            [number(last)] * (steps + 1)
            if first is None
            else [number(first + (last - first) * n / steps) for n in range(steps + 1)]
        )
        out.append({"series": name, "values": " ".join(values)})
    return out


def only(row: Check, severity: str) -> Check:
    """The row with one of its conditions, told at once."""
    others = dict.fromkeys({"critical", "warning", "info"} - {severity}, "")
    return msgspec.structs.replace(row, for_s=0.0, implied_by=[], **others)


def said_by_row(row: Check, severity: str, samples: list[list[Fact]]) -> int:
    """How many subjects the row finds."""
    at = [0.0] if len(samples) == 1 else [0.0, float(_SPAN_S)]
    window = [Sample(moment, facts, {}) for moment, facts in zip(at, samples, strict=True)]
    return sum(one.state == "holds" for one in judge([only(row, severity)], window))


def cases() -> list[dict[str, Any]]:
    """A test of promtool for each example of each row that can be asked."""
    out = []
    for row in ROWS:
        for severity in rules.SEVERITIES:
            condition = getattr(row, severity)
            try:
                expr = translated(row, condition) if condition else ""
            except Untranslated:
                continue
            compares = bool(row.rate or reads([row.critical, row.warning, row.info]).series)
            for name, examples in (("holds", row.holds), ("holds_not", row.holds_not)):
                for place, window in enumerate(examples) if expr else ():
                    chosen = [window[0], window[-1]] if compares else [window[-1]]
                    samples = [facts_of(sample) for sample in chosen]
                    if compares and len(window) < 2:
                        continue
                    wanted = said_by_row(row, severity, samples)
                    out.append({
                        "name": f"{row.id} {severity} {name} {place}", "interval": f"{_STEP_S}s", "input_series": series_of(samples),
                        "promql_expr_test": [{
                            "expr": f"count({expr}) or vector(0)", "eval_time": f"{_SPAN_S}s", "exp_samples": [{"labels": "{}", "value": wanted}],
                        }],
                    })  # fmt: skip
    return out


def test_the_rows_own_examples_are_answered_as_the_rows_do(tmp_path: Path) -> None:
    promtool = tool("promtool", "prometheus")
    tests = cases()
    assert len(tests) > 300
    assert sum(one["promql_expr_test"][0]["exp_samples"][0]["value"] > 0 for one in tests) > 100
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps({"rule_files": [], "evaluation_interval": f"{_STEP_S}s", "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    failed = re.findall(r"name: (\S+ \w+ \w+ \d+)", done.stdout + done.stderr)
    assert (done.returncode, failed) == (0, []), (done.stdout + done.stderr)[-4000:]


def files() -> dict[str, str]:
    content, left = rules.row_rules()
    return {
        "rows": rules.as_yaml(content, rules.left_as_comments(left)), "rows-zh": rules.as_yaml(rules.row_rules("zh")[0]),
        "findings": rules.as_yaml(rules.finding_rules()), "recording": rules.as_yaml(rules.recording_rules()),
    }  # fmt: skip


def test_promtool_takes_all_files(tmp_path: Path) -> None:
    promtool = tool("promtool", "prometheus")
    for name, text in files().items():
        (tmp_path / f"{name}.yml").write_text(text)
    done = subprocess.run(
        [promtool, "check", "rules", *map(str, sorted(tmp_path.iterdir()))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_wait_for_their_duration_and_say_what_they_are_about(tmp_path: Path) -> None:
    promtool = tool("promtool", "prometheus")
    content, _ = rules.row_rules()
    (tmp_path / "rows.yml").write_text(rules.as_yaml(content))
    (tmp_path / "findings.yml").write_text(rules.as_yaml(rules.finding_rules()))
    whose = 'instance="node17",job="gpuclinic",gpu="1",uuid="GPU-1",pci_bus_id="0000:3b:00.0",model="NVIDIA H100"'
    firing = 'count(ALERTS{{alertname="{}",alertstate="firing",severity="{}"}}) or vector(0)'

    def told(name: str, severity: str, at: str, count: int) -> dict[str, Any]:
        return {
            "expr": firing.format(name, severity),
            "eval_time": at,
            "exp_samples": [{"labels": "{}", "value": count}],
        }

    series = [
        {"series": f"gpuclinic_gpu_temperature_celsius{{{whose}}}", "values": "86x40"},
        {"series": f"gpuclinic_gpu_up{{{whose}}}", "values": "1x10 0x30"},
        {"series": f'gpuclinic_gpu_xids_total{{{whose},xid="79",severity="critical"}}', "values": "0x10 1x30"},
        {"series": f'gpuclinic_gpu_xids_total{{{whose},xid="48",severity="critical"}}', "values": "0x40"},
        {"series": 'gpuclinic_gpus_present{instance="node17"}', "values": "7x40"},
        {"series": 'gpuclinic_gpus_expected{instance="node17"}', "values": "8x40"},
        {"series": 'gpuclinic_agent_up{instance="gone"}', "values": "1x4 _x80"},
        {
            "series": 'gpuclinic_alert_active{instance="node17",rule="gpu.hung",severity="critical",alert_id="a"}',
            "values": "1x40",
        },
        {
            "series": 'gpuclinic_alert_active{instance="node17",rule="gpu.x",severity="critical",explained_by="a"}',
            "values": "1x40",
        },
    ]
    tests = [
        told("GpuclinicThermalGpuHot", "warning", "30s", 0), told("GpuclinicThermalGpuHot", "warning", "2m", 1),
        told("GpuclinicThermalGpuHot", "critical", "5m", 0), told("GpuclinicXid", "critical", "2m", 0), told("GpuclinicXid", "critical", "6m", 1),
        told("GpuclinicGpuDoesNotAnswer", "critical", "2m", 0), told("GpuclinicGpuDoesNotAnswer", "critical", "8m", 1),
        told("GpuclinicGpuMissing", "critical", "3m", 1), told("GpuclinicFinding", "critical", "1m", 1), told("GpuclinicAgentGone", "warning", "15m", 0),
        told("GpuclinicAgentGone", "warning", "19m", 1),
    ]  # fmt: skip
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps({
        "rule_files": ["rows.yml", "findings.yml"], "evaluation_interval": "30s",
        "tests": [{"interval": "30s", "input_series": series, "promql_expr_test": tests}],
    }))  # fmt: skip
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_cannot_be_asked_is_listed_and_nothing_is_lost() -> None:
    content, left = rules.row_rules()
    told = {
        (rule["labels"]["rule"], rule["labels"]["severity"])
        for group in content["groups"]
        for rule in group["rules"]
        if "rule" in rule["labels"]
    }
    untold = {(one.row, one.severity) for one in left}
    assert told | untold == {
        (row.id, severity) for row in ROWS for severity in rules.SEVERITIES if getattr(row, severity)
    }
    assert not told & untold
    assert {
        "gpu.ecc.uncorrectable",
        "gpu.remap.failed",
        "thermal.gpu.hot",
        "power.gpu.brake",
        "nvlink.links.inactive",
        "gpu.memory.high",
    } <= {one for one, _ in told}
    comments = "\n".join(rules.left_as_comments(left))
    assert all(one.row in comments for one in left)


def test_alertmanager_takes_the_example(tmp_path: Path) -> None:
    amtool = tool("amtool", "prometheus-alertmanager")
    path = tmp_path / "alertmanager.yml"
    path.write_text(EXAMPLE)
    assert subprocess.run([amtool, "check-config", str(path)], capture_output=True, check=False).returncode == 0
    for labels, receiver in (
        (["severity=critical"], "gpu-team-now"),
        (["severity=warning"], "gpu-team"),
        (["severity=info"], "nobody"),
    ):
        done = subprocess.run(
            [amtool, "config", "routes", "test", f"--config.file={path}", *labels],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == receiver


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_dashboards_are_whole(lang: str) -> None:
    for board in dashboards():
        made = as_grafana(board, lang)
        spots = [panel["gridPos"] for panel in made["panels"]]
        cells = [(x, y) for s in spots for x in range(s["x"], s["x"] + s["w"]) for y in range(s["y"], s["y"] + s["h"])]
        assert len(cells) == len(set(cells)), "panels lie over each other"
        assert max(x for x, _ in cells) < 24
        assert len({panel["id"] for panel in made["panels"]}) == len(spots)
        assert all(
            re.search(r"[\u4e00-\u9fff]|PCIe|Xid|GPU", panel["title"]) or lang == "en" for panel in made["panels"]
        )
        assert not re.search(r"@(server|card)", json.dumps(made))


def test_regular_expressions_in_gos_language() -> None:
    assert contains("(?i)a|b") == "(?i).*(?:a|b).*"
    assert literal("a.b c(1)|2") == r"a\.b c\(1\)\|2"
    assert (REPOSITORY / "src").is_dir()
