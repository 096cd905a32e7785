"""`gpuclinic compat` without --want: every environment of this machine, or of a snapshot, with its verdict; also for another GPU or driver."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.cli.check import asking
from gpuclinic.cli.main import EXIT_UNKNOWN, chosen_language, told
from gpuclinic.cli.screen import text_width, wants_colour
from gpuclinic.cli.software import judge_software
from gpuclinic.model import UserError

if TYPE_CHECKING:
    import argparse

    from gpuclinic.clinic.environment_verdicts import Machine
    from gpuclinic.compat import Question

_EXIT = {"works": 0, "fails": 2, "unknown": EXIT_UNKNOWN}


def run_environments(options: argparse.Namespace) -> int:
    """Looks, judges, prints. What the command line says of the machine goes before what is found: a GPU to be bought, a driver to be installed."""
    from gpuclinic.clinic.environment_list import list_environments

    given = _given(options)
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


def with_machine(question: Question, options: argparse.Namespace) -> Question:
    """The question with the GPUs, the driver and its module as they are on the host, where the command line leaves them open."""
    from gpuclinic.clinic.environment_list import machine_there

    with asking(options) as (host, look):
        there = machine_there(host, look)
    return msgspec.structs.replace(
        question, gpu=question.gpu or ", ".join(there.gpus) or None, driver=question.driver or there.driver,
        module=question.module or (None if question.driver else there.module),
        kernel=question.kernel or (there.kernel if question.driver else None),  # a driver that is there has been built
        of_host=True,
    )  # fmt: skip


def _given(options: argparse.Namespace) -> Machine | None:
    for name in ("python", "glibc", "machine"):
        if getattr(options, name):
            raise UserError(f"--{name} goes with --want: an environment that is found has its own")
    told_of = (
        options.gpu,
        options.driver,
        options.kernel,
        options.module,
        options.cuda,
        options.cudnn,
        options.container_cuda,
        options.env,
    )
    if not any(told_of):
        return None
    from gpuclinic.clinic.environment_verdicts import Machine

    return Machine(
        [options.gpu] if options.gpu else [], options.driver, options.kernel, options.module, options.cuda, options.cudnn,
        options.container_cuda, options.env or [],
    )  # fmt: skip
