"""`gpuclinic compat` without --want: every environment of this machine, or of a snapshot, with its verdict."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

from gpuclinic.cli.check import asking
from gpuclinic.cli.main import EXIT_UNKNOWN, chosen_language, told
from gpuclinic.cli.screen import text_width, wants_colour
from gpuclinic.cli.software import judge_software

if TYPE_CHECKING:
    import argparse

    from gpuclinic.clinic.environment_verdicts import Machine

_EXIT = {"works": 0, "fails": 2, "unknown": EXIT_UNKNOWN}


def run_environments(options: argparse.Namespace, given: Machine | None = None) -> int:
    """Looks, judges, prints. given: what the command line says of the machine, in place of what is found (a GPU to be bought, say)."""
    from gpuclinic.clinic.environment_list import list_environments

    with asking(options) as (host, look):
        answer = list_environments(host, judge_software, chosen_language(options), look, given)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if options.json:
        from gpuclinic.report.as_json import as_text, envelope
        from gpuclinic.report.environments import environments_body

        body = envelope("compat", answer.lang, answer.host)
        text = as_text({**body, **environments_body(answer)}) + "\n"
    else:
        from gpuclinic.report.environments import environments_text

        text = environments_text(answer, colour=wants_colour(options), width=text_width(), verbose=options.verbose)
    return told(text, _EXIT[answer.verdict])
