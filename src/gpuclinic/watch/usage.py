"""Who had the GPUs, and whether they used them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from gpuclinic.watch.history_view import gpu_numbers

if TYPE_CHECKING:
    from gpuclinic.store.history import History, Holding

By = Literal["user", "job", "gpu"]


class Share(msgspec.Struct, frozen=True):
    """What one user, job or GPU had. Seconds of GPU time: held (a GPU that several held at once is divided among them), busy, idle, unknown
    (held, and nobody can tell whether it was busy). gpus: their names. peak_mib: most memory of one process. name "": not known.
    """

    name: str
    held_s: float
    busy_s: float
    idle_s: float
    unknown_s: float
    gpus: list[str]
    peak_mib: float | None


class Usage(msgspec.Struct, frozen=True):
    """The answer. watched_s: GPU time that was watched; asked_s: as much as there was in that time, by the GPUs that are known.

    free_s: watched, and nobody held it. nameless_s: held by processes whose user (or job) is not known. ownerless_s: busy by the GPU's own
    figure beyond the time in which anybody was seen to hold it.
    """

    by: By
    since: float
    until: float
    shares: list[Share]
    watched_s: float
    asked_s: float
    held_s: float
    busy_s: float
    unknown_s: float
    nameless_s: float
    ownerless_s: float

    @property
    def free_s(self) -> float:
        """Watched, and held by nobody."""
        return max(0.0, self.watched_s - self.held_s)


def usage(history: History, by: By, since: float, until: float) -> Usage:
    """GPU time by user, job or GPU, whoever held most first."""
    holdings = history.usage(since, until)
    numbers = gpu_numbers(history)
    names = {one.gpu: f"GPU {numbers[one.gpu]}" if one.gpu in numbers else one.gpu for one in holdings}
    whole = [one for one in holdings if one.pid == 0]
    held = [one for one in holdings if one.pid != 0]
    if by == "gpu":
        shares = [_of_gpu(one, names[one.gpu]) for one in whole]
    else:
        groups: dict[str, list[Holding]] = {}
        for one in held:
            groups.setdefault(one.user if by == "user" else one.job, []).append(one)
        shares = sorted(
            (_of_group(name, group, names) for name, group in groups.items()), key=lambda share: -share.held_s
        )
    nameless = 0.0 if by == "gpu" else sum(one.share_s for one in held if not (one.user if by == "user" else one.job))
    return Usage(
        by, since, until, shares, sum(one.held_s for one in whole), (until - since) * len(whole),
        sum(one.share_s for one in whole), sum(one.busy_s for one in whole), sum(one.unknown_s for one in held), nameless,
        sum(max(0.0, one.busy_s - one.share_s) for one in whole),
    )  # fmt: skip


def _of_gpu(one: Holding, name: str) -> Share:
    """A GPU's own row: busy by its own figure, also where nobody was seen to hold it."""
    return Share(
        name,
        one.share_s,
        one.busy_s,
        max(0.0, one.held_s - one.busy_s - one.unknown_s),
        one.unknown_s,
        [name],
        one.peak_mib,
    )


def _of_group(name: str, group: list[Holding], names: dict[str, str]) -> Share:
    held, busy, unknown = (sum(getattr(one, field) for one in group) for field in ("share_s", "busy_s", "unknown_s"))
    peaks = [one.peak_mib for one in group if one.peak_mib is not None]
    gpus = sorted({names[one.gpu] for one in group}, key=lambda text: (len(text), text))
    return Share(name, held, busy, max(0.0, held - busy - unknown), unknown, gpus, max(peaks, default=None))
