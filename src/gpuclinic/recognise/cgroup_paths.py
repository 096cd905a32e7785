"""Whom a process belongs to by its cgroup path: container, pod, Slurm job, systemd unit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEX = r"(?P<id>[0-9a-f]{64})"
_CONTAINERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("docker", re.compile(rf"(?:^|/)docker[-/]{_HEX}(?:\.scope)?(?:/|$)")),
    ("podman", re.compile(rf"(?:^|/)libpod-(?:conmon-)?{_HEX}(?:\.scope)?(?:/|$)")),
    ("cri-o", re.compile(rf"(?:^|/)crio-(?:conmon-)?{_HEX}(?:\.scope)?(?:/|$)")),
    ("containerd", re.compile(rf"(?:^|[/:])(?:cri-containerd|nerdctl)[-:]{_HEX}(?:\.scope)?(?:/|$)")),
    ("containerd", re.compile(rf"(?:^|/)pod[0-9a-f_-]{{32,36}}(?:\.slice)?/{_HEX}(?:/|$)")),
    ("container", re.compile(rf"(?:^|[/:-]){_HEX}(?:\.scope)?(?:/|$)")),
    ("lxc", re.compile(r"(?:^|/)lxc(?:\.payload)?[./](?P<id>[\w.-]{1,64})(?:/|$)")),
    ("nspawn", re.compile(r"(?:^|/)(?:systemd-nspawn@|machine-)(?P<id>[\w.\\-]{1,64})\.(?:service|scope)(?:/|$)")),
)
_POD = re.compile(
    r"(?:^|[/-])pod(?P<uid>[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice|/|$)"
)
_SLURM = re.compile(r"slurm.{0,200}?/job_(?P<job>\d{1,12})(?:/step_(?P<step>[\w.]{1,24}))?(?:/|$)")
_BATCH = (
    ("pbs", re.compile(r"(?:^|/)(?:pbs_jobs\.service/jobid|pbspro\.service/jobid|torque|pbs)/(?P<id>[\w.\[\]-]{1,64})")),
    ("lsf", re.compile(r"(?:^|/)lsf/[^/]{1,64}/job\.(?P<id>\d{1,12})")),
    ("htcondor", re.compile(r"(?:^|/)(?:htcondor/)?condor_(?P<id>[\w.@-]{1,120})")),
)  # fmt: skip
_UNIT = re.compile(r"(?P<unit>[\w@.:\\-]{1,200}\.(?:service|scope))$")
_USER_UID = re.compile(r"(?:^|/)user-(?P<uid>\d{1,10})\.slice(?:/|$)")


class Owner(msgspec.Struct, frozen=True):
    """What a cgroup path says. runtime: docker, podman, cri-o, containerd, lxc, nspawn, container (unknown which).

    unit: the systemd unit. session: number of a login session. login_uid: the user whose slice it is. path: the most telling path.
    """

    path: str = ""
    runtime: str | None = None
    container: str | None = None
    pod_uid: str | None = None
    slurm_job: str | None = None
    slurm_step: str | None = None
    batch_system: str | None = None
    batch_job: str | None = None
    unit: str | None = None
    session: str | None = None
    login_uid: int | None = None

    @property
    def is_service(self) -> bool:
        """It runs as a service of the system, so its parent being process 1 is as it should be."""
        return bool(self.unit and self.unit.endswith(".service") and self.login_uid is None)


def _paths(text: str) -> Iterator[str]:
    """The paths of /proc/PID/cgroup: v2's, and those of v1's hierarchies, the telling ones first."""
    rows = [line.split(":", 2) for line in text.splitlines()[:64]]
    paths = {cells[2][:4096]: cells[1] for cells in rows if len(cells) == 3 and cells[2] not in ("", "/")}
    yield from sorted(paths, key=lambda path: ("devices" not in paths[path], "memory" not in paths[path], -len(path)))


def owner_of(text: str) -> Owner:
    """Of the contents of /proc/PID/cgroup."""
    found: dict[str, str | int | None] = {}
    for path in _paths(text):
        for name, value in _of_path(path).items():
            found.setdefault(name, value)
        found.setdefault("path", path)
    return msgspec.convert(found, Owner)


def _of_path(path: str) -> dict[str, str | int | None]:
    out: dict[str, str | int | None] = {}
    for runtime, pattern in _CONTAINERS:
        match = pattern.search(path)
        if match:
            out |= {"runtime": runtime, "container": match["id"][:64], "path": path}
            break
    pod = _POD.search(path)
    if pod:
        out |= {"pod_uid": pod["uid"].replace("_", "-"), "path": path}
    slurm = _SLURM.search(path)
    if slurm:
        out |= {"slurm_job": slurm["job"], "path": path}
        if slurm["step"]:
            out["slurm_step"] = slurm["step"]
    for system, pattern in _BATCH:
        match = pattern.search(path)
        if match:
            out |= {"batch_system": system, "batch_job": match["id"], "path": path}
            break
    unit = next((u["unit"] for part in reversed(path.split("/")) if (u := _UNIT.match(part))), None)
    if unit:
        out["unit"] = unit
        session = re.fullmatch(r"session-(\w{1,20})\.scope", unit)
        if session:
            out["session"] = session[1]
    login = _USER_UID.search(path)
    if login:
        out["login_uid"] = int(login["uid"])
    return out
