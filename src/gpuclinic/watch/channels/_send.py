"""Which kind of channel sends how."""

from __future__ import annotations

import importlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpuclinic.watch.channels._message import ChannelError, Message

if TYPE_CHECKING:
    from gpuclinic.watch.config import Channel

_MODULES = {
    "webhook": "_webhook",
    "email": "_email",
    "command": "_command",
    "apprise": "_apprise",
    "alertmanager": "_alertmanager",
}
_LARGEST_SECRET = 1 << 16


def deliver(channel: Channel, messages: list[Message]) -> None:
    """Sends these messages. Raises ChannelError; takes half a minute at most, so call it where that harms nobody."""
    module = importlib.import_module(f"gpuclinic.watch.channels.{_MODULES[channel.kind]}")
    module.send(channel, messages, secret_of(channel))


def secret_of(channel: Channel) -> str | None:
    """The password or token of a channel. Raises ChannelError where its file cannot be read, or others may read it, too."""
    if not channel.secret_file:
        return None
    path = Path(channel.secret_file)
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(_LARGEST_SECRET)
    except OSError as problem:
        raise ChannelError(f"{path}: {problem.strerror or problem}") from None
    if status.st_mode & (stat.S_IROTH | stat.S_IWOTH):
        raise ChannelError(f"{path} may be read by every user: chmod 600 it", last=True)
    return data.decode("utf-8", "replace").strip()


def label_of(channel: Channel) -> str:
    """How a channel is named in messages: its kind and host, never its path, which may hold a token."""
    if channel.kind in ("webhook", "alertmanager"):
        return f"{channel.kind} {urlsplit(channel.url).hostname or '?'}"
    if channel.kind == "email":
        return f"email {channel.url}"
    return channel.kind if channel.kind == "apprise" else f"command {channel.url.split(' ', 1)[0]}"
