"""E-mail over SMTP; STARTTLS where the server offers it, and always where a password is sent."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import TYPE_CHECKING

from gpuclinic.watch.channels._http import DEADLINE_S
from gpuclinic.watch.channels._message import ChannelError

if TYPE_CHECKING:
    from gpuclinic.watch.channels._message import Message
    from gpuclinic.watch.config import Channel

_TLS_PORT = 465


def send(channel: Channel, messages: list[Message], secret: str | None) -> None:
    """url: addresses, commas between. sender: the address that it comes from, and the user name. server: name:port."""
    name, _, port = channel.server.rpartition(":") if ":" in channel.server else (channel.server, "", "25")
    to = [address.strip() for address in channel.url.removeprefix("mailto:").split(",") if address.strip()]
    if not to or not port.isdecimal() or any("\n" in address or "@" not in address for address in to):
        raise ChannelError("e-mail needs addresses in url, and name:port in server", last=True)
    sender = channel.sender or to[0]
    context = ssl.create_default_context()
    try:
        with _connected(name, int(port), context) as server:
            if int(port) != _TLS_PORT:
                server.ehlo()
                if server.has_extn("starttls"):
                    server.starttls(context=context)
                    server.ehlo()
                elif secret:
                    raise ChannelError(f"{name}: offers no TLS, so no password is sent to it", last=True)
            if secret:
                server.login(sender, secret)
            for message in messages:
                server.send_message(_mail(message, sender, to))
    except smtplib.SMTPResponseException as problem:
        raise ChannelError(
            f"{name}: SMTP {problem.smtp_code}", last=500 <= problem.smtp_code < 600 and problem.smtp_code != 535
        ) from None
    except (smtplib.SMTPException, OSError, ValueError) as problem:
        raise ChannelError(f"{name}: {getattr(problem, 'strerror', None) or type(problem).__name__}") from None


def _connected(name: str, port: int, context: ssl.SSLContext) -> smtplib.SMTP:
    if port == _TLS_PORT:
        return smtplib.SMTP_SSL(name, port, timeout=DEADLINE_S, context=context)
    return smtplib.SMTP(name, port, timeout=DEADLINE_S)


def _mail(message: Message, sender: str, to: list[str]) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"] = " ".join(message.title.split())
    mail["From"] = sender
    mail["To"] = ", ".join(to)
    mail["Date"] = formatdate(message.at)
    mail["Message-ID"] = make_msgid(domain="gpuclinic.invalid")
    mail["References"] = f"<{message.id}@gpuclinic.invalid>"
    mail.set_content(message.body)
    return mail
