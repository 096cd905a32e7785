"""`gpuclinic check`."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpuclinic.cli.main import EXIT_UNKNOWN, chosen_language, told
from gpuclinic.cli.progress import Progress
from gpuclinic.cli.screen import text_width, wants_colour
from gpuclinic.cli.software import judge_software
from gpuclinic.model import UserError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from gpuclinic.clinic.checking import CheckOptions
    from gpuclinic.observe.asking import Asked

_EXIT = {"ok": 0, "warning": 1, "critical": 2, "unknown": EXIT_UNKNOWN}


def run_check(options: argparse.Namespace) -> int:
    """Looks, judges, prints."""
    if options.list:
        return _print_list(options)
    from gpuclinic.clinic.checking import as_recorded, check

    wanted = look_options(options)
    wanted.only, wanted.skip, wanted.require = _names(options.only), _names(options.skip), _names(options.require)
    with asking(options) as (host, look):
        answer = check(host, as_recorded(host, wanted), look, judge_software)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if options.json:
        from gpuclinic.report.as_json import check_json

        text = check_json(answer) + "\n"
    else:
        from gpuclinic.report.checkup import check_text

        text = check_text(answer, colour=wants_colour(options), width=text_width(), verbose=options.verbose)
    return told(text, _EXIT[answer.verdict])


def look_options(options: argparse.Namespace) -> CheckOptions:
    """How hard to look and what to expect, as `check` and `capture` are told alike; samples for ten seconds with --deep."""
    from gpuclinic.clinic.checking import CheckOptions

    return CheckOptions(
        deep=options.deep, seconds=options.seconds if options.seconds is not None else (10.0 if options.deep else 0.0),
        expect_gpus=options.expect_gpus, psu_watts=options.psu_watts, lang=chosen_language(options),
    )  # fmt: skip


@contextlib.contextmanager
def asking(options: argparse.Namespace) -> Iterator[tuple[Asked, Callable[[str], None] | None]]:
    """The machine while it is asked, and what shows the progress of it; both end with the block, however that ends."""
    host = host_of(options)
    progress = Progress.where_seen()
    try:
        yield host, progress.look if progress is not None else None
    finally:
        host.close()
        if progress is not None:
            progress.clear()


def host_of(options: argparse.Namespace) -> Asked:
    """The machine that is asked: a snapshot where one is named, else this one."""
    if options.host:
        if not os.path.lexists(options.host):
            raise UserError(f"no such file or folder: {options.host}")
        from gpuclinic.observe.snapshot import open_snapshot

        progress = Progress.where_seen()
        try:
            return open_snapshot(Path(options.host), progress.show if progress is not None else None)
        finally:
            if progress is not None:
                progress.clear()
    from gpuclinic.observe.live import LiveHost

    root = os.environ.get("GPUCLINIC_ROOT", "")
    if root and not Path(root).is_dir():
        raise UserError(f"GPUCLINIC_ROOT: no such folder: {root}")
    return LiveHost(root)


def _names(given: list[str] | None) -> list[str]:
    return [name for text in given or [] for name in text.split(",") if name]


def _print_list(options: argparse.Namespace) -> int:
    from gpuclinic.clinic.looks import LOOKS
    from gpuclinic.knowledge import load_checks
    from gpuclinic.report.checkup import list_text

    if options.json:
        from gpuclinic.report.as_json import list_json

        text = list_json(LOOKS, load_checks(), chosen_language(options)) + "\n"
    else:
        text = list_text(LOOKS, load_checks(), chosen_language(options), text_width())
    return told(text, 0)
