"""Writes docs/man/gpuclinic.1 from the command line's own parser: python tools/make_man.py [--check]."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpuclinic import __version__
from gpuclinic.cli.main import EXPLAIN_EXAMPLES, WHY_EXAMPLES, build_parser

PAGE = Path(__file__).resolve().parent.parent / "docs" / "man" / "gpuclinic.1"

ANSWER = """\
.SH THE ANSWER
.TP
.B verdict
The root cause, whose it is (the job, the environment, the server, network, storage, scheduler, security), how sure, and
which GPU, process, rank and host.
From 50 % on it is a verdict; below that it is called a hint.
.TP
.B do now
The one thing to do first; what comes next if that is not enough stands below, with what each step stops.
.TP
.B evidence
The lines that decide, as file:line.
.TP
.B led to
What followed from the cause and is therefore not the cause.
.TP
.B to be surer
What was not there to read, and the command that gets it.
"""
STATUS = """\
.SH EXIT STATUS
.TP
.B 0
answered, whatever the answer
.TP
.B 3
nothing given could be read
.TP
.B 64
the command line is wrong
.TP
.B 70
a fault of gpuclinic itself
.TP
.B 130
interrupted
.SH ENVIRONMENT
.TP
.B LC_ALL, LC_MESSAGES, LANG
Language of the answer: Chinese where it begins with zh, else English;
English under \\-\\-json unless \\-\\-lang is given.
.TP
.B NO_COLOR
No colours.
.TP
.B GPUCLINIC_DEBUG
Show the traceback of a fault of gpuclinic itself.
.SH NOTES
gpuclinic changes nothing and sends nothing to anybody but the channels that you configured for alerts.
A running machine is asked by its own tools; of a job, the tools of its scheduler ask over the network of the cluster, and
.B check \\-\\-deep
asks whether the own name resolves.
Help texts and messages about the command line are in English only.
Secrets in the lines it shows are masked.
.SH SEE ALSO
.BR nvidia\\-smi (1),
.BR dmesg (1),
.BR journalctl (1)
"""


def escape(text: str) -> str:
    """Text that roff leaves as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.split("\n"))


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """The arguments of a parser as tagged paragraphs."""
    out: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        shown = ", ".join(f"\\fB{escape(flag)}\\fR" for flag in action.option_strings)
        value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else "")
        if not action.option_strings:
            shown = f"\\fI{escape(str(value or action.dest))}\\fR"
        elif value:
            shown += f" \\fI{escape(str(value))}\\fR"
        out += [".TP", shown, escape(action.help or ("what to explain" if action.dest == "topic" else action.dest))]
    return out


def synopsis(parser: argparse.ArgumentParser) -> list[str]:
    """A line for each command that the parser has, with the commands below it and its arguments."""
    out: list[str] = []
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        for name, command in action.choices.items():
            words = (
                ["[\\fIoptions\\fR]"] if any(a.option_strings and a.dest != "help" for a in command._actions) else []
            )
            words += [_argument(a) for a in command._actions if not a.option_strings]
            out += [*([".br"] if out else []), f".B gpuclinic {escape(name)}", " ".join(words)]
    return [line for line in out if line]


def _argument(action: argparse.Action) -> str:
    if action.choices is not None:
        shown = "|".join(f"\\fB{escape(str(name))}\\fR" for name in action.choices)
    else:
        shown = f"\\fI{escape(str(action.metavar or action.dest).upper())}\\fR"
    shown += " ..." if action.nargs in ("*", "+") else ""
    return f"[{shown}]" if action.nargs in ("*", "?") else shown


def examples(text: str) -> list[str]:
    """The indented lines of a help text's examples."""
    lines = [line[2:] for line in text.splitlines() if line.startswith("  ")]
    return [".PP", ".nf", ".RS", *map(escape, lines), ".RE", ".fi"]


def page() -> str:
    """The whole page."""
    parser = build_parser()
    out = [
        f'.TH GPUCLINIC 1 "" "gpuclinic {__version__}" "User Commands"',
        ".SH NAME",
        "gpuclinic \\- why processes on GPU servers die, hang or crawl",
    ]
    out += [".SH SYNOPSIS", *synopsis(parser)]
    out += [".SH DESCRIPTION", escape(parser.description or ""), ".SH OPTIONS", *options_of(parser), ".SH COMMANDS"]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help for choice in action._choices_actions}
            for name, command in action.choices.items():
                out += [
                    f".SS gpuclinic {name}",
                    escape(command.description or (helps[name] or "").capitalize() + "."),
                    *options_of(command),
                ]
    out += [ANSWER.rstrip(), ".SH EXAMPLES", *examples(WHY_EXAMPLES), *examples(EXPLAIN_EXAMPLES), STATUS.rstrip(), ""]
    return "\n".join(out)


if __name__ == "__main__":
    text = page()
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
        sys.exit(0 if current == text else f"{PAGE.name} is not what tools/make_man.py makes: run it")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE.name)
