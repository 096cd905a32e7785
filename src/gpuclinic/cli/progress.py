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
        self._path = ""
        self._files = 0

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
        """Says which file is read, how many there were, and how far it has been read, in bytes."""
        if path != self._path:
            self._path = path
            self._files += 1
        self.show(f"{self._files} files: {path[-40:]}" + (f", {offset / 1e6:.0f} MB" if offset >= 1e6 else ""))

    def clear(self) -> None:
        """Takes the line away again."""
        if self._shown:
            with contextlib.suppress(OSError):
                sys.stderr.write("\r\x1b[K")
