"""Commands of ours that texts advise: each exists, and takes what it is given there."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

import gpuclinic
from gpuclinic.cli.main import build_parser

_PACKAGE = Path(gpuclinic.__file__).parent


def told() -> list[tuple[str, str, str]]:
    """(file, subcommand, the rest) of every command of ours that data of the knowledge advise."""
    found = []
    for path in sorted((_PACKAGE / "knowledge/data").rglob("*.t[os][mv]*")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.match(r"(?:command|\s*\{)", line) or path.suffix == ".tsv":
                for part in re.findall(r"command = (?:\"\"\"|'''|\"|')(.*)", line) or [line]:
                    found += [
                        (path.name, m[1], m[2])
                        for m in re.finditer(r"(?:^|[\s;|&])gpuclinic ([a-z]+)([^|;&>\n\"'`,)}\t]*)", part)
                    ]
    return found


def subcommands() -> dict[str, argparse.ArgumentParser]:
    action = next(a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(action.choices)


def test_some_are_told() -> None:
    assert {name for _, name, _ in told()} >= {"why"}


@pytest.mark.parametrize(("file", "name", "rest"), told())
def test_a_command_that_is_advised_exists(file: str, name: str, rest: str) -> None:
    parser = subcommands().get(name)
    assert parser is not None, f"{file}: gpuclinic {name}"
    known = set(parser._option_string_actions)
    assert {word.partition("=")[0] for word in shlex.split(rest) if re.match(r"--?[a-z]", word)} <= known
