"""What is going on, on standard error: one line that is written over, only on a terminal, only where it takes long."""

from __future__ import annotations

import contextlib
import os
import sys
import time


class Progress:
    """Shown from `after` seconds on, at most ten times a second; leaves nothing behind."""

    def __init__(self, after: float) -> None:
        self._begun = time.monotonic()
        self._after = after
        self._last = 0.0
        self._shown = False

    @classmethod
    def where_seen(cls, after: float = 0.5) -> Progress | None:
        """One for a terminal that can write over a line; None elsewhere."""
        stream = sys.stderr
        return cls(after) if stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb" else None

    def show(self, text: str) -> None:
        """Says what is being done."""
        now = time.monotonic()
        if now - self._begun > self._after and now - self._last > 0.1:
            self._last, self._shown = now, True
            with contextlib.suppress(OSError):
                sys.stderr.write(f"\r\x1b[K{text[:70]}")
                sys.stderr.flush()

    def look(self, what: str) -> None:
        """Says which look is taken."""
        self.show(what)

    def read(self, path: str, offset: int) -> None:
        """Says how far a file has been read, in bytes."""
        self.show(f"{path[-50:]}: {offset / 1e6:.0f} MB")

    def clear(self) -> None:
        """Takes the line away again."""
        if self._shown:
            with contextlib.suppress(OSError):
                sys.stderr.write("\r\x1b[K")
