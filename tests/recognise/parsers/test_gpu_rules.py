"""The rules over GPU facts leave healthy real samples clean."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
from gpu_helpers import run, sample

from gpuclinic.diagnose.expression import holds
from gpuclinic.knowledge import DATA, Rule, parse_files

RULES = parse_files([DATA / "rules" / name for name in ("gpu.toml", "links.toml", "driver.toml")]).rules


class Given:
    """A view over facts and signal ids as an example gives them."""

    def __init__(self, example: dict[str, list[Any]]) -> None:
        self.example = example

    def facts(self, kind: str) -> list[dict[str, Any]]:
        return [{"key": str(i), **fields} for i, fields in enumerate(self.example.get(kind, []))]

    def signal_count(self, pattern: str, wanted: dict[str, Any]) -> int:
        return 0 if wanted else sum(fnmatch.fnmatchcase(s, pattern) for s in self.example.get("signals", []))


def judge(rule: Rule, example: dict[str, list[Any]]) -> bool:
    view = Given(example)
    return any(holds(rule.when, fields, view) for fields in (view.facts(rule.each) if rule.each else [{}]))


HEALTHY = (
    ("nvidia_smi_xml:parse_xml", "nvidia-smi-xml/nvidia-k8s-test-infra/hardware/qx-h100.xml"),
    ("nvidia_smi_xml:parse_xml", "nvidia-smi-xml/nvidia-k8s-test-infra/hardware/qx-b200.xml"),
    ("nvidia_smi_xml:parse_xml", "nvidia-smi-xml/nvidia-k8s-test-infra/hardware/qx-gb200.xml"),
    ("nvidia_smi_xml:parse_xml", "nvidia-smi-xml/nvidia-k8s-test-infra/hardware/qx-gb300.xml"),
    ("nvidia_smi_xml:parse_xml", "nvidia-smi-xml/nvidia-k8s-test-infra/hardware/qx-a100.xml"),
    ("nvidia_smi_xml:parse_xml", "nvidia-smi-xml/nvidia-k8s-test-infra/hardware/qx-t4.xml"),
    ("nvidia_smi_xml:parse_xml", "nvidia-smi-xml/nvidia-k8s-test-infra/mock/qx-a100-healthy.xml"),
    ("nvidia_smi_xml:parse_xml", "nvidia-smi-xml/telegraf/tesla-t4.xml"),
    ("nvidia_smi_xml:parse_xml", "nvidia-smi-xml/telegraf/rtx-3080-v12.xml"),
    ("nvidia_smi_query:parse_query", "nvidia-smi-captures/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt"),
    ("nvidia_smi_table:parse_table", "nvidia-smi-captures/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt"),
    ("nvidia_smi_query:parse_query", "nvidia-smi-captures/linux-x86_64__nvidia-l40s__595.80.txt"),
    ("nvidia_smi_table:parse_table", "nvidia-smi-captures/linux-x86_64__nvidia-h200-mig__590.48.01.txt"),
    ("nvidia_smi_query:parse_query", "nvidia-smi-captures/linux-x86_64__nvidia-geforce-rtx-2080-super__610.57.04.txt"),
    ("lspci:parse_lspci", "gpud/lspci/lspci-vvv.txt"),
    ("nvlink:parse_nvlink", "gpud/nvlink/nvidia-smi.nvlink.status.a100"),
    ("topo:parse_topo", "topo/ml-engineering-topo-2.txt"),
    ("metrics:parse_metrics", "nvidia-smi-captures/other/linux-x86_64__nvidia-h200-mig__590.48.01__idle.metrics"),
)


@pytest.mark.parametrize(("function", "name"), HEALTHY)
def test_healthy_servers_are_clean(function: str, name: str) -> None:
    example: dict[str, list[Any]] = {}
    for fact in run(function, sample(name)):
        example.setdefault(fact.kind, []).append({"key": fact.key, **fact.fields})
    broken = [r.id for r in RULES if r.fatal and r.level != "hint" and judge(r, example)]
    assert broken == []
