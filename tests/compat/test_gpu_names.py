"""What people and programs call a GPU: products, lspci's lines, PCI ids, clouds' instances; and accelerators that are not NVIDIA's."""

from __future__ import annotations

import pytest

from gpuclinic.compat import Question, judge
from gpuclinic.compat.gpus import card_of, cards_of
from gpuclinic.knowledge.compat import tables

NAMES = [
    ("Tesla V100-DGXS-32GB", "7.0"), ("Tesla V100-FHHL-16GB", "7.0"), ("Tesla K10.G2.8GB", "3.0"), ("GRID K520", "3.0"), ("Quadro GP100", "6.0"),
    ("Quadro GV100", "7.0"), ("Quadro T2000 with Max-Q Design", "7.5"), ("NVIDIA GeForce MX550", "7.5"), ("Orin (nvgpu)", "8.7"),
    ("RTX6000Ada", "8.9"), ("NVIDIA DGX Station GB300", "10.3"), ("NVIDIA DGX Station A100", "8.0"), ("RTX PRO 6000 Blackwell Server", "12.0"),
    ("NVIDIA Corporation GA102 [GeForce RTX 3090]", "8.6"), ("GK107M [GeForce GT 755M]", "3.0"), ("GP107M [GeForce GTX 1050 Mobile]", "6.1"),
    ("NVIDIA GeForce RTX 3050 A Laptop GPU", "8.6"), ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "8.0"), ("GRID V100D-8Q", "7.0"), ("p4d.24xlarge", "8.0"),
    ("8x H100 80GB", "9.0"), ("NVIDIA GB10", "12.1"), ("sm_103", "10.3"), ("compute_90a", "9.0"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "capability"), NAMES)
def test_name(name: str, capability: str) -> None:
    card = card_of(name)
    assert card is not None
    assert card.cc == capability


def test_every_pci_id_that_is_listed_has_a_capability() -> None:
    unknown = [row.name for row in tables().pci if card_of("10de:" + row.device) is None]
    assert unknown == ["NVIDIA DRIVE P2021"]


# sold under one name with chips of several generations
SEVERAL = {"0FC5", "0FC9", "0FCC", "0FE1", "119A", "11C7", "1292", "1294"}


def test_chips_and_products_agree() -> None:
    """Where lspci's text names both, the chip decides; the product alone would say the same, but for those that had several."""
    import re

    from gpuclinic.compat.gpus import _by_chip, _by_name

    for row in tables().pci:
        product = re.search(r"\[(.+)\]", row.name)
        by_chip, by_name = _by_chip(row.name, ""), _by_name(product[1], "") if product else None
        if by_chip is not None and by_name is not None and by_chip.capability != by_name.capability:
            assert row.device in SEVERAL, row
            card = card_of("10de:" + row.device)
            assert card is not None
            assert card.capability == by_chip.capability


@pytest.mark.parametrize(
    "name", ["AMD Instinct MI300X", "Radeon RX 7900 XTX", "Intel Arc A770", "Ascend 910B", "Gaudi 3", "Apple M3 Max"]
)
def test_not_nvidia_is_unknown_and_said(name: str) -> None:
    for want in ("torch==2.9.1", "torch==2.8.0+rocm6.4"):
        answer = judge(Question(gpu=name, python="3.12", want=[want]))
        assert answer.verdict == "unknown"
        assert "not an NVIDIA GPU" in answer.unknown[0]
    assert "不是 NVIDIA GPU" in judge(Question(gpu=name, want=["torch==2.9.1"]), "zh").unknown[0]


def test_nvidias_names_are_not_taken_for_others() -> None:
    for row in tables().pci:
        assert not [part for part in cards_of(row.name)[1] if "not an" in part]
        answer = judge(Question(gpu=row.name))
        assert not any("not an NVIDIA" in text for text in answer.unknown), row


def test_the_order_of_the_search_changes_no_answer() -> None:
    """Rows that hold the first word are tried first; the first row of the table that matches must be the same."""
    import re

    from gpuclinic.compat.gpus import _by_name, normal

    names = [row.name for row in tables().pci] + [name for name, _ in NAMES]
    for name in names:
        row = next((row for row in tables().gpus if re.fullmatch(row.pattern, normal(name))), None)
        card = _by_name(name, "")
        assert (row is None) == (card is None), name
        if row is not None and card is not None:
            assert (row.capability, row.kind, row.first_driver) == (card.cc, card.kind, card.first_driver), name
