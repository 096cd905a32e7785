"""One name for each host, from lines, jobs and file names; a name that may mean another's machine is not used."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.recognise.identity import file_identity

if TYPE_CHECKING:
    from gpuclinic.model import Boot, Signal
    from gpuclinic.recognise.signals import SignalMaker

_ADDRESS = re.compile(r"^(?:\d{1,3}\.){3}\d{1,3}$|^[0-9a-f]*:[0-9a-f:]+$")
_LOCAL = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})


def _renamed(boot: Boot, short: dict[str, str]) -> Boot:
    host = short.get(boot.host) if boot.host else None
    return msgspec.structs.replace(boot, host=host) if host else boot


class Hosts:
    """Collects the names seen, then settles them over all signals."""

    def __init__(self) -> None:
        self._node: set[str] = set()
        self._job: set[str] = set()
        self._by_file: dict[str, str] = {}

    def note(self, path: str, maker: SignalMaker) -> None:
        """What one source said."""
        self._node |= maker.node_hosts
        self._job |= maker.job_hosts
        named = file_identity(path).host
        if named is not None:
            self._by_file[path] = named

    def settle(self, signals: list[Signal], boots: list[Boot]) -> tuple[list[Signal], list[Boot]]:
        """The signals with settled hosts.

        Jobs in containers and pods know other names than the machines have, and Ray knows addresses: where the two
        kinds share no name, the jobs' names are dropped, as they would keep apart what belongs together. Names of
        files are used only where lines name no host, and where nothing contradicts them.
        """
        short = self._short_names()
        node = {short.get(name, name) for name in self._node}
        job = {short.get(name, name) for name in self._job}
        usable_job = job if not node or node & job else set()
        dropped = {name for name in job - node if name not in usable_job or self._is_address_beside_names(name, job)}
        files = self._usable_files(node | (job - dropped))
        settled = [self._settled(signal, short, dropped, files) for signal in signals]
        return settled, [_renamed(boot, short) for boot in boots]

    def _short_names(self) -> dict[str, str]:
        """Long names whose first part was seen alone, too."""
        seen = self._node | self._job
        return {name: name.split(".")[0] for name in seen if not _ADDRESS.match(name) and name.split(".")[0] in seen}

    @staticmethod
    def _is_address_beside_names(name: str, job: set[str]) -> bool:
        return bool(_ADDRESS.match(name)) and any(not _ADDRESS.match(other) for other in job)

    def _usable_files(self, told: set[str]) -> dict[str, str]:
        names = set(self._by_file.values())
        lowered = {name.lower() for name in told}
        if lowered and not {name.lower() for name in names} & lowered:
            return {}
        return self._by_file if len(names) > 1 or lowered else {}

    @staticmethod
    def _settled(signal: Signal, short: dict[str, str], dropped: set[str], files: dict[str, str]) -> Signal:
        host = signal.host
        if host is not None:
            host = short.get(host, host)
            if host in _LOCAL or (host in dropped and "host" not in signal.groups):
                host = None
        if host is None:
            host = files.get(signal.where.source)
        return signal if host == signal.host else msgspec.structs.replace(signal, host=host)
