"""`gpuclinic usage`."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

DESCRIPTION = (
    "Says who had the GPUs, and whether they used them: GPU time held, used and idle, from what the agent has kept."
)
EXAMPLES = """\
examples:
  gpuclinic usage                                the last seven days, by user
  gpuclinic usage --by job --since 1d
  gpuclinic usage --by gpu --since "2026-03-01" --until "2026-04-01" --json

What the agent did not see is named, not guessed.
exit status: 0 answered, 3 there is no history or it cannot be read, 64 wrong command line
"""
_DEFAULT_S = 7 * 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    from gpuclinic.cli.main import given

    parser.add_argument("--by", choices=("user", "job", "gpu"), default="user", help="whose time (default: user)")
    parser.add_argument(
        "--since", type=given, metavar="WHEN", help="from then on: 7d, 2h, today, '2026-03-02 04:00' (default: 7d)"
    )
    parser.add_argument("--until", type=given, metavar="WHEN", help="up to then")
    parser.add_argument(
        "--store", type=given, metavar="PATH", help="another history: the file, or the folder that it is in"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object as docs/contract.md says")
    parser.add_argument(
        "--lang", choices=("en", "zh"), help="language of the answer (default: from the locale; English under --json)"
    )
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR in the environment)")


def run(options: argparse.Namespace) -> int:
    """Asks, prints."""
    from gpuclinic.cli.history import span
    from gpuclinic.cli.main import EXIT_DONE, chosen_language, told
    from gpuclinic.cli.screen import text_width, wants_colour
    from gpuclinic.watch.history_view import open_history
    from gpuclinic.watch.usage import usage

    lang = chosen_language(options)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    since, until = span(options, _DEFAULT_S)
    with open_history(read_only=True, path=options.store) as history:
        found = usage(history, options.by, since, until)
    if options.json:
        import platform

        from gpuclinic.report.as_json import as_text, envelope
        from gpuclinic.report.usage_table import usage_body

        text = as_text({**envelope("usage", lang, platform.node()), **usage_body(found)}) + "\n"
    else:
        from gpuclinic.report.usage_table import usage_text

        text = usage_text(found, lang, colour=wants_colour(options), width=text_width())
    return told(text, EXIT_DONE)
