"""node-problem-detector: the line, the exit code, and the files that it is configured by."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_exported_metrics import alert, finding

from gpuclinic.knowledge.npd import kernel_rules
from gpuclinic.knowledge.xids import catalogue
from gpuclinic.watch.npd import GROUPS, MOST_BYTES, NON_OK, OK, UNKNOWN, kernel_config, plugin_config, said, shortened

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1000.0


def state(*alerts: Any, **other: Any) -> dict[str, Any]:
    told = {
        "gpuclinic_state": 1,
        "at": NOW - 5,
        "gpus": {"expected": 8, "present": 8, "readable": 8},
        "alerts": list(alerts),
        "gaps": [],
    }
    return msgspec.json.decode(msgspec.json.encode({**told, **other}))


def test_well() -> None:
    assert said(state(), None, "critical", NOW) == ("ok nothing found (8/8 GPUs)", OK)
    assert said(state(), "driver", "critical", NOW) == ("ok GPU driver and runtime are healthy", OK)


def test_the_worst_comes_first_with_its_code() -> None:
    mild = alert(rule="thermal.gpu.hot", severity="warning", finding=finding(component="thermal", title="GPU 2 is hot"))
    explained = alert(rule="gpu.count.fewer", explained_by="abcd1234")
    line, code = said(state(mild, alert(), explained), None, "warning", NOW)
    assert (line, code) == ("gpu.hung GPU 1 +1: GPU 1 hangs", NON_OK)
    assert said(state(mild), None, "critical", NOW).code == OK
    assert said(state(mild), "gpu", "warning", NOW).code == NON_OK
    assert said(state(alert()), "host", "critical", NOW).code == OK


def test_what_is_not_known_is_not_well() -> None:
    assert said(state(at=NOW - 300), None, "critical", NOW) == ("agent.stale newest sample is 300 s old", UNKNOWN)
    assert said(state(at=None), None, "critical", NOW).code == UNKNOWN
    assert said(state(at=NOW + 300), None, "critical", NOW).code == UNKNOWN
    blind = state(gaps=[{"check": "gpu.nvml", "why": "NVML: driver not loaded", "required": True}])
    assert said(blind, "gpu", "critical", NOW) == ("agent.blind gpu.nvml: NVML: driver not loaded", UNKNOWN)
    assert said(blind, "host", "critical", NOW).code == OK


def test_a_damaged_alert_hides_no_other() -> None:
    damaged = [None, 3, {"severity": "critical"}, {"severity": "x", "finding": {}}, {"finding": []}]
    assert (
        said({**state(alert()), "alerts": [*damaged, state(alert())["alerts"][0]]}, None, "critical", NOW).code
        == NON_OK
    )
    assert said({**state(), "alerts": "no", "gaps": 5, "gpus": None}, None, "critical", NOW).code == OK


@given(st.text())
def test_one_line_of_80_bytes(text: str) -> None:
    line = shortened(text)
    assert len(line.encode("utf-8", "replace")) <= MOST_BYTES
    assert line.isprintable()


def npd(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuclinic", "npd", *arguments], capture_output=True, text=True, check=False
    )


def test_the_command(tmp_path: Path) -> None:
    absent = npd("--state", str(tmp_path))
    assert (absent.returncode, absent.stdout.startswith("agent.absent "), absent.stdout.count("\n")) == (
        UNKNOWN,
        True,
        1,
    )
    (tmp_path / "state.json").write_bytes(msgspec.json.encode(state(alert(), at=time.time())))
    done = npd("--state", str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (NON_OK, "gpu.hung GPU 1: GPU 1 hangs\n", "")
    (tmp_path / "state.json").write_text("{" * 100000)
    assert npd("--state", str(tmp_path)).returncode == UNKNOWN


def test_the_configuration_is_one_that_npd_takes() -> None:
    config = json.loads(npd("--config", "--path", "/opt/gpuclinic").stdout)
    assert config == json.loads(json.dumps(plugin_config("/opt/gpuclinic")))
    conditions = {one["type"] for one in config["conditions"]}
    for rule in config["rules"]:
        assert rule["type"] in ("permanent", "temporary")
        assert (rule.get("condition") in conditions) == (rule["type"] == "permanent")
        assert int(rule["timeout"].removesuffix("s")) <= int(config["pluginConfig"]["timeout"].removesuffix("s"))
        assert rule["path"] == "/opt/gpuclinic"
    assert len({rule["reason"] for rule in config["rules"]}) == len(config["rules"])
    components = [name for group in GROUPS for name in group.components]
    assert len(components) == len(set(components))


def test_every_component_belongs_to_a_condition() -> None:
    from gpuclinic.knowledge._checks import COMPONENTS

    assert {name for group in GROUPS for name in group.components} == set(COMPONENTS)


def test_kernel_rules_match_their_lines_to_the_end() -> None:
    for rule in kernel_rules():
        assert re.search(rule.pattern + r"\Z", rule.example), rule.reason
        assert rule.source
        assert not re.search(r"\(\?[=!<]|\\[1-9]", rule.pattern), (
            "Go's regexp has no look-around and no back-references"
        )
        others = [
            one.reason
            for one in kernel_rules()
            if one.kind == "permanent" and re.search(one.pattern + r"\Z", rule.example)
        ]
        assert others == ([rule.reason] if rule.kind == "permanent" else []) or rule.reason == "GPUXidFatal"
    fatal = next(rule for rule in kernel_rules() if rule.reason == "GPUXidFatal")
    for (kind, code), info in catalogue().items():
        if kind == "xid":
            line = f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=1, name=x, text"
            assert bool(re.search(fatal.pattern + r"\Z", line)) == (info.severity == "critical"), code
    assert json.loads(npd("--kernel-config").stdout) == kernel_config()


@pytest.mark.parametrize(
    "line",
    [
        "usb 1-1: new device",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
        "pcieport 0000:00:01.0: AER: enabled with IRQ 24",
    ],
)
def test_kernel_rules_leave_healthy_lines_alone(line: str) -> None:
    assert not any(re.search(rule.pattern + r"\Z", line) for rule in kernel_rules())
