"""`gpuclinic audit`."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuclinic.cli.main import EXIT_UNKNOWN, chosen_language, given, told
from gpuclinic.model import CouldNotError, UserError

if TYPE_CHECKING:
    import argparse

DESCRIPTION = "Says by evidence whether somebody mines on this server or has left a back door, and what is weak. Reads only; connects to nothing."
EXAMPLES = """\
examples:
  sudo gpuclinic audit                           this server; root sees the most
  gpuclinic audit --host /mnt/disk               a mounted disk: nothing on it can deceive the look
  gpuclinic audit --host node17.tar.gz --json    a snapshot; one JSON object as docs/contract.md says
  gpuclinic audit --only audit.ssh_keys          some checks; --skip leaves some out, --list shows all
  gpuclinic audit --save /root/base.json         remembers keys, accounts, schedules, units, ports; later: --compare /root/base.json
  gpuclinic audit --expected ours.toml           what runs here on purpose: [[expected]] exe = "/opt/x", user = "ann", reason = "..."

exit status: 0 clean, 1 suspicious or weak, 2 infected or a critical weakness, 3 nothing found in a limited view, 64 wrong command line
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--host", type=given, metavar="SNAPSHOT", help="a folder, an archive or a mounted disk's root to examine"
    )
    parser.add_argument(
        "--only", action="append", type=given, metavar="ID", help="only these checks or findings (commas)"
    )
    parser.add_argument("--skip", action="append", type=given, metavar="ID", help="leave these out")
    parser.add_argument("--list", action="store_true", help="list all findings there can be")
    parser.add_argument(
        "--expected", type=given, metavar="FILE", help="a TOML file of programs that run here on purpose"
    )
    parser.add_argument(
        "--save",
        type=given,
        metavar="FILE",
        help="write a baseline: keys, accounts, schedules, units, ports, set-uid programs",
    )
    parser.add_argument("--compare", type=given, metavar="FILE", help="tell what is new or changed since a baseline")
    parser.add_argument("--json", action="store_true", help="one JSON object as docs/contract.md says")
    parser.add_argument(
        "--lang", choices=("en", "zh"), help="language of the answer (default: from the locale; English under --json)"
    )
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR in the environment)")
    parser.add_argument("-v", "--verbose", action="store_true", help="also informations, and all that was looked at")


def run(options: argparse.Namespace) -> int:
    """Looks, weighs, prints."""
    from gpuclinic.audit.examine import AuditOptions, audit
    from gpuclinic.cli.check import host_of
    from gpuclinic.cli.progress import Progress
    from gpuclinic.cli.screen import text_width, wants_colour

    lang = chosen_language(options)
    if options.list:
        from gpuclinic.report.audit_text import audit_list

        return told(audit_list(lang, as_json=options.json), 0)
    names = [[n for text in given_ or [] for n in text.split(",") if n] for given_ in (options.only, options.skip)]
    before = _before(options.compare)
    if options.save and os.path.lexists(options.save) and not Path(options.save).is_file():
        raise UserError(f"--save {options.save}: there is something that is no file")
    wanted = AuditOptions(
        only=names[0], skip=names[1], lang=lang, expected=_expected(options.expected),
        before=before, before_name=options.compare or "", save=bool(options.save),
    )  # fmt: skip
    host = host_of(options)
    progress = Progress.where_seen()
    try:
        answer = audit(host, wanted, progress.look if progress is not None else None)
    finally:
        host.close()
        if progress is not None:
            progress.clear()
    if options.save:
        from gpuclinic.store import whole_file

        try:
            with whole_file(Path(options.save)) as file:
                file.write(answer.baseline)
        except OSError as problem:
            raise CouldNotError(f"--save {options.save}: {problem.strerror or problem}") from None
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if options.json:
        from gpuclinic.report.audit_text import audit_json

        text = audit_json(answer) + "\n"
    else:
        from gpuclinic.report.audit_text import audit_text

        text = audit_text(answer, colour=wants_colour(options), width=text_width(), verbose=options.verbose)
    return told(text, {"ok": 0, "warning": 1, "critical": 2, "unknown": EXIT_UNKNOWN}[answer.verdict])


def _before(path: str | None) -> dict[str, Any] | None:
    """The baseline to compare with."""
    if path is None:
        return None
    from gpuclinic.audit.baseline import read_baseline

    try:
        return read_baseline(Path(path).read_bytes(), path)
    except OSError as problem:
        raise UserError(f"--compare {path}: {problem.strerror or problem}") from None


def _expected(path: str | None) -> list[dict[str, str]]:
    """Rows of the owner's list."""
    if path is None:
        return []
    from gpuclinic.store import toml_loads

    try:
        told_: dict[str, Any] = toml_loads(Path(path).read_text(encoding="utf-8")[: 1 << 20])
    except OSError as problem:
        raise UserError(f"--expected {path}: {problem.strerror or problem}") from None
    except ValueError as problem:
        raise UserError(f"--expected {path}: {str(problem).splitlines()[0]}") from None
    rows = told_.get("expected")
    if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("exe"), str) for row in rows):
        raise UserError(f'--expected {path}: wants rows [[expected]] with exe = "/path"')
    return [{str(k): str(v) for k, v in row.items()} for row in rows]
