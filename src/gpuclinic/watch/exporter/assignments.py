"""To whom GPUs are given: the scheduler's jobs (DCGM_HPC_JOB_MAPPING_DIR) and Kubernetes' pods (the kubelet's pod-resources socket).

Both are asked by a thread of their own, for a folder may hang and a kubelet may be slow; a scrape takes what was last known.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.model import CouldNotError
from gpuclinic.watch.exporter.kubelet import pod_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuclinic.model import Fact
    from gpuclinic.watch.exporter.kubelet import PodDevice

EVERY_S = 5.0
FORGET_S = 60.0
"""What could not be asked anew for so long says nothing any more."""
_MOST_FILES, _LARGEST, _MOST_JOBS = 1024, 4096, 64
_NAME = re.compile(r"(?P<gpu>\d{1,3})(?:\.(?P<instance>\d{1,3}))?")
_SHARED = re.compile(r"(?:::|-v)\d+$|/vgpu\d+$")
"""A device shared between pods has the share's number after its name (k8s-device-plugin: UUID::N; GKE: nvidia0/vgpu3)."""


class Owner(NamedTuple):
    """Who has a GPU. job: a scheduler's; else a pod. instance: the MIG instance that is meant. device: as the kubelet names it."""

    job: str | None = None
    instance: str = ""
    namespace: str = ""
    pod: str = ""
    container: str = ""
    device: str = ""

    def pod_pairs(self) -> tuple[tuple[str, str], ...]:
        """Labels in the order of dcgm-exporter's template, which sorts them by name."""
        return ("container", self.container), ("namespace", self.namespace), ("pod", self.pod)


class Assignments:
    """What was known at one moment. jobs: by the mapping's file name ("0", "2.0"). pods: by the device's name without a share's number."""

    def __init__(self, jobs: dict[str, list[str]] | None = None, pods: Iterable[PodDevice] = ()) -> None:
        self._jobs: dict[int, list[Owner]] = {}
        for name, ids in (jobs or {}).items():
            found = _NAME.fullmatch(name)
            if found is not None:
                owners = [Owner(job=job, instance=found["instance"] or "") for job in ids]
                self._jobs.setdefault(int(found["gpu"]), []).extend(owners)
        self._pods: dict[str, list[Owner]] = {}
        for one in pods:
            owner = Owner(None, "", one.namespace, one.pod, one.container, one.device)
            self._pods.setdefault(_SHARED.sub("", one.device).lower(), []).append(owner)

    def of(self, gpu: Fact) -> list[Owner]:
        """Everybody who has the GPU or a part of it that is named by the GPU."""
        index = gpu.fields.get("index")
        owners = list(self._jobs.get(index, ())) if isinstance(index, int) else []
        names = [gpu.fields.get("uuid"), f"nvidia{gpu.fields.get('minor_number')}", gpu.key]
        for name in names:
            owners += self._pods.get(str(name).lower(), ()) if name else ()
        return owners

    def of_mig(self, mig: Fact) -> list[Owner]:
        """Everybody who has a MIG device."""
        index, instance = mig.fields.get("gpu_index"), str(mig.fields.get("gi"))
        jobs = self._jobs.get(index, ()) if isinstance(index, int) else ()
        uuid = str(mig.fields.get("uuid") or "").lower()
        return [*(o for o in jobs if o.instance == instance), *(self._pods.get(uuid, ()) if uuid else ())]


def mapped_jobs(folder: str) -> dict[str, list[str]]:
    """The jobs of each file of the mapping; a file that is none, is a link or a pipe, or is too long says nothing. Raises CouldNotError."""
    jobs: dict[str, list[str]] = {}
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry, _ in zip(entries, range(_MOST_FILES), strict=False)]
    except OSError as problem:
        raise CouldNotError(f"{folder}: {problem.strerror or problem}") from problem
    for name in sorted(names):
        if _NAME.fullmatch(name):
            ids = _jobs_of(Path(folder) / name)
            if ids:
                jobs[name] = ids
    return jobs


def _jobs_of(path: Path) -> list[str]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []  # gone meanwhile, or a link: the next round sees what is there then
    try:
        data = os.read(handle, _LARGEST) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    except OSError:
        return []
    finally:
        os.close(handle)
    lines = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
    return list(dict.fromkeys(line for line in lines if line))[:_MOST_JOBS]


class Asker:
    """Keeps asking, every few seconds, in a thread. folder, socket: "" asks nothing. say: told once of what does not work."""

    def __init__(self, folder: str, socket: str, say: Callable[[str], None]) -> None:
        self._folder, self._socket, self._say = folder, socket, say
        self._known = Assignments()
        self._known_at = time.monotonic()
        self._troubles: dict[str, str] = {}
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        if folder or socket:
            self.ask()
            self._thread = threading.Thread(target=self._run, name="gpuclinic-assignments", daemon=True)
            self._thread.start()

    def newest(self) -> Assignments:
        """What was last known; nothing where that is long ago."""
        return self._known if time.monotonic() - self._known_at <= FORGET_S else Assignments()

    def close(self) -> None:
        """Ends the thread; one that hangs in a dead mount is left to the process's end."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def ask(self) -> None:
        """Asks once."""
        jobs: dict[str, list[str]] = {}
        pods: list[PodDevice] = []
        if self._folder:
            try:
                jobs = mapped_jobs(self._folder)
                self._troubles.pop("jobs", None)
            except CouldNotError as problem:
                self._trouble("jobs", f"exporter.job_mapping_dir: {problem}")
        if (
            self._socket and Path(self._socket).exists()
        ):  # a machine without Kubernetes has none, and that is no trouble
            try:
                pods = pod_devices(self._socket)
                self._troubles.pop("pods", None)
            except CouldNotError as problem:
                self._trouble("pods", f"exporter.pod_resources: {problem}")
        self._known, self._known_at = Assignments(jobs, pods), time.monotonic()

    def _trouble(self, what: str, text: str) -> None:
        if self._troubles.get(what) != text:
            self._troubles[what] = text
            self._say(text)

    def _run(self) -> None:
        while not self._ends.wait(EVERY_S):
            self.ask()
