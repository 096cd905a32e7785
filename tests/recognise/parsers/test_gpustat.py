"""gpustat's lines, with and without users, fans and power."""

from __future__ import annotations

from gpuclinic.model import Document
from gpuclinic.recognise.parsers.gpustat import parse_gpustat

TEXT = """\
node3                  Wed May 17 10:44:19 2023  525.105.17
[0] NVIDIA A10       | 41'C,   0 % | 22451 / 23028 MB | hana:python3/41877(22154M) gdm:Xorg/2210(9M)
[1] GeForce RTX 2080 | 77°C,  65 %,  96 %, 211 / 250 W | 11848 / 12287 MB | python/52046(11821M)
[2] Tesla V100       | 30°C, ?? % |     0 / 32480 MB |
"""


def test_cards_and_processes() -> None:
    facts = parse_gpustat(Document("gpustat.txt", TEXT))
    cards = {f.key: f.fields for f in facts if f.kind == "gpu"}
    assert cards["0"]["memory_used_mib"] == 22451
    assert cards["0"]["temperature_c"] == 41
    assert cards["1"]["power_w"] == 211
    assert cards["1"]["utilization_pct"] == 96
    assert "utilization_pct" not in cards["2"]
    held = {f.fields["pid"]: f.fields for f in facts if f.kind == "gpu_process"}
    assert held[41877]["user"] == "hana"
    assert held[41877]["memory_mib"] == 22154
    assert held[52046]["gpu_index"] == 1
