"""`gpuclinic why`."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from gpuclinic.cli.main import EXIT_DONE, EXIT_UNKNOWN, chosen_language, complain
from gpuclinic.model import UserError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def run_why(options: argparse.Namespace) -> int:
    """Reads, answers, prints."""
    paths = list(options.paths)
    if options.host:
        paths.append(options.host)
    if not paths:
        if sys.stdin is None or sys.stdin.isatty():
            raise UserError(
                "name a file, a folder or an archive, or - for standard input; examining this machine comes with `gpuclinic check`"
            )
        paths = ["-"]
    if paths.count("-") > 1:
        raise UserError("standard input can be read only once")
    missing = [p for p in paths if p != "-" and not os.path.lexists(p)]
    if missing and len(missing) == len(paths):
        raise UserError(f"no such file or folder: {missing[0]}")
    from gpuclinic.clinic import examine
    from gpuclinic.observe import Places

    lang = chosen_language(options)
    if "-" in paths and sys.stdin is None:
        raise UserError("standard input is closed")
    stdin = sys.stdin.buffer if "-" in paths else None
    for path in missing:
        complain(f"not read: {path}: no such file or folder")
    progress = _progress() if sys.stderr is not None and sys.stderr.isatty() else None
    answer = examine(Places(paths, stdin), lang, progress)
    if progress is not None:
        sys.stderr.write("\r\x1b[K")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if options.json:
        from gpuclinic.report.as_json import why_json

        sys.stdout.write(why_json(answer) + "\n")
    elif options.markdown:
        from gpuclinic.report.markdown import why_markdown

        sys.stdout.write(why_markdown(answer))
    elif options.oneline:
        from gpuclinic.report.oneline import why_oneline

        sys.stdout.write(why_oneline(answer) + "\n")
    else:
        from gpuclinic.report.terminal import why_text

        colour = (
            sys.stdout.isatty()
            and not options.no_color
            and "NO_COLOR" not in os.environ
            and os.environ.get("TERM") != "dumb"
        )
        sys.stdout.write(why_text(answer, colour=colour, width=text_width(), verbose=options.verbose))
    return EXIT_UNKNOWN if answer.outcome == "nothing_read" else EXIT_DONE


def text_width() -> int:
    """Columns to write in: the terminal's, between 40 and 120; 100 where there is no terminal."""
    import shutil

    return max(40, min(120, shutil.get_terminal_size((100, 24)).columns)) if sys.stdout.isatty() else 100


def _progress() -> Callable[[str, int], None]:
    """A line on standard error that says what is being read, at most ten times a second, from the first second on."""
    import time

    started = last = time.monotonic()

    def show(path: str, offset: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - started > 1.0 and now - last > 0.1:
            last = now
            sys.stderr.write(f"\r\x1b[K{path[-50:]}: {offset / 1e6:.0f} MB")
            sys.stderr.flush()

    return show
