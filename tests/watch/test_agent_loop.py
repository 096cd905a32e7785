"""The agent: its state, its signals, and what it does about a full disk, a set clock or a second start."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from watched_server import built, server

from gpuclinic.model import CouldNotError, Event, Fact, Tick
from gpuclinic.watch import agent as module
from gpuclinic.watch._own_cost import cost
from gpuclinic.watch._service import Lock
from gpuclinic.watch.agent import Agent, Parts
from gpuclinic.watch.config import Config, Sampling, load_config
from gpuclinic.watch.state import State, read_state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fakes.server import Server

__all__ = ["built", "server"]

HOST_ONLY = Config(sampling=Sampling(gpus=False, exits=False))


class Memory:
    """A history that keeps in memory, and fails when told to."""

    def __init__(self) -> None:
        self.ticks: list[Tick] = []
        self.notes: list[str] = []
        self.problem: Exception | None = None
        self.closed = False

    def append(self, tick: Tick) -> None:
        if self.problem is not None:
            raise self.problem
        self.ticks.append(tick)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class Room:
    """An agent on a fake server, with all that it said."""

    def __init__(self, folder: Path, root: Path, config: Config = HOST_ONLY, path: Path | None = None) -> None:
        self.said: list[str] = []
        self.history = Memory()
        self.folder = folder
        self.agent = Agent(
            config,
            path,
            folder,
            lambda _config, _boot: Parts(history=lambda: self.history),
            str(root),
            say=self.said.append,
        )

    def events(self) -> list[Event]:
        return [event for tick in self.history.ticks for event in tick.events if event.kind == "agent"]


@pytest.fixture
def room(server: Server, tmp_path: Path) -> Iterator[Room]:
    made = Room(tmp_path, server.root)
    yield made
    made.agent.close()


def gpu(key: str, **fields: Any) -> Fact:
    return Fact("gpu", key, {"index": 0, "name": "H100", **fields}, {}, "nvml")


def tick(facts: list[Fact], events: list[Event] | None = None, at: float = 1000.0) -> Tick:
    return Tick(at, at, facts, events or [])


# ---- state


def test_expected_present_and_readable_gpus() -> None:
    state = State()
    state.take(tick([gpu("0000:01:00.0"), gpu("0000:02:00.0"), gpu("0000:03:00.0")]))
    assert state.gpus().expected == 3
    state.take(tick([
        gpu("0000:01:00.0"), gpu("0000:02:00.0", hung=True, hung_call="nvmlDeviceGetTemperature"),
        gpu("0000:03:00.0", error="not enumerated by NVML", unreachable=True),
    ]))  # fmt: skip
    told = state.gpus()
    assert (told.expected, told.present, told.readable) == (3, 2, 1)
    assert told.troubled == {
        "0000:02:00.0": "hung in nvmlDeviceGetTemperature",
        "0000:03:00.0": "not enumerated by NVML",
    }
    assert State(8).gpus().expected == 8


def test_xids_are_counted_on_in_the_same_boot(tmp_path: Path) -> None:
    state = State(boot="b1")
    state.take(
        tick(
            [gpu("0000:01:00.0")], [Event(1.0, "xid", fields={"code": 79}), Event(1.0, "sxid", fields={"code": 20034})]
        )
    )
    state.write(tmp_path)
    earlier = read_state(tmp_path)
    assert earlier["xids"] == {"79": 1}
    again = State(earlier=earlier, boot="b1")
    again.take(tick([], [Event(1.0, "xid", fields={"code": 79})]))
    assert again.xids == {79: 2}
    assert again.sxids == {20034: 1}
    assert again.gpus().expected == 1
    assert State(earlier=earlier, boot="b2").xids == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"gpuclinic_state": 99}', "\x00", '"' + "[" * 5000])
def test_a_state_that_is_none_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(CouldNotError, match="not a state"):
        read_state(tmp_path)


def test_no_state_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CouldNotError, match="is gpuclinic agent running"):
        read_state(tmp_path)


def test_a_damaged_earlier_state_costs_only_itself() -> None:
    state = State(earlier={"boot_id": "b", "xids": {"x": 1, "79": "many", "31": 4}, "gpus": 7}, boot="b")
    assert state.xids == {31: 4}


# ---- the loop


def test_a_step_is_kept_and_its_state_written(room: Room) -> None:
    room.agent.step()
    assert next(event.text.split(" ", 2)[2] for event in room.events()).endswith("started")
    state = read_state(room.folder)
    assert state["sampling"]["ticks"] == 1
    assert any(fact["kind"] == "memory" for fact in state["facts"])
    assert state["agent"]["cpu_s"] > 0
    assert state["kernel_log"]["boot"]
    assert any(event.kind == "boot" for event in room.history.ticks[0].events)


def test_the_second_agent_is_told_who_runs(room: Room) -> None:
    with pytest.raises(CouldNotError, match=f"runs already \\(process {os.getpid()} "):
        Lock(room.folder)


def test_a_history_that_takes_nothing_is_said_once_and_when_it_works_again(room: Room) -> None:
    room.agent.step()
    room.history.problem = OSError(28, "No space left on device")
    for _ in range(3):
        room.agent.step()
    assert room.said == ["the history: No space left on device; sampling goes on"]
    assert room.agent.state.problems == room.said
    room.history.problem = None
    room.agent.step()
    room.agent.step()
    assert room.said[1:] == ["the history: works again"]
    assert room.agent.state.problems == []
    assert {"the history: No space left on device; sampling goes on", "the history: works again"} <= {
        e.text for e in room.events()
    }


def test_what_the_history_has_to_say_is_told_once(room: Room) -> None:
    room.agent.step()
    room.history.notes.append("the oldest samples were removed")
    for _ in range(3):
        room.agent.step()
    assert room.said == ["the history: the oldest samples were removed"]


def test_a_history_that_cannot_be_opened_costs_no_sample(server: Server, tmp_path: Path) -> None:
    def refuse() -> Memory:
        raise CouldNotError("history.db: another writer holds it")

    said: list[str] = []
    agent = Agent(
        HOST_ONLY, None, tmp_path, lambda _config, _boot: Parts(history=refuse), str(server.root), say=said.append
    )
    for _ in range(3):
        assert agent.step().facts
    agent.close()
    assert said == ["the history: history.db: another writer holds it; sampling goes on"]


def test_a_state_folder_that_takes_nothing_is_said_once(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(State, "write", full)
    monkeypatch.setattr(module, "STATE_EVERY_S", 0.0)
    for _ in range(3):
        assert room.agent.step().facts
    assert room.said == ["state.json: Read-only file system; sampling goes on"]


def test_a_clock_that_is_set_is_an_event(room: Room) -> None:
    room.agent.step()
    room.agent._offset -= 3600
    room.agent.step()
    room.agent.step()
    moved = [event for event in room.events() if "clock_moved_s" in event.fields]
    assert [event.fields["clock_moved_s"] for event in moved] == [pytest.approx(3600, abs=1)]


def test_a_sample_that_takes_long_is_an_event(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.agent.step()
    late = room.agent._sampler.tick()
    late.took_s = 4.0
    monkeypatch.setattr(room.agent._sampler, "tick", lambda: msgspec.structs.replace(late, events=[]))
    for _ in range(3):
        room.agent.step()
    slow = [event for event in room.events() if event.fields.get("slow")]
    assert [event.fields["took_s"] for event in slow] == [4.0]
    assert room.agent.state.slow_ticks == 3


def test_a_new_configuration_is_taken_and_a_wrong_one_is_not(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text("[sampling]\ngpus = false\nexits = false\n")
    config, _ = load_config(str(path))
    room = Room(tmp_path, server.root, config, path)
    path.write_text("[sampling]\ngpus = false\nexits = false\ninterval_s = 5\n")
    room.agent.reload()
    assert room.agent._config.sampling.interval_s == 5
    first = room.history
    path.write_text("[sampling]\ninterval_s = 0.001\n")
    room.agent.reload()
    assert room.agent._config.sampling.interval_s == 5
    assert room.said[-1].startswith("the configuration was not taken: ")
    assert room.history is first
    room.agent.close()


def test_the_next_agent_reads_the_log_on(server: Server, tmp_path: Path) -> None:
    first = Room(tmp_path, server.root)
    first.agent.step()
    with (server.root / "dev/kmsg").open("a") as file:
        file.write("4,900000,1,-;NVRM: Xid (PCI:0000:13:00): 31, pid=1, name=python3, Ch 00000008\n")
    first.agent.step()
    first.agent.close()
    with (server.root / "dev/kmsg").open("a") as file:
        file.write("4,900001,1,-;NVRM: Xid (PCI:0000:13:00): 48, pid=1, name=python3, DBE\n")
    second = Room(tmp_path, server.root)
    second.agent.step()
    second.agent.close()
    codes = [e.fields["code"] for tick in second.history.ticks for e in tick.events if e.kind == "xid"]
    assert codes == [48]
    assert second.agent.state.xids == {31: 1, 48: 1}
    assert not [e for tick in second.history.ticks for e in tick.events if e.kind == "boot"]


def test_our_own_cost_counts_the_whole_tree() -> None:
    child = subprocess.Popen(["sleep", "1000"])
    told = cost()
    child.kill()
    child.wait()
    assert told.processes >= 2
    assert told.cpu_s > 0


# ---- the command


def command(server: Server, tmp_path: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    env = {
        **server.env,
        "RUNTIME_DIRECTORY": str(tmp_path),
        "GPUCLINIC_AGENT_CONFIG": str(tmp_path / "none.toml"),
        **more,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "gpuclinic", "agent", *arguments], env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path,
    )  # fmt: skip


def wait_for_state(tmp_path: Path, process: subprocess.Popen[str]) -> dict[str, Any]:
    for _ in range(3000):
        if (tmp_path / "state.json").exists():
            return read_state(tmp_path)
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("no state was written")


def test_it_runs_tells_systemd_and_ends_when_asked(server: Server, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        process = command(server, tmp_path, NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="30000000")
        assert "READY=1" in manager.recv(4096).decode()
        state = wait_for_state(tmp_path, process)
        assert state["gpus"] == {"expected": 4, "present": 4, "readable": 4, "troubled": {}}
        assert manager.recv(4096) == b"WATCHDOG=1"
        second = command(server, tmp_path)
        _, complaint = second.communicate(timeout=120)
        assert second.returncode == 3
        assert complaint.count("\n") == 1
        assert f"process {process.pid} holds" in complaint
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert out == ""


def test_one_tick_for_programs_and_for_people(server: Server, tmp_path: Path) -> None:
    out, err = command(server, tmp_path, "--once", "--json").communicate(timeout=120)
    told = json.loads(out)
    assert err == ""
    assert sum(fact["kind"] == "gpu" for fact in told["facts"]) == 4
    assert any(fact["kind"] == "pci_device" for fact in told["facts"])
    out, _ = command(server, tmp_path, "--once", "--lang", "zh").communicate(timeout=120)
    assert "温度" in out
    assert not (tmp_path / "state.json").exists()


def test_a_configuration_is_checked(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text("[sampling]\ntrace_signals = true\n")
    process = command(server, tmp_path, "--check-config", "--config", str(path))
    assert process.communicate(timeout=60)[0] == f"{path}: right\n"
    path.write_text("[sampling]\nintervall = 1\n")
    process = command(server, tmp_path, "--check-config", "--config", str(path))
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 64
    assert "intervall" in complaint
    assert complaint.count("\n") == 1
