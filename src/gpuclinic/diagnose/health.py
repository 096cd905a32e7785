"""Did anything fail at all? Runs that end well take the alarm out of lines that healthy runs print, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate, Support
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.model import Signal, Where

_ENDED_WELL = (
    "run.completed",
    "run.exit_zero",
    "nccl.tests_ok",
    "slurm.job_state_completed",
    "elastic.finished",
    "k8s.completed",
    "programs.tests_passed",
)
_RESULT = ("run.results_written", "run.accuracy", "run.checkpoint_saved")
_PROGRESS = (
    "run.step", "run.epoch", "run.tqdm", "run.megatron", "run.meters", "run.meters_reversed", "run.hf_log",
    "tf.epoch", "tf.progbar", "run.served", "vllm.throughput", "programs.trial_done",
)  # fmt: skip
PROGRESS_IDS = frozenset({*_ENDED_WELL, *_RESULT, *_PROGRESS})
"""Lines by which runs tell that they go on or ended well."""
_DEATHS = (
    "elastic.worker_failed", "elastic.child_failed", "elastic.table_root_cause", "lightning.child_terminated", "mpi.rank_signal", "mpi.hydra_exit",
    "mpi.pals_rank", "slurm.task_signal", "slurm.step_failed", "slurm.job_state_failed", "systemd.main_killed", "python.called_process_signal",
    "python.core_dumped", "python.segfault_pid", "deepspeed.killing",
)  # fmt: skip
_DEATH_WITH_CODE = (
    "slurm.task_exit",
    "k8s.exit_code",
    "systemd.exit_code",
    "docker.event_die",
    "deepspeed.return_code",
    "mpi.rank_exit",
    "run.exit_code",
)
_SILENT = (
    "compat.",
    "net.rdma_fallback",
    "perf.",
    "hw.",
    "driver.",
    "sec.",
    "app.silent_death",
    "process.orphan",
    "host.cpu",
    "storage.slow",
    "container.",
)
"""Causes that slow or degrade a run which all the same ends well: a good end does not take them back."""
_TAKEN_BACK = ("app.", "net.", "compat.", "storage.", "host.", "perf.", "process.killed")
"""Causes of which little is left where the run that told them came to a good end."""
_SLOW = ("perf.", "host.cpu", "storage.slow")
"""Causes that slow a run: they do not show that anything failed."""
_HANDLED = ("torch.handled_oom", "programs.trial_failed", "programs.nan_retry")
"""Lines by which a program tells that it caught an error and goes on."""
_HANDLED_NEAR = 25
_STAYS = 3
_STAYS_NAN = 0.93
_REQUEUED = ("slurm.requeued", "slurm.preempted")
_MUCH_PROGRESS = 3
_UNBELIEVED = 0.45
_PROVEN_FROM = 0.95


class Health:
    """How each source ended and whether anything died."""

    def __init__(self, reading: Reading) -> None:
        self._well: dict[str, int] = {}
        self._progress: dict[str, int] = {}
        self._traceback: dict[str, int] = {}
        self._steps: dict[str, list[int]] = {}
        self._handled: dict[str, list[int]] = {}
        self._resumed: dict[str, int] = {}
        self._last_line: dict[str, int] = {}
        self._last_nan: dict[str, int] = {}
        self.died: list[Signal] = []
        for signal in reading.signals:
            source, order = signal.where.source, signal.order
            if signal.signature in _PROGRESS:
                self._last_line[source] = signal.where.line or 0
            elif signal.signature == "torch.loss_nan":
                self._last_nan[source] = signal.where.line or 0
            if signal.signature in _ENDED_WELL:
                self._well[source] = order
            elif signal.signature in _RESULT or signal.signature in _PROGRESS:
                self._progress[source] = order
                self._steps.setdefault(source, []).append(order)
            elif signal.signature == "run.resumed":
                self._resumed[source] = order
            elif signal.signature in _HANDLED:
                self._handled.setdefault(source, []).append(signal.where.line or 0)
            elif signal.signature in _DEATHS or (
                signal.signature in _DEATH_WITH_CODE and signal.groups.get("exit", "0") not in ("0", "00")
            ):
                self.died.append(signal)
            elif signal.signature == "python.traceback":
                self._traceback[source] = order

    @property
    def any_ended_well(self) -> bool:
        """Some run of those read reports success and no traceback after it."""
        return any(self.ended_well_after(source, -1) for source in self._well)

    def ended_well_after(self, source: str, order: int) -> bool:
        """The source's run reports success later than this, and no traceback follows the report."""
        well = self._well.get(source, -1)
        return well > order and self._traceback.get(source, -1) < well

    def went_on_after(self, source: str, order: int) -> bool:
        """The source's run made progress after this."""
        return self._progress.get(source, -1) > order or self._well.get(source, -1) > order

    def stays_nan(self, support: Support) -> bool:
        """The last progress line of the run that told of NaN again and again is still NaN."""
        source = support.places[0].source
        nan = self._last_nan.get(source, 0)
        return (
            support.id == "torch.loss_nan"
            and support.count >= _STAYS
            and nan > 0
            and nan >= self._last_line.get(source, 0)
        )

    def started_again_after(self, source: str, order: int) -> bool:
        """The source's run was taken up again from a checkpoint after this, and made progress."""
        resumed = self._resumed.get(source, -1)
        return resumed > order and self.went_on_after(source, resumed)

    def went_on_long_after(self, source: str, order: int) -> bool:
        """The source's run made some steps after this, and nothing is told to have died."""
        return not self.died and sum(1 for o in self._steps.get(source, ()) if o > order) >= _MUCH_PROGRESS

    def handled(self, where: Where) -> bool:
        """The program tells close by that it caught this."""
        return where.line is not None and any(
            abs(where.line - line) <= _HANDLED_NEAR for line in self._handled.get(where.source, ())
        )


def weigh(candidates: list[Candidate], reading: Reading) -> Health:
    """Lowers supports that healthy runs print, too, where nothing failed or the run went on well."""
    health = Health(reading)
    proven = [
        s for c in candidates for s in c.supports
        if s.fatal and s.worth >= 0.6 and s.places and not c.cause.startswith(_SLOW) and not _survived(c, s, health)
    ]  # fmt: skip
    failed = bool(health.died) or bool(proven)
    for candidate in candidates:
        for support in candidate.supports:
            if not support.places:
                continue
            if health.stays_nan(support):
                support.worth = max(support.worth, _STAYS_NAN)
                continue
            if _survived(candidate, support, health):
                support.worth *= 0.3 if support.id in _REQUEUED or candidate.cause.startswith(_TAKEN_BACK) else 0.7
            if not support.fatal and not failed:
                support.worth *= _UNBELIEVED / max(_UNBELIEVED, support.worth)
        candidate.settle()
    return health


def _survived(candidate: Candidate, support: Support, health: Health) -> bool:
    """The run that printed the line went on to a good end."""
    if support.id in _REQUEUED and health.started_again_after(support.places[0].source, support.order):
        return True
    if (
        candidate.cause == "process.segfault"
        and support.id.startswith(("kernel.", "coredump."))
        and not health.died
        and health.any_ended_well
    ):
        return True  # some other program crashed
    if candidate.cause == "net.rdma_fallback":  # sockets were enough for a run that ended well
        return health.ended_well_after(support.places[0].source, support.order)
    if support.fatal and candidate.cause.startswith(_SILENT):
        return False
    if (
        support.id.startswith("python.error")
        and not health.died
        and health.went_on_after(support.places[0].source, support.order)
    ):
        return True  # one request or trial failed, the program went on
    if candidate.cause.startswith("app.") and _went_on(support, health):
        return True
    if (
        support.worth >= _PROVEN_FROM
        and support.fatal
        and not health.ended_well_after(support.places[0].source, support.order)
    ):
        return False
    place = support.places[0]
    if health.ended_well_after(place.source, support.order):
        return True
    return not support.fatal and health.went_on_after(place.source, support.order)


def _went_on(support: Support, health: Health) -> bool:
    """An error that a tuner, a batch finder or a server caught: it says so and goes on, or goes on for long."""
    last, order = support.places[-1], support.order
    source = last.source
    if health.handled(last) and health.went_on_after(source, order):
        return True
    return support.id.endswith(("oom", "oom_v1", "out_of_memory")) and health.went_on_long_after(source, order)
