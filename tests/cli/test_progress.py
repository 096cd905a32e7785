"""The line that shows what is going on: how many files were read, and how far the one at hand."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

from gpuclinic.cli.progress import Progress
from gpuclinic.clinic import examine
from gpuclinic.observe import Places

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_files_are_counted_and_large_ones_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    progress = Progress(-1.0)
    for path, offset in (("a.log", 0), ("b.log", 0), ("b.log", 5_000_000)):
        progress._last = -1.0
        progress.read(path, offset)
    shown = sys.stderr.getvalue().split("\r\x1b[K")  # type: ignore[attr-defined]
    assert shown[1:] == ["1 files: a.log", "2 files: b.log", "2 files: b.log, 5 MB"]


def test_every_file_is_told_before_it_is_read(tmp_path: Path) -> None:
    for name in ("a.log", "b.bin", "c.log"):
        (tmp_path / name).write_bytes(b"\x01\x02" * 50 if name == "b.bin" else b"text\n")
    told: list[tuple[str, int]] = []
    examine(Places([str(tmp_path)]), progress=lambda path, offset: told.append((path, offset)))
    assert told == [("a.log", 0), ("b.bin", 0), ("c.log", 0)]
