"""The examples of the rules over host, cluster and security facts."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

import pytest

from gpuclinic.diagnose.expression import holds
from gpuclinic.knowledge._load import DATA, parse_files

if TYPE_CHECKING:
    from gpuclinic.knowledge._records import Rule

RULES = parse_files([DATA / "rules" / f"{name}.toml" for name in ("host", "cluster", "security")]).rules
CAUSES = {line.split("\t")[0] for line in (DATA / "cause_ids.tsv").read_text(encoding="utf-8").splitlines()}


class View:
    """Facts and signals of an example."""

    def __init__(self, example: dict[str, list[Any]]) -> None:
        self.example = example

    def facts(self, kind: str) -> list[dict[str, Any]]:
        """Fields of the facts of a kind."""
        return self.example.get(kind, [])

    def signal_count(self, pattern: str, wanted: dict[str, Any]) -> int:
        """Signals of an example have no identities."""
        return 0 if wanted else len(fnmatch.filter(self.example.get("signals", []), pattern))


def judged(rule: Rule, example: dict[str, list[Any]]) -> bool:
    """Whether the rule holds for any of the example's facts."""
    return any(
        holds(rule.when, fields, View(example)) for fields in (example.get(rule.each, []) if rule.each else [{}])
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_examples(rule: Rule) -> None:
    assert not rule.cause or rule.cause in CAUSES
    assert all(cause in CAUSES for cause in rule.drops)
    assert rule.holds
    assert rule.holds_not
    assert all(judged(rule, example) for example in rule.holds)
    assert not any(judged(rule, example) for example in rule.holds_not)


def test_nothing_holds_for_nothing() -> None:
    assert not [rule.id for rule in RULES if holds(rule.when, {}, View({}))]
