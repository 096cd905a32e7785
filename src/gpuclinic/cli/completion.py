"""Completion scripts of bash, zsh and fish, made from the options of the command line itself."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from gpuclinic.cli.main import build_parser

_TOPICS = "xid sxid exit signal errno cuda cudnn cublas nccl nvml slurm k8s cause finding"


class Command(NamedTuple):
    """A command with its options and the words its arguments may be; files: its arguments are paths."""

    name: str
    help: str
    options: list[argparse.Action]
    words: list[str]
    files: bool


def commands() -> list[Command]:
    """Every command of the parser."""
    found: list[Command] = []
    for action in build_parser()._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, parser in action.choices.items():
            options = [a for a in parser._actions if a.option_strings]
            for option in options:
                if option.dest in ("only", "skip", "require"):
                    option.choices = _check_ids()
            places = [a for a in parser._actions if not a.option_strings]
            words = [str(c) for a in places for c in a.choices or ()]
            if any(a.dest == "topic" for a in places):
                words = _TOPICS.split()
            found.append(Command(name, helps.get(name, ""), options, words, any(a.dest == "paths" for a in places)))
    return found


def _check_ids() -> list[str]:
    """Looks and findings, for options that name some."""
    from gpuclinic.clinic.looks import LOOKS
    from gpuclinic.knowledge import load_checks

    tables = load_checks()
    return sorted(
        {look.id for look in LOOKS} | {row.id for row in tables.checks} | {row.id for row in tables.log_findings}
    )


def global_options() -> list[argparse.Action]:
    """The options before a command."""
    return [a for a in build_parser()._actions if a.option_strings]


def script(shell: str) -> str:
    """The script of a shell: bash, zsh or fish."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


def _flags(actions: list[argparse.Action]) -> list[str]:
    return [flag for action in actions for flag in action.option_strings]


def _bash() -> str:
    def offer(words: list[str]) -> str:
        return f'mapfile -t COMPREPLY < <(compgen -W "{" ".join(words)}" -- "$word")'

    def files() -> str:
        return 'mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word")'

    cases: list[str] = []
    values: list[str] = []
    for command in commands():
        more = f"; {files()}" if command.files else ""
        cases.append(f"        {command.name}) {offer([*_flags(command.options), *command.words])}{more} ;;")
        for option in command.options:
            if not option.choices and option.nargs is not None:
                continue
            choice = offer([str(c) for c in option.choices]) if option.choices else files()
            line = f"        {'|'.join(option.option_strings)}) {choice}; return ;;"
            if line not in values:
                values.append(line)
    return "\n".join(
        [
            "# bash completion of gpuclinic:  source <(gpuclinic completion bash)",
            "_gpuclinic() {",
            '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
            "    COMPREPLY=()",
            '    if [ "$COMP_CWORD" -le 1 ]; then',
            f"        {offer([*(c.name for c in commands()), *_flags(global_options())])}",
            "        return",
            "    fi",
            '    case "$before" in',
            *values,
            "    esac",
            '    case "${COMP_WORDS[1]}" in',
            *cases,
            "    esac",
            "}",
            "complete -o filenames -F _gpuclinic gpuclinic",
            "",
        ]
    )


def _quoted(text: str) -> str:
    return text.replace("'", "'\\''").replace("[", "(").replace("]", ")").replace(":", " -")


def _zsh_option(option: argparse.Action) -> list[str]:
    text = _quoted(option.help or "")
    value = ""
    if option.choices:
        value = f":{option.dest}:({' '.join(map(str, option.choices))})"
    elif option.nargs is None:
        value = f":{option.dest}:_files"
    return [f"'{flag}[{text}]{value}'" for flag in option.option_strings]


def _zsh() -> str:
    lines = [
        "#compdef gpuclinic",
        "# zsh completion of gpuclinic:  gpuclinic completion zsh > ~/.zfunc/_gpuclinic",
        "_gpuclinic() {",
    ]
    lines += ["    local -a commands=("]
    lines += [f"        '{c.name}:{_quoted(c.help)}'" for c in commands()]
    lines += ["    )", "    if (( CURRENT == 2 )); then", "        _describe command commands"]
    lines += [
        f"        _arguments {' '.join(s for o in global_options() for s in _zsh_option(o))}",
        "        return",
        "    fi",
    ]
    lines += ["    local command=$words[2]", "    shift words", "    (( CURRENT-- ))", "    case $command in"]
    for command in commands():
        rest = "'*:path:_files'" if command.files else f"'*:{command.name}:({' '.join(command.words)})'"
        lines.append(f"        {command.name})")
        lines.append("            _arguments \\")
        lines += [f"                {spec} \\" for option in command.options for spec in _zsh_option(option)]
        lines += [f"                {rest} ;;"]
    lines += ["    esac", "}", 'if [ "$funcstack[1]" = "_gpuclinic" ]; then', '    _gpuclinic "$@"', "else"]
    lines += ["    compdef _gpuclinic gpuclinic", "fi", ""]
    return "\n".join(lines)


def _fish() -> str:
    lines = ["# fish completion of gpuclinic:  gpuclinic completion fish > ~/.config/fish/completions/gpuclinic.fish"]
    lines.append("complete -c gpuclinic -f")
    for option in global_options():
        lines.append("complete -c gpuclinic -n __fish_use_subcommand" + _fish_option(option))
    for command in commands():
        lines.append(
            f"complete -c gpuclinic -n __fish_use_subcommand -a {command.name} -d '{_fish_quoted(command.help)}'"
        )
    for command in commands():
        inside = f"complete -c gpuclinic -n '__fish_seen_subcommand_from {command.name}'"
        lines += [inside + _fish_option(option) for option in command.options]
        if command.words:
            lines.append(f"{inside} -a '{' '.join(command.words)}'")
        if command.files:
            lines.append(f"{inside} -F")
    return "\n".join(lines) + "\n"


def _fish_option(option: argparse.Action) -> str:
    parts = [f" -l {flag[2:]}" if flag.startswith("--") else f" -s {flag[1:]}" for flag in option.option_strings]
    if option.choices:
        parts.append(f" -x -a '{' '.join(map(str, option.choices))}'")
    elif option.nargs is None:
        parts.append(" -r -F")
    return "".join(parts) + f" -d '{_fish_quoted(option.help or '')}'"


def _fish_quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
