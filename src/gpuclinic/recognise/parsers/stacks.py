"""Stacks of stuck processes: py-spy dump, pystack, faulthandler, gdb. One "stack" for each process, about its "
"main thread."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.model import Fact, Where, digits
from gpuclinic.recognise.parsers._host_util import unstamped_lines

if TYPE_CHECKING:
    from gpuclinic.model import Document
    from gpuclinic.model._types import Scalar

_PREFIX = re.compile(
    r"^(?:\[(?:rank|default)?(?P<a>\d{1,5})\]:\s?|\[\d+,(?P<b>\d{1,5})\]<std(?:err|out)>:\s?|(?P<c>\d{1,4}): "
    r"(?=\s|Thread|Current|Process))",
    re.IGNORECASE,
)
_PROCESS = re.compile(r"^\s*Process (?P<pid>\d{1,10})\b:?\s*(?P<command>.*)$")
_PID = re.compile(
    r"\b(?:pid|PID|进程)[ :=]{0,3}(?P<a>\d{2,8})\b|\s-p(?:id)?[ =](?P<b>\d{2,8})\b|\bAttaching to process "
    r"(?P<c>\d+)|\b(?:py-spy dump|pystack remote|cuda-gdb|gstack|eu-stack) .*?(?P<d>\d{2,8})\s*$"
)
_RANK = re.compile(r"(?:\b|_|-)(?:local[_-]rank|rank)[ :=_]{0,3}(?P<rank>\d{1,5})\b", re.IGNORECASE)
_THREADS = (
    re.compile(
        r"^\s*Thread (?P<id>0x[0-9A-Fa-f]+|\d+) \((?P<state>idle|active|active\+gil|idle\+gil)\)(?::? "
        r'"(?P<name>[^"]*)")?'
    ),
    re.compile(
        r"^\s*(?:Current t|T)hread (?P<id>0x[0-9A-Fa-f]+)(?: \[(?P<name>[^\]]*)\])? \(most recent call first\):"
    ),
    re.compile(
        r"^\s*Traceback for thread (?P<id>\d+)(?: \((?P<name>[^)]*)\))? \[(?P<state>[^\]]*)\].*\(most recent "
        r"call (?P<order>last|first)\)"
    ),
    re.compile(
        r'^\s*Thread (?P<number>\d{1,10}) \(Thread 0x[0-9a-f]+ \(LWP (?P<id>\d+)\)(?: "(?P<name>[^"]*)")?[^)]*\):?'
    ),
    re.compile(r"^\s*Stack \(most recent call first\):"),
)
_FRAMES = (
    re.compile(
        r"^\s+(?P<function>[\w<>.~ ]{1,80}) \((?P<file>[^():]+\.(?:pyx?|pxd|so\S*|cpp|c|h|cu)|<[\w ]+>|"
        r"[^():]*/[^():]+):(?P<line>\d+)\)\s*$"
    ),
    re.compile(
        r'^\s*(?:\((?:Python|C)\) )?File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in|\s+in) (?P<function>\S.*?)\s*$'
    ),
    re.compile(
        r"^\s*#\d+\s+(?:0x[0-9a-f]+ in )?(?P<function>[\w:~@<>.*&, ()]{1,160}?)\s*\([^()]*\)?.*?(?: (?:from|at) "
        r"(?P<file>\S+))?\s*$"
    ),
    re.compile(r"^\s+(?P<function>(?:0x[0-9a-f]+|[\w:~@.]+)) \((?P<file>[^()]+\.so[\w.]*|[A-Za-z_]\w*)\)\s*$"),
)
_COLLECTIVE = re.compile(
    r"^(?:all_?reduce\w*|all_?gather\w*|reduce_?scatter\w*|broadcast\w*|barrier|monitored_barrier|"
    r"all_?to_?all\w*|reduce|gather\w*|scatter\w*|recv\w*|send\w*|"
    r"batch_isend_irecv|_all_gather_base|_reduce_scatter_base|sync_params_buffers|_sync_\w*buffers|"
    r"_verify_param_shape_across_processes|wait_for_everyone|"
    r"_store_based_barrier|_exchange_object|allreduce_grads)$"
)
_COLLECTIVE_FILE = re.compile(
    r"torch/(?:distributed|nn/parallel/distributed|_C/_distributed)|deepspeed/comm|horovod|mpi4py|"
    r"accelerate/(?:state|utils/operations)|jax/|megatron/core/|lightning\S*/strategies|colossalai|paddle/distributed"
)
_NATIVE_COLLECTIVE = re.compile(
    r"\b(?:ProcessGroup(?:NCCL|Gloo)|c10d::|Work(?:NCCL|Gloo)|nccl(?:AllReduce|AllGather|ReduceScatter|Broadcast|"
    r"Send|Recv|GroupEnd)|horovod|P?MPI_(?:Allreduce|Barrier|Bcast|Allgather|Wait\w*))"
)
_STORE = re.compile(r"torch/distributed/(?:rendezvous|distributed_c10d|elastic/utils/store)")
_GPU_WAIT = re.compile(
    r"^(?:synchronize|_engine_run_backward|item|backward|cuda(?:Stream|Device|Event)Synchronize|cu(?:Stream|Ctx|"
    r"Event)Synchronize|wait_stream)$|cuda(?:Stream|Device|Event)Synchronize|cu(?:Stream|Ctx|Event)Synchronize|"
    r"copy_kernel_cuda|_local_scalar_dense"
)
_LIBRARY = re.compile(
    r"(?:^|/)(?:threading|queue|selectors|socket|ssl|subprocess|contextlib|runpy|_bootstrap|multiprocessing/\w+|"
    r"concurrent/\S+|asyncio/\S+|importlib/\S+|site|signal|pickle|"
    r"popen_\w+|functools)\.pyx?$|^/(?:usr/)?lib|lib(?:c|pthread|cuda|nccl|torch\w*|cudart|stdc\+\+|"
    r"python[\d.]*)[.-]|<frozen|site-packages/|dist-packages/|/lib/python\d|^(?:torch|numpy|pandas|deepspeed|"
    r"megatron|transformers|accelerate|lightning|pytorch_lightning|"
    r"datasets|ray|vllm|sglang|uvicorn|starlette|fastapi|grpc|jax|flax|tensorflow|horovod|PIL|cv2|h5py|zarr|"
    r"fsspec|s3fs|requests|urllib3|http)/"
)
_LOCK = re.compile(
    r"^(?:acquire|wait|wait_for|__enter__|join|get|put|_wait_for_tstate_lock|(?:\w*_)?(?:\w*futex\w*|"
    r"lll_lock_wait|mutex_lock|cond_wait|futex_wait|sem_wait)\w*|pthread_(?:cond|mutex)_\w+)"
)
_QUIET = re.compile(
    r"pin_memory|_monitor|tqdm|tensorboard|wandb|QueueFeeder|asyncio_|ThreadPoolExecutor|event_file|prometheus|"
    r"heartbeat|watchdog|pt_nccl|cuda-EvtHandlr|jemalloc|pt_autograd",
    re.IGNORECASE,
)
_INPUT_OUTPUT = re.compile(
    r"^(?:open|_?read\w*|write\w*|fsync|stat|listdir|scandir|makedirs|getdents\w*|pread\w*|load_file|torch_load|"
    r"_legacy_load|save|_save|_legacy_save|flock|lockf|__read\w*|__GI___(?:read|open|fsync)\w*)$"
)
_INTERACTIVE = re.compile(r"(?:^|/)(?:i?pdb|bdb|cmd|code|pudb\w*)\.py|IPython/|:(?:breakpoint|input|set_trace)$")
_LAUNCHER = re.compile(
    r"torch/distributed/(?:elastic/(?:agent|multiprocessing)|launcher|run\.py)|accelerate/commands|"
    r"deepspeed/launcher|torchrun"
)
_LOADER = re.compile(r"torch/utils/data/_utils/worker\.py|dataloader_worker|pt_data_worker")


class _Frame(NamedTuple):
    function: str
    file: str
    place: Where


class _Thread:
    def __init__(
        self, identity: str, name: str, state: str, number: int | None, last_first: bool, place: Where
    ) -> None:
        self.identity, self.name, self.state, self.number, self.reverse, self.place = (
            identity,
            name,
            state,
            number,
            last_first,
            place,
        )
        self.frames: list[_Frame] = []

    def inner_first(self) -> list[_Frame]:
        return self.frames[::-1] if self.reverse else self.frames


class _Process:
    def __init__(self, pid: int | None, rank: int | None, command: str, place: Where | None) -> None:
        self.pid, self.rank, self.command, self.place = pid, rank, command, place
        self.threads: list[_Thread] = []


def _number(found: re.Match[str] | None) -> int | None:
    return next((n for v in found.groups() if (n := digits(v)) is not None), None) if found else None


def parse_stacks(document: Document) -> list[Fact]:
    """One "stack" for each process whose threads the text shows."""
    processes: list[_Process] = []
    pid, rank = _number(_PID.search(document.name_hint)), _number(_RANK.search(document.name_hint))
    current: _Process | None = None
    fresh = True
    prefix_rank: int | None = None
    for index, raw in enumerate(unstamped_lines(document)):
        prefixed = _PREFIX.match(raw[:60])
        line = raw[prefixed.end() :] if prefixed else raw
        mine = _number(prefixed)
        place = document.at(index, raw)
        header = _PROCESS.match(line[:2000])
        thread = (
            next((m for t in _THREADS if (m := t.match(line[:300]))), None)
            if "hread" in line or "Stack (" in line
            else None
        )
        if header:
            told = _number(_RANK.search(header["command"]))
            current = _Process(
                int(header["pid"]), told if told is not None else (rank if fresh else None), header["command"], place
            )
            processes.append(current)
            fresh = False
        elif thread:
            if current is None or fresh or (mine is not None and mine != prefix_rank):
                current = _Process(pid, mine if mine is not None else rank, "", place)
                processes.append(current)
            fresh, prefix_rank = False, mine
            parts = thread.groupdict()
            number = int(parts["number"]) if parts.get("number") else None
            current.threads.append(
                _Thread(
                    parts.get("id") or "",
                    parts.get("name") or "",
                    parts.get("state") or "",
                    number,
                    parts.get("order") == "last",
                    place,
                )
            )
        elif current is not None and current.threads and (frame := _frame(line)):
            current.threads[-1].frames.append(_Frame(*frame, place))
        elif len(line) < 300 and line.strip() and not line.startswith(("Python v", "    ")):
            pid, rank, fresh = _heading(line, pid, rank, fresh)
    facts = [f for process in processes if (f := _fact(document, process)) is not None]
    return facts[:2048]


def _heading(line: str, pid: int | None, rank: int | None, fresh: bool) -> tuple[int | None, int | None, bool]:
    """A line between stacks that names the next process: "===== rank 2 =====", "$ py-spy dump --pid 4711"."""
    found_pid, found_rank = _number(_PID.search(line)), _number(_RANK.search(line))
    if found_pid is None and found_rank is None:
        return pid, rank, fresh
    if fresh:  # a second heading line of the same process adds to the first
        return (found_pid if found_pid is not None else pid, found_rank if found_rank is not None else rank, True)
    return found_pid, found_rank, True


def _frame(line: str) -> tuple[str, str] | None:
    if len(line) > 600:
        return None
    for pattern in _FRAMES:
        found = pattern.match(line)
        if found:
            return found["function"].strip(), found["file"] or ""
    return None


def _main(process: _Process) -> _Thread | None:
    threads = [t for t in process.threads if t.frames]
    for thread in threads:
        if thread.name in ("MainThread", "main") or thread.identity == str(process.pid) or thread.number == 1:
            return thread
    return threads[-1] if threads else None


def _collective(frames: list[_Frame]) -> _Frame | None:
    for frame in frames:
        if (_COLLECTIVE.match(frame.function) and _COLLECTIVE_FILE.search(frame.file)) or _NATIVE_COLLECTIVE.search(
            frame.function
        ):
            return frame
        if _STORE.search(frame.file) and not frame.function.startswith(("wrapper", "<module>")):
            return frame
    return None


def _fact(document: Document, process: _Process) -> Fact | None:
    main = _main(process)
    if main is None or (process.pid is None and process.rank is None and len(main.frames) < 2):
        return None
    frames = main.inner_first()
    collective = _collective(frames)
    user = next((f for f in frames if f.file and not _LIBRARY.search(f.file)), frames[0])
    waiting = [
        t
        for t in process.threads
        if t is not main
        and t.frames
        and _LOCK.match(t.inner_first()[0].function)
        and not _QUIET.search(t.name + t.inner_first()[-1].function)
    ]
    locked = [(t, next((f for f in t.inner_first() if f.file and not _LIBRARY.search(f.file)), None)) for t in waiting]
    others = [f for _, f in locked if f is not None and not _QUIET.search(f.file)]
    stuck = bool(_LOCK.match(frames[0].function))
    joined = " ".join(f.file for f in frames)
    fields: dict[str, Scalar] = {
        "pid": process.pid,
        "rank": process.rank,
        "threads": len(process.threads),
        "state": main.state or None,
        "in_collective": collective is not None,
        "op": collective.function if collective else None,
        "waits_gpu": collective is None and any(_GPU_WAIT.search(f.function) for f in frames[:4]),
        "where": f"{user.function} ({user.file})"[:200],
        "site": user.place.text.strip()[:200],
        "top": frames[0].function,
        "main_locked": stuck,
        "locked_threads": len(others),
        "in_io": any(_INPUT_OUTPUT.match(f.function) for f in frames[:5]),
        "in_data": any("utils/data" in f.file for f in frames),
        "in_user": bool(user.file) and not _LIBRARY.search(user.file),
        "interactive": any(_INTERACTIVE.search(f"{f.file}:{f.function}") for f in frames[:8]),
        "same_lock": stuck and any(f.file == user.file for f in others),
        "role": "launcher"
        if _LAUNCHER.search(joined) and collective is None
        else "loader"
        if _LOADER.search(joined + process.command)
        else "rank",
    }
    lines = {"": user.place, "where": user.place, "top": frames[0].place, "thread": main.place}
    if collective is not None:
        lines["op"] = collective.place
    data = next((f for f in frames if "utils/data" in f.file), None)
    if data is not None:
        lines["data"] = data.place
    for number, frame in enumerate(others[:3], 1):
        lines[f"other{number}"] = frame.place
    key = str(
        process.pid
        if process.pid is not None
        else f"rank {process.rank}"
        if process.rank is not None
        else f"{document.source}:{main.place.line}"
    )
    return Fact("stack", key, fields, lines, document.source, document.host)
