"""Lines of a width, with colours where wanted: what the terminal's forms are written on."""

from __future__ import annotations

import re

from gpuclinic.report._layout import columns, wrap
from gpuclinic.report._words import words
from gpuclinic.report.masking import clean

_BOLD, _CYAN = "1", "36"
_SHELL = re.compile(r"(?:[A-Z][A-Z0-9_]*=\S* +)*[a-z./][\w./+-]*(?:[\s;|]|$)")
_CODE = re.compile(r"[\w.]+\(|[\w.]+ = |[\w.]+: ")


class Page:
    """Lines of a width, with colours where wanted."""

    def __init__(self, lang: str, width: int, *, colour: bool) -> None:
        self.lang = lang
        self.words = words(lang)
        self.width = width
        self._colour = colour
        self._lines: list[str] = []

    def paint(self, text: str, *codes: str) -> str:
        """The text in colours."""
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self._colour and text else text

    def text(self) -> str:
        """All lines."""
        return "\n".join(self._lines) + "\n"

    def blank(self) -> None:
        """An empty line, never two."""
        if self._lines and self._lines[-1]:
            self._lines.append("")

    def put(self, text: str, first: str = "", rest: str | None = None, *codes: str) -> None:
        """A paragraph: first goes before its first line, rest before the others."""
        rest = " " * columns(first) if rest is None else rest
        for number, line in enumerate(wrap(text, self.width - max(columns(first), columns(rest)))):
            self._lines.append((first if number == 0 else rest) + self.paint(line.replace("\u00a0", " "), *codes))

    def raw(self, line: str) -> None:
        """A line as it is."""
        self._lines.append(line)

    def section(self, title: str) -> None:
        """A heading."""
        self.blank()
        self._lines.append(self.paint(title, _BOLD))

    def item(self, text: str, *codes: str, mark: str = "-") -> None:
        """An item of a list."""
        self.put(text, f"  {mark} ", None, *codes)

    def command(self, command: str, indent: str) -> None:
        """A command, unbroken so that it can be copied; a line of code or of a job script has no prompt."""
        if command:
            shell = _SHELL.match(command) and not _CODE.match(command)
            self._lines.append(indent + self.paint(("$ " if shell else "") + clean(command), _CYAN))
