"""What the tests of `check` share: fake servers by SKU, and check in this process as `gpuclinic check` runs it."""

from __future__ import annotations

import errno
import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest

from fakes.library import NoCompilerError
from fakes.server import Server, build_server
from gpuclinic.clinic.checking import CheckAnswer, CheckOptions, check
from gpuclinic.observe.asking import MOST_BYTES, Answer
from gpuclinic.observe.live import LiveHost

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuclinic.model import Finding

_SHOWN = ("GPUCLINIC_NVML", "GPUCLINIC_ROOT", "FAKE_NVML_SCENARIO", "LD_LIBRARY_PATH", "PATH")
_MOST_SLEPT = 0.3
NEWEST = "580.105.08"
_ROOMY = {"size": 100 << 30, "free": 60 << 30, "available": 55 << 30, "files": 1_000_000, "files_free": 900_000}


class FastHost(LiveHost):
    """A fake server whose time goes on by what was to be waited for, while little of it is slept."""

    ahead = 0.0

    def clock(self) -> float:
        """Now, and what was not slept."""
        return super().clock() + self.ahead

    def wait(self, seconds: float) -> None:
        """Sleeps a bit, so that counters go on."""
        super().wait(min(seconds, _MOST_SLEPT))
        self.ahead += max(0.0, seconds - _MOST_SLEPT)

    def space(self, path: str) -> Answer:
        """Room enough: how full the disk is on which the tests run is no matter of theirs."""
        return Answer(f"space {path}", json.dumps(_ROOMY).encode(), at=self.clock(), seconds=0.001)


class Room:
    """Servers of one session, one for each SKU and count; a server is handed out healed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._servers: dict[tuple[str, int, str], Server] = {}

    def server(self, sku: str, gpus: int = 8, faults: list[str] | None = None, driver: str = NEWEST) -> Server:
        """A server of that SKU with these faults and no others; skips the test where the library cannot be built."""
        place = (sku, gpus, driver)
        if place not in self._servers:
            branch = None if driver == NEWEST else int(driver.partition(".")[0])
            try:
                self._servers[place] = build_server(
                    self.folder / "-".join(map(str, place)), sku, gpus, driver=driver, library_driver=branch
                )
            except NoCompilerError as problem:
                pytest.skip(str(problem))
        else:
            self._servers[place].reset()
        if faults:
            self._servers[place].inject(*faults)
        return self._servers[place]


def seen_by(
    server: Server, patch: pytest.MonkeyPatch, host: Callable[[str], LiveHost] = FastHost, **options: Any
) -> CheckAnswer:
    """What `gpuclinic check` answers on this server."""
    for name in _SHOWN:
        patch.setenv(name, server.env[name])
    patch.setenv("PATH", f"{server.bin}{os.pathsep}/usr/local/bin:/usr/bin:/bin")
    asked = host(str(server.root))
    try:
        return check(asked, CheckOptions(**options))
    finally:
        asked.close()


def told(findings: list[Finding], *, info: bool = False) -> list[str]:
    """Findings as one reads them in the message of a failed test."""
    return [
        f"{f.severity} {f.id} {f.subject} gpu={f.gpu} ({f.title})" for f in findings if info or f.severity != "info"
    ]


class UserHost(FastHost):
    """A fake server as somebody sees it who is neither root nor in a group that may read logs, whoever runs the tests."""

    _REFUSED = re.compile(
        r"/dev/kmsg|/var/log/(kern\.log|syslog|messages|dmesg)|/sys/fs/pstore/.|/proc/\d+/(environ|io|fd|exe|cwd|root|maps|stack|ns|mountinfo)"
        r"|/sys/class/dmi/id/\w+_(serial|uuid)|/sys/class/powercap/.*energy_uj|/etc/(shadow|sudoers)|/proc/(iomem|kallsyms)"
    )
    _HEAD = 64

    def _refused(self, path: str, answer: Answer) -> Answer:
        if self._REFUSED.match(path) and (answer.ok or "*" in path):
            return Answer(answer.question, why="Permission denied", code=errno.EACCES, at=answer.at)
        if path.endswith("/config") and "/pci/" in path and len(answer.data) > self._HEAD:
            return Answer(answer.question, answer.data[: self._HEAD], at=answer.at)
        return answer

    def _one(self, what: str, path: str, **more: Any) -> Answer:
        return self._refused(path, super()._one(what, path, **more))

    def _many(self, what: str, pattern: str, most: int) -> dict[str, Answer]:
        found = super()._many(what, pattern, most)
        if what == "links":
            return {path: answer for path, answer in found.items() if not self._REFUSED.match(path)}
        return {path: self._refused(path, answer) for path, answer in found.items()}

    def command(self, *argv: str, deadline: float = 2.0, most: int = MOST_BYTES) -> Answer:
        """Programs that need root say so."""
        if argv[0] in ("dmesg", "journalctl", "ipmitool", "dmidecode"):
            why = f"{argv[0]}: Operation not permitted"
            return Answer("command " + " ".join(argv), why=why, code=1, at=self.clock())
        return super().command(*argv, deadline=deadline, most=most)


def bare_machine(folder: Path) -> Path:
    """The root of a machine without a GPU and without a driver, with a network card and a disk."""
    files = {
        "sys/bus/pci/devices/0000:00:1f.6/vendor": "0x8086\n", "sys/bus/pci/devices/0000:00:1f.6/class": "0x020000\n",
        "proc/sys/kernel/osrelease": "6.8.0-51-generic\n", "proc/sys/kernel/hostname": "web01\n", "proc/uptime": "864000.00 9000000.00\n",
        "proc/sys/kernel/random/boot_id": "7c1f3f6e-0a52-4d4e-9a0f-3c1b2a4d5e6f\n", "proc/modules": "e1000e 344064 0 - Live 0x0\n",
        "proc/mounts": "/dev/sda1 / ext4 rw,relatime 0 0\n", "proc/loadavg": "0.10 0.10 0.10 1/200 4000\n", "proc/stat": "cpu  900 0 900 90000 0 0 0 0 0 0\ncpu0 900 0 900 90000 0 0 0 0 0 0\n",
        "proc/meminfo": "MemTotal: 16000000 kB\nMemFree: 12000000 kB\nMemAvailable: 14000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
        "proc/1/stat": "1 (systemd) S 0 1 1 0 -1 4194304 900 0 0 0 80 20 0 0 20 0 1 0 10 1000 200 18446744073709551615 0 0 0\n",
        "proc/1/comm": "systemd\n", "proc/1/cmdline": "/sbin/init\0", "proc/1/cgroup": "0::/init.scope\n",
        "dev/kmsg": "6,1,1000000,-;Linux version 6.8.0-51-generic\n", "etc/hosts": "127.0.0.1 localhost web01\n", "etc/hostname": "web01\n",
    }  # fmt: skip
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
