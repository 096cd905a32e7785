"""`gpuclinic compat`."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpuclinic.cli.main import EXIT_UNKNOWN, chosen_language, told
from gpuclinic.model import UserError

if TYPE_CHECKING:
    import argparse

    from gpuclinic.compat import Answer, Question

EXIT = {"works": 0, "fails": 2, "unknown": EXIT_UNKNOWN}
_VERSION = r"(?:cuda|cudnn|glibc|libc|driver|v)?[ -]?\d{1,4}(?:\.\d{1,6}){0,4}"
_SHAPES = {
    "driver": (r"(?:nvidia|driver|v|r)?[ -]?\d{2,4}(?:\.\d{1,4}){0,3}(?:[-+~][\w.+~-]+)?", "550.54.15"),
    "cuda": (_VERSION, "12.4"),
    "cudnn": (_VERSION, "9.1"),
    "container_cuda": (_VERSION, "12.4"),
    "glibc": (_VERSION, "2.31"),
    "kernel": (r"(?:linux )?\d+\.\d+[\w.+~-]*", "6.8.0-58-generic"),
    "python": (r"(?:python|cpython|cp|py)?[ -]?\d(?:\.\d{1,2}(?:\.\d{1,3})?|\d{1,2})\w{0,4}", "3.11"),
    "machine": (r"x86[_-]64|amd64|x64|aarch64|arm64|arm64-sbsa|sbsa|ppc64le|riscv64|s390x|i[36]86|armv\w+", "x86_64"),
}
"""What an option's value looks like, and an example."""
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
    if not question.want and sum(map(bool, (question.gpu, question.driver, question.cuda or question.container_cuda))) < 2:  # fmt: skip
        raise UserError("nothing to judge: say what is wanted with --want, or two of --gpu, --driver and --cuda")
    if options.host:
        from gpuclinic.cli.environments import with_machine

        question = with_machine(question, options)
    from gpuclinic.compat import judge

    return show(judge(question, lang), options, lang)


def question_of(options: argparse.Namespace) -> Question:
    """The question that the command line asks; listings are read here."""
    from gpuclinic.compat import Question

    _refuse_nonsense(options)
    return Question(
        gpu=options.gpu, driver=options.driver, python=options.python, kernel=options.kernel, glibc=options.glibc, cuda=options.cuda,
        cudnn=options.cudnn, container_cuda=options.container_cuda, machine=options.machine, module=options.module,
        env=options.env or [], want=[_text_of(value) for group in options.want or [] for value in group],
    )  # fmt: skip


def _text_of(value: str) -> str:
    """A requirement as it stands; of "@FILE", of "-" and of a listing's file name what is in it."""
    named = value.startswith("@")
    if value != "-" and not named and not (value.endswith(_LISTINGS) and Path(value).is_file()):
        return value
    from gpuclinic.cli import _want_files

    return _want_files.text_of_input() if value == "-" else _want_files.text_of_file(value.removeprefix("@"))


def _refuse_nonsense(options: argparse.Namespace) -> None:
    """A value that no version is would be left out of the judgement, and the answer would be to another question."""
    for name, (shape, example) in _SHAPES.items():
        value = getattr(options, name)
        if value and not re.fullmatch(shape, value.strip(), re.IGNORECASE):
            raise UserError(f"--{name.replace('_', '-')}: such as {example}, not {value[:60]!r}")
    if options.module and options.module not in ("open", "proprietary"):
        raise UserError(f"--module: open or proprietary, not {options.module}")
    for variable in options.env or []:
        if not re.match(r"[A-Za-z_]\w*=", variable):
            raise UserError(f"--env: NAME=VALUE, not {variable}")


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
        return told(as_text({**envelope("compat", lang), "knowledge": tables}) + "\n", 0)
    from gpuclinic.report.compat_text import knowledge_text

    return told(knowledge_text(rows, lang, verbose=options.verbose), 0)
