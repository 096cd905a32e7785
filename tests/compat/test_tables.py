"""The tables: every row can be used, every text is there in both languages."""

from __future__ import annotations

import csv
import re

import pytest

from gpuclinic.compat.cuda_rules import cuda_row
from gpuclinic.compat.versions import numbers, specifier
from gpuclinic.knowledge._load import DATA
from gpuclinic.knowledge.compat import Gpu, ages, tables


def test_specifiers_can_be_read() -> None:
    for row in tables().builds:
        for text in (row.versions, row.toolkit, row.with_cuda):
            assert specifier(text) is not None, row
    for pin in tables().pins:
        assert specifier(pin.versions) is not None, pin


def test_every_build_has_a_known_cuda_and_a_source() -> None:
    for row in tables().builds:
        assert row.source, row
        assert (
            row.cuda in ("none", "torch", "toolkit", "jit") or row.variant == "rocm" or cuda_row(row.cuda) is not None
        ), row


def test_architectures_of_builds_fit_their_toolkit() -> None:
    for row in tables().builds:
        known = cuda_row(row.cuda)
        if known is not None:
            extra = set(row.sass.split()) - set(known.archs.split())
            assert not extra or row.package in ("tensorflow", "tensorflow-gpu", "mxnet-cu92", "mxnet-cu90"), (
                row,
                extra,
            )


def test_texts_in_both_languages_with_the_same_places() -> None:
    with (DATA / "cause_ids.tsv").open(encoding="utf-8", newline="") as file:
        ids = {row["id"] for row in csv.DictReader(file, delimiter="\t")}
    for row in tables().texts.values():
        for field in ("title", "why", "fix"):
            english, chinese = row.get(f"{field}_en", ""), row.get(f"{field}_zh", "")
            assert bool(english) == bool(chinese), row["id"]
            places = set(re.findall(r"\{(\w+)\}", english)), set(re.findall(r"\{(\w+)\}", chinese))
            assert {p.removesuffix("_zh") for p in places[1]} <= places[0], row["id"]
            assert not re.search(
                r"[a-z]{4,} [a-z]{4,} [a-z]{4,}",
                chinese.replace("unsatisfied condition", "").replace("device kernel image is invalid", ""),
            ), row["id"]
        if "cause" in row:
            assert row["cause"] in ids
            assert row["id"].startswith(row["cause"])


def test_kernel_rows_are_in_order() -> None:
    for row in tables().kernels:
        assert numbers(row.driver_from) < numbers(row.driver_below), row
        assert not row.fails_from or numbers(row.builds_to) < numbers(row.fails_from), row


def test_cuda_releases_are_in_order() -> None:
    rows = [numbers(row.release) for row in tables().cuda]
    assert rows == sorted(rows)


def test_age_and_sources_are_told() -> None:
    for name, rows, date, sources in ages():
        assert rows, name
        assert re.match(r"\d{4}-\d\d-\d\d", date), name
        assert sources or name == "pci.tsv", name


@pytest.mark.parametrize("row", tables().gpus, ids=lambda row: row.pattern[:20])
def test_gpu_patterns_compile(row: Gpu) -> None:
    assert re.compile(row.pattern)
    assert any(arch.capability == row.capability for arch in tables().architectures)
