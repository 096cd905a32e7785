"""Commands that stand in modules of their own; one is imported only when it is called, or when all options are wanted."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import argparse


class Command(NamedTuple):
    """A command.

    module: under gpuclinic.cli, with DESCRIPTION and EXAMPLES (texts), add_arguments(parser) and run(options) -> exit code; light to import.
    valued: for a command that starts another program, its options that take a value: what follows its options is that program's
    command line, which nobody but it reads. failed: the exit code for a wrong command line.
    """

    name: str
    help: str
    module: str
    valued: frozenset[str] | None = None
    failed: int = 64

    def loaded(self) -> Any:
        """The module."""
        return importlib.import_module(f"gpuclinic.cli.{self.module}")

    def run(self, options: argparse.Namespace) -> int:
        """Runs it; returns the exit code."""
        return int(self.loaded().run(options))


COMMANDS: tuple[Command, ...] = (
    Command("agent", "sample, remember, judge and tell, as a service", "agent"),
    Command("alert", "what the agent has found: list, show, silence, test", "alert"),
    Command("history", "plot or list what the agent has kept: metrics and events", "history"),
    Command("ticket", "the report that a vendor or cloud provider asks for", "ticket"),
    Command("top", "the live picture: GPUs, their limits, findings, processes", "top"),
    Command("audit", "say whether somebody mines here or left a back door, and what is weak", "audit"),
    Command("usage", "say who had the GPUs, and whether they used them", "usage"),
    Command(
        "run",
        "run a job with a flight recorder beside it, which says at its end why it died",
        "run",
        frozenset({"--hang-after", "--bundle-dir", "--keep", "--max-size", "--job-id", "--lang"}),
        125,
    ),
    Command("export", "write Prometheus rules, Alertmanager routes, Grafana dashboards", "export"),
    Command("npd", "answer node-problem-detector; write its configuration", "npd"),
)
BY_NAME = {command.name: command for command in COMMANDS}


def add_commands(
    parsers: argparse._SubParsersAction[Any], raw: type[argparse.HelpFormatter], wanted: str | None
) -> None:
    """Adds every command by name and help; the options of all, or of the one that is wanted."""
    for command in COMMANDS:
        if wanted is not None and wanted != command.name:
            parsers.add_parser(command.name, help=command.help, add_help=False)
            continue
        module = command.loaded()
        parser = parsers.add_parser(
            command.name, help=command.help, formatter_class=raw, description=module.DESCRIPTION, epilog=module.EXAMPLES
        )
        module.add_arguments(parser)


def parted(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """Our own words, and those of the program that the command starts (None: it starts none).

    >>> parted(["run", "--hang-after", "5m", "--quiet", "python", "-u", "--lang", "x"])
    (['run', '--hang-after', '5m', '--quiet'], ['python', '-u', '--lang', 'x'])
    """
    at = next((n for n, word in enumerate(arguments) if not word.startswith("-")), len(arguments))
    command = BY_NAME.get(arguments[at]) if at < len(arguments) else None
    if command is None or command.valued is None:
        return arguments, None
    at += 1
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "-":
        if arguments[at] == "--":
            return arguments[:at], arguments[at + 1 :]
        at += 2 if arguments[at] in command.valued else 1
    return arguments[:at], arguments[at:]
