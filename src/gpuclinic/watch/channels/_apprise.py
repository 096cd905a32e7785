"""Slack, Teams, Telegram, PagerDuty, ntfy, DingTalk, WeCom, Feishu and many more through apprise (extra `alerts`), imported only here."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gpuclinic.watch.channels._message import ChannelError

if TYPE_CHECKING:
    from gpuclinic.watch.channels._message import Message
    from gpuclinic.watch.config import Channel

_TYPES = {"critical": "failure", "warning": "warning", "info": "info"}


def send(channel: Channel, messages: list[Message], secret: str | None) -> None:
    """The secret file holds apprise's URLs, one a line, since tokens stand in them; url is for those without."""
    try:
        import apprise
    except ImportError:
        raise ChannelError("apprise is not installed: pip install 'gpuclinic[alerts]'", last=True) from None
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # its own lines name the URLs
    urls = [line.strip() for line in (secret or channel.url).splitlines() if line.strip() and not line.startswith("#")]
    service = apprise.Apprise()
    if not urls or not all(service.add(url) for url in urls):
        raise ChannelError("apprise does not know one of the URLs, or there is none", last=True)
    for message in messages:
        kind = "success" if message.what == "resolved" else _TYPES[message.severity]
        if not service.notify(title=message.title, body=message.body, notify_type=kind):
            raise ChannelError("apprise could not send it")
