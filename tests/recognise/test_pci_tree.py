"""PCI functions out of sysfs: links, ports above, error counters, windows, ACS."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from gpuclinic.recognise.pci_tree import acs_redirect, chain, device_fact, generation, join

if TYPE_CHECKING:
    from gpuclinic.model import Fact

GPU = {"vendor": "0x10de", "device": "0x2330", "class": "0x030200", "power_state": "D0"}
BRIDGE = {"vendor": "0x1000", "device": "0xc030", "class": "0x060400", "power_state": "D0"}


def link(speed: str, width: int, most: str = "32.0 GT/s PCIe", lanes: int = 16) -> dict[str, str]:
    return {
        "current_link_speed": speed,
        "current_link_width": str(width),
        "max_link_speed": most,
        "max_link_width": str(lanes),
    }


def tree(gpu_width: int = 16, up_width: int = 16) -> dict[str, Fact]:
    full = "32.0 GT/s PCIe"
    ways = {
        "0000:15:01.0": ({**BRIDGE, **link(full, up_width)}, []),
        "0000:16:00.0": ({**BRIDGE, **link(full, up_width)}, ["0000:15:01.0"]),
        "0000:17:00.0": ({**BRIDGE, **link(full, gpu_width)}, ["0000:15:01.0", "0000:16:00.0"]),
        "0000:18:00.0": ({**GPU, **link(full, gpu_width)}, ["0000:15:01.0", "0000:16:00.0", "0000:17:00.0"]),
    }
    facts = [device_fact(address, values, b"\xde\x10\x30\x23" * 16, None, up) for address, (values, up) in ways.items()]
    join(facts, 86400.0)
    return {fact.key: fact for fact in facts}


def test_a_link_is_compared_with_the_port_above_it() -> None:
    facts = tree(gpu_width=8)
    gpu = facts["0000:18:00.0"].fields
    assert (gpu["width"], gpu["width_possible"], gpu["slot_width_max"], gpu["gen"], gpu["gen_possible"]) == (
        8,
        16,
        16,
        5,
        5,
    )
    assert [facts[a].fields["port"] for a in ("0000:15:01.0", "0000:16:00.0", "0000:17:00.0")] == [
        "root",
        "upstream",
        "downstream",
    ]
    assert "width_possible" not in facts["0000:17:00.0"].fields, "a downstream port hangs on the inside of its switch"
    assert facts["0000:16:00.0"].fields["gpus_below"] == 1


def test_the_bridge_that_narrows_the_way_is_named() -> None:
    assert tree(up_width=8)["0000:18:00.0"].fields["limited_by"] == "0000:16:00.0"
    assert "limited_by" not in tree()["0000:18:00.0"].fields


def test_a_function_that_does_not_answer_reads_ones() -> None:
    lost = device_fact("0000:18:00.0", {**GPU, **link("Unknown", 63)}, b"\xff" * 64, "nvidia", []).fields
    assert lost["rev_ff"] is True
    assert "width" not in lost
    asleep = device_fact("0000:18:00.0", {**GPU, "power_state": "D3cold"}, b"\xff" * 64, "nvidia", []).fields
    assert asleep["asleep"] is True
    assert "rev_ff" not in asleep
    assert "rev_ff" not in device_fact("0000:18:00.0", GPU, None, "nvidia", []).fields, "config was not readable"


def test_error_counters_are_summed_and_rated() -> None:
    counters = {
        "aer_dev_correctable": "RxErr 0\nBadTLP 240\nTOTAL_ERR_COR 240\n",
        "aer_dev_nonfatal": "Undefined 0\nUnsupReq 2\nTLP 1\nTOTAL_ERR_NONFATAL 3\n",
        "aer_dev_fatal": "DLP 0\nTOTAL_ERR_FATAL 0\n",
    }
    facts = [device_fact("0000:18:00.0", {**GPU, **counters}, None, None, [])]
    join(facts, 2 * 86400.0)
    fields = facts[0].fields
    assert (fields["aer_corrected_total"], fields["aer_corrected_worst"], fields["aer_corrected_per_day"]) == (
        240,
        "BadTLP",
        120.0,
    )
    assert (fields["aer_nonfatal_total"], fields["aer_nonfatal_serious"], fields["aer_fatal_total"]) == (3, 1, 0)
    assert facts[0].where("aer_corrected_total").text == "BadTLP 240, TOTAL_ERR_COR 240"


def test_windows() -> None:
    given = "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200\n0x0000200000000000 0x0000201fffffffff 0x000000000014220c\n"
    fields = device_fact("0000:18:00.0", {**GPU, "resource": given}, None, None, []).fields
    assert (fields["bar_unassigned"], fields["largest_bar_mib"]) == (False, 131072.0)
    unset = "0x0000000000000000 0x0000001fffffffff 0x000000002014220c\n"
    assert device_fact("0000:18:00.0", {**GPU, "resource": unset}, None, None, []).fields["bar_unassigned"] is True


def test_hostile_values_give_nothing() -> None:
    odd = {
        "current_link_width": "-4",
        "max_link_width": "many",
        "numa_node": "x",
        "aer_dev_fatal": "TOTAL_ERR_FATAL ten\n\n",
        "resource": "0x 0x 0x\n0x1",
    }
    fields = device_fact("0000:18:00.0", {**GPU, **odd}, b"", None, []).fields
    assert not {"width", "width_max", "numa", "rev_ff"} & set(fields)
    assert fields["aer_fatal_total"] == 0
    join([device_fact("0000:18:00.0", GPU, None, None, ["0000:18:00.0"])], 0.0)  # its own parent: no endless way up


def test_acs_is_found_in_the_list_of_capabilities() -> None:
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x148_1_0001)  # advanced error reporting, the next at 0x148
    struct.pack_into("<IHH", space, 0x148, 0x0001000D, 0x1F, 0x1D)
    assert acs_redirect(bytes(space)) is True
    struct.pack_into("<H", space, 0x14E, 0x11)
    assert acs_redirect(bytes(space)) is False
    assert acs_redirect(bytes(64)) is None
    struct.pack_into("<I", space, 0x100, 0x100_1_0001)
    assert acs_redirect(bytes(space)) is None, "a list that leads back to itself"


def test_small_things() -> None:
    assert chain("../../../devices/pci0000:15/0000:15:01.0/0000:16:00.0") == ["0000:15:01.0", "0000:16:00.0"]
    assert [generation(s) for s in (2.5, 16.0, 64.0, 3.0, None)] == [1, 4, 6, None, None]
