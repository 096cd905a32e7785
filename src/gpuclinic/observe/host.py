"""What a Host gives: items to read, one after the other, and what could not be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpuclinic.model import NotRead


class Item(NamedTuple):
    """One file of the examined host.

    path: as shown to people ("bundle.tar.gz!/node17/dmesg.txt"). size: bytes, None where unknown before reading.
    open: gives a fresh stream; for members of an archive only until the next item is asked for.
    plain: the regular file itself where it may be read at any offset and again; None for streams and archives.
    """

    path: str
    size: int | None
    open: Callable[[], BinaryIO]
    plain: Path | None = None


class Host(Protocol):
    """The examined machine: files, a folder, an archive, a snapshot, standard input, or the running server."""

    label: str

    def items(self) -> Iterator[Item | NotRead]:
        """Every file once; NotRead where one could not be opened and why."""
