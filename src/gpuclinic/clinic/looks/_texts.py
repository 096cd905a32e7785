"""Many small files at once, for looks that need no more of an answer than its text."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from gpuclinic.model import Gap

if TYPE_CHECKING:
    from gpuclinic.clinic.looks._look import Seen
    from gpuclinic.observe.asking import Answer, Asked

_NOTHING_THERE = frozenset(
    [
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EINVAL,
        errno.EOPNOTSUPP,
        errno.ENODEV,
        errno.ENXIO,
        errno.ENODATA,
        errno.EISDIR,
    ]
)
"""What /proc and /sys answer where a device or a kernel has not got a thing."""


class Texts:
    """Texts by path. Refused files and patterns that hung become one gap each kind of reason, under the look's id."""

    def __init__(self, host: Asked, seen: Seen, look: str) -> None:
        self._host, self._seen, self._look = host, seen, look
        self._told: set[str] = set()

    def one(self, path: str, most: int = 1 << 20) -> str | None:
        """A file's text; None where it cannot be read."""
        return self._text(path, self._host.file(path, most))

    def many(self, *patterns: str, most: int = 1 << 16) -> dict[str, str]:
        """Texts of all files like the patterns; a pattern without a wildcard is a path."""
        out: dict[str, str] = {}
        for pattern in patterns:
            wild = any(sign in pattern for sign in "*?[")
            answers = self._host.files(pattern, most) if wild else {pattern: self._host.file(pattern, most)}
            for path, answer in answers.items():
                text = self._text(path, answer)
                if text is not None:
                    out[path] = text
        return out

    def _text(self, path: str, answer: Answer) -> str | None:
        if answer.ok:
            return answer.text
        if answer.code not in _NOTHING_THERE and str(answer.why) not in self._told:
            self._told.add(str(answer.why))
            self._seen.gaps.append(Gap(self._look, f"{path}: {answer.why}"))
        return None
