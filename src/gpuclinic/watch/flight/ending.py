"""The job has ended: its record is put together, the machine's logs of its time are asked, the cause is found, the bundle is packed."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic import __version__
from gpuclinic.clinic import Answer
from gpuclinic.watch.flight import launchers, ranks, stacks
from gpuclinic.watch.flight.sampling import Seen, read
from gpuclinic.watch.flight.tail import HEAD, RING, Kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.watch.flight.beside import Options
    from gpuclinic.watch.flight.recorder import Taken
    from gpuclinic.watch.flight.streams import Stream

_EARLY_S = 5.0
_BY_HAND = (2,)
_BUNDLE = re.compile(r"gpuclinic-run-[\w.-]+\.tar\.gz")
_INITIAL_PIDS = "pid:[4026531836]"
"""The first pid namespace of Linux (PROC_PID_INIT_INO, include/linux/proc_ns.h): elsewhere the kernel log's numbers are not ours."""


class Told(msgspec.Struct):
    """What is said at the end. answer: None where nobody was asked (it ended well, or by hand). bundle: where it lies ("": nowhere).

    first: of a distributed job, the rank that failed first, where it is another. seen, world: how many ranks have told their end, of how many.
    """

    command: str
    pid: int
    exit_code: int | None
    signal: int | None
    lasted_s: float
    lang: str
    answer: Answer | None = None
    bundle: str = ""
    not_packed: str = ""
    rank: int | None = None
    first: ranks.End | None = None
    seen: int = 0
    world: int | None = None
    problems: list[str] = []
    hung: bool = False


def conclude(taken: Taken, tell: Callable[[Told], str]) -> str:
    """Record, bundle and ranks' lines; what is to be said on standard error. tell: puts it in words."""
    options = taken.options
    number, code = _ended(taken.status)
    command = _shown(taken.flight.command)
    told = Told(
        command, taken.flight.job, code, number, taken.ended - taken.flight.began, options.lang, hung=bool(taken.hangs)
    )
    place = launchers.place_of(os.environ)
    if options.job:
        place = place._replace(group=re.sub(r"[^\w.-]+", "-", options.job)[:80])
    folder = _folder(options, told)
    failed = taken.status != 0
    by_hand = number in _BY_HAND and not options.always
    if (failed or options.always) and not by_hand:
        files = _files(taken)
        gathered = _machine(taken, files, told)
        files["run.json"] = _record(taken, place, gathered)
        told.answer = _why(files, options.lang, told)
        if folder is not None:
            _pack(folder, files, taken, place, told)
    if place.rank is not None and folder is not None:
        _ranks(folder, place, taken, told)
    told.problems = taken.problems + told.problems
    if options.quiet or not (failed or options.always):
        return ""
    return tell(told)


def _ended(status: int | None) -> tuple[int | None, int | None]:
    """(signal, exit code) of a wait status; neither where nobody could learn it."""
    if status is None:
        return None, None
    return (os.WTERMSIG(status), None) if os.WIFSIGNALED(status) else (None, os.WEXITSTATUS(status))


def _shown(words: list[str]) -> str:
    from gpuclinic.recognise.one_process import command_line

    return command_line(b"\0".join(os.fsencode(word) for word in words))[:300]


def _folder(options: Options, told: Told) -> Path | None:
    """Where bundles go; made where it is missing. None where it cannot be."""
    from gpuclinic.model import CouldNotError
    from gpuclinic.store import state_folder

    try:
        folder = Path(options.folder) if options.folder else state_folder() / "runs"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, CouldNotError) as problem:
        told.problems.append(f"no bundle: {problem}")
        return None
    return folder


# --- what goes into the bundle


def _files(taken: Taken) -> dict[str, bytes]:
    """All but the record itself and the machine's own logs."""
    files: dict[str, bytes] = {}
    for stream in taken.flight.streams:
        kept = _kept(stream)
        if kept is not None and kept.total and not stream.same:
            files[f"{stream.name}.log"] = kept.text()
    files["samples.jsonl"] = b"".join(json.dumps(sample).encode() + b"\n" for sample in taken.samples)
    if cgroup := taken.cgroup.text():
        files["cgroup.txt"] = cgroup.encode()
    with contextlib.suppress(OSError):
        taken.gpus.look(now=True)
    if nvml := taken.gpus.text():
        files["nvml.json"] = nvml
    files |= taken.files
    for name, data in stacks.taken(taken.dumps, taken.flight.began).items():
        files.setdefault(name, data)
    return files


def _kept(stream: Stream) -> Kept | None:
    """What is left of a stream: from the relay's memory, or from the file's end."""
    if stream.tail is not None:
        return stream.tail.kept()
    if stream.kind != "file":
        return None
    with contextlib.suppress(OSError):
        handle = os.open(f"/proc/self/fd/{stream.number}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            about = os.fstat(handle)
            begins = stream.begins if about.st_size >= stream.begins else 0
            size = about.st_size - begins
            if not stat.S_ISREG(about.st_mode) or size <= 0:
                return None
            head = os.pread(handle, HEAD, begins)
            rest = max(begins + len(head), about.st_size - RING)
            return Kept(size, head, os.pread(handle, RING, rest))
        finally:
            os.close(handle)
    return None


def _machine(taken: Taken, files: dict[str, bytes], told: Told) -> dict[str, Any]:
    """The machine's logs of the job's time go into the files; returns what else was learned: boot, offset, whether the kernel log was read."""
    from gpuclinic.clinic.gathering import Question, gather
    from gpuclinic.observe.live import LiveHost

    began, live = taken.flight.began, LiveHost(os.environ.get("GPUCLINIC_ROOT", ""))
    try:
        gathered = gather(live, Question(pid=taken.flight.job, since=began - _EARLY_S, until=taken.ended + _EARLY_S))
    finally:
        live.close()
    boot = gathered.subject.boot
    for shown, data in gathered.texts:
        if shown.endswith("/memory.*"):
            continue  # counted since the cgroup was made: cgroup.txt has what grew while the job ran
        if shown in ("/dev/kmsg", "dmesg --raw", "dmesg") and boot is not None:
            data = _of_its_time(data, began - _EARLY_S - boot)
        if data.strip():
            files["machine/" + (re.sub(r"[^\w.-]+", "-", shown).strip("-")[:60] or "text") + ".txt"] = data
    told.problems += [
        f"{gap.path}: {gap.why}" for gap in gathered.not_read if gap.path.startswith(("/dev/kmsg", "kernel"))
    ][:2]
    looked = any(fact.kind == "looked" and fact.fields.get("kernel_log") for fact in gathered.facts)
    return {
        "host": gathered.host, "boot_id": gathered.boot_id, "boot_s": boot, "offset_s": gathered.subject.offset, "kernel_log": looked,
        "not_read": [{"what": gap.path, "why": gap.why} for gap in gathered.not_read[:50]],
    }  # fmt: skip


def _of_its_time(data: bytes, since: float) -> bytes:
    """The lines of the kernel's buffer from a moment (seconds since boot) on, with those that belong to them."""
    out: list[bytes] = []
    keep = False
    for line in data.split(b"\n"):
        found = re.match(rb"\d+,\d+,(\d+),|(?:<\d+>)?\[\s*(\d+\.\d+)\]", line)
        if found:
            keep = (int(found[1]) / 1e6 if found[1] else float(found[2])) >= since
        elif not line.startswith(b" "):
            keep = True
        if keep:
            out.append(line)
    return b"\n".join(out)


def _record(taken: Taken, place: launchers.Place, machine: dict[str, Any]) -> bytes:
    """run.json: one key a line, since lines are what answers point at."""
    flight, (number, code) = taken.flight, _ended(taken.status)
    seen = list(taken.tree.seen.values())
    fullest = _fullest(taken.samples)
    told: dict[str, Any] = {
        "gpuclinic_run": 1, "version": __version__, "command": _shown(flight.command), "pid": flight.job,
        "name": taken.tree.seen[flight.job].name if flight.job in taken.tree.seen else None,
        "began_s": round(flight.began, 3), "ended_s": round(taken.ended, 3), "exit_code": code, "signal": number,
        "rank": place.rank, "world": place.world, "local_rank": place.local, "group": place.group or None,
        "pids": [one.pid for one in seen][:500], "same_pids": _same_pids(), "cgroups": sorted(taken.cgroup.paths), **machine,
        **fullest, "stood_s": round(taken.stands_s, 1), "hangs": taken.hangs,
        "signals": taken.signals, "ends": _ends(seen, taken), "processes": [_process(one) for one in seen[:200]],
        "usage": taken.usage, "core_pattern": read("/proc/sys/kernel/core_pattern", 512).decode("utf-8", "replace").strip(),
        "variables": _variables(), "recorder_alone": taken.alone, "recorder_cpu_s": round(time.process_time(), 2), "problems": taken.problems,
    }  # fmt: skip
    lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in told.items())
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("utf-8", "replace")


def _fullest(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Shared memory when it was fullest."""
    best: dict[str, Any] = {}
    for sample in samples:
        told = sample.get("host") or {}
        size, free = told.get("shm_mib"), told.get("shm_free_mib")
        if size and free is not None:
            used = round(100 * (size - free) / size, 1)
            if used >= best.get("shm_use_pct", 0.0):
                best = {"shm_mib": size, "shm_use_pct": used}
    return best


def _same_pids() -> bool:
    try:
        return os.readlink("/proc/self/ns/pid") == _INITIAL_PIDS  # noqa: PTH115
    except OSError:
        return False


def _ends(seen: list[Seen], taken: Taken) -> list[dict[str, Any]]:
    """Processes of the job, not it itself, that did not end well."""
    out: list[dict[str, Any]] = []
    known = [(one.pid, one.name, one.end, one.ended) for one in seen if one.end and one.pid != taken.flight.job]
    known += [(word["orphan"], "", word["status"], word["at"]) for word in taken.orphans if word["status"]]
    for pid, name, status, at in known[:100]:
        number, code = _ended(status)
        out.append({"pid": pid, "name": name, "signal": number, "exit_code": code, "at": round(at or 0.0, 2)})
    return out


def _process(one: Seen) -> dict[str, Any]:
    from gpuclinic.recognise.one_process import command_line

    number, code = _ended(one.end)
    return {
        "pid": one.pid, "ppid": one.ppid, "name": one.name, "command": command_line(one.words)[:300], "first": round(one.first, 1),
        "last": round(one.last, 1), "cpu_s": one.cpu_s, "rss_mib": one.rss_mib, "signal": number, "exit_code": code,
    }  # fmt: skip


def _variables() -> dict[str, str]:
    """Those of the job's environment that a capture keeps, secrets hidden."""
    from gpuclinic.clinic.scrubbing import Scrubber

    text = b"".join(name + b"=" + value + b"\0" for name, value in os.environb.items())
    kept = Scrubber().data("root/proc/1/environ", text).decode("utf-8", "replace")
    return dict(item.partition("=")[::2] for item in kept.split("\0") if item)


def _why(files: dict[str, bytes], lang: str, told: Told) -> Answer | None:
    """Asks `why` about the files, as it would answer about the bundle."""
    from gpuclinic.clinic.reading import Texts
    from gpuclinic.clinic.why import examine

    try:
        return examine(Texts(sorted(files.items())), lang)
    except (OSError, ValueError, MemoryError) as problem:
        told.problems.append(f"the cause was not looked for: {problem}")
        return None


def _pack(folder: Path, files: dict[str, bytes], taken: Taken, place: launchers.Place, told: Told) -> None:
    """Writes the bundle, secrets masked, and removes the oldest ones where there are too many."""
    from gpuclinic.clinic.packing import pack
    from gpuclinic.clinic.scrubbing import Scrubber
    from gpuclinic.store import whole_file

    scrubber = Scrubber()
    clean = {
        name: scrubber.data(name, data)
        for name, data in files.items()
        if not name.startswith("hang-") or data[:1] != b"\x80"
    }
    clean |= {name: data for name, data in files.items() if name not in clean}
    when = dt.datetime.fromtimestamp(taken.ended, dt.timezone.utc)
    rank = f"-rank{place.rank}" if place.rank is not None else ""
    name = "".join(
        c if c.isalnum() or c in "-_." else "-"
        for c in f"gpuclinic-run-{os.uname().nodename}-{when:%Y%m%dT%H%M%SZ}{rank}-{taken.flight.job}"
    )
    path = folder / f"{name}.tar.gz"
    record = clean.pop("run.json")
    try:
        with whole_file(path) as file:
            pack(file, ".tar.gz", name, ("run.json", record), clean, lambda _: {}, taken.options.most, taken.ended)
    except OSError as problem:
        told.not_packed = f"{path}: {problem.strerror or problem}"
        return
    told.bundle = str(path)
    _tidy(folder, taken.options.keep, path)


def _tidy(folder: Path, keep: int, newest: Path) -> None:
    """Only so many bundles stay; nothing else in the folder is touched."""
    with contextlib.suppress(OSError):
        mine = [folder / name for name in os.listdir(folder) if _BUNDLE.fullmatch(name)]  # noqa: PTH208
        mine = [path for path in mine if path != newest and path.is_file() and not path.is_symlink()]
        for path in sorted(mine, key=lambda p: p.stat().st_mtime)[: max(0, len(mine) + 1 - max(1, keep))]:
            path.unlink()


def _ranks(folder: Path, place: launchers.Place, taken: Taken, told: Told) -> None:
    """Leaves this rank's end and looks which one failed first."""
    root = told.answer.causes[0] if told.answer is not None and told.answer.causes else None
    end = ranks.End(
        place.rank or 0, os.uname().nodename, taken.flight.began, taken.ended, told.exit_code, told.signal, root.id if root else None,
        root.confidence if root else 0.0, root.title if root else "", root.evidence[0].text if root and root.evidence else "",
        told.bundle.rpartition("/")[2], place.world, told.command,
    )  # fmt: skip
    try:
        ranks.leave(folder, place, end)
    except OSError as problem:
        told.problems.append(f"the ranks' folder: {problem.strerror or problem}")
    ends = ranks.others(folder, place, taken.flight.began - 60.0)
    told.rank, told.world, told.seen = place.rank, place.world, len(ends)
    first = ranks.first_failure(ends)
    if first is not None and first.rank != place.rank:
        told.first = first
