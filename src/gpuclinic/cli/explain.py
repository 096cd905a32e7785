"""`gpuclinic explain`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpuclinic.cli.main import EXIT_DONE, chosen_language, told
from gpuclinic.cli.screen import text_width, wants_colour

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

        return told(explain_json(found, lang) + "\n", EXIT_DONE)
    from gpuclinic.report.explanation import explain_text

    return told(explain_text(found, lang, colour=wants_colour(options), width=text_width()), EXIT_DONE)
