"""`gpuclinic history`."""

from __future__ import annotations

import argparse
import io
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpuclinic.model import CouldNotError, UserError

if TYPE_CHECKING:
    from gpuclinic.store.history import History

DESCRIPTION = "Plots what the agent has kept: any metric over any time, with events as marks; lists metrics and events."
EXAMPLES = """\
examples:
  gpuclinic history power_w                      the last two hours, every GPU
  gpuclinic history power temperature --gpu 3 --since 1d
  gpuclinic history memory.available_mib --since "2026-03-02 04:00" --until "2026-03-02 06:00"
  gpuclinic history DCGM_FI_DEV_GPU_UTIL         names of dcgm-exporter and Prometheus, too
  gpuclinic history events --since 14d           and whether a fault has come before, with this card or in this slot
  gpuclinic history events xid exit --gpu 3      only these kinds
  gpuclinic history --list                       what there is
  gpuclinic history power_w --svg power.svg      a picture for a ticket (light and dark)
  gpuclinic history power_w --since 30d --csv > power.csv

exit status: 0 answered, 3 there is no history or it cannot be read, 64 wrong command line
"""
_MOST_POINTS = 2000
_DEFAULT_S, _EVENTS_S = 7200.0, 7 * 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    from gpuclinic.cli.main import given

    parser.add_argument("what", nargs="*", type=given, metavar="METRIC", help="metrics, or: events [KIND ...]")
    parser.add_argument("--list", action="store_true", help="list the metrics that there are")
    parser.add_argument(
        "--gpu", action="append", type=_index, default=[], metavar="N", help="only this GPU; may be repeated"
    )
    parser.add_argument(
        "--since",
        type=given,
        metavar="WHEN",
        help="from then on: 2h, 30m, today, 04:00, '2026-03-02 04:00' (default: 2h; events: 7d)",
    )
    parser.add_argument("--until", type=given, metavar="WHEN", help="up to then")
    parser.add_argument(
        "--store", type=given, metavar="PATH", help="another history: the file, or the folder that it is in"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object as docs/contract.md says")
    form.add_argument("--csv", action="store_true", help="one line for each stretch of time")
    form.add_argument("--svg", type=given, metavar="FILE", help="a picture (-: standard output)")
    parser.add_argument(
        "--lang", choices=("en", "zh"), help="language of the answer (default: from the locale; English under --json)"
    )
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR in the environment)")


def _index(text: str) -> int:
    if not text.isdecimal() or len(text) > 4:
        raise argparse.ArgumentTypeError(f"not the index of a GPU: {text[:40]}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Asks, prints."""
    from gpuclinic.cli.main import EXIT_DONE, chosen_language, told
    from gpuclinic.watch.history_view import open_history

    if not options.what and not options.list:
        raise UserError("name a metric, or events (gpuclinic history --list shows all)")
    lang = chosen_language(options)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    with open_history(read_only=True, path=options.store) as history:
        text: str | None
        if options.list:
            text = _listed(history, options, lang)
        elif options.what[0] == "events":
            text = _events(history, options, lang)
        else:
            text = _plotted(history, options, lang)
    if text is None:
        return EXIT_DONE
    return told(text, EXIT_DONE)


def span(options: argparse.Namespace, usual: float) -> tuple[float, float]:
    """The time that --since and --until mean, in Unix seconds."""
    from gpuclinic.clinic.gathering import parse_moment

    now = time.time()
    until = parse_moment(options.until, now, option="--until") if options.until else now
    since = parse_moment(options.since, now) if options.since else until - usual
    if since >= until:
        raise UserError("--since is not before --until")
    return since, until


def _envelope(lang: str, body: dict[str, object]) -> str:
    from gpuclinic.report.as_json import as_text, envelope

    return as_text({**envelope("history", lang, _host()), **body}) + "\n"


def _host() -> str:
    import platform

    return platform.node()


def _listed(history: History, options: argparse.Namespace, lang: str) -> str:
    from gpuclinic.cli.screen import text_width, wants_colour
    from gpuclinic.watch.history_view import listed

    found = listed(history)
    if options.json:
        from gpuclinic.report.history_data import list_body

        return _envelope(lang, list_body(found, lang))
    from gpuclinic.report.history_chart import list_text

    return list_text(found, lang, colour=wants_colour(options), width=text_width())


def _events(history: History, options: argparse.Namespace, lang: str) -> str:
    from gpuclinic.cli.screen import text_width, wants_colour
    from gpuclinic.model import EVENT_KINDS
    from gpuclinic.watch.history_view import told_events

    kinds = options.what[1:]
    unknown = [kind for kind in kinds if kind not in EVENT_KINDS]
    if unknown:
        raise UserError(f"no kind of events: {unknown[0][:40]} ({', '.join(sorted(EVENT_KINDS))})")
    if options.svg:
        raise UserError("events are a list: --svg draws metrics, with events as marks")
    since, until = span(options, _EVENTS_S)
    found = told_events(history, since, until, options.gpu, kinds, lang)
    if options.json:
        from gpuclinic.report.history_data import events_body

        return _envelope(lang, events_body(found))
    if options.csv:
        from gpuclinic.report.history_data import events_csv

        return events_csv(found)
    from gpuclinic.report.history_chart import events_text

    return events_text(found, lang, colour=wants_colour(options), width=text_width())


def _plotted(history: History, options: argparse.Namespace, lang: str) -> str | None:
    from gpuclinic.cli.screen import text_width, wants_colour
    from gpuclinic.report.history_chart import chart_text, dots_across
    from gpuclinic.watch.history_view import picture

    since, until = span(options, _DEFAULT_S)
    width = text_width()
    points = 900 if options.svg else _MOST_POINTS if options.json or options.csv else dots_across(width)
    found = picture(history, options.what, options.gpu, since, until, points)
    if options.json:
        from gpuclinic.report.history_data import picture_body

        return _envelope(lang, picture_body(found, lang))
    if options.csv:
        from gpuclinic.report.history_data import picture_csv

        return picture_csv(found)
    if options.svg:
        from gpuclinic.report.history_svg import svg

        drawn = svg(found, lang)
        if options.svg == "-":
            return drawn
        _write(options.svg, drawn)
        return None
    return chart_text(found, lang, colour=wants_colour(options), width=width)


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise CouldNotError(f"{name}: {problem.strerror or problem}") from problem
