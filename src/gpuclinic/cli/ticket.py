"""`gpuclinic ticket`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gpuclinic.cli.main import EXIT_DONE, chosen_language, given, told
from gpuclinic.knowledge.tickets import VENDORS

if TYPE_CHECKING:
    from gpuclinic.model import Finding

DESCRIPTION = (
    "Examines this server as `check` does and writes the report that a vendor or a cloud provider asks for: serial numbers, versions, "
    "Xids, findings, and what is still missing with the command that gets it. Nothing is sent."
)
EXAMPLES = """\
examples:
  gpuclinic ticket --for nvidia                  Markdown to paste
  gpuclinic ticket --for dell --gpu 3            about one GPU
  gpuclinic ticket --for aliyun --lang zh --since 3d
  gpuclinic ticket --for aws --host node17.tar.gz      from a snapshot

exit status: 0 written, 3 it could not be written, 64 wrong command line
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--for", dest="vendor", choices=VENDORS, required=True, help="who gets it")
    parser.add_argument("--gpu", type=_index, metavar="N", help="only this GPU, by its index")
    parser.add_argument(
        "--since", type=_since, default=14 * 86400.0, metavar="TIME", help="Xids of so long: 6h, 3d (default: 14d)"
    )
    parser.add_argument(
        "--host", type=given, metavar="SNAPSHOT", help="a folder, an archive or a mounted disk's root to examine"
    )
    parser.add_argument("--lang", choices=("en", "zh"), help="language of the report (default: from the locale)")


def _index(text: str) -> int:
    if not text.isdecimal() or len(text) > 3:
        raise argparse.ArgumentTypeError(f"not the index of a GPU: {text}")
    return int(text)


def _since(text: str) -> float:
    from gpuclinic.cli.alert import duration

    return duration(text)


def run(options: argparse.Namespace) -> int:
    """Examines, asks, writes."""
    from gpuclinic.cli.check import asking
    from gpuclinic.clinic.checking import CheckOptions, as_recorded, check
    from gpuclinic.model import UserError
    from gpuclinic.report.ticket import ticket_markdown
    from gpuclinic.watch.ticket import build_ticket

    options.json = False
    lang = chosen_language(options)
    with asking(options) as (host, look):
        answer = check(host, as_recorded(host, CheckOptions(lang=lang)), look)
        gpus = [f.fields.get("index") for f in answer.facts if f.kind == "gpu"]
        if options.gpu is not None and options.gpu not in gpus:
            raise UserError(f"no GPU {options.gpu} here; there are {len(gpus)}")
        ticket = build_ticket(
            options.vendor,
            host,
            answer.host or "?",
            answer.facts,
            _of_hardware(answer.findings),
            options.gpu,
            options.since,
        )
    return told(ticket_markdown(ticket, lang), EXIT_DONE)


def _of_hardware(findings: list[Finding]) -> list[Finding]:
    """A vendor is told of the machine, not of jobs, schedulers and other software."""
    kept = ("gpu", "pcie", "nvlink", "thermal", "power", "driver", "kernel", "host", "network", "storage")
    return [f for f in findings if f.component in kept]
