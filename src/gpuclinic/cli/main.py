"""The command line. Starts fast: nothing heavy is imported before a command needs it."""

from __future__ import annotations

import sys


def entry() -> None:
    """Console script."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: list[str]) -> int:
    """Runs a command; returns the exit code of docs/contract.md."""
    from gpuclinic.clinic import examine
    from gpuclinic.observe import Places
    from gpuclinic.report.as_json import why_json

    paths = [a for a in arguments[1:] if not a.startswith("--")]
    answer = examine(Places(paths, sys.stdin.buffer))
    print(why_json(answer))
    return 0
