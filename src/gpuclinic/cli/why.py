"""`gpuclinic why`."""

from __future__ import annotations

import datetime as dt
import io
import os
import select
import stat
import sys
from typing import TYPE_CHECKING

from gpuclinic.cli.main import EXIT_DONE, EXIT_UNKNOWN, chosen_language, complain, home_folder, told, working_folder
from gpuclinic.cli.progress import Progress
from gpuclinic.cli.screen import text_width, wants_colour
from gpuclinic.cli.software import judge_software
from gpuclinic.model import CouldNotError, UserError

if TYPE_CHECKING:
    import argparse

    from gpuclinic.clinic import Answer
    from gpuclinic.clinic.gathering import Gathered
    from gpuclinic.observe.asking import Asked

_SILENT_S = 2.0
_CLOCKS_DIFFER = 60.0


def run_why(options: argparse.Namespace) -> int:
    """Reads, answers, prints."""
    paths = list(options.paths)
    live = _asks_machine(options)
    if options.host:
        paths.append(options.host)
    captured = _captured(paths)
    if captured is not None:
        paths, live = [], True
    piped = not paths and not live and captured is None and _is_piped()
    if piped:
        paths = ["-"]
        _say_what_is_waited_for()
    elif not paths:
        live = True
    if paths.count("-") > 1:
        raise UserError("standard input can be read only once")
    missing = [p for p in paths if p != "-" and not os.path.lexists(p)]
    if missing and len(missing) == len(paths):
        raise UserError(f"no such file or folder: {missing[0]}")
    from gpuclinic.clinic import examine
    from gpuclinic.observe import Places

    lang = chosen_language(options)
    if "-" in paths and sys.stdin is None:
        raise UserError("standard input is closed")
    stdin = sys.stdin.buffer if "-" in paths else None
    for path in missing:
        complain(f"not read: {path}: no such file or folder")
    progress = Progress.where_seen(1.0)
    gathered = _gathered(options, captured) if live else None
    reading = progress.read if progress is not None else None
    answer = examine(Places(paths, stdin), lang, reading, gathered, judge_software)
    if gathered is not None and options.job:
        answer.asked["job"] = options.job
    if progress is not None:
        progress.clear()
    if piped and answer.outcome == "nothing_read":
        complain("standard input was empty; gpuclinic why --live examines this machine")
    code = EXIT_UNKNOWN if answer.outcome == "nothing_read" else EXIT_DONE
    return told(_in_form(answer, options), code)


def _is_piped() -> bool:
    """Standard input is a pipe, a socket or a file: somebody means it to be read. A terminal, /dev/null or nothing is no question about a text."""
    if sys.stdin is None:
        return False
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


def _say_what_is_waited_for() -> None:
    """Where the pipe stays silent, as under cron or ssh, that it is waited for, and how to ask without it."""
    try:
        ready, _, _ = select.select([sys.stdin], [], [], _SILENT_S)
    except (OSError, ValueError):  # not to be waited for so: reading will tell
        return
    if not ready:
        complain("reading standard input; gpuclinic why --live examines this machine instead")


def _in_form(answer: Answer, options: argparse.Namespace) -> str:
    """The answer in the form that was asked for."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if options.json:
        from gpuclinic.report.as_json import why_json

        return why_json(answer) + "\n"
    if options.markdown:
        from gpuclinic.report.markdown import why_markdown

        return why_markdown(answer)
    if options.oneline:
        from gpuclinic.report.oneline import why_oneline

        return why_oneline(answer) + "\n"
    from gpuclinic.report.terminal import why_text

    return why_text(answer, colour=wants_colour(options), width=text_width(), verbose=options.verbose)


def _asks_machine(options: argparse.Namespace) -> bool:
    """The question is about a running machine, or about the snapshot of one."""
    return bool(options.live or options.pid is not None or options.job or options.since or options.until)


def _captured(paths: list[str]) -> Asked | None:
    """The one path opened, where it is a capture: it is then asked as the server was, instead of being read as files.

    One that is cut short or damaged is read as files, as far as it goes.
    """
    from pathlib import Path

    if len(paths) != 1 or paths[0] == "-":
        return None
    from gpuclinic.clinic.capturing import looks_captured

    if not looks_captured(Path(paths[0])):
        return None
    from gpuclinic.observe.replay import Replay
    from gpuclinic.observe.snapshot import open_snapshot

    try:
        host = open_snapshot(Path(paths[0]))
    except CouldNotError as problem:
        complain(str(problem))
        return None
    if host.damage is not None:
        complain(f"{paths[0]}: {host.damage}; only what came before that is read")
    if isinstance(host, Replay):
        return host
    host.close()
    return None


def _gathered(options: argparse.Namespace, captured: Asked | None = None) -> Gathered:
    """What this machine, or the snapshot named by --host, says of the process, job or time that is asked about."""
    from gpuclinic.cli.check import host_of
    from gpuclinic.clinic.gathering import Question, gather, parse_job, parse_moment
    from gpuclinic.clinic.live_state import state_of
    from gpuclinic.observe.replay import Replay

    host = captured if captured is not None else host_of(options)
    try:
        now = host.clock()
        uid = os.getuid()
        question = Question(
            pid=options.pid, job=parse_job(options.job) if options.job else None,
            since=parse_moment(options.since, now) if options.since else None,
            until=parse_moment(options.until, now, option="--until") if options.until else None,
            uid=uid if uid and host.live else None, home=home_folder() if host.live else "", folder=working_folder() if host.live else "",
        )  # fmt: skip
        if question.since is not None and question.until is not None and question.since > question.until:
            raise UserError("--since is later than --until")
        if question.since is not None and question.since > now + _CLOCKS_DIFFER:
            there = "on this machine" if host.live and captured is None else "when it was captured"
            raise UserError(f"--since lies in the future: nothing is recorded yet; {there} it is {_shown_time(now)}")
        state = state_of(host, question, chosen_language(options))
        if isinstance(host, Replay):
            from gpuclinic.clinic.capturing import recorded_question

            question = recorded_question(host, question)
        gathered = gather(host, question)
        gathered.state = state
        if not host.live and options.host:
            gathered.snapshot = True
        return gathered
    finally:
        host.close()


def _shown_time(moment: float) -> str:
    return dt.datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
