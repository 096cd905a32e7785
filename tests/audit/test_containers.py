"""Containers that hold the server, and versions with holes; exporters and mended packages are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuclinic.audit.containers import CHECKS as CONTAINERS
from gpuclinic.audit.scene import Scene
from gpuclinic.audit.updates import CHECKS as UPDATES
from gpuclinic.knowledge.audit import load_audit
from made_snapshots import Made

if TYPE_CHECKING:
    from pathlib import Path


def told(made: Made) -> set[str]:
    scene = Scene(made.host())
    found = {hit.id for _, check in (*CONTAINERS, *UPDATES) for hit in check(scene)}
    assert all(load_audit()[name].severity == "info" for name in found)
    return found


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ('{"Privileged": true}', {"container_privileged"}),
        ('{"Privileged": false, "Binds": ["/:/host"]}', {"container_holds_host"}),
        ('{"Binds": ["/var/run/docker.sock:/var/run/docker.sock:ro"]}', {"container_holds_host"}),
        ('{"Binds": ["/:/rootfs:ro", "/sys:/sys:ro", "/data:/data"]}', set()),
        ('{"Binds": null, "Privileged": "true"}', set()),
        ('{"Binds": [1, {}]}', set()),
        ("[", set()),
    ],
)
def test_containers(tmp_path: Path, config: str, expected: set[str]) -> None:
    assert told(Made(tmp_path / "snap").put("/var/lib/docker/containers/abc/hostconfig.json", config)) == expected


def test_group_of_docker(tmp_path: Path) -> None:
    assert told(Made(tmp_path / "a").put("/etc/group", "docker:x:999:ana,ben\n")) == {"docker_group"}
    assert told(Made(tmp_path / "b").put("/etc/group", "docker:x:999:\nrootlessdocker:x:5:ana\n")) == set()


@pytest.mark.parametrize(
    ("package", "version", "status", "expected"),
    [
        ("nvidia-container-toolkit", "1.17.4-1", "install ok installed", {"version_unsafe"}),
        ("nvidia-container-toolkit", "1.17.8-1", "install ok installed", set()),
        ("nvidia-container-toolkit", "1.17.4-1", "deinstall ok config-files", set()),
        ("nvidia-container-toolkit", "1.13.5-0ubuntu1", "install ok installed", set()),
        ("chrony", "1.0", "install ok installed", set()),
    ],
)
def test_versions(tmp_path: Path, package: str, version: str, status: str, expected: set[str]) -> None:
    made = Made(tmp_path / "snap").put(
        "/var/lib/dpkg/status", f"Package: {package}\nStatus: {status}\nArchitecture: amd64\nVersion: {version}\n\n"
    )
    assert told(made) == expected


def test_ray_of_python(tmp_path: Path) -> None:
    place = "/usr/local/lib/python3.11/dist-packages/ray-{}.dist-info/METADATA"
    assert told(Made(tmp_path / "a").put(place.format("2.40.0"), "Name: ray\n")) == {"version_unsafe"}
    assert told(Made(tmp_path / "b").put(place.format("2.52.1"), "Name: ray\n")) == set()
