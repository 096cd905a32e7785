"""`gpuclinic compat`."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpuclinic.cli.main import EXIT_UNKNOWN, chosen_language, told
from gpuclinic.model import UserError

if TYPE_CHECKING:
    import argparse

    from gpuclinic.compat import Answer, Question

EXIT = {"works": 0, "fails": 2, "unknown": EXIT_UNKNOWN}
MOST_BYTES = 8 << 20
_LISTINGS = (".txt", ".lock", ".toml", ".yml", ".yaml", ".json", ".in", ".list", ".env")


def run_compat(options: argparse.Namespace) -> int:
    """Judges, prints; the exit code of the verdict."""
    lang = chosen_language(options)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if options.knowledge:
        return _knowledge(options, lang)
    question = question_of(options)
    of_no_machine = (
        question.cuda,
        question.cudnn,
        question.container_cuda,
        question.python,
        question.glibc,
        question.machine,
        question.env,
    )
    if not question.want and (options.host or not any(of_no_machine)):
        from gpuclinic.cli.environments import run_environments

        return run_environments(options)
    if options.host:
        from gpuclinic.cli.environments import with_machine

        question = with_machine(question, options)
    from gpuclinic.compat import judge

    return show(judge(question, lang), options, lang)


def question_of(options: argparse.Namespace) -> Question:
    """The question that the command line asks; listings are read here."""
    from gpuclinic.compat import Question

    if options.module and options.module not in ("open", "proprietary"):
        raise UserError(f"--module: open or proprietary, not {options.module}")
    for variable in options.env or []:
        if "=" not in variable:
            raise UserError(f"--env: NAME=VALUE, not {variable}")
    return Question(
        gpu=options.gpu, driver=options.driver, python=options.python, kernel=options.kernel, glibc=options.glibc, cuda=options.cuda,
        cudnn=options.cudnn, container_cuda=options.container_cuda, machine=options.machine, module=options.module,
        env=options.env or [], want=[_text_of(value) for group in options.want or [] for value in group],
    )  # fmt: skip


def _text_of(value: str) -> str:
    """A requirement as it stands; of "@FILE", of "-" and of a listing's file name what is in it."""
    if value == "-":
        return sys.stdin.read(MOST_BYTES)
    path = value.removeprefix("@")
    if not value.startswith("@") and not (value.endswith(_LISTINGS) and Path(value).is_file()):
        return value
    try:
        with Path(path).open("rb") as file:
            return file.read(MOST_BYTES).decode("utf-8", "replace") or "\n"
    except OSError as problem:
        raise UserError(f"{path}: {problem.strerror or problem}") from problem


def show(answer: Answer, options: argparse.Namespace, lang: str) -> int:
    """Prints one answer."""
    if options.json:
        from gpuclinic.report.compat_text import compat_json

        return told(compat_json(answer, lang) + "\n", EXIT[answer.verdict])
    from gpuclinic.cli.screen import text_width, wants_colour
    from gpuclinic.report.compat_text import compat_text

    text = compat_text(answer, lang, colour=wants_colour(options), width=text_width(), verbose=options.verbose)
    return told(text, EXIT[answer.verdict])


def _knowledge(options: argparse.Namespace, lang: str) -> int:
    from gpuclinic.knowledge.compat import ages

    rows = ages()
    if options.json:
        from gpuclinic.report.as_json import as_text, envelope

        tables = [
            {"table": name, "rows": count, "updated": date, "sources": sources} for name, count, date, sources in rows
        ]
        return told(as_text({**envelope("compat", lang), "knowledge": tables}) + "\n", 0, EXIT_UNKNOWN)
    from gpuclinic.report.compat_text import knowledge_text

    return told(knowledge_text(rows, lang, verbose=options.verbose), 0, EXIT_UNKNOWN)
