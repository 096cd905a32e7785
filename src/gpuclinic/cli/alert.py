"""`gpuclinic alert`."""

from __future__ import annotations

import argparse
import re
import time
from typing import TYPE_CHECKING

from gpuclinic.cli.main import EXIT_DONE, EXIT_UNKNOWN, chosen_language, given, told

if TYPE_CHECKING:
    from pathlib import Path

    from gpuclinic.watch.config import Config

DESCRIPTION = "Shows what the agent has found and told, silences it for a while, and tries the channels."
EXAMPLES = """\
examples:
  gpuclinic alert list                           what holds now; --all also what is over
  gpuclinic alert show 3f9a                      cause, evidence, what to do; the beginning of the id is enough
  gpuclinic alert silence 3f9a --for 2h          not sent for two hours; --for 0s ends a silence
  gpuclinic alert silence 'thermal.*' --for 1d --subject '0000:3b:*'
  gpuclinic alert test                           a test message through every channel; --channel 2 through the second

exit status: 0 done, 3 nothing to read, or a channel did not take the message, 64 wrong command line
"""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("do", choices=("list", "show", "silence", "test"), metavar="list|show|silence|test")
    parser.add_argument(
        "id", nargs="?", type=given, metavar="ID", help="an alert's id, or for silence a glob of finding ids"
    )
    parser.add_argument("--all", action="store_true", help="list: also what is over")
    parser.add_argument(
        "--for", dest="lasts", type=duration, metavar="TIME", help="silence: 30m, 2h, 1d (0s: no longer)"
    )
    parser.add_argument("--subject", type=given, default="*", metavar="GLOB", help="silence: only of these subjects")
    parser.add_argument("--why", type=given, metavar="TEXT", help="silence: a note")
    parser.add_argument("--channel", type=int, metavar="N", help="test: only this channel, counted from 1")
    parser.add_argument("--config", type=given, metavar="FILE", help="the agent's configuration")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--lang", choices=("en", "zh"), help="language of the answer (default: from the locale)")


def duration(text: str) -> float:
    """Seconds of a time such as 30m, 2h or 1d."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if found is None or float(found[1]) * _UNITS[found[2]] > 366 * 86400:
        raise argparse.ArgumentTypeError(f"not a time such as 30m, 2h or 1d: {text}")
    return float(found[1]) * _UNITS[found[2]]


def run(options: argparse.Namespace) -> int:
    """Does what was asked."""
    from gpuclinic.model import UserError
    from gpuclinic.store import state_folder
    from gpuclinic.watch.config import load_config

    config, _ = load_config(options.config)
    if options.do == "test":
        return _test(config, options)
    folder = state_folder(config.store.folder or None, make=options.do == "silence")
    if options.do == "list":
        return _list(folder, options)
    if not options.id:
        raise UserError(f"alert {options.do}: which? (see gpuclinic alert list)")
    return _show(folder, options) if options.do == "show" else _silence(folder, options)


def _list(folder: Path, options: argparse.Namespace) -> int:
    from gpuclinic.cli.screen import text_width
    from gpuclinic.model import SEVERITIES
    from gpuclinic.report.alerts import alert_list
    from gpuclinic.watch.alerts import read_book, read_silences

    now = time.time()
    book = read_book(folder)
    alerts = sorted(book.active.values(), key=lambda a: (-SEVERITIES.index(a.severity), a.since))
    if options.all:
        alerts += reversed(book.over)
    if options.json:
        import msgspec

        return told(msgspec.json.encode({"version": 1, "alerts": alerts}).decode() + "\n", EXIT_DONE)
    ago = now - book.saved_at if book.saved_at else None
    return told(alert_list(alerts, read_silences(folder, now), chosen_language(options), text_width(), ago), EXIT_DONE)


def _show(folder: Path, options: argparse.Namespace) -> int:
    from gpuclinic.report.alerts import alert_page
    from gpuclinic.watch.alerts import find_alert, read_book

    alert = find_alert(read_book(folder), options.id)
    if options.json:
        import msgspec

        return told(msgspec.json.encode(alert).decode() + "\n", EXIT_DONE)
    return told(alert_page(alert, chosen_language(options)), EXIT_DONE)


def _silence(folder: Path, options: argparse.Namespace) -> int:
    from gpuclinic.model import UserError
    from gpuclinic.watch.alerts import Silence, add_silence, find_alert, read_book

    if options.lasts is None:
        raise UserError("alert silence: for how long? give --for 2h")
    name = options.id if "." in options.id or "*" in options.id else find_alert(read_book(folder), options.id).id
    now = time.time()
    add_silence(folder, Silence(name, now + options.lasts, options.subject, options.why or ""), now)
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(now + options.lasts))
    zh = chosen_language(options) == "zh"
    return told((f"{name} 静默至 {until}\n" if zh else f"{name}: silent until {until}\n"), EXIT_DONE)


def _test(config: Config, options: argparse.Namespace) -> int:
    from gpuclinic.model import UserError
    from gpuclinic.watch.channels import ChannelError, deliver, label_of
    from gpuclinic.watch.trying import test_message

    channels = list(enumerate(config.alerts.channels, 1))
    if options.channel is not None:
        channels = [(n, c) for n, c in channels if n == options.channel]
    if not channels:
        raise UserError(
            "no such channel in the configuration" if options.channel else "the configuration names no channel"
        )
    failed = 0
    zh = chosen_language(options) == "zh"
    out = []
    for number, channel in channels:
        try:
            deliver(channel, [test_message(channel.lang)])
        except ChannelError as problem:
            failed += 1
            out.append(f"{number} {label_of(channel)}: {'失败' if zh else 'failed'}: {problem}")
        else:
            out.append(f"{number} {label_of(channel)}: {'已发送' if zh else 'sent'}")
    return told("\n".join(out) + "\n", EXIT_UNKNOWN if failed else EXIT_DONE)
