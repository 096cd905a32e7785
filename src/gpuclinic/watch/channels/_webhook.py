"""Any address that takes JSON: one object for each message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpuclinic.watch.channels._http import post

if TYPE_CHECKING:
    from gpuclinic.watch.channels._message import Message
    from gpuclinic.watch.config import Channel


def send(channel: Channel, messages: list[Message], secret: str | None) -> None:
    """The secret, where there is one, is a bearer token."""
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    for message in messages:
        body = {**message.data, "text": f"{message.title}\n{message.body}"}
        post(channel.url, msgspec.json.encode(body), headers)
