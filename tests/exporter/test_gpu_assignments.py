"""To whom GPUs are given: the mapping's files, whatever lies there, and the kubelet's socket, whatever answers there."""

from __future__ import annotations

import os
import socket
import struct
import threading
from typing import TYPE_CHECKING

import pytest
from exported import GPU, fact, gpu, until

from gpuclinic.model import CouldNotError
from gpuclinic.watch.exporter import assignments as module
from gpuclinic.watch.exporter import kubelet
from gpuclinic.watch.exporter.assignments import Asker, Assignments, mapped_jobs
from gpuclinic.watch.exporter.kubelet import PodDevice, pod_devices

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_jobs_of_the_mapping(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("771204\n771205\n771204\n\n")
    (tmp_path / "2.7").write_text("9")
    (tmp_path / "README").write_text("no")
    assert mapped_jobs(str(tmp_path)) == {"0": ["771204", "771205"], "2.7": ["9"]}
    given = Assignments(mapped_jobs(str(tmp_path)))
    assert [owner.job for owner in given.of(gpu(index=0))] == ["771204", "771205"]
    assert [owner.job for owner in given.of_mig(fact("mig_device", "2/0", gpu_index=2, gi=7))] == ["9"]
    assert given.of_mig(fact("mig_device", "2/1", gpu_index=2, gi=8)) == []


def test_hostile_files_cost_only_themselves(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root:x")
    (tmp_path / "0").symlink_to(secret)
    os.mkfifo(tmp_path / "1")
    (tmp_path / "2").mkdir()
    (tmp_path / "3").write_bytes(b"\xff\xfe job\n" * 100000)
    (tmp_path / "4").write_text("\n".join(map(str, range(10000))))
    (tmp_path / "5").write_text("good")
    (tmp_path / "99999999").write_text("x")
    jobs = mapped_jobs(str(tmp_path))
    assert set(jobs) == {"3", "4", "5"}
    assert len(jobs["4"]) == 64
    with pytest.raises(CouldNotError):
        mapped_jobs(str(tmp_path / "absent"))


def test_what_is_not_there_is_said_once_and_what_is_old_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.02)
    said: list[str] = []
    folder = tmp_path / "map"
    asker = Asker(str(folder), str(tmp_path / "no.sock"), said.append)
    folder.mkdir()
    (folder / "1").write_text("77")
    assert until(lambda: [owner.job for owner in asker.newest().of(gpu())]) == ["77"]
    assert len(said) == 1
    asker.close()
    monkeypatch.setattr(module, "FORGET_S", -1.0)
    assert asker.newest().of(gpu()) == []


def test_names_that_the_kubelet_gives_to_devices() -> None:
    uuid = str(GPU["uuid"])
    for device in (uuid, uuid.upper(), f"{uuid}::3", "nvidia1", "nvidia1/vgpu2"):
        given = Assignments({}, [PodDevice("ml", "train-0", "main", "nvidia.com/gpu", device)])
        assert [owner.pod for owner in given.of(gpu())] == ["train-0"], device
    other = Assignments({}, [PodDevice("ml", "train-0", "main", "nvidia.com/gpu", "nvidia11")])
    assert other.of(gpu()) == []
    mig = fact("mig_device", "1/0", gpu_index=1, gi=7, uuid="MIG-1")
    assert [
        o.pod for o in Assignments({}, [PodDevice("ml", "p", "c", "nvidia.com/mig-1g.10gb", "MIG-1")]).of_mig(mig)
    ] == ["p"]


# ---- the kubelet


def field(number: int, content: bytes) -> bytes:
    length, out = len(content), b""
    while True:
        out += bytes([(length & 0x7F) | (0x80 if length > 0x7F else 0)])
        length >>= 7
        if not length:
            return bytes([number << 3 | 2]) + out + content


def response(pods: int = 1) -> bytes:
    devices = field(1, b"nvidia.com/gpu") + field(2, str(GPU["uuid"]).encode()) + field(3, b"\x08\x01")
    other = field(1, b"vendor.com/nic") + field(2, b"mlx5_0")
    container = field(1, b"main") + field(2, devices) + field(2, other) + b"\x18\x05" + b"\x21" + b"\0" * 8
    return b"".join(
        field(1, field(1, f"train-{n}".encode()) + field(2, b"ml") + field(3, container)) for n in range(pods)
    )


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def message(body: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + len(body).to_bytes(4, "big") + body


class Kubelet:
    """Answers with what it is told to, frame by frame; notes what it was sent."""

    def __init__(self, path: Path, answer: Callable[[socket.socket], None]) -> None:
        self.path, self.got = path, b""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._answer = answer
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        talk, _ = self._listener.accept()
        with talk:
            self.got = talk.recv(65536)
            try:
                self._answer(talk)
            except OSError:
                return

    def close(self) -> None:
        self._listener.close()
        self._thread.join(5)


def asked(path: Path, *frames: bytes) -> list[PodDevice]:
    """What comes of an answer of these frames."""

    def answer(talk: socket.socket) -> None:
        for one in frames:
            talk.sendall(one)
        talk.shutdown(socket.SHUT_WR)
        while talk.recv(65536):
            pass

    kubelet = Kubelet(path / "k.sock", answer)
    try:
        return pod_devices(str(path / "k.sock"))
    finally:
        kubelet.close()
        (path / "k.sock").unlink()


SETTINGS = frame(4, 0, 0, struct.pack(">HI", 3, 100))
TRAILERS = frame(1, 0x5, 1, b"\x88")


def test_devices_of_pods(tmp_path: Path) -> None:
    body = message(response())
    found = asked(
        tmp_path,
        SETTINGS,
        frame(6, 0, 0, b"12345678"),
        frame(1, 0x4, 1, b"\x88"),
        frame(0, 0, 1, body[:7]),
        frame(0, 0x8, 1, b"\x02" + body[7:] + b"\0\0"),
        TRAILERS,
    )
    assert found == [PodDevice("ml", "train-0", "main", "nvidia.com/gpu", str(GPU["uuid"]))]


def test_an_answer_longer_than_the_first_window(tmp_path: Path) -> None:
    body = message(response(3000))
    pieces = [frame(0, 0, 1, body[start : start + 16384]) for start in range(0, len(body), 16384)]
    assert len(asked(tmp_path, SETTINGS, *pieces, TRAILERS)) == 3000


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ((), "closed in the middle"), ((SETTINGS, frame(7, 0, 0, b"\0" * 8)), "refused"), ((SETTINGS, frame(3, 0, 1, b"\0" * 4)), "refused"),
        ((SETTINGS, TRAILERS), "error and no message"), ((SETTINGS, frame(0, 0, 1, message(b"x", 1)), TRAILERS), "compressed or cut"),
        ((SETTINGS, frame(0, 0, 1, message(b"abc")[:-1]), TRAILERS), "compressed or cut"), ((b"\xff\xff\xff" + b"\0" * 6,), "longer than was offered"),
        ((frame(0, 1, 1, message(b"\x0a\xff\xff\xff\xff\x0f")),), "longer than its message"), ((frame(0, 1, 1, message(b"\x0a")),), "damaged number"),
        ((frame(0, 1, 1, message(b"\x0f\x01")),), "unknown type"), ((frame(0, 0x9, 1, b"\x09ab"),), "padding"), ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "offered"),
    ],
)  # fmt: skip
def test_answers_that_are_none(tmp_path: Path, frames: tuple[bytes, ...], words: str) -> None:
    with pytest.raises(CouldNotError, match=words):
        asked(tmp_path, *frames)


def test_a_kubelet_that_says_nothing_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubelet, "DEADLINE_S", 0.2)
    silent = Kubelet(tmp_path / "s.sock", lambda talk: talk.recv(65536) and None)
    with pytest.raises(CouldNotError, match="did not answer"):
        pod_devices(str(silent.path))
    silent.close()
    with pytest.raises(CouldNotError, match="No such file"):
        pod_devices(str(tmp_path / "absent.sock"))


def test_a_real_grpc_server_understands_us(tmp_path: Path) -> None:
    grpc = pytest.importorskip("grpc")
    from concurrent.futures import ThreadPoolExecutor

    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: response(500))
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler}),))
    server.add_insecure_port(f"unix:{tmp_path}/g.sock")
    server.start()
    try:
        assert len(pod_devices(f"{tmp_path}/g.sock")) == 500
    finally:
        server.stop(None)
