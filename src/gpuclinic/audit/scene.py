"""What an audit looks at: the files, processes and GPUs of a host, read once each, with what could not be read.

Checks ask a Scene and nothing else; they are pure functions from a Scene to hits. Whatever is read here is another's, and may be hostile.
"""

from __future__ import annotations

import errno
import functools
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.audit.accounts_file import Account, parse_passwd
from gpuclinic.model import Gap, Where
from gpuclinic.recognise.process_table import Task, shows_all, uid_of
from gpuclinic.recognise.secrets import mask

if TYPE_CHECKING:
    from gpuclinic.audit.packages import Ownership
    from gpuclinic.audit.sockets import Socket
    from gpuclinic.observe.asking import Answer, Asked

MOST_TEXT = 1 << 18
"""Bytes of a configuration file; what is longer is cut, and said."""
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EINVAL)
"""Not there, or no regular file (a unit that is masked by a link to /dev/null)."""


class Text(msgspec.Struct, frozen=True, dict=True):
    """A file that was read. path: on the examined machine. cut: more was there than was read."""

    path: str
    data: bytes
    cut: bool = False

    @functools.cached_property
    def text(self) -> str:
        """Its text, whatever its bytes."""
        return self.data.decode("utf-8", "replace")

    def lines(self) -> list[str]:
        """Its lines; the first has index 0 and number 1."""
        return self.text.replace("\r\n", "\n").split("\n")

    def at(self, index: int | None = None, text: str | None = None) -> Where:
        """The place of a line by its index; its text is that line, secrets masked, unless another is given."""
        if text is None:
            lines = self.lines()
            text = lines[index] if index is not None and index < len(lines) else ""
        return Where(self.path, None if index is None else index + 1, mask(text.strip())[:300])


class FileState(msgspec.Struct, frozen=True):
    """Rights, owner and time of a path, its links not followed. kind: file, folder, link, character, block, fifo, socket. mtime: Unix seconds."""

    kind: str
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    size: int | None = None
    mtime: float | None = None


class Process(msgspec.Struct):
    """One process. Parts are None where they were not looked at or may not be read.

    argv: as it was given, secrets and all: never print it but through `shown`. exe: where /proc/PID/exe leads, without " (deleted)".
    variables: its environment. files: descriptor to target ("socket:[4711]", "/dev/nvidia0"). mapped: paths of mapped files, each once.
    listed: reading the folder /proc shows it. probed: signal 0 reaches it, or its files open by number.
    """

    pid: int
    task: Task | None = None
    status: dict[str, str] = {}
    argv: list[str] = []
    exe: str | None = None
    deleted: bool = False
    cwd: str | None = None
    cgroup: str | None = None
    variables: dict[str, str] | None = None
    files: dict[int, str] | None = None
    mapped: list[str] | None = None
    listed: bool = True
    probed: bool | None = None

    @property
    def comm(self) -> str:
        """Its short name."""
        return self.task.comm if self.task else self.status.get("Name", "")

    @property
    def uid(self) -> int | None:
        """The real user's number."""
        return uid_of(self.status)

    @property
    def kernel_thread(self) -> bool:
        """A thread of the kernel by its flags, not by its name."""
        return self.task is not None and self.task.kernel_thread

    def shown(self, most: int = 200) -> str:
        """Its command line in one line, secrets masked."""
        return mask(" ".join(word for word in self.argv if word)[:4000])[:most]

    def at(self, what: str, text: str) -> Where:
        """A place in /proc: what is "cmdline", "exe", "maps"."""
        return Where(f"/proc/{self.pid}/{what}", None, mask(text)[:300])


class GpuProcess(msgspec.Struct, frozen=True):
    """A process as NVML lists it. name: what NVML calls it, "" where it does not say."""

    gpu: int
    pid: int
    kind: str = ""
    used_mib: float | None = None
    name: str = ""


class Gpu(msgspec.Struct, frozen=True):
    """A GPU with its samples, oldest first: t (Unix seconds), gpu_util and mem_util (percent), mem_used_mib, power_w, sm_clock_mhz, temp_c,
    pcie_rx_kbs, pcie_tx_kbs; any may be missing. power_limit_w, default_power_limit_w, mem_total_mib: None where not told."""

    index: int
    uuid: str = ""
    name: str = ""
    mem_total_mib: float | None = None
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    clocks_locked: bool | None = None
    samples: list[dict[str, float]] = []


class Scene:
    """Reads what checks ask for, each thing once; what could not be read stands in `gaps`."""

    def __init__(self, host: Asked, *, deep: bool = False) -> None:
        self.host = host
        self.deep = deep
        self.gaps: list[Gap] = []
        self._texts: dict[str, Text | None] = {}
        self._states: dict[str, FileState | None] = {}

    def gap(self, check: str, why: str, *, required: bool = False, fix: str | None = None) -> None:
        """Notes that something could not be looked at; the same thing once."""
        gap = Gap(check, why, required, fix)
        if gap not in self.gaps:
            self.gaps.append(gap)

    def text(self, path: str, check: str = "audit.files", most: int = MOST_TEXT) -> Text | None:
        """A file; None where it is not there, or may not be read: then a gap says so under the name of the check."""
        if path not in self._texts:
            self._texts[path] = self._taken(path, self.host.file(path, most), check)
        return self._texts[path]

    def texts(self, pattern: str, check: str = "audit.files", most: int = MOST_TEXT) -> list[Text]:
        """All files that a shell pattern names, by path."""
        out = []
        for path, answer in sorted(self.host.files(pattern, most).items()):
            self._texts.setdefault(path, self._taken(path, answer, check))
            known = self._texts[path]
            if known is not None:
                out.append(known)
        return out

    def _taken(self, path: str, answer: Answer, check: str) -> Text | None:
        if answer.ok:
            if answer.cut:
                self.gap(check, f"{path}: only its first {len(answer.data)} bytes were read")
            return Text(path, answer.data, answer.cut)
        if answer.code not in _ABSENT and answer.code != errno.EISDIR:
            self.gap(check, f"{path}: {answer.why}")
        return None

    def names(self, folder: str, check: str = "audit.files") -> list[str]:
        """The names in a folder; none where it is not there."""
        answer = self.host.listing(folder)
        if not answer.ok and answer.code not in _ABSENT:
            self.gap(check, f"{folder}: {answer.why}")
        return answer.lines() if answer.ok else []

    def state(self, path: str) -> FileState | None:
        """Rights and owner; None where it is not there or cannot be asked."""
        if path not in self._states:
            told = self.host.stat(path).json()
            known = getattr(self.host, "rights_known", None)
            if told and known is not None and not known(path):
                told = {name: value for name, value in told.items() if name in ("kind", "size")}
            mode = told.get("mode")
            self._states[path] = (
                FileState(
                    str(told.get("kind", "file")), int(str(mode), 8) if mode is not None else None, told.get("uid"), told.get("gid"),
                    told.get("size"), told.get("mtime"),
                )
                if told else None
            )  # fmt: skip
        return self._states[path]

    def where(self, path: str, text: str = "") -> Where:
        """A place of which no line is told."""
        return Where(path, None, mask(text)[:300])

    def link(self, path: str) -> str | None:
        """Where a link leads. A snapshot made by hand may hold the target of a link of /proc as a file's text."""
        answer = self.host.link(path)
        if answer.ok:
            return answer.text
        if not self.host.live and path.startswith("/proc/"):
            text = self.host.file(path, 4096)
            return text.text.rstrip("\n") if text.ok and text.data and b"\0" not in text.data else None
        return None

    @functools.cached_property
    def now(self) -> float:
        """Unix time on the examined machine when it was looked at."""
        own = getattr(self.host, "own_json", None)
        told = own("stat.json").get("now") if own is not None else None
        return float(told) if isinstance(told, int | float) else self.host.clock()

    @functools.cached_property
    def accounts(self) -> list[Account]:
        """The rows of /etc/passwd, in order."""
        passwd = self.text("/etc/passwd", "audit.accounts")
        return parse_passwd(passwd.text) if passwd else []

    def homes(self) -> list[tuple[Account, str]]:
        """Every account with a home of its own, system accounts and root included; a home that many share comes with each."""
        return [(account, account.home.rstrip("/") or "/") for account in self.accounts if account.home.startswith("/")]

    @functools.cached_property
    def processes(self) -> dict[int, Process]:
        """Every process that listing /proc shows, and those that only a probe reached, by pid. See `processes.py`."""
        from gpuclinic.audit.processes import read_processes

        return read_processes(self)

    @functools.cached_property
    def whole_view(self) -> bool:
        """/proc is that of the first pid namespace and shows every process."""
        return shows_all({p.pid: p.task for p in self.processes.values() if p.task is not None})

    @functools.cached_property
    def as_root(self) -> bool | None:
        """The look was root's; None where a snapshot does not say."""
        from gpuclinic.audit.processes import looked_as_root

        return looked_as_root(self)

    @functools.cached_property
    def gpus(self) -> list[Gpu]:
        """The GPUs with their samples, from NVML or gpu_processes.json. See `gpus.py`."""
        from gpuclinic.audit.gpus import read_gpus

        return read_gpus(self)

    @functools.cached_property
    def gpu_processes(self) -> list[GpuProcess]:
        """Who is on the GPUs, as NVML says."""
        from gpuclinic.audit.gpus import read_gpu_processes

        return read_gpu_processes(self)

    @functools.cached_property
    def sockets(self) -> list[Socket]:
        """TCP sockets that listen or are connected."""
        from gpuclinic.audit.sockets import read_sockets

        return read_sockets(self)

    @functools.cached_property
    def packages(self) -> Ownership:
        """Which package owns a file."""
        from gpuclinic.audit.packages import read_packages

        return read_packages(self)
