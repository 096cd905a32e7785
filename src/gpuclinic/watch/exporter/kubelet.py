"""Which device belongs to which pod, by the kubelet's pod-resources socket: one gRPC call, PodResourcesLister.List of v1.

The call is one request without fields and one answer, so HTTP/2 (RFC 9113) and protobuf are spoken here by hand, some hundred lines,
rather than through grpcio, which is 6 MB of a binary that has to fit the machine and starts threads of its own. Headers of the answer
are not decoded: a whole message and the end of the stream are the success; anything else is told as a failure.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.model import CouldNotError

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_S = 3.0
_LARGEST = 16 << 20
"""An answer of the kubelet is at most this long (kubelet's apis/podresources, its clients' maximum)."""
_MOST_FRAMES = 100_000
_MOST_DEVICES = 4096
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _PADDED = 0x1, 0x1, 0x8
_END_HEADERS = 0x4
_INITIAL_WINDOW = 4
_REQUEST_HEADERS = (
    (":method", "POST"), (":scheme", "http"), (":path", "/v1.PodResourcesLister/List"), (":authority", "localhost"),
    ("te", "trailers"), ("content-type", "application/grpc"), ("user-agent", "gpuclinic"),
)  # fmt: skip


class PodDevice(NamedTuple):
    """A device of a container."""

    namespace: str
    pod: str
    container: str
    resource: str
    device: str


class _BrokenError(ValueError):
    """The answer is not what it should be."""


def pod_devices(path: str) -> list[PodDevice]:
    """The NVIDIA devices of all pods on this node. Raises CouldNotError with the reason."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
            wire = _Wire(connection, time.monotonic() + DEADLINE_S)
            connection.settimeout(DEADLINE_S)
            connection.connect(path)
            message = _called(wire)
        return _devices(message)
    except TimeoutError:
        raise CouldNotError(f"{path}: the kubelet did not answer within {DEADLINE_S:g} s") from None
    except OSError as problem:
        raise CouldNotError(f"{path}: {problem.strerror or problem}") from problem
    except _BrokenError as problem:
        raise CouldNotError(f"{path}: {problem}") from None


class _Wire:
    """Frames over a connection, within one deadline."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection, self._until = connection, until

    def send(self, data: bytes) -> None:
        self._connection.settimeout(self._left())
        self._connection.sendall(data)

    def frame(self) -> tuple[int, int, int, bytes]:
        """type, flags, stream, payload."""
        head = self._exactly(9)
        length = int.from_bytes(head[:3], "big")
        if length > 1 << 20:
            raise _BrokenError("a frame longer than was offered")
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF
        return kind, flags, stream, self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            self._connection.settimeout(self._left())
            part = self._connection.recv(count - len(parts))
            if not part:
                raise _BrokenError("the connection was closed in the middle of the answer")
            parts += part
        return bytes(parts)

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _framed(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _literal(name: str, value: str) -> bytes:
    """A header field without indexing, name and value as they are (RFC 7541, 6.2.2)."""
    return b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


def _called(wire: _Wire) -> bytes:
    """The answer's message: 5 bytes (not compressed, length) and the message itself."""
    settings = struct.pack(">HI", _INITIAL_WINDOW, _LARGEST + 5)
    head = b"".join(_literal(name, value) for name, value in _REQUEST_HEADERS)
    wire.send(
        _PREFACE + _framed(_SETTINGS, 0, 0, settings) + _framed(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _LARGEST))
        + _framed(_HEADERS, _END_HEADERS, 1, head) + _framed(_DATA, _END_STREAM, 1, b"\x00" * 5)
    )  # fmt: skip
    body = bytearray()
    for _ in range(_MOST_FRAMES):
        kind, flags, stream, payload = wire.frame()
        if kind == _SETTINGS and not flags & _ACK:
            wire.send(_framed(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            wire.send(_framed(_PING, _ACK, 0, payload))
        elif kind == _GOAWAY or (kind == _RST_STREAM and stream == 1):
            raise _BrokenError("the kubelet refused the call")
        elif stream == 1 and kind in (_DATA, _HEADERS):
            if kind == _DATA:
                body += _without_padding(payload, flags)
                if len(body) > _LARGEST + 5:
                    raise _BrokenError("the answer is longer than 16 MiB")
            if flags & _END_STREAM:
                return _message(bytes(body))
    raise _BrokenError("the answer does not end")


def _without_padding(payload: bytes, flags: int) -> bytes:
    if not flags & _PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise _BrokenError("damaged padding")
    return payload[1 : len(payload) - payload[0]]


def _message(body: bytes) -> bytes:
    if len(body) < 5:
        raise _BrokenError("the kubelet answered with an error and no message")
    if body[0] != 0 or int.from_bytes(body[1:5], "big") != len(body) - 5:
        raise _BrokenError("the answer is compressed or cut")
    return body[5:]


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers and contents of the fields that are texts or messages; others are passed over (protobuf's wire format)."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        wire_type = tag & 7
        if wire_type == 0:
            _, place = _varint(data, place)
        elif wire_type in (1, 5):
            place += 8 if wire_type == 1 else 4
        elif wire_type == 2:
            length, place = _varint(data, place)
            if place + length > len(data):
                raise _BrokenError("a field longer than its message")
            yield tag >> 3, data[place : place + length]
            place += length
        else:
            raise _BrokenError("a field of an unknown type")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise _BrokenError("a damaged number")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")[:256]


def _devices(message: bytes) -> list[PodDevice]:
    """The NVIDIA devices of ListPodResourcesResponse: pods 1; of a pod name 1, namespace 2, containers 3; of a container name 1, devices 2;

    of devices resource_name 1, device_ids 2 (k8s.io/kubelet, pkg/apis/podresources/v1/api.proto).
    """
    found: list[PodDevice] = []
    for number, pod in _fields(message):
        if number != 1:
            continue
        parts = list(_fields(pod))
        name, space = _first(parts, 1), _first(parts, 2)
        for container in (list(_fields(data)) for place, data in parts if place == 3):
            for devices in (list(_fields(data)) for place, data in container if place == 2):
                resource = _first(devices, 1)
                for device in (
                    _text(data) for place, data in devices if place == 2 and _is_ours(resource, _text(data))
                ):
                    if len(found) >= _MOST_DEVICES:
                        return found
                    found.append(PodDevice(space, name, _first(container, 1), resource, device))
    return found


def _is_ours(resource: str, device: str) -> bool:
    return "nvidia" in resource or device.startswith(("GPU-", "MIG-"))


def _first(parts: list[tuple[int, bytes]], number: int) -> str:
    return next((_text(data) for place, data in parts if place == number), "")
