"""One sampler: the facts of every tick, and what has happened between two."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from watched_server import SHORT, built, server

from gpuclinic.model import EVENT_KINDS, Event, Fact, Tick, Where
from gpuclinic.observe.nvml import ask_nvml
from gpuclinic.recognise.parsers.nvml import nvml_facts
from gpuclinic.watch import sampling
from gpuclinic.watch._gpu_facts import _EMPTY
from gpuclinic.watch.config import Sampling
from gpuclinic.watch.sampling import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fakes.server import Server

__all__ = ["built", "server"]


@pytest.fixture
def sampler(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sampler]:
    monkeypatch.setattr(sampling, "MINUTES_S", 0.0)
    made = Sampler(Sampling(), str(server.root), runtime=tmp_path)
    assert made._nvml is not None
    made._nvml._deadlines = SHORT
    made._nvml._order = made._nvml._order._replace(device_s=SHORT.device)
    yield made
    made.close()
    assert made.children() == []


def until(sampler: Sampler, holds: Callable[[Tick], bool], most: int = 400) -> Tick:
    for _ in range(most):
        tick = sampler.tick()
        if holds(tick):
            return tick
        time.sleep(0.01)
    raise AssertionError("it never held")


def gpus(tick: Tick) -> dict[str, Fact]:
    return {fact.key: fact for fact in tick.facts if fact.kind == "gpu"}


def of_kind(tick: Tick, kind: str) -> list[Event]:
    return [event for event in tick.events if event.kind == kind]


def test_a_tick_says_of_a_gpu_what_a_check_says(server: Server, sampler: Sampler, tmp_path: Path) -> None:
    sampler.tick()
    tick = sampler.tick()
    asked = {f.key: f for f in nvml_facts(ask_nvml(runtime=tmp_path), _EMPTY) if f.kind == "gpu"}
    assert set(gpus(tick)) == set(asked)
    for key, fact in gpus(tick).items():
        expected = {n: v for n, v in asked[key].fields.items() if n not in ("seconds", "energy_j", "processes")}
        told = {name: fact.fields.get(name) for name in expected}
        assert told == expected
        assert fact.lines["temperature_c"].text == asked[key].lines["temperature_c"].text
        assert fact.lines["utilization_pct"] == asked[key].lines["utilization_pct"]
        assert fact.fields["sku_form"] == "sxm"
        assert fact.fields["pcie_tx_kbs"] == pytest.approx(512, rel=0.3)


def test_the_host_is_told_too(sampler: Sampler) -> None:
    sampler.tick()
    sampler.settle(60)
    tick = sampler.tick()
    kinds = {fact.kind for fact in tick.facts}
    assert {
        "memory",
        "pressure",
        "cpu_times",
        "vm_counters",
        "ib_port",
        "pci_device",
        "fs",
        "process_count",
        "driver_state",
    } <= kinds
    assert "memory" not in tick.ages
    assert tick.ages["fs"] >= 0
    assert all(isinstance(fact.lines.get("", Where("")), Where) for fact in tick.facts)
    assert len({(f.kind, f.key) for f in tick.facts if f.kind in ("memory", "vm_counters", "cpu_times", "gpu")}) == sum(
        f.kind in ("memory", "vm_counters", "cpu_times", "gpu") for f in tick.facts
    )


def test_throttling_is_told_in_words_at_once(server: Server, sampler: Sampler) -> None:
    sampler.tick()
    server.set({"1.throttle": 0x44})
    fact = gpus(sampler.tick())[server.address(1)]
    assert fact.fields["throttle_active"] == "SW Power Cap, HW Thermal Slowdown"
    assert "throttle:HW Thermal Slowdown" in fact.lines
    assert "throttle:Idle" not in fact.lines
    assert fact.fields["throttle_mask"] == "0x0000000000000044"


def test_a_lost_gpu_is_told_once_and_when_it_is_back(server: Server, sampler: Sampler) -> None:
    sampler.tick()
    server.set({"2.lost": 1})
    tick = sampler.tick()
    (event,) = of_kind(tick, "gpu_lost")
    assert event.subject == server.address(2) == event.slot
    assert event.serial == server.scenario.of(2, "serial")
    fact = gpus(tick)[server.address(2)]
    assert fact.fields["error"] == "GPU is lost"
    assert fact.fields["uuid"]
    assert "temperature_c" not in fact.fields
    for _ in range(5):
        tick = sampler.tick()
        assert not of_kind(tick, "gpu_lost")
        assert gpus(tick)[server.address(2)].fields["error"] == "GPU is lost"
    server.set({"2.lost": 0})
    tick = until(sampler, lambda t: bool(of_kind(t, "gpu_back")))
    assert gpus(tick)[server.address(2)].fields["temperature_c"] > 0


def test_a_hung_gpu_keeps_its_identity_and_nothing_else(server: Server, sampler: Sampler) -> None:
    sampler.tick()
    server.set({"0.hang.any": "inf"})
    tick = sampler.tick()
    (event,) = of_kind(tick, "gpu_hung")
    assert event.subject == server.address(0)
    assert event.fields["call"]
    fact = gpus(tick)[server.address(0)]
    assert fact.fields["hung"] is True
    assert fact.fields["serial"] == server.scenario.of(0, "serial")
    assert "power_w" not in fact.fields
    assert any(gap.required and server.address(0) in gap.why for gap in tick.gaps)
    assert gpus(tick)[server.address(1)].fields["power_w"] == 69.0


def test_a_gpu_that_is_not_listed_any_more_is_lost(server: Server, tmp_path: Path, sampler: Sampler) -> None:
    sampler.tick()
    assert sampler._nvml is not None
    sampler._nvml._retry_s = 0.1
    server.set({"3.hidden": 1, "0.hang.util": "inf"})  # the child that takes over counts anew
    sampler.tick()
    server.set({"0.hang.util": "0"})
    tick = until(sampler, lambda t: bool(of_kind(t, "gpu_lost")))
    assert of_kind(tick, "gpu_lost")[0].subject == server.address(3)
    assert gpus(tick)[server.address(3)].fields["error"] == "not enumerated by NVML"


def test_no_driver_leaves_the_host_and_one_gap(server: Server, sampler: Sampler) -> None:
    server.set(init=9)
    tick = sampler.tick()
    assert gpus(tick) == {}
    assert [gap.why for gap in tick.gaps if gap.check == "gpu.nvml"] == ["NVML: Driver Not Loaded"]
    assert any(fact.kind == "memory" for fact in tick.facts)
    assert next(f for f in tick.facts if f.kind == "nvml").fields["code"] == 9


def say(server: Server, text: str) -> None:
    with (server.root / "dev/kmsg").open("a") as file:
        file.write(f"4,{time.monotonic_ns()},{time.monotonic_ns() // 1000},-;{text}\n")


def test_an_xid_told_twice_is_one_event(server: Server, sampler: Sampler) -> None:
    sampler.tick()
    say(server, f"NVRM: Xid (PCI:{server.address(3)[:-2]}): 79, pid=41822, name=python3, GPU has fallen off the bus.")
    server.set(xid="3:79")
    seen: list[Event] = []
    until(sampler, lambda t: bool(seen.extend(of_kind(t, "xid")) or seen))
    for _ in range(60):
        seen += of_kind(sampler.tick(), "xid")
        time.sleep(0.005)
    (event,) = seen
    assert (event.subject, event.fields["code"]) == (server.address(3), 79)
    assert event.serial == server.scenario.of(3, "serial")
    assert event.slot == server.address(3)


def test_lines_of_the_kernel_go_through_the_recogniser(server: Server, sampler: Sampler) -> None:
    sampler.tick()
    say(server, "nvidia-nvswitch2: SXid (PCI:0000:c6:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
    say(server, "systemd[1]: Started something harmless.")
    say(
        server,
        "Out of memory: Killed process 41822 (python3) total-vm:1kB, anon-rss:2kB, file-rss:0kB, shmem-rss:0kB, UID:1000",
    )
    tick = until(sampler, lambda t: bool(t.events))
    (sxid,) = of_kind(tick, "sxid")
    assert (sxid.subject, sxid.fields["code"], sxid.fields["link"]) == ("0000:c6:00.0", 20034, 30)
    (oom,) = of_kind(tick, "kernel")
    assert oom.fields["pid"] == 41822
    assert oom.fields["signature"] == "oom.killed_global"
    assert {event.kind for event in tick.events} <= EVENT_KINDS


def test_a_storm_of_one_line_does_not_fill_the_store(server: Server, sampler: Sampler) -> None:
    sampler.tick()
    for _ in range(400):
        say(server, "NVRM: Xid (PCI:0000:13:00): 31, pid=1, name=python3, Ch 00000008")
    tick = until(sampler, lambda t: bool(t.events))
    assert len(tick.events) == 301
    assert tick.events[-1].fields["left_out"] == 100


def test_a_link_that_goes_down_and_a_kill_for_want_of_memory(server: Server, sampler: Sampler) -> None:
    sampler.tick()
    port = Fact("ib_port", "mlx5_0/1", {"state": "ACTIVE", "up": True}, {}, "sys")
    group = Fact("cgroup", "/job", {"oom_kill_count": 1, "limit_mib": 512}, {}, "sys")
    sampler._looks._facts = {"network.rdma": [port], "host.cgroup": [group]}
    assert sampler._of_looks(["network.rdma", "host.cgroup"], 1.0) == []
    port.fields.update(state="DOWN", up=False)
    group.fields.update(oom_kill_count=3)
    link, kill = sampler._of_looks(["network.rdma", "host.cgroup"], 2.0)
    assert (link.kind, link.subject, link.fields["state"]) == ("link", "mlx5_0/1", "DOWN")
    assert (kill.kind, kill.subject, kill.fields["count"]) == ("oom_kill", "/job", 2)
    assert sampler._of_looks(["network.rdma", "host.cgroup"], 3.0) == []


def test_gpus_may_be_left_alone(server: Server, tmp_path: Path) -> None:
    made = Sampler(Sampling(gpus=False, exits=False), str(server.root), runtime=tmp_path)
    tick = made.tick()
    made.close()
    assert {"memory", "pressure"} <= {fact.kind for fact in tick.facts}
    assert not any(gap.check == "gpu.nvml" for gap in tick.gaps)
