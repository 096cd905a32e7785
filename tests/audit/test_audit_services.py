"""Ray, Docker, the kubelet, NFS and dashboards: open ones and their honest twins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuclinic.audit.scene import Scene
from gpuclinic.audit.services import CHECKS
from made_snapshots import Made

if TYPE_CHECKING:
    from pathlib import Path


def running(folder: Path, argv: str = "", listens: str = "", name: str = "x") -> Made:
    made = Made(folder / "snap")
    if argv:
        made.put("/proc/700/stat", f"700 ({name}) S 1 700 700 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 100 1 1 1\n")
        made.put("/proc/700/cmdline", "\0".join(argv.split(" ")) + "\0")
    rows = 'LISTEN 0 0 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=7,fd=3))\n'
    for address in listens.split():
        rows += f'LISTEN 0 0 {address} 0.0.0.0:* users:(("{name}",pid=700,fd=6))\n'
    return made.command("ss-tanp.txt", rows)


def told(made: Made) -> set[str]:
    """Everything, informations marked by a leading "i:"."""
    scene = Scene(made.host())
    return {("i:" if hit.severity == "info" else "") + hit.id for _, check in CHECKS for hit in check(scene)}


RAY = "/opt/ray/bin/python /opt/ray/lib/python3.11/site-packages/ray/dashboard/dashboard.py --host={} --port=8265 --port-retries=50"


@pytest.mark.parametrize(
    ("argv", "listens", "name", "expected"),
    [
        (RAY.format("0.0.0.0"), "0.0.0.0:8265", "ray::dashboard", {"ray_dashboard_open"}),
        (RAY.format("192.0.2.5"), "192.0.2.5:8265", "ray::dashboard", {"ray_dashboard_open"}),
        (RAY.format("127.0.0.1"), "127.0.0.1:8265", "ray::dashboard", set()),
        (RAY.format("localhost"), "127.0.0.1:8265", "ray::dashboard", set()),
        ("grafana-server --dashboard-host=0.0.0.0 /srv/array", "0.0.0.0:3000", "grafana", set()),
        ("grep -r ray dashboard --host=0.0.0.0", "", "grep", set()),
        ("/usr/bin/dockerd -H fd:// -H tcp://0.0.0.0:2375", "0.0.0.0:2375", "dockerd", {"docker_api_open"}),
        ("/usr/bin/dockerd --host=tcp://:2375", "0.0.0.0:2375", "dockerd", {"docker_api_open"}),
        ("/usr/bin/dockerd -H tcp://0.0.0.0:2376 --tlsverify --tlscacert=/a", "0.0.0.0:2376", "dockerd", set()),
        ("/usr/bin/dockerd -H fd:// -H tcp://127.0.0.1:2375", "127.0.0.1:2375", "dockerd", set()),
        ("/usr/bin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock", "", "dockerd", set()),
        ("/usr/local/bin/vllm serve model --host 0.0.0.0", "0.0.0.0:8000", "vllm", {"service_open"}),
        ("/usr/local/bin/vllm serve model --api-key made-up", "0.0.0.0:8000", "vllm", set()),
        ("/usr/bin/python3 /usr/local/bin/tensorboard --bind_all", "0.0.0.0:6006", "tensorboard", {"service_open"}),
        ("/usr/bin/python3 /usr/local/bin/tensorboard --logdir x", "127.0.0.1:6006", "tensorboard", set()),
        ("/usr/bin/python3 train.py --tensorboard_dir=/x", "0.0.0.0:29500", "python3", set()),
    ],
)
def test_by_process_and_socket(tmp_path: Path, argv: str, listens: str, name: str, expected: set[str]) -> None:
    assert told(running(tmp_path, argv, listens, name)) == expected


def test_ray_that_asks_for_a_token(tmp_path: Path) -> None:
    made = running(tmp_path, RAY.format("0.0.0.0"), "0.0.0.0:8265", "dashboard")
    made.put("/proc/700/environ", "RAY_AUTH_MODE=token\0")
    assert told(made) == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"hosts": ["fd://", "tcp://0.0.0.0:2375"]}', {"docker_api_open"}),
        ('{"hosts": ["tcp://0.0.0.0:2376"], "tlsverify": true}', set()),
        ('{"hosts": ["tcp://127.0.0.1:2375"]}', set()),
        ('{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}', set()),
        ('{"hosts": "tcp://"}', set()),
        ("[[[", set()),
    ],
)
def test_docker_by_its_file(tmp_path: Path, text: str, expected: set[str]) -> None:
    assert told(Made(tmp_path / "snap").put("/etc/docker/daemon.json", text)) == expected


def test_docker_socket(tmp_path: Path) -> None:
    for name, mode, expected in (("a", "0666", {"docker_socket_world_writable"}), ("b", "0660", set())):
        assert told(Made(tmp_path / name).mode("/var/run/docker.sock", kind="socket", mode=mode)) == expected


KUBELET = (
    "authentication:\n  anonymous:\n    enabled: {}\n  webhook:\n    enabled: true\nauthorization:\n  mode: {}\n{}"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (KUBELET.format("true", "AlwaysAllow", ""), {"kubelet_anonymous"}),
        (KUBELET.format("true", "Webhook", ""), {"kubelet_anonymous"}),
        (KUBELET.format("false", "Webhook", "readOnlyPort: 10255\n"), {"kubelet_readonly_port"}),
        (KUBELET.format("false", "Webhook", "readOnlyPort: 0\n"), set()),
        (KUBELET.format("false", "Webhook", "# readOnlyPort: 10255\n"), set()),
        (KUBELET.format("false", "AlwaysAllow", ""), {"kubelet_always_allow"}),
        ('{"authentication": {"anonymous": {"enabled": true}}}', {"kubelet_anonymous"}),
    ],
)
def test_kubelet(tmp_path: Path, text: str, expected: set[str]) -> None:
    assert told(Made(tmp_path / "snap").put("/var/lib/kubelet/config.yaml", text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data *(rw,sync,no_root_squash)\n", {"nfs_no_root_squash", "nfs_world_export"}),
        ("/data 10.0.0.0/8(rw,no_root_squash)\n", {"nfs_no_root_squash"}),
        ("/data (rw)\n", {"nfs_world_export"}),
        ("/data 0.0.0.0/0(rw)\n", {"nfs_world_export"}),
        ("/data \\\n  *(rw)\n", {"nfs_world_export"}),
        ("/pub *(ro)\n", {"i:nfs_world_export"}),
        ("/root node01(rw,no_root_squash)\n", {"i:nfs_no_root_squash"}),
        ("/data 10.1.0.0/16(rw,sync,root_squash)\n", set()),
        ("# /data *(rw,no_root_squash)\n", set()),
        ("/home node[01-16](rw)  192.0.2.0/24(ro)\n", set()),
    ],
)
def test_nfs(tmp_path: Path, text: str, expected: set[str]) -> None:
    assert told(Made(tmp_path / "snap").put("/etc/exports", text)) == expected


def test_redis_with_a_password(tmp_path: Path) -> None:
    made = running(tmp_path, "/usr/bin/redis-server *:6379", "0.0.0.0:6379", "redis-server")
    assert told(made) == {"service_open"}
    assert told(made.put("/etc/redis/redis.conf", "bind 0.0.0.0\nrequirepass made-up\n")) == set()
