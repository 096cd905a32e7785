from __future__ import annotations

import random

import pytest

from fuzzing import damaged, seeds, targets

TARGETS = targets()


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_readers_survive_damage(name: str) -> None:
    random_ = random.Random(f"gpuclinic {name}")
    pool = seeds()
    for data in pool:
        TARGETS[name](data)
    for _ in range(120):
        TARGETS[name](damaged(random_, pool))
