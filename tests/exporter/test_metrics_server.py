"""The server of /metrics: who may ask, what it bears, what it leaves behind; the exporter around it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from exported import NOBODY, gpu, read_page, tool, until

from gpuclinic.model import Tick, UserError
from gpuclinic.watch.config import Exporting
from gpuclinic.watch.exporter import exporter as module
from gpuclinic.watch.exporter import server as server_module
from gpuclinic.watch.exporter.exporter import Exporter
from gpuclinic.watch.exporter.server import MOST_CONNECTIONS, MOST_HEAD, Server, is_loopback, split_address
from gpuclinic.watch.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOPBACK = Exporting(listen="127.0.0.1:0", pod_resources="")


class Room:
    """Servers that are closed after the test, and what they said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.open: list[Server] = []

    def server(self, config: Exporting = LOOPBACK) -> Server:
        self.open.append(Server(config, lambda accept: ("text/plain", f"accept {accept}\n".encode()), self.said.append))
        return self.open[-1]


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    for one in room.open:
        one.close()


def raw(server: Server, data: bytes) -> bytes:
    with socket.create_connection(server.address, timeout=20) as talk:
        talk.sendall(data)
        return b"".join(iter(lambda: talk.recv(65536), b""))


def get(server: Server, path: str = "/metrics", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(*server.address, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_get_alone_is_served(room: Room) -> None:
    server = room.server()
    assert get(server, Accept="x") == (200, b"accept x\n")
    assert get(server, "/metrics?name=1")[0] == 200
    assert get(server, "/")[0] == 200
    assert get(server, "/etc/passwd")[0] == 404
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
        assert b" 405 " in raw(server, f"{method} /metrics HTTP/1.1\r\nHost: x\r\n\r\n".encode()).split(b"\r\n")[0]
    assert server.scrapes == {200: 3, 404: 1, 405: 5}


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /metrics\r\n\r\n", 400), (b"\x16\x03\x01 nonsense\r\n\r\n", 400), (b"GET /metrics SPDY/9\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nx: " + b"a" * (MOST_HEAD * 2) + b"\r\n\r\n", 431),
        (b"GET /metrics HTTP/1.1\r\n" + b"".join(b"a%d: b\r\n" % n for n in range(3000)) + b"\r\n", 431),
        (b"GET /metrics HTTP/1.0\r\nno colon here\r\n\r\n", 200),
    ],
)  # fmt: skip
def test_what_is_no_question_gets_a_short_answer(room: Room, sent: bytes, status: int) -> None:
    assert raw(room.server(), sent).split(b"\r\n")[0].startswith(b"HTTP/1.1 %d " % status)


def test_who_asks_too_slowly_is_let_go(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "ASK_S", 0.3)
    server = room.server()
    with socket.create_connection(server.address, timeout=20) as talk:
        talk.sendall(b"GET /metr")
        assert b" 408 " in b"".join(iter(lambda: talk.recv(65536), b""))


def test_many_idle_connections_do_not_grow_without_end(room: Room) -> None:
    server = room.server()
    idle = [socket.create_connection(server.address, timeout=20) for _ in range(MOST_CONNECTIONS)]
    try:
        until(lambda: sum(t.name == "gpuclinic-scrape" for t in threading.enumerate()) >= MOST_CONNECTIONS)
        assert raw(server, b"") == b""  # one more is closed at once
    finally:
        for one in idle:
            one.close()
    assert until(lambda: _status(server) == 200)


def _status(server: Server) -> int:
    try:
        return get(server)[0]
    except (OSError, http.client.HTTPException):
        return 0


def test_a_token_is_asked_for_and_may_change(room: Room, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    server = room.server(msgspec.structs.replace(LOOPBACK, token_file=str(token)))
    assert get(server)[0] == 401
    assert get(server, Authorization="Bearer wrong")[0] == 401
    assert get(server, Authorization="Basic first")[0] == 401
    assert get(server, Authorization="bearer first")[0] == 200
    assert get(server, "/", Authorization="nothing")[0] == 401
    token.write_text("second\n")
    assert get(server, Authorization="Bearer first")[0] == 401
    assert get(server, Authorization="Bearer second")[0] == 200
    token.unlink()
    assert get(server, Authorization="Bearer second")[0] == 500
    assert "token" in room.said[-1]


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    openssl = tool("openssl", "openssl")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("server", "client", "stranger"):
        subprocess.run(
            [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", f"{name}.key", "-out", f"{name}.pem"], cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
    return folder


def over_tls(server: Server, papers: Path, certificate: str | None = None) -> int:
    context = ssl.create_default_context(cafile=str(papers / "server.pem"))
    if certificate is not None:
        context.load_cert_chain(papers / f"{certificate}.pem", papers / f"{certificate}.key")
    connection = http.client.HTTPSConnection(*server.address, timeout=20, context=context)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().status
    finally:
        connection.close()


def test_tls_and_certificates_of_clients(room: Room, papers: Path) -> None:
    config = msgspec.structs.replace(
        LOOPBACK, cert_file=str(papers / "server.pem"), key_file=str(papers / "server.key")
    )
    plain = room.server(config)
    assert over_tls(plain, papers) == 200
    with contextlib.suppress(ConnectionResetError):
        assert b"HTTP" not in raw(plain, b"GET /metrics HTTP/1.1\r\n\r\n")
    mutual = room.server(msgspec.structs.replace(config, client_ca_file=str(papers / "client.pem")))
    assert over_tls(mutual, papers, "client") == 200
    for nobody in (None, "stranger"):
        with pytest.raises((ssl.SSLError, OSError)):
            over_tls(mutual, papers, nobody)
    assert over_tls(mutual, papers, "client") == 200


def test_certificates_that_change_are_taken_and_broken_ones_are_not(room: Room, papers: Path, tmp_path: Path) -> None:
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    certificate.write_bytes((papers / "server.pem").read_bytes())
    key.write_bytes((papers / "server.key").read_bytes())
    server = room.server(msgspec.structs.replace(LOOPBACK, cert_file=str(certificate), key_file=str(key)))
    assert over_tls(server, papers) == 200
    certificate.write_text("no certificate")
    assert over_tls(server, papers) == 200
    assert "of before goes on" in room.said[-1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"listen": "9410"}, "ADDRESS:PORT"), ({"listen": "host.example:9410"}, "not an address"), ({"listen": "127.0.0.1:99999"}, "ADDRESS:PORT"),
        ({"cert_file": "/nowhere.pem"}, "cannot be used"), ({"client_ca_file": "/nowhere.pem"}, "needs exporter.cert_file"),
        ({"token_file": "/nowhere"}, "No such file"),
    ],
)  # fmt: skip
def test_a_configuration_that_cannot_be_served_is_named(room: Room, changes: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        room.server(msgspec.structs.replace(LOOPBACK, **changes))


def test_addresses() -> None:
    assert split_address("[::1]:9410") == ("::1", 9410)
    assert is_loopback("127.0.0.1:1")
    assert not is_loopback("0.0.0.0:1")


# ---- the exporter


def ticked(exporter: Exporter, state: State, **fields: object) -> Tick:
    tick = Tick(time.time(), time.monotonic(), [gpu(**fields)])
    state.take(tick)
    exporter.take(tick, state)
    return tick


def test_what_cannot_be_started_is_said_and_the_rest_goes_on(tmp_path: Path) -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        exporter = Exporter(
            Exporting(listen=f"127.0.0.1:{port}", textfile=str(tmp_path / "gpu.prom"), otlp="ftp://x"), said.append
        )
        ticked(exporter, State())
    assert len(said) == 2
    assert "in use" in said[0]
    assert "otlp" in said[1]
    assert "gpuclinic_gpu_up" in read_page((tmp_path / "gpu.prom").read_text())
    exporter.close()
    assert list(tmp_path.iterdir()) == []


def test_an_open_address_without_token_is_said() -> None:
    said: list[str] = []
    Exporter(Exporting(listen="0.0.0.0:0", pod_resources=""), said.append).close()
    assert "may read it" in said[0]


def test_before_the_first_sample_there_is_a_page(room: Room) -> None:
    exporter = Exporter(LOOPBACK, room.said.append)
    assert read_page(exporter.page()[1].decode())["gpuclinic_agent_up"] == {(): 1}
    exporter.close()


def test_a_textfile_that_cannot_be_written_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TEXTFILE_EVERY_S", 0.0)
    said: list[str] = []
    exporter = Exporter(Exporting(listen="", textfile=str(tmp_path / "absent" / "gpu.prom")), said.append)
    state = State()
    ticked(exporter, state)
    ticked(exporter, state)
    assert len(said) == 1
    exporter.close()


def test_a_thousand_scrapes_leave_nothing(room: Room) -> None:
    exporter = Exporter(LOOPBACK, room.said.append)
    assert exporter.server is not None
    state = State()
    ticked(exporter, state)
    get(exporter.server)
    descriptors, threads = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    for number in range(1000):
        if number % 50 == 0:
            ticked(exporter, state, temperature_c=40 + number % 30)
        assert get(exporter.server)[0] == 200
    until(lambda: threading.active_count() <= threads)
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors
    assert exporter.server.scrapes == {200: 1001}
    exporter.close()


def test_a_page_is_made_once_for_a_tick_however_many_ask(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = Exporter(LOOPBACK, room.said.append)
    state = State()
    ticked(exporter, state)
    made = []
    monkeypatch.setattr(exporter, "families", lambda shot, given: made.append(shot) or [])
    for _ in range(5):
        exporter.page()
    assert len(made) == 1
    exporter.page("application/openmetrics-text;version=1.0.0")
    ticked(exporter, state)
    exporter.page()
    assert len(made) == 3
    assert NOBODY.of(gpu()) == []
    exporter.close()
