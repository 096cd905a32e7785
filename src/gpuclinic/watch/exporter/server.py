"""A small HTTP server for /metrics: GET only, bounded in connections, header size and time; TLS and who may ask as configured."""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.model import UserError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from gpuclinic.watch.config import Exporting

MOST_CONNECTIONS = 16
ASK_S, ANSWER_S = 5.0, 10.0
"""So long a client has to ask, TLS included, and to take the answer."""
MOST_HEAD = 8192
_MOST_TOKEN = 4096
_WORDS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout",
          431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable"}  # fmt: skip
_INDEX = b'<!doctype html><title>gpuclinic</title><p>gpuclinic agent: <a href="/metrics">/metrics</a>\n'


class Answer(NamedTuple):
    """status, type and body of an answer."""

    status: int
    kind: str
    body: bytes
    more: tuple[str, ...] = ()


def split_address(listen: str) -> tuple[str, int]:
    """Host and port of "127.0.0.1:9410" or "[::1]:9410". Raises UserError."""
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"exporter.listen = {listen!r} is not ADDRESS:PORT")
    return host, int(port)


class Server:
    """Listens from the start. metrics: gives type and body for an Accept header, and may be called from many threads at once.

    Raises UserError where the address cannot be listened on, or a file of the configuration cannot be used.
    """

    def __init__(
        self, config: Exporting, metrics: Callable[[str], tuple[str, bytes]], say: Callable[[str], None]
    ) -> None:
        self._config, self._metrics, self._say = config, metrics, say
        self._tls = _Tls(config, say) if config.cert_file else None
        if config.client_ca_file and self._tls is None:
            raise UserError(
                "exporter.client_ca_file needs exporter.cert_file: only over TLS do clients show certificates"
            )
        if config.token_file:
            self._token()
        self.scrapes: dict[int, int] = {}
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._count = threading.Lock()
        self._ends = threading.Event()
        self._listener = _listener(config.listen)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._thread = threading.Thread(target=self._run, name="gpuclinic-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening; answers that are on their way come to their end by their own deadlines."""
        self._ends.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(2.0)

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._ends.wait(0.1):  # out of descriptors, or closed: either way not a reason to spin
                    return
                continue
            if not self._free.acquire(blocking=False):
                connection.close()
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), name="gpuclinic-scrape", daemon=True).start()
            except RuntimeError:  # no more threads
                self._free.release()
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        talk: socket.socket = connection
        try:
            until = time.monotonic() + ASK_S
            connection.settimeout(ASK_S)
            if self._tls is not None:
                talk = self._tls.wrapped(connection)
            answer = self._answered(talk, until)
            with self._count:
                self.scrapes[answer.status] = self.scrapes.get(answer.status, 0) + 1
            _send(talk, answer)
        except (OSError, ValueError):
            pass  # a client that went away, spoke no TLS or showed no certificate: nobody is left to be told
        finally:
            with contextlib.suppress(OSError):
                talk.close()
            connection.close()
            self._free.release()

    def _answered(self, talk: socket.socket, until: float) -> Answer:
        try:
            head = _head(talk, until)
        except TimeoutError:
            return _plain(408)
        if head is None:
            return _plain(431)
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _plain(400)
        if words[0] != "GET":
            return _plain(405, "Allow: GET")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers.setdefault(name.strip().lower(), value.strip())
        return self._allowed(words[1].partition("?")[0], headers)

    def _allowed(self, path: str, headers: dict[str, str]) -> Answer:
        if self._config.token_file:
            try:
                token = self._token()
            except UserError as problem:
                self._say(str(problem))
                return _plain(500)
            scheme, _, given = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1"), token):
                return _plain(401, 'WWW-Authenticate: Bearer realm="gpuclinic"')
        if path == "/":
            return Answer(200, "text/html; charset=utf-8", _INDEX)
        if path != "/metrics":
            return _plain(404)
        kind, body = self._metrics(headers.get("accept", ""))
        return Answer(200, kind, body)

    def _token(self) -> bytes:
        """Read anew each time: it may have been changed since."""
        path = self._config.token_file
        try:
            with Path(path).open("rb") as file:
                token = file.read(_MOST_TOKEN).strip()
        except OSError as problem:
            raise UserError(f"exporter.token_file: {path}: {problem.strerror or problem}") from problem
        if not token:
            raise UserError(f"exporter.token_file: {path}: empty")
        return token


class _Tls:
    """A context that is made anew when its files change; a change that cannot be used leaves the one of before."""

    def __init__(self, config: Exporting, say: Callable[[str], None]) -> None:
        self._config, self._say = config, say
        self._lock = threading.Lock()
        self._stamp = self._stamps()
        self._context = self._made()

    def wrapped(self, connection: socket.socket) -> socket.socket:
        """The connection after the handshake."""
        with self._lock:
            stamp = self._stamps()
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    self._context = self._made()
                except UserError as problem:
                    self._say(f"{problem}; the certificate of before goes on")
            context = self._context
        return context.wrap_socket(connection, server_side=True)

    def _stamps(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(
            _stamp(name) for name in (self._config.cert_file, self._config.key_file, self._config.client_ca_file)
        )

    def _made(self) -> ssl.SSLContext:
        import ssl  # some megabytes, for those who asked for TLS

        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(config.cert_file, config.key_file or None)
            if config.client_ca_file:
                context.load_verify_locations(config.client_ca_file)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ValueError) as problem:  # ssl.SSLError is an OSError
            name = f"{config.cert_file}, {config.key_file or 'no key_file'}" + (
                f", {config.client_ca_file}" if config.client_ca_file else ""
            )
            raise UserError(f"exporter: certificate files cannot be used ({name}): {problem}") from problem
        return context


def _stamp(name: str) -> tuple[int, int] | None:
    try:
        status = os.stat(name) if name else None  # noqa: PTH116 - text path
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ino) if status is not None else None


def _listener(listen: str) -> socket.socket:
    host, port = split_address(listen)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST)
    except OSError as problem:
        raise UserError(f"exporter.listen: {host!r} is not an address: {problem.strerror or problem}") from problem
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(MOST_CONNECTIONS)
    except OSError as problem:
        listener.close()
        raise UserError(f"exporter.listen = {listen!r}: {problem.strerror or problem}") from problem
    return listener


def is_loopback(listen: str) -> bool:
    """Whether only this machine can reach it."""
    host, _ = split_address(listen)
    return host.startswith("127.") or host == "::1"


def _head(talk: socket.socket, until: float) -> bytes | None:
    """What comes before the empty line; None where it is too long. TimeoutError: it did not come."""
    data = bytearray()
    while True:
        end = data.find(b"\r\n\r\n")
        if end >= 0:
            return bytes(data[:end])
        if len(data) > MOST_HEAD:
            return None
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        talk.settimeout(left)
        part = talk.recv(4096)
        if not part:
            raise OSError("closed before it asked")
        data += part


def _plain(status: int, *more: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", f"{_WORDS[status]}\n".encode(), more)


def _send(talk: socket.socket, answer: Answer) -> None:
    lines = (
        f"HTTP/1.1 {answer.status} {_WORDS[answer.status]}", f"Content-Type: {answer.kind}", f"Content-Length: {len(answer.body)}",
        "Connection: close", "X-Content-Type-Options: nosniff", *answer.more,
    )  # fmt: skip
    left = memoryview(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + answer.body)
    until = time.monotonic() + ANSWER_S
    while left:
        seconds = until - time.monotonic()
        if seconds <= 0:
            return
        talk.settimeout(seconds)
        left = left[talk.send(left) :]
    with contextlib.suppress(OSError):
        talk.shutdown(socket.SHUT_WR)
    talk.settimeout(0.2)
    with contextlib.suppress(OSError):
        talk.recv(
            1024
        )  # what was still on its way would make the kernel reset the connection before the answer is read
