"""Containers that hold the whole server, and who may start some: from Docker's own files, nothing is asked of the daemon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gpuclinic.audit.hits import Hit

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Scene, Text
    from gpuclinic.model import Scalar

_HOST_CONFIGS = "/var/lib/docker/containers/*/hostconfig.json"
_WHOLE = ("/", "/etc", "/root", "/home", "/var", "/boot", "/dev", "/proc", "/sys", "/var/lib/docker")
_SOCKETS = ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock")
_MOST = 2000


def containers(scene: Scene) -> list[Hit]:
    """container_privileged, container_holds_host: informations, since exporters, node agents and device plugins do so on purpose."""
    out = []
    for text in scene.texts(_HOST_CONFIGS, "audit.containers")[:_MOST]:
        told = _object(text)
        name = _name(scene, text)
        if told.get("Privileged") is True:
            out.append(
                Hit(
                    id="container_privileged",
                    subject=name,
                    evidence=[text.at(None, "Privileged: true")],
                    values={"name": name},
                )
            )
        held = [bind for bind in _binds(told) if _holds_host(bind)]
        if held:
            values: dict[str, Scalar] = {"name": name, "paths": ", ".join(held[:3])}
            out.append(
                Hit(
                    id="container_holds_host",
                    subject=name,
                    evidence=[text.at(None, f"Binds: {bind}") for bind in held[:3]],
                    values=values,
                )
            )
    return out


def _object(text: Text) -> dict[str, Any]:
    try:
        told = json.loads(text.text)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _name(scene: Scene, text: Text) -> str:
    folder = text.path.rpartition("/")[0]
    config = scene.text(f"{folder}/config.v2.json", "audit.containers")
    name = _object(config).get("Name") if config is not None else None
    return str(name).lstrip("/")[:64] if isinstance(name, str) and name.strip("/") else folder.rpartition("/")[2][:12]


def _binds(told: dict[str, Any]) -> list[str]:
    binds = told.get("Binds")
    return [bind[:300] for bind in binds[:100] if isinstance(bind, str)] if isinstance(binds, list) else []


def _holds_host(bind: str) -> bool:
    """A bind by which who is root in the container is root outside: the daemon's socket, or a folder of the system that may be written.

    >>> [_holds_host(b) for b in ("/:/host", "/:/host:ro,rslave", "/data:/data", "/var/run/docker.sock:/var/run/docker.sock:ro", "/etc:/host/etc:rw")]
    [True, False, False, True, True]
    """
    source, _, rest = bind.partition(":")
    options = rest.partition(":")[2].split(",")
    return source in _SOCKETS or ((source.rstrip("/") or "/") in _WHOLE and "ro" not in options)


def docker_group(scene: Scene) -> list[Hit]:
    """docker_group: who is in it is root (Docker, daemon attack surface); an information."""
    text = scene.text("/etc/group", "audit.accounts")
    out = []
    for index, line in enumerate(text.lines()[:50_000] if text else ()):
        cells = line.strip().split(":")
        if (
            text is not None
            and len(cells) == 4
            and cells[0] == "docker"
            and (names := [n for n in cells[3].split(",") if n and n != "root"])
        ):
            shown = ", ".join(names[:8]) + (f" +{len(names) - 8}" if len(names) > 8 else "")
            out.append(
                Hit(id="docker_group", subject="docker", evidence=[text.at(index)], values={"names": shown[:300]})
            )
    return out


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (
    ("audit.containers", containers),
    ("audit.containers", docker_group),
)
