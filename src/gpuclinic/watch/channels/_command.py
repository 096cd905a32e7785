"""A program of one's own: the message as JSON on its standard input. No shell."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.watch.channels._message import ChannelError

if TYPE_CHECKING:
    from gpuclinic.watch.channels._message import Message
    from gpuclinic.watch.config import Channel

DEADLINE_S = 30.0


def send(channel: Channel, messages: list[Message], secret: str | None) -> None:
    """url: the program and its arguments. The secret stands in its environment as GPUCLINIC_SECRET. Given up after half a minute."""
    try:
        argv = shlex.split(channel.url)
    except ValueError:
        argv = []
    if not argv:
        raise ChannelError("the command of the channel is empty, or its quotes do not match", last=True)
    environment = {**os.environ, **({"GPUCLINIC_SECRET": secret} if secret else {})}
    for message in messages:
        _run(argv, msgspec.json.encode({**message.data, "text": f"{message.title}\n{message.body}"}), environment)


def _run(argv: list[str], data: bytes, environment: dict[str, str]) -> None:
    try:
        child = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, start_new_session=True
        )  # fmt: skip
    except OSError as problem:
        raise ChannelError(f"{argv[0]}: {problem.strerror or problem}") from None
    try:
        child.communicate(data, timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that sleeps in the kernel cannot be ended
            child.wait(timeout=1.0)
        raise ChannelError(f"{argv[0]}: did not end within {DEADLINE_S:g} s, and was ended") from None
    if child.returncode != 0:
        raise ChannelError(f"{argv[0]}: ended with {child.returncode}")
