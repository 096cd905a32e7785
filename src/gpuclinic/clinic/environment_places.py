"""Finds the places of Python environments: under homes and shared folders, in conda's registers, in containers, and of running GPU processes."""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.knowledge.software import environment_places
from gpuclinic.model import Gap, digits
from gpuclinic.recognise.cuda_libraries import packages_folder
from gpuclinic.recognise.process_table import user_names

if TYPE_CHECKING:
    from gpuclinic.knowledge.software import Place as Row
    from gpuclinic.observe.asking import Answer, Asked

LOOK = "software.environments"
_MARKS = ["pyvenv.cfg", "conda-meta"]
_SITES = ["site-packages", "dist-packages"]
_MOST_HOMES = 24
"""Homes that do not lie under /home or root's; each is a search of its own."""
_MOST_ROOTS = 32
_MOST_REGISTERED = 200
_MOST_MAPS = 8 << 20
_NO_HOMES = ("/", "/nonexistent", "/dev/null", "/bin", "/sbin", "/usr", "/var", "/run", "/proc", "/etc", "/dev")


class Search(msgspec.Struct):
    """How hard to look. pids: of processes that hold a GPU. folders: opened at most by one search; seconds: about for one search.

    total_s: of the host's answers, after which no further search is begun and no further environment is read. most: environments in
    all. containers: also root file systems of containers that hold no GPU.
    """

    deep: bool = False
    pids: list[int] = []
    folders: int = 2500
    seconds: float = 0.15
    total_s: float = 0.6
    most: int = 100
    containers: bool = False


def thorough(pids: list[int] | None = None) -> Search:
    """For a person who asked for environments and waits for the answer."""
    return Search(deep=True, pids=pids or [], folders=20_000, seconds=1.0, total_s=15.0, most=1000, containers=True)


class Place(msgspec.Struct):
    """One environment's folder. prefix: the root file system it lies in, "" for the machine's own. users: numbers to names there."""

    path: str
    kind: str
    pids: list[int] = []
    prefix: str = ""
    container: str | None = None
    users: dict[int, str] = {}
    active: bool = False


class Found(msgspec.Struct):
    """Places by path, what could not be looked at, how many folders were opened, and which searches ended early."""

    places: dict[str, Place] = {}
    gaps: list[Gap] = []
    folders: int = 0
    cut: list[str] = []


class Timed:
    """Passes questions on and adds up the seconds that the answers took, as they say themselves: a replay then stops where the recording did."""

    def __init__(self, host: Asked) -> None:
        self._host = host
        self.spent_s = 0.0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._host, name)
        if not callable(method):
            return method

        def asked(*given: Any, **named: Any) -> Any:
            answer = method(*given, **named)
            one = next(iter(answer.values()), None) if isinstance(answer, dict) else answer
            self.spent_s += getattr(one, "seconds", 0.0)
            return answer

        return asked


def decoded(answer: Answer) -> list[str]:
    """Names as they are on disk; bytes that are no UTF-8 survive, so that they can be asked about."""
    return [name for name in answer.data.decode("utf-8", "surrogateescape").split("\n") if name]


def shown(path: str) -> str:
    """A path as people and programs get it."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")[:1000]


def found_environments(host: Asked, search: Search, timed: Timed) -> Found:
    """All places within the limits of the search; those of running processes first. host: `timed`, as what it stands for."""
    finder = _Finder(host, search, timed)
    finder.active()
    for pid in search.pids:
        finder.process(pid)
    finder.root("", None)
    if search.containers:
        finder.containers()
    out = finder.found
    if len(out.places) > search.most:
        out.cut.append(f"{search.most} environments")
        out.places = dict(list(out.places.items())[: search.most])
    return out


class _Finder:
    def __init__(self, host: Asked, search: Search, timed: Timed) -> None:
        self._host, self._search, self._timed = host, search, timed
        self.found = Found()
        self._refused: list[str] = []
        self._roots: set[str] = {""}

    # ---- places of one root file system

    def root(self, prefix: str, container: str | None) -> None:
        """All places of tables/environment_places.tsv under a root file system."""
        users = user_names(self._host.file(f"{prefix}/etc/passwd", 1 << 20).text)
        homes = self._homes(prefix)
        before = len(self._refused)
        for row in environment_places():
            if row.what == "root" or (container and row.place.startswith("~/.") and not self._search.deep):
                continue
            for home in homes if row.place.startswith("~") else [""]:
                start = row.place.replace("~", home, 1) if home else row.place
                self._look(row, f"{prefix}{start}", prefix, container, users)
        refused = self._refused[before:]
        if refused:
            why = f"{len(refused)} folders cannot be opened ({', '.join(map(shown, refused[:3]))}); as root they can"
            self.found.gaps.append(Gap(LOOK, why))

    def _homes(self, prefix: str) -> list[str]:
        """Homes as patterns: all of /home in one, root's, and those of /etc/passwd that lie elsewhere."""
        out = ["/home/*", "/root"]
        if prefix:
            return out
        answer = self._host.file("/etc/passwd", 1 << 20)
        for line in answer.text.splitlines()[:50_000] if answer.ok else ():
            cells = line.split(":")
            if len(cells) < 7 or not 1000 <= (digits(cells[2]) or 0) < 60_000:
                continue
            home = os.path.normpath(cells[5]) if cells[5].startswith("/") else ""
            ordinary = home.startswith("/home/") and home.count("/") == 2
            if home and not ordinary and home not in _NO_HOMES and not any(sign in home for sign in "*?["):
                out += [home] if home not in out and len(out) < _MOST_HOMES else []
        return out

    def _look(self, row: Row, start: str, prefix: str, container: str | None, users: dict[int, str]) -> None:
        names = {"walk": _MARKS, "sites": _SITES, "list": ["environments.txt"]}[row.what]
        depth = row.deep_depth if self._search.deep else row.depth
        told = self._find(start, names, depth)
        for path in told:
            folder, _, name = path.rpartition("/")
            if row.what == "list":
                self._registered(path, prefix, container, users)
            elif row.what == "sites":
                kind = "user" if "/.local/lib/" in path else "pyenv" if "/.pyenv/" in path else "system"
                self._add(path, kind, prefix, container, users)
            else:
                self._add(folder, "conda" if name == "conda-meta" else _kind_of(folder), prefix, container, users)
                if name == "conda-meta":
                    self._conda_root(folder, prefix, container, users)

    def _find(self, start: str, names: list[str], depth: int) -> list[str]:
        if self._timed.spent_s > self._search.total_s:
            self.found.cut.append(f"{shown(start)} (no time left)")
            return []
        answer = self._host.find(start, names, depth=depth, most=self._search.folders, seconds=self._search.seconds)
        if not answer.ok:
            if answer.code not in (2, 20):
                self._refused += [start] if answer.code in (1, 13) else []
                if answer.code not in (1, 13):
                    self.found.gaps.append(Gap(LOOK, f"{shown(start)}: {answer.why}"))
            return []
        told = answer.json()
        folders = told.get("folders")
        self.found.folders += folders if isinstance(folders, int) else 0
        self._refused += [path for path in _texts(told.get("refused")) if path not in self._refused]
        if told.get("cut"):
            self.found.cut.append(f"{shown(start)} ({told['cut']})")
        return _texts(told.get("found"))

    def _add(
        self, path: str, kind: str, prefix: str, container: str | None, users: dict[int, str], pid: int | None = None
    ) -> None:
        held = self.found.places.get(path)
        if held is None:
            held = self.found.places[path] = Place(path, kind, [], prefix, container, users)
        held.users = held.users or users
        if pid is not None and pid not in held.pids:
            held.pids.append(pid)

    def _conda_root(self, folder: str, prefix: str, container: str | None, users: dict[int, str]) -> None:
        """The environments of a conda installation lie in its envs."""
        for path in self._find(f"{folder}/envs", _MARKS, 1):
            self._add(path.rpartition("/")[0], "conda", prefix, container, users)

    def _registered(self, path: str, prefix: str, container: str | None, users: dict[int, str]) -> None:
        answer = self._host.untrusted([path], 1 << 16)[path]
        for line in decoded(answer)[:_MOST_REGISTERED] if answer.ok else ():
            place = os.path.normpath(line.strip())
            if not place.startswith("/") or place in ("/", "//") or f"{prefix}{place}" in self.found.places:
                continue
            if self._host.listing(f"{prefix}{place}/conda-meta").ok:
                self._add(f"{prefix}{place}", "conda", prefix, container, users)

    # ---- what runs, and where the person stands

    def active(self) -> None:
        """The environment of the shell that asks, and those in its folder and above."""
        if not self._host.live:
            return
        told = _variables(self._host.file("/proc/self/environ", 1 << 17))
        for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            if told.get(name, "").startswith("/"):
                self._take(os.path.normpath(told[name]), "", None).active = True
        link = self._host.link("/proc/self/cwd")
        folder = link.data.decode("utf-8", "surrogateescape") if link.ok else "/"
        if folder in ("/", "") or not folder.startswith("/"):
            return
        known = set(self.found.places)
        for path in self._find(folder, _MARKS, 1):
            place, _, name = path.rpartition("/")
            self._add(place, "conda" if name == "conda-meta" else _kind_of(place), "", None, {})
        for above in [folder.rsplit("/", n)[0] for n in range(1, 4)]:
            for name in (".venv", "venv") if above else ():
                if self._host.stat(f"{above}/{name}/pyvenv.cfg").ok:
                    self._add(f"{above}/{name}", _kind_of(f"{above}/{name}"), "", None, {})
        for path, one in self.found.places.items():
            one.active = one.active or path not in known

    def _take(self, path: str, prefix: str, container: str | None, pid: int | None = None) -> Place:
        full = f"{prefix}{path}"
        conda = self._host.stat(f"{full}/conda-meta").ok
        self._add(full, "conda" if conda else _kind_of(path), prefix, container, {}, pid)
        return self.found.places[full]

    def process(self, pid: int) -> None:
        """The environment that a GPU process runs in: by the modules it has mapped, else by its variables."""
        place = f"/proc/{pid}"
        maps = self._host.file(f"{place}/maps", _MOST_MAPS)
        prefix, container = self._own_root(pid)
        site = packages_folder(maps.text) if maps.ok else None
        told = _variables(self._host.file(f"{place}/environ", 1 << 17))
        named = [told[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if told.get(name, "").startswith("/")]
        if site is not None:
            above = site.rsplit("/", 3)[0]
            of_folder = site.endswith("/site-packages") and any(
                self._host.stat(f"{prefix}{above}/{mark}").ok for mark in _MARKS
            )
            if of_folder:
                self._take(above, prefix, container, pid)
            else:
                self._add(f"{prefix}{site}", "user" if "/.local/lib/" in site else "system", prefix, container, {}, pid)
        elif named:
            self._take(os.path.normpath(named[0]), prefix, container, pid)

    def _own_root(self, pid: int) -> tuple[str, str | None]:
        """The root file system of a process in a container, through /proc; nothing where it has the machine's."""
        mine, its = self._host.link("/proc/self/ns/mnt"), self._host.link(f"/proc/{pid}/ns/mnt")
        if not (mine.ok and its.ok) or mine.data == its.data:
            return "", None
        from gpuclinic.recognise.cgroup_paths import owner_of

        owner = owner_of(self._host.file(f"/proc/{pid}/cgroup", 16384).text)
        name = owner.container or owner.pod_uid
        if not name:
            return "", None
        prefix = f"/proc/{pid}/root"
        known = next((p for p in self.found.places.values() if p.container == name[:12]), None)
        if known is not None:
            return known.prefix, known.container
        return prefix, name[:12]

    def containers(self) -> None:
        """Root file systems of containers, where they are mounted and may be read."""
        for row in environment_places():
            if row.what != "root":
                continue
            start = row.place
            roots = sorted({path.rpartition("/")[0] for path in self._find(start, ["usr", "opt"], 0)})
            for root in roots[:_MOST_ROOTS]:
                name = root.rstrip("/").rsplit("/", 2)
                self.root(root, (name[-2] if name[-1] in ("merged", "rootfs") else name[-1])[:12])
            if len(roots) > _MOST_ROOTS:
                self.found.cut.append(f"{start} ({_MOST_ROOTS} of {len(roots)})")


def _variables(answer: Answer) -> dict[str, str]:
    """The two variables that name an environment; nothing else of what a process was given is kept."""
    out: dict[str, str] = {}
    for piece in answer.data.split(b"\0") if answer.ok else ():
        name, equals, value = piece.partition(b"=")
        if equals and name in (b"VIRTUAL_ENV", b"CONDA_PREFIX"):
            out.setdefault(name.decode(), value.decode("utf-8", "surrogateescape")[:4096])
    return out


def _kind_of(path: str) -> str:
    """pipx, poetry, uv by where the environment lies; else venv, which pyvenv.cfg may tell better."""
    for part, kind in (
        ("/pipx/venvs/", "pipx"),
        ("/pypoetry/virtualenvs/", "poetry"),
        ("/uv/tools/", "uv"),
        ("/.pyenv/", "pyenv"),
    ):
        if part in f"{path}/":
            return kind
    return "venv"


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
