"""How a parser is declared: a name, the marks that show its tool's output in a text, and where its function is."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """name: what people call the output ("nvidia-smi -q"). marks: regular expressions, multi-line mode, any of which shows it.

    function: "module:function" under gpuclinic.recognise.parsers, taking a Document and returning list[Fact]; imported when needed.
    whole: the mark counts only near the start of the text (the document as a whole is this output).
    kind: the kind of text this makes the document, shown to people.
    """

    name: str
    marks: tuple[str, ...]
    function: str
    whole: bool = False
