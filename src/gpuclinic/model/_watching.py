"""What watching a machine brings, moment by moment."""

from __future__ import annotations

import msgspec

from gpuclinic.model._types import Fact, Gap, Scalar, Where

EVENT_KINDS = frozenset(
    [
        "xid",
        "sxid",
        "ecc",
        "kernel",
        "exit",
        "oom_kill",
        "gpu_hung",
        "gpu_lost",
        "gpu_back",
        "link",
        "job",
        "boot",
        "agent",
    ]
)
"""xid, sxid: NVIDIA's error codes. ecc: NVML's event of a memory error. kernel: a line of the kernel log that a signature knows.
exit: a process ended. oom_kill: memory.events counted one. gpu_hung, gpu_lost, gpu_back: NVML's answers about a device stopped, or came
again. link: a NIC's, InfiniBand port's or NVLink's state changed. job: one began or ended. boot: the machine was started. agent: what
the watcher has to say of itself (started, stopped, was too slow, the clock was set)."""


class Event(msgspec.Struct, frozen=True):
    """Something that happened at a moment, as opposed to something that is so.

    at: Unix seconds. kind: one of EVENT_KINDS. subject: PCI address of a GPU ("0000:3b:00.0"), pid, interface, "" for the machine.
    text: one line for people, in English, as the source told it. fields: with units in their names, as facts have them; for an Xid
    `code`, for an exit `pid`, `name`, `code` or `signal`, `sender_pid`, `sender_name`. serial, slot: of the GPU, so that a fault is
    seen to follow the card or to stay with the slot.
    """

    at: float
    kind: str
    subject: str = ""
    text: str = ""
    fields: dict[str, Scalar] = {}
    serial: str | None = None
    slot: str | None = None
    evidence: list[Where] = []


class Tick(msgspec.Struct):
    """One sample of the machine.

    at: Unix seconds when it was begun. mono: the same on the monotonic clock, which nobody sets. took_s: how long it took.
    facts: as docs/facts.md names them, complete: what is read less often stands there with its last value. ages: for kinds of facts
    that are not of this moment, how many seconds old they are. events: since the tick before. gaps: what could not be looked at.
    """

    at: float
    mono: float
    facts: list[Fact]
    events: list[Event] = []
    gaps: list[Gap] = []
    ages: dict[str, float] = {}
    took_s: float = 0.0
