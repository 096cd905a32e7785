"""The terminal: Textual draws the lines that have changed, and brings keys, mouse and size."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpuclinic.top import keys
from gpuclinic.top.feed import Feed, Past
from gpuclinic.top.screen import Painted, paint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual import events
    from textual.app import ComposeResult
    from textual.geometry import Size

    from gpuclinic.top.choices import Choices
    from gpuclinic.top.painting import Line
    from gpuclinic.top.view import View

_OURS = 70

THEMES: dict[str, dict[str, str]] = {
    "dark": {
        "": "#d0d4d8 on #101418", "dim": "#8a929a on #101418", "good": "#7fc97f on #101418", "warn": "#f0c050 on #101418",
        "bad": "bold #ff7066 on #101418", "title": "bold #101418 on #7fb3e6", "head": "bold #b8c4d0 on #222a33",
        "head_bad": "bold #ff8078 on #222a33", "head_warn": "bold #f0c050 on #222a33", "head_note": "#8fc3f6 on #222a33",
        "sorted": "bold #7fd3ff on #222a33", "bar": "#58a6e0 on #101418", "track": "#3a424a on #101418", "graph": "#6cc091 on #101418",
        "chosen": "bold #ffffff on #2f5f8f", "chosen_idle": "#d0d4d8 on #263039", "key": "#9fb4c8 on #222a33", "note": "#7fb3e6 on #101418",
        "edge": "#5a646e on #101418",
    },
    "light": {
        "": "#202428 on #ffffff", "dim": "#5c646c on #ffffff", "good": "#1a7f37 on #ffffff", "warn": "#8a5a00 on #ffffff",
        "bad": "bold #b3161b on #ffffff", "title": "bold #ffffff on #1f5fa8", "head": "bold #30383f on #e4e9ee",
        "head_bad": "bold #a80f14 on #e4e9ee", "head_warn": "bold #7a4e00 on #e4e9ee", "head_note": "#12509a on #e4e9ee",
        "sorted": "bold #0b5cad on #e4e9ee", "bar": "#2b7cc4 on #ffffff", "track": "#c4ccd4 on #ffffff", "graph": "#1f8a50 on #ffffff",
        "chosen": "bold #ffffff on #1f5fa8", "chosen_idle": "#202428 on #d6dee6", "key": "#3a4650 on #e4e9ee", "note": "#1f5fa8 on #ffffff",
        "edge": "#8a949e on #ffffff",
    },
    "contrast": {
        "": "#ffffff on #000000", "dim": "#ffffff on #000000", "good": "#00ff00 on #000000", "warn": "bold #ffff00 on #000000",
        "bad": "bold #ffffff on #c00000", "title": "bold #000000 on #ffffff", "head": "bold #000000 on #ffffff",
        "head_bad": "bold #ffffff on #c00000", "head_warn": "bold #000000 on #ffff00", "head_note": "bold #000000 on #ffffff",
        "sorted": "bold #ffffff on #0000c0", "bar": "#00ffff on #000000", "track": "#808080 on #000000", "graph": "#00ff00 on #000000",
        "chosen": "bold #000000 on #ffff00", "chosen_idle": "bold #000000 on #c0c0c0", "key": "bold #000000 on #ffffff", "note": "#00ffff on #000000",
        "edge": "#ffffff on #000000",
    },
    "none": {
        "": "", "dim": "", "good": "", "warn": "bold", "bad": "bold reverse", "title": "reverse", "head": "reverse",
        "head_bad": "bold reverse", "head_warn": "bold reverse", "head_note": "reverse", "sorted": "bold reverse",
        "bar": "", "track": "", "graph": "", "chosen": "bold reverse", "chosen_idle": "underline", "key": "reverse", "note": "", "edge": "",
    },
}  # fmt: skip
"""Styles by role. All text stands out at 4.5:1 or more from what is behind it (WCAG 2.1, 1.4.3)."""


def _styles(name: str) -> dict[str, Style]:
    return {role: Style.parse(text) if text else Style() for role, text in THEMES[name].items()}


class Canvas(Widget, can_focus=True):
    """All of the screen. It keeps the lines it shows, and has only those redrawn that are others now."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[Line] = []
        self._strips: dict[int, Strip] = {}
        self._look: Mapping[str, Style] = _styles("dark")

    def show(self, painted: Painted, look: Mapping[str, Style]) -> None:
        """Takes the lines; redraws those that have changed."""
        before, self._lines = self._lines, painted.lines
        if look is not self._look or len(before) != len(self._lines):
            self._look = look
            self._strips.clear()
            self.refresh()
            return
        changed = [y for y, line in enumerate(self._lines) if line != before[y]]
        for y in changed:
            self._strips.pop(y, None)
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        strip = self._strips.get(y)
        if strip is None:
            line = self._lines[y] if y < len(self._lines) else []
            plain = self._look[""]
            strip = Strip([Segment(text, self._look.get(role, plain)) for text, role in line]).adjust_cell_length(
                self.size.width, plain
            )
            self._strips[y] = strip
        return strip


class TopApp(App[int]):
    """The live picture. feed: None in tests that give views themselves."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = []
    CSS = "Screen { overflow: hidden; }"

    def __init__(self, choices: Choices, feed: Feed | None = None, *, colour: bool = True, root: str = "") -> None:
        super().__init__(ansi_color=not colour)
        self.choices, self.feed = choices, feed
        self.past = feed.past if feed is not None else Past()
        self.view_now: View | None = None
        self.painted = Painted([], [])
        self.failure = ""
        self._newest: View | None = None
        self._shape: Size | None = None
        self._colour, self._root = colour, root
        self._themes = {name: _styles(name) for name in THEMES}
        self._canvas = Canvas()
        self._thread: threading.Thread | None = None

    def compose(self) -> ComposeResult:
        """One widget."""
        yield self._canvas

    def on_mount(self) -> None:
        """Begins to sample, and hears of being ended."""
        self._canvas.focus()
        if self.feed is not None:
            import asyncio

            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):
                with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                    loop.add_signal_handler(number, self.exit, 128 + number)
            self._thread = threading.Thread(target=self._sample, args=(self.feed,), name="feed", daemon=True)
            self._thread.start()
        self.repaint()

    def _sample(self, feed: Feed) -> None:
        try:
            feed.run(self._take)
        except Exception:  # noqa: BLE001 - told once the terminal is as it was
            self.failure = traceback.format_exc(limit=8)
            with contextlib.suppress(RuntimeError):
                self.call_later(self.exit, _OURS)

    def _take(self, view: View) -> None:
        """A view, in the thread that samples."""
        self._newest = view
        with contextlib.suppress(RuntimeError):  # the screen has just ended
            self.call_later(self._refresh_view)

    def _refresh_view(self) -> None:
        if self._newest is not None and not self.choices.paused:
            self.view_now = self._newest
            self.repaint()

    def give(self, view: View) -> None:
        """Shows a view."""
        self._newest = view
        self._refresh_view()

    def repaint(self) -> None:
        """Paints anew what there is."""
        name = keys.THEMES[self.choices.theme] if self._colour else "none"
        self.painted = paint(self.view_now, self.past, self.choices, *(self._shape or self.size))
        self._canvas.show(self.painted, self._themes[name])

    def on_resize(self, event: events.Resize) -> None:
        """Another size."""
        self._shape = event.size
        self.repaint()

    def on_key(self, event: events.Key) -> None:
        """Every key goes to `keys`."""
        event.stop()
        event.prevent_default()
        paused = self.choices.paused
        if keys.press(event.key, event.character, self.view_now, self.choices, self._root):
            self.exit(0)
            return
        if paused and not self.choices.paused and self._newest is not None:
            self.view_now = self._newest
        self.repaint()

    def on_click(self, event: events.Click) -> None:
        """Chooses the row under the mouse; again, or twice: as Enter."""
        if self.choices.overlay:
            if self.choices.overlay not in ("kill", "nice"):
                self.choices.overlay = ""
            self.repaint()
            return
        if not 0 <= event.y < len(self.painted.zone_at):
            return
        zone, row = self.painted.zone_at[event.y]
        if not zone:
            return
        again = self.choices.zone == zone and self.choices.row(zone) == row and event.chain > 1
        self.choices.zone = zone
        if row >= 0:
            self.choices.at[zone] = row
            if again:
                keys.press("enter", None, self.view_now, self.choices, self._root)
        self.repaint()

    def _wheel(self, y: int, rows: int) -> None:
        if self.choices.overlay:
            self.choices.overlay_first = max(0, self.choices.overlay_first + rows)
        else:
            zone = self.painted.zone_at[y][0] if 0 <= y < len(self.painted.zone_at) else ""
            if zone:
                self.choices.zone = zone
                keys.move(rows, self.choices)
        self.repaint()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel."""
        self._wheel(event.y, 3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel."""
        self._wheel(event.y, -3)

    def end_feed(self) -> None:
        """Ends sampling; a GPU that hangs keeps nobody waiting."""
        if self.feed is not None and self._thread is not None:
            self.feed.stop()
            self._thread.join(3.0)
            if not self._thread.is_alive():
                self.feed.close()


def show(feed: Feed, choices: Choices, *, colour: bool) -> int:
    """Runs until somebody quits; returns the exit code. The terminal is put back however it ends."""
    app = TopApp(choices, feed, colour=colour, root=os.environ.get("GPUCLINIC_ROOT", "").rstrip("/"))
    code = app.run()
    app.end_feed()
    if app.failure:
        sys.stderr.write(app.failure)
    return code if code is not None else app.return_code or 0
