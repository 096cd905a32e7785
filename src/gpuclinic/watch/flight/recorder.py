"""The recorder: samples beside the job at low priority, notices its end and a standstill, and hands all of it to the ending."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from typing import TYPE_CHECKING, Any

from gpuclinic.watch.flight import stacks
from gpuclinic.watch.flight.exits import Exits
from gpuclinic.watch.flight.gpus import Gpus, busy
from gpuclinic.watch.flight.sampling import Cgroup, Tree, host
from gpuclinic.watch.flight.stalled import Moment, Standstill

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.watch.flight.beside import Options
    from gpuclinic.watch.flight.front import Flight

_FASTEST_S, _SLOWEST_S = 1.0, 15.0
_SHARE = 1000.0
"""A sample is followed by so many times its own CPU time of rest, which keeps sampling at a thousandth of one core."""
_DEEP_S, _STARTS = 10.0, 30
_MOST_SAMPLES = 600
_MOST_ORPHANS = 200


class Taken:
    """All that was recorded when the job has ended. status: its wait status, None where nobody could learn it. alone: the front was killed.

    usage: what the front learned with the status. files: stacks, by name. dumps: where the job's NCCL recorders write. stands_s: for how
    long nothing had moved.
    """

    def __init__(self, flight: Flight, options: Options) -> None:
        self.flight = flight
        self.options = options
        self.tree = Tree(flight.job, flight.front, flight.helpers)
        self.cgroup = Cgroup(flight.job)
        self.gpus = Gpus()
        self.status: int | None = None
        self.ended = 0.0
        self.usage: dict[str, Any] = {}
        self.samples: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.hangs: list[dict[str, Any]] = []
        self.orphans: list[dict[str, Any]] = []
        self.signals: list[dict[str, Any]] = []
        self.problems = list(flight.problems)
        self.dumps: set[str] = set()
        self.alone = False
        self.stands_s = 0.0


class Recorder:
    """One flight's."""

    def __init__(self, flight: Flight, told: int, options: Options, say: Callable[[str], None]) -> None:
        self._flight = flight
        self._told = told
        self._options = options
        self._say = say
        self.taken = taken = Taken(flight, options)
        self._tree, self._cgroup, self._gpus, self._samples = taken.tree, taken.cgroup, taken.gpus, taken.samples
        self._exits = Exits()
        self._standstill = Standstill(options.hang_after_s)
        self._count = 0
        self._deep_at = 0.0
        self._every_s = min(_DEEP_S, options.hang_after_s / 4) if options.hang_after_s else _DEEP_S
        self._cost = 0.0
        self._pending = b""
        self._front_gone = False

    def run(self) -> Taken:
        """Until the job has ended."""
        taken = self.taken
        while True:
            begun = time.process_time()
            self._sample()
            cost = time.process_time() - begun
            self._cost = cost if not self._cost else 0.7 * self._cost + 0.3 * cost
            if self._rest(min(_SLOWEST_S, max(_FASTEST_S, _SHARE * self._cost))):
                break
        taken.stands_s = self._standstill.stands_s()
        self._cgroup.look(self._flight.job)
        if taken.status is None:
            taken.status = self._exits.ended(self._flight.job)
        for one in self._tree.seen.values():
            if one.end is None and one.pid != self._flight.job:
                one.end = self._exits.ended(one.pid)
        if taken.status != 0:
            self._samples.append({"at": round(time.time(), 2), "host": host()})
        return taken

    # --- samples

    def _sample(self) -> None:
        deep = time.monotonic() >= self._deep_at
        self._count += deep
        sample: dict[str, Any] = {"at": round(time.time(), 2), **self._tree.sample(deep=deep), **self._cgroup.use()}
        self._exits.follow([one.pid for one in self._tree.seen.values() if one.end is None])
        if deep:
            self._deep_at = time.monotonic() + self._every_s
            self._cgroup.look(self._flight.job)
            self._gpus.look()
            sample["host"] = host()
            pids = set(self._tree.seen)
            sample["gpus"] = devices = self._gpus.of(pids)
            sample["output_bytes"] = output = self._output()
            self.taken.dumps |= stacks.dump_places(self._tree.living()) if self._count < _STARTS else set()
            moment = Moment(time.monotonic(), output, sample["cpu_s"], sample.get("moved_bytes"), busy(devices))
            if self._standstill.take(moment):
                self._hangs()
        self._samples.append(sample)
        if len(self._samples) > _MOST_SAMPLES:  # the older half is thinned out: what came last stays as it was taken
            half = _MOST_SAMPLES // 2
            self._samples[:half] = self._samples[:half:2]

    def _output(self) -> int:
        total = 0
        for stream in self._flight.streams:
            if stream.same:
                continue
            if stream.tail is not None:
                total += stream.tail.progress()[0]
            elif stream.kind == "file":
                with contextlib.suppress(OSError):
                    total += os.fstat(stream.number).st_size
        return total

    def _hangs(self) -> None:
        """Takes stacks; nothing is ended, nothing is stopped."""
        pids = self._tree.living()
        number = len(self.taken.hangs) + 1
        since = time.time() - self._standstill.stands_s()
        self.taken.hangs.append({"at": time.time(), "since": since, "stood_s": round(self._standstill.stands_s(), 1)})
        if number > 5:
            return
        self.taken.files[f"hang-{number}-stacks.txt"] = stacks.of_kernel(pids).encode()
        for pid, text in stacks.of_python(pids).items():
            self.taken.files[f"hang-{number}-py-spy-{pid}.txt"] = text.encode()
        for name, data in stacks.ask_nccl(pids).items():
            self.taken.files[f"hang-{number}-{name}"] = data
        self._gpus.look(now=True)
        if self._options.verbose:
            self._say(f"no progress for {self._standstill.stands_s():.0f} s; stacks were taken")

    # --- between samples

    def _rest(self, seconds: float) -> bool:
        """Waits for the next sample, and hears who ends; True when the job has."""
        until = time.monotonic() + seconds
        job = self._flight.job
        while True:
            poll = select.poll()
            if not self._front_gone:
                poll.register(self._told, select.POLLIN)
            handles = {handle: pid for pid, handle in self._exits.open.items()}
            for handle in handles:
                poll.register(handle, select.POLLIN)
            left = until - time.monotonic()
            if left <= 0:
                return False
            for handle, _ in poll.poll(left * 1000 + 1):
                if handle == self._told:
                    if self._hear():
                        return True
                elif handles[handle] == job:
                    if self._front_gone:
                        self.taken.ended = time.time()
                        return True
                    self._exits.drop(job)  # the front tells how it ended
                else:
                    self._ended(handles[handle])
            if self._front_gone and job not in self._exits.open and not os.path.exists(f"/proc/{job}"):  # noqa: PTH110
                self.taken.ended = time.time()
                return True

    def _ended(self, pid: int) -> None:
        one = self._tree.seen.get(pid)
        if (
            one is not None and one.end is None
        ):  # an adopted one's end the front has told already: what the kernel tells now is less
            one.end, one.ended = self._exits.ended(pid), time.time()
        self._exits.drop(pid)

    def _hear(self) -> bool:
        """What the front tells; True when it tells the job's end."""
        try:
            data = os.read(self._told, 1 << 16)
        except OSError:
            data = b""
        if not data:
            self._front_gone = True  # killed: nobody waits for our answer, but the job goes on, and so do we
            self.taken.alone = True
            self._exits.follow([self._flight.job])
            return False
        *lines, self._pending = (self._pending + data).split(b"\n")
        ended = False
        for line in lines:
            word = json.loads(line)
            if "orphan" in word:
                one = self._tree.seen.get(word["orphan"])
                if one is not None:
                    one.end, one.ended = word["status"], word["at"]
                elif len(self.taken.orphans) < _MOST_ORPHANS:
                    self.taken.orphans.append(word)
            elif "number" in word:
                if len(self.taken.signals) < _MOST_ORPHANS:
                    self.taken.signals.append(word)
            else:
                self.taken.status, self.taken.ended, self.taken.usage = word["status"], word["at"], word
                ended = True
        return ended
