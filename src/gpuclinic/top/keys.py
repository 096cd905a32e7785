"""What keys and the mouse do to the choices. Names of keys are Textual's."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from gpuclinic.model import CouldNotError
from gpuclinic.top import acting
from gpuclinic.top.choices import SECONDS_A_DOT, SORTS, ZONES, Choices, matches, shown_alerts, shown_holders
from gpuclinic.top.overlays import SIGNALS
from gpuclinic.top.words import WORDS

if TYPE_CHECKING:
    from gpuclinic.top.view import Gpu, Holder, View

THEMES = ("dark", "light", "contrast")
_LONGEST = 200
_PAGE = 10
_MOVES = {"up": -1, "down": 1, "pageup": -_PAGE, "pagedown": _PAGE, "home": -(1 << 20), "end": 1 << 20}
_SORT_KEYS = {"P": "cpu_pct", "M": "vram", "T": "age", "G": "gpu_pct", "N": "pid"}
_HELP, _QUIT = ("question_mark", "f1", "h"), ("q", "f10", "ctrl+c")


def press(key: str, character: str | None, view: View | None, choices: Choices, root: str = "") -> bool:
    """Takes a key; returns whether to quit. root: where the examined machine's files are."""
    choices.said = ""
    if choices.asking:
        _type(key, character, choices)
        return False
    if choices.overlay:
        return _over(key, character, choices, root)
    if key in _QUIT:
        return True
    if key in _HELP:
        choices.overlay, choices.overlay_first = "help", 0
    elif key in _MOVES and view is not None:
        move(_MOVES[key], choices)
    elif view is not None:
        _of_rows(key, character, view, choices)
    return False


def move(rows: int, choices: Choices) -> None:
    """Moves the chosen row of the zone; the painter keeps it inside."""
    choices.at[choices.zone] = max(0, choices.row(choices.zone) + rows)


def _of_rows(key: str, character: str | None, view: View, choices: Choices) -> None:
    sign = character or ""
    if key in ("tab", "shift+tab"):
        step = 1 if key == "tab" else -1
        choices.zone = ZONES[(ZONES.index(choices.zone) + step) % len(ZONES)]
    elif key == "enter":
        _enter(view, choices)
    elif key in ("f4", "f3") or sign == "/":
        choices.asking = "search" if key == "f3" else "filter"
    elif key == "f6" or sign == "i":
        choices.overlay, choices.overlay_first = ("sort" if key == "f6" else "beside"), 0
    elif sign in _SORT_KEYS:
        choices.sort = _SORT_KEYS[sign]
    elif sign == "I":
        choices.inverted = not choices.inverted
    elif key == "f5" or sign == "t":
        choices.tree = not choices.tree
    elif sign in ("g", "z", " ", "c", "l", "+", "=", "-"):
        _looks(sign, choices)
    else:
        _of_process(key, sign, view, choices)


def _looks(sign: str, choices: Choices) -> None:
    if sign == "g":
        choices.graphs = not choices.graphs
    elif sign in "z ":
        choices.paused = not choices.paused
    elif sign == "c":
        choices.theme = (choices.theme + 1) % len(THEMES)
    elif sign == "l":
        choices.lang = "zh" if choices.lang == "en" else "en"
    else:
        choices.zoom = max(0, min(len(SECONDS_A_DOT) - 1, choices.zoom + (1 if sign == "-" else -1)))


def _of_process(key: str, sign: str, view: View, choices: Choices) -> None:
    holder = chosen_holder(view, choices)
    if key == "escape" or sign == "a":
        choices.only_gpus, choices.only_user, choices.filter, choices.search = [], "", "", ""
    elif sign == "n" and choices.search:
        _next_match(view, choices)
    elif sign == "u" and holder is not None:
        choices.only_user = "" if choices.only_user else holder.user
    elif (key == "f9" or sign == "k") and holder is not None and holder.pid:
        choices.overlay, choices.pid, choices.start, choices.signal = (
            "kill",
            holder.pid,
            holder.start,
            int(signal.SIGTERM),
        )
    elif (key in ("f7", "f8") or sign in ("[", "]")) and holder is not None and holder.pid:
        nicer = key == "f8" or sign == "]"
        choices.overlay, choices.pid, choices.start = "nice", holder.pid, holder.start
        choices.nice = max(-20, min(19, (holder.nice or 0) + (5 if nicer else -5)))


def chosen_holder(view: View, choices: Choices) -> Holder | None:
    """The chosen process, where the zone of processes has the keys."""
    holders = shown_holders(view, choices)
    row = choices.row("processes")
    return holders[row][1] if choices.zone == "processes" and row < len(holders) else None


def gpu_of_row(view: View, row: int) -> Gpu | None:
    """The GPU to which a row of the devices belongs; MIG devices stand under theirs."""
    for gpu in view.gpus:
        row -= 1 + (len(gpu.mig) if gpu.trouble is None else 0)
        if row < 0:
            return gpu
    return None


def _enter(view: View, choices: Choices) -> None:
    choices.overlay_first = 0
    if choices.zone == "gpus":
        gpu = gpu_of_row(view, choices.row("gpus"))
        if gpu is not None:
            choices.only_gpus = [] if choices.only_gpus == [gpu.index] else [gpu.index]
    elif choices.zone == "findings":
        alerts = shown_alerts(view)
        if choices.row("findings") < len(alerts):
            choices.overlay, choices.subject = "alert", alerts[choices.row("findings")].id
    elif (holder := chosen_holder(view, choices)) is not None and holder.pid:
        choices.overlay, choices.pid = "process", holder.pid


def _next_match(view: View, choices: Choices) -> None:
    holders = [holder for _, holder in shown_holders(view, choices)]
    row = choices.row("processes")
    order = [*range(row + 1, len(holders)), *range(min(row + 1, len(holders)))]
    found = next((place for place in order if matches(holders[place], choices)), None)
    if found is not None:
        choices.at["processes"] = found
        choices.zone = "processes"


def _type(key: str, character: str | None, choices: Choices) -> None:
    """Typing at the bottom; what is typed holds at once."""
    name = choices.asking
    text = choices.filter if name == "filter" else choices.search
    if key == "enter":
        choices.asking = ""
    elif key == "escape":
        choices.asking, text = "", ""
    elif key in ("backspace", "ctrl+h"):
        text = text[:-1]
    elif key == "ctrl+u":
        text = ""
    elif character and character.isprintable() and len(text) < _LONGEST:
        text += character
    if name == "filter":
        choices.filter = text
    else:
        choices.search = text


def _over(key: str, character: str | None, choices: Choices, root: str) -> bool:
    if key in ("f10", "ctrl+c"):
        return True
    sign = character or ""
    if choices.overlay in ("kill", "nice"):
        _answer(key, sign, choices, root)
    elif key in _MOVES:
        choices.overlay_first = max(0, choices.overlay_first + _MOVES[key])
    elif choices.overlay == "sort" and sign.isdecimal() and 1 <= int(sign) <= len(SORTS):
        choices.sort, choices.overlay = SORTS[int(sign) - 1], ""
    elif key in ("escape", "enter", "q", *_HELP):
        choices.overlay = ""
    return False


def _answer(key: str, sign: str, choices: Choices, root: str) -> None:
    """Only a plain yes acts; everything that is no answer leaves the question."""
    if choices.overlay == "kill" and sign in SIGNALS:
        choices.signal = int(SIGNALS[sign])
        return
    if sign in ("y", "Y"):
        words = WORDS[choices.lang]
        try:
            if choices.overlay == "kill":
                acting.send(choices.pid, choices.start, choices.signal, root)
                choices.said = words["yes_done"].format(signal=signal.Signals(choices.signal).name, pid=choices.pid)
            else:
                acting.renice(choices.pid, choices.start, choices.nice, root)
                choices.said = words["nice_done"].format(nice=choices.nice, pid=choices.pid)
        except CouldNotError as problem:
            choices.said = str(problem)
        choices.overlay = ""
    elif key in ("escape", "enter", "q") or sign in ("n", "N"):
        choices.overlay = ""
