"""What lines that look alike have held so far, so that storms need not be confirmed line by line.

Lines are alike where the same needles lie in them. Once many of them in a row held the same signatures, most are only
counted, unless they name a subject (GPU, rank, code, device) that has not been named yet. The last one is kept.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpuclinic.recognise.engine import Confirmer

Key = int | tuple[int, ...]

SETTLED = 400
_KEPT = 4
_SAMPLED = 32
_MOST_KEYS = 4096
_MOST_SUBJECTS = 256
_PREFIX = 40


class Late(NamedTuple):
    """A line that was only counted: its number, its chunk's offset, its bytes, what stands in front, what it was counted as."""

    line: int
    offset: int
    data: bytes
    before: bytes
    held: tuple[int, ...]


class _Habit:
    """same: how many lines in a row held the same signatures, `held`; `telling` are those that name a subject."""

    __slots__ = ("held", "same", "telling", "turn")

    def __init__(self, held: tuple[int, ...], telling: tuple[int, ...], same: int = 0) -> None:
        self.held = held
        self.telling = telling
        self.same = same
        self.turn = 0


class Habits:
    """The habits of one source, and how many lines of each signature were only counted.

    settled: after how many lines in a row that held the same, further ones are only counted.
    """

    def __init__(self, confirmer: Confirmer, settled: int = SETTLED) -> None:
        self._confirmer = confirmer
        self._settled = settled
        self._habits: dict[Key, _Habit] = {}
        self._here: dict[Key, deque[tuple[int, int, int, tuple[int, ...]]]] = {}
        self._late: dict[Key, deque[Late]] = {}
        self._subjects: dict[int, set[tuple[object, ...]]] = {}
        self.skipped: dict[int, int] = {}

    def twin(self) -> Habits:
        """The same habits for another region; it counts for itself."""
        twin = Habits(self._confirmer, self._settled)
        twin._habits = {key: _Habit(h.held, h.telling, h.same) for key, h in self._habits.items()}
        twin._subjects = {number: set(known) for number, known in self._subjects.items()}
        return twin

    def counts(self, key: Key, data: bytes, start: int, stop: int, line: int) -> bool:
        """Only counts the line in data[start:stop], where that is enough; False: it has to be confirmed."""
        habit = self._habits.get(key)
        if habit is None or habit.same < self._settled:
            return False
        habit.turn += 1
        if not habit.turn % _SAMPLED:
            return False
        if not habit.held:
            return True
        if habit.telling and not self._nothing_new(habit.telling, data[start:stop]):
            return False
        skipped = self.skipped
        for number in habit.held:
            skipped[number] = skipped.get(number, 0) + 1
        here = self._here.get(key)
        if here is None:
            here = self._here[key] = deque(maxlen=_KEPT)
        here.append((line, start, stop, habit.held))
        return True

    def _nothing_new(self, telling: tuple[int, ...], line: bytes) -> bool:
        text = line.decode("utf-8", "replace")
        prefix = ""
        if text[:1] in "[(":
            prefix = text[: text.find("]" if text[0] == "[" else ")", 1, _PREFIX) + 1]
            if ":" in prefix or "." in prefix:
                prefix = ""
        for number in telling:
            subject = self._confirmer.subject(number, text)
            if subject is None:
                return False
            known = self._subjects.setdefault(number, set())
            if (prefix, subject) not in known and len(known) < _MOST_SUBJECTS:
                known.add((prefix, subject))
                return False
        return True

    def learn(self, key: Key, held: tuple[int, ...]) -> None:
        """Learns what one more line held."""
        habit = self._habits.get(key)
        if habit is not None and held == habit.held:
            habit.same += 1
        elif habit is not None or len(self._habits) < _MOST_KEYS:
            telling = tuple(number for number in held if self._confirmer.names_subject(number))
            self._habits[key] = _Habit(held, telling)

    def leave(self, data: bytes, base: int, look_back: int) -> None:
        """Takes along the last lines that were only counted, before the buffer changes."""
        for key, here in self._here.items():
            late = self._late.setdefault(key, deque(maxlen=_KEPT))
            for line, start, stop, held in here:
                late.append(Late(line, base, data[start:stop], data[max(0, start - look_back) : start], held))
        self._here.clear()

    def last(self) -> list[tuple[Key, Late]]:
        """The last lines of each kind that were only counted, in order; they are counted no longer."""
        last = sorted(((key, one) for key, late in self._late.items() for one in late), key=lambda item: item[1].line)
        for _, late in last:
            for number in late.held:
                self.skipped[number] -= 1
        self._late = {}
        return last

    def vain(self) -> dict[Key, int]:
        """How many lines of each kind were nominated in vain, for kinds of which there are many."""
        return {key: habit.turn for key, habit in self._habits.items() if not habit.held and habit.turn}
