"""Since when something holds: the one idea of "for so long" that a window of `check` and a stream of the agent share. Pure."""

from __future__ import annotations

ELSEWHERE, UNSEEN, NOT, INFO, WARNING, CRITICAL = -2, -1, 0, 1, 2, 3
"""What a row says of a subject at one moment: not about it, what it needs was not there, does not hold, holds so gravely."""
SEVERITY_OF = (None, "info", "warning", "critical")
PATIENCE_S = 60.0
"""Seconds without an answer that a run outlives; longer, and as long as its rule's duration, it begins anew."""

_LASTING_KINDS = frozenset(
    ["gpu", "gpu_use", "mig_device", "pci_device", "nvlink", "nvlink_gpu", "ib_port", "ib_counters", "net_interface", "nvme",
     "nvme_health", "block_device", "raid", "sensor", "psu"]
)  # fmt: skip
"""Hardware: one that is not seen any more has not become well. A process, a container, a mount that is gone takes its faults with it."""


def level_when_gone(kind: str) -> int:
    """What a row says of a subject that is not there: of hardware nothing, of others that it does not hold."""
    return UNSEEN if kind in _LASTING_KINDS else NOT


class Lasting:
    """The runs of a row about a subject, one for each severity: a graver moment counts for the milder ones, too."""

    __slots__ = ("blind", "seen_at", "since")

    def __init__(self) -> None:
        self.since: list[float | None] = [None, None, None, None]
        self.seen_at = 0.0
        self.blind = False

    def step(self, at: float, level: int, for_s: float) -> None:
        """A further moment. One without an answer neither goes on with a run nor ends it at once."""
        if level == UNSEEN:
            self.blind = True
            return
        if self.blind and at - self.seen_at > max(PATIENCE_S, for_s):
            self.since = [None, None, None, None]
        self.seen_at, self.blind = at, False
        since = self.since
        for severity in (INFO, WARNING, CRITICAL):
            if level < severity:
                since[severity] = None
            elif since[severity] is None:
                since[severity] = at

    def reached(self, at: float, for_s: float) -> int:
        """The gravest that has held for so long, in every sample since."""
        for severity in (CRITICAL, WARNING, INFO):
            begun = self.since[severity]
            if begun is not None and at - begun >= for_s:
                return severity
        return NOT

    def since_first(self, first: float) -> int:
        """The gravest that has held ever since the first moment."""
        for severity in (CRITICAL, WARNING, INFO):
            begun = self.since[severity]
            if begun is not None and begun <= first:
                return severity
        return NOT
