"""Ways out for alerts. Each sends one message, or fails with one line that holds no secret; none is imported before it is used."""

from gpuclinic.watch.channels._message import ChannelError, Message, message_of
from gpuclinic.watch.channels._send import deliver, label_of

__all__ = ["ChannelError", "Message", "deliver", "label_of", "message_of"]
