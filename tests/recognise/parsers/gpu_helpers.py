"""What the tests of the GPU parsers share: real samples from outside the repository, and a short way to facts."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

from gpuclinic.model import Document, Fact

ROOT = Path(__file__).parents[3]
SHARED = Path(os.environ.get("GPUCLINIC_SHARED", ROOT.parent / "shared"))


def sample(name: str) -> str:
    """The text of a real sample; skips the test where the folder is not there."""
    path = SHARED / "data" / name
    if not path.is_file():
        pytest.skip(f"no real samples at {SHARED} (set GPUCLINIC_SHARED)")
    return path.read_text(errors="replace")


def sample_bytes(name: str) -> bytes:
    """The bytes of a real sample."""
    path = SHARED / "data" / name
    if not path.is_file():
        pytest.skip(f"no real samples at {SHARED} (set GPUCLINIC_SHARED)")
    return path.read_bytes()


def run(function: str, text: str, source: str = "sample.txt") -> list[Fact]:
    """The facts that a parser, named "module:function", finds in a text."""
    module, _, name = function.partition(":")
    parse = getattr(importlib.import_module(f"gpuclinic.recognise.parsers.{module}"), name)
    found: list[Fact] = parse(Document(source, text))
    return found


def kinds(facts: list[Fact], kind: str) -> list[Fact]:
    """The facts of a kind."""
    return [f for f in facts if f.kind == kind]


def one(facts: list[Fact], kind: str) -> Fact:
    """The only fact of a kind."""
    (found,) = kinds(facts, kind)
    return found
