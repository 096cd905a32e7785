"""`gpuclinic export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from gpuclinic.cli.main import EXIT_DONE, chosen_language, given, told

if TYPE_CHECKING:
    import argparse

DESCRIPTION = "Writes what plugs gpuclinic into other people's monitoring: Prometheus rules, Alertmanager routes, Grafana dashboards."
EXAMPLES = """\
examples:
  gpuclinic export rules                         alerts for what the agents find, and for agents that are gone
  gpuclinic export row-rules                     the rows of check as Prometheus' own alerts, as far as it can be asked
  gpuclinic export recording-rules               what the fleet's dashboard asks for
  gpuclinic export alertmanager                  an example of routes
  gpuclinic export dashboards --into FOLDER      Grafana: a server, one GPU, a fleet; --lang zh in Chinese
  gpuclinic export all --into FOLDER             every file
  gpuclinic export metrics                       names, units and meaning of all metrics

exit status: 0 written, 3 the folder cannot be written to, 64 wrong command line
"""
_WHAT = ("rules", "row-rules", "recording-rules", "alertmanager", "dashboards", "metrics", "all")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("what", choices=_WHAT, metavar="|".join(_WHAT))
    parser.add_argument("--into", type=given, metavar="FOLDER", help="write files there instead of printing")
    parser.add_argument("--lang", choices=("en", "zh"), help="language of texts and titles (default: from the locale)")
    parser.set_defaults(json=False)


def run(options: argparse.Namespace) -> int:
    """Prints or writes."""
    from gpuclinic.model import CouldNotError
    from gpuclinic.store import whole_file

    files = _files(options.what, chosen_language(options))
    if options.into is None:
        return told("".join(files.values()), EXIT_DONE)
    folder = Path(options.into)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with whole_file(folder / name, 0o644) as file:
                file.write(text.encode())
    except OSError as problem:
        raise CouldNotError(f"{folder}: {problem.strerror or problem}") from problem
    return told("".join(f"{folder / name}\n" for name in files), EXIT_DONE)


def _files(what: str, lang: str) -> dict[str, str]:
    from gpuclinic.knowledge.dashboards import dashboards
    from gpuclinic.knowledge.metrics import metrics
    from gpuclinic.watch.exporter import prometheus_rules as rules
    from gpuclinic.watch.exporter.alertmanager import EXAMPLE
    from gpuclinic.watch.exporter.dashboards import as_grafana

    files: dict[str, str] = {}
    if what in ("rules", "all"):
        files["gpuclinic-findings.rules.yml"] = rules.as_yaml(rules.finding_rules(), (_MADE.format("rules"),))
    if what in ("row-rules", "all"):
        content, left = rules.row_rules(lang)
        files["gpuclinic-rows.rules.yml"] = rules.as_yaml(
            content, (_MADE.format("row-rules"), *rules.left_as_comments(left))
        )
    if what in ("recording-rules", "all"):
        files["gpuclinic-recording.rules.yml"] = rules.as_yaml(
            rules.recording_rules(), (_MADE.format("recording-rules"),)
        )
    if what in ("alertmanager", "all"):
        files["alertmanager.yml"] = EXAMPLE
    if what in ("dashboards", "all"):
        for board in dashboards():
            files[f"{board.name}.json"] = json.dumps(as_grafana(board, lang), ensure_ascii=False, indent=1) + "\n"
    if what == "metrics":
        rows = (f"{m.name}\t{m.type}\t{m.dcgm_name or '-'}\t{m.title(lang)}" for m in metrics())
        files["metrics.tsv"] = "\n".join(rows) + "\n"
    return files


_MADE = "Made by: gpuclinic export {}"
