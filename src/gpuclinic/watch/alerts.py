"""Alerts: what was found, since when, whether it was told; kept in a file, so that a restart forgets nothing. And silences."""

from __future__ import annotations

import fnmatch
import hashlib
import time
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.model import CouldNotError, Finding, UserError
from gpuclinic.store import whole_file

if TYPE_CHECKING:
    from pathlib import Path

FILE, SILENCES = "alerts.json", "silences.json"
_LARGEST = 16 << 20
_MOST_OVER = 200
"""So many alerts that are over are kept for `alert list --all`."""


class Alert(msgspec.Struct):
    """One fault of one subject, from when it was told until it is over.

    id: the same whenever the same thing comes again. rule: id of the finding. key: of the fact that a row is about. since: when it began,
    fired_at, resolved_at: when it was told, and was over (Unix seconds). finding, finding_zh: with cause, evidence and steps.
    explains: ids of findings that it explains; explained_by: id of the alert that explains it, which is then told in its place.
    source: "row" or "event". times: how many events. last_at: the newest. why_ended: ended, gone, reboot, driver, quiet, off.
    serial: of the GPU.
    """

    id: str
    rule: str
    key: str
    subject: str
    severity: str
    since: float
    fired_at: float
    finding: Finding
    finding_zh: Finding
    source: str = "row"
    resolved_at: float | None = None
    explains: list[str] = []
    explained_by: str | None = None
    times: int = 1
    last_at: float = 0.0
    why_ended: str = ""
    serial: str | None = None

    def text(self, lang: str) -> Finding:
        """What is said of it in a language."""
        return self.finding_zh if lang == "zh" else self.finding


class Change(msgspec.Struct, frozen=True):
    """What happened to an alert: fired, worsened, eased, resolved."""

    what: str
    alert: Alert
    at: float


class Silence(msgspec.Struct, frozen=True):
    """Alerts that are not sent until a moment (Unix seconds). alert: an alert's id, or a glob of finding ids. subject: a glob."""

    alert: str
    until: float
    subject: str = "*"
    why: str = ""

    def covers(self, one: Alert) -> bool:
        """Whether it is about this alert."""
        named = self.alert == one.id or fnmatch.fnmatchcase(one.rule, self.alert)
        return named and fnmatch.fnmatchcase(one.subject, self.subject)


class _Kept(msgspec.Struct):
    version: int = 1
    boot_id: str | None = None
    at: float = 0.0
    alerts: list[Alert] = []


def alert_id(rule: str, subject: str) -> str:
    """Eight letters that stand for a fault of a subject."""
    return hashlib.blake2b(f"{rule}\n{subject}".encode(), digest_size=4).hexdigest()


class Book:
    """All alerts that hold, and the newest that are over. folder: None keeps nothing. trouble: what was wrong with the file."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / FILE if folder is not None else None
        self.active: dict[str, Alert] = {}
        self.over: list[Alert] = []
        self.boot_id: str | None = None
        self.saved_at = 0.0
        self.trouble: str | None = None
        if self._path is not None:
            self._read(self._path)

    def _read(self, path: Path) -> None:
        kept, self.trouble = read_alerts(path)
        if kept is not None:
            self.take_in(kept)

    def take_in(self, kept: _Kept) -> None:
        """What a file holds."""
        self.boot_id, self.saved_at = kept.boot_id, kept.at
        self.active = {a.id: a for a in kept.alerts if a.resolved_at is None}
        self.over = [a for a in kept.alerts if a.resolved_at is not None]

    def save(self, now: float) -> None:
        """Writes the file, whole or not at all; where that is not possible says so in `trouble` and goes on."""
        del self.over[:-_MOST_OVER]
        if self._path is None:
            return
        data = msgspec.json.encode(_Kept(1, self.boot_id, now, [*self.active.values(), *self.over]))
        try:
            with whole_file(self._path) as file:
                file.write(data)
            self.trouble = None
        except OSError as problem:
            self.trouble = f"{self._path}: {problem.strerror or problem}; alerts are kept in memory only"


def read_alerts(path: Path, *, aside: bool = True) -> tuple[_Kept | None, str | None]:
    """The alerts of a file, and what was wrong with it: a torn or foreign one is kept aside under another name."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return None, None
    except OSError as problem:
        return None, f"{path}: {problem.strerror or problem}"
    try:
        kept = msgspec.json.decode(data, type=_Kept)
        if kept.version != 1:
            raise msgspec.ValidationError("of a newer gpuclinic")
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        if not aside:
            return None, f"{path}: not readable ({problem})"
        name = path.with_name(f"{path.name}.bad-{int(time.time())}")
        try:
            path.rename(name)
        except OSError:
            name = path
        return None, f"{path}: not readable ({problem}); kept as {name.name}"
    return kept, None


def read_silences(folder: Path, now: float) -> list[Silence]:
    """The silences that last. Raises CouldNotError for a file that is none."""
    path = folder / SILENCES
    try:
        with path.open("rb") as file:
            found = msgspec.json.decode(file.read(_LARGEST), type=list[Silence])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise CouldNotError(f"{path}: {getattr(problem, 'strerror', None) or problem}") from problem
    return [s for s in found if s.until > now]


def add_silence(folder: Path, silence: Silence, now: float) -> None:
    """Writes a silence beside those that last. Raises CouldNotError where that is not possible."""
    kept = [s for s in read_silences(folder, now) if (s.alert, s.subject) != (silence.alert, silence.subject)]
    try:
        with whole_file(folder / SILENCES) as file:
            file.write(msgspec.json.encode([*kept, silence] if silence.until > now else kept))
    except OSError as problem:
        raise CouldNotError(f"{folder / SILENCES}: {problem.strerror or problem}") from problem


def read_book(folder: Path) -> Book:
    """The alerts as the agent last wrote them. Raises CouldNotError where there are none, or the file is torn (it is left where it is)."""
    path = folder / FILE
    if not path.exists():
        raise CouldNotError(f"{path}: no agent has written alerts here (gpuclinic agent)")
    kept, trouble = read_alerts(path, aside=False)
    if kept is None:
        raise CouldNotError(trouble or str(path))
    book = Book(None)
    book.take_in(kept)
    return book


def find_alert(book: Book, wanted: str) -> Alert:
    """The alert with this id, or its beginning. Raises UserError where there is none, or more than one."""
    every = {**{a.id: a for a in book.over}, **book.active}
    found = [a for identity, a in every.items() if identity.startswith(wanted)]
    if len(found) != 1:
        raise UserError(f"{'no alert' if not found else 'more than one alert'} {wanted!r} (see gpuclinic alert list)")
    return found[0]
