"""`gpuclinic top`."""

from __future__ import annotations

import argparse
import io
import os
import sys
from typing import TYPE_CHECKING

from gpuclinic.cli.main import EXIT_DONE, EXIT_UNKNOWN, chosen_language, given, told
from gpuclinic.model import UserError

if TYPE_CHECKING:
    from gpuclinic.top.choices import Choices
    from gpuclinic.top.feed import Feed
    from gpuclinic.top.view import View

DESCRIPTION = (
    "Shows this server's GPUs, what each is running into, findings as they arise, and who is on the GPUs. "
    "Where the agent runs, graphs begin with what it has kept."
)
EXAMPLES = """\
examples:
  gpuclinic top                                  the live picture (? for keys, q to leave)
  gpuclinic top --gpu 0 --gpu 1 --user alice     processes of these GPUs, of this user
  gpuclinic top --once                           one plain snapshot; needs no extra package
  gpuclinic top --once --json                    for programs: one JSON object as docs/contract.md says

exit status: 0 ended as asked, 3 --once could read no GPU, 64 wrong command line, no terminal or no Textual
"""
_ONCE_WIDTH = 160


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--once", action="store_true", help="one plain snapshot, then leave")
    parser.add_argument("--json", action="store_true", help="with --once: one JSON object")
    parser.add_argument(
        "--gpu",
        action="append",
        type=_index,
        default=[],
        metavar="N",
        help="only processes of this GPU; may be repeated",
    )
    parser.add_argument("--user", type=given, metavar="NAME", help="only processes of this user")
    parser.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="S", help="seconds between samples, 0.5-60 (default: 1)"
    )
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR in the environment)")
    parser.add_argument(
        "--lang", choices=("en", "zh"), help="language (default: from the locale; English under --json)"
    )


def _index(text: str) -> int:
    if not text.isdecimal() or len(text) > 4:
        raise argparse.ArgumentTypeError(f"not the index of a GPU: {text[:40]}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.5 <= value <= 60:
        raise argparse.ArgumentTypeError("between 0.5 and 60 seconds")
    return value


def run(options: argparse.Namespace) -> int:
    """Shows."""
    from gpuclinic.top.choices import Choices

    if options.json and not options.once:
        raise UserError("--json goes with --once")
    choices = Choices(lang=chosen_language(options), only_gpus=list(options.gpu), only_user=options.user or "")
    if options.once:
        return _once(options, choices)
    _needs_terminal()
    try:
        import textual  # noqa: F401 - the extra
    except ImportError:
        raise UserError(
            "the live picture needs Textual: pip install 'gpuclinic[top]' (gpuclinic top --once does without)"
        ) from None
    from gpuclinic.top.app import show

    return show(_feed(options), choices, colour=not options.no_color and "NO_COLOR" not in os.environ)


def _needs_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("not a terminal: gpuclinic top --once prints a plain snapshot")
    if os.environ.get("TERM", "dumb") in ("dumb", ""):
        raise UserError("this terminal (TERM=dumb) cannot place text: gpuclinic top --once prints a plain snapshot")


def _feed(options: argparse.Namespace) -> Feed:
    from gpuclinic.top.feed import Feed
    from gpuclinic.watch.config import load_config

    config, _ = load_config()
    return Feed(config, os.environ.get("GPUCLINIC_ROOT", "").rstrip("/"), options.interval)


def _once(options: argparse.Namespace, choices: Choices) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    feed = _feed(options)
    try:
        view: View = feed.once()
    finally:
        feed.close()
    code = EXIT_DONE if any(gpu.trouble is None for gpu in view.gpus) else EXIT_UNKNOWN
    if options.json:
        from gpuclinic.report.as_json import as_text, envelope
        from gpuclinic.top.as_json import body

        return told(as_text({**envelope("top", choices.lang, view.host.name), **body(view, choices)}) + "\n", code)
    import shutil

    from gpuclinic.top.screen import once_text

    asked = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    width = max(60, min(240, shutil.get_terminal_size((_ONCE_WIDTH, 24)).columns)) if asked else _ONCE_WIDTH
    return told(once_text(view, choices, width), code)
