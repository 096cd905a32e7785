"""`gpuclinic explain`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gpuclinic.cli.main import EXIT_DONE, EXIT_UNKNOWN, chosen_language, told
from gpuclinic.cli.why import text_width

if TYPE_CHECKING:
    import argparse


def run_explain(options: argparse.Namespace) -> int:
    """Looks the topic up and prints what it means."""
    from gpuclinic.clinic.explain import explain

    lang = chosen_language(options)
    found = explain(" ".join(options.topic), lang)
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    if options.json:
        from gpuclinic.report.explanation import explain_json

        return told(explain_json(found, lang) + "\n", EXIT_DONE, EXIT_UNKNOWN)
    from gpuclinic.report.explanation import explain_text

    colour = (
        sys.stdout.isatty()
        and not options.no_color
        and "NO_COLOR" not in os.environ
        and os.environ.get("TERM") != "dumb"
    )
    return told(explain_text(found, lang, colour=colour, width=text_width()), EXIT_DONE, EXIT_UNKNOWN)
