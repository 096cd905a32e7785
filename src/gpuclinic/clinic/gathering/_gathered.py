"""What was gathered on a machine for `why`: texts for the reader, facts, what was refused, and whom it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpuclinic.clinic.checking import CheckAnswer
from gpuclinic.clinic.gathering._question import Job
from gpuclinic.diagnose.subject import Subject
from gpuclinic.model import Fact, NotRead, Scalar, Where
from gpuclinic.observe.replay import NOT_ASKED

if TYPE_CHECKING:
    from gpuclinic.observe.asking import Answer

MOST_TEXT = 8 << 20
"""Bytes of one text; the newest where there are more."""


class Gathered(msgspec.Struct):
    """texts: (name as shown, bytes). wanted: ids of records that would have told more (knowledge/data/records.toml).

    host, boot_id: of the machine that was asked. snapshot: the files that are read beside are this machine's own.
    words: sentences about the process that is asked about, as (id, values), for reports.
    job: that is asked about. state: what `check` says of the machine as it is now, where the question reaches up to now.
    """

    subject: Subject
    texts: list[tuple[str, bytes]] = []
    facts: list[Fact] = []
    not_read: list[NotRead] = []
    wanted: list[str] = []
    words: list[tuple[str, dict[str, Scalar]]] = []
    snapshot: bool = False
    host: str | None = None
    boot_id: str | None = None
    state: CheckAnswer | None = None
    job: Job | None = None

    def text(self, shown: str, answer: Answer, wanted: str = "") -> bool:
        """Takes a text; a refusal (not an absence) becomes "not read, because ..." and a wish for the record that it hides."""
        if answer.ok:
            if answer.data.strip():
                self.texts.append((shown, answer.data))
            return bool(answer.data.strip())
        if not absent(answer):
            self.refused(shown, answer.why or "no answer", wanted)
        return False

    def refused(self, shown: str, why: str, wanted: str = "") -> None:
        """Something could not be looked at. What a capture does not hold is told; that the machine keeps no record of it is not known."""
        gap = NotRead(shown, why)
        if gap not in self.not_read:
            self.not_read.append(gap)
        if why != NOT_ASKED:
            self.want(wanted)

    def want(self, wanted: str) -> None:
        """A record that would tell more the next time."""
        if wanted and wanted not in self.wanted:
            self.wanted.append(wanted)

    def fact(
        self, kind: str, key: str, fields: dict[str, Scalar], source: str, places: dict[str, str] | None = None
    ) -> None:
        """Adds a fact; places: for a field ("" for the whole) the text that shows it."""
        lines = {name: Where(source, None, text) for name, text in (places or {}).items()}
        lines.setdefault("", Where(source, None, f"{kind} {key}"))
        self.facts.append(Fact(kind, key, {k: v for k, v in fields.items() if v is not None}, lines, source))


def absent(answer: Answer) -> bool:
    """The thing asked about does not exist here, which is no refusal."""
    why = answer.why or ""
    return not answer.ok and (answer.code in (2, 20, 3) or why.endswith(("is not installed", "not in the snapshot")))
