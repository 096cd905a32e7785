"""`gpuclinic run`."""

from __future__ import annotations

import argparse
import os
import re
from typing import TYPE_CHECKING

from gpuclinic.cli.main import chosen_language, complain, given

if TYPE_CHECKING:
    from gpuclinic.watch.flight.recorder import Taken

DESCRIPTION = (
    "Runs a job unchanged: same output bytes, terminal, signals, process group, environment and exit code. Beside it, at low priority, "
    "its processes, the host and the GPUs are recorded; when it dies, why is said in one paragraph on standard error, with a bundle."
)
EXAMPLES = """\
examples:
  gpuclinic run python train.py --lr 3e-4        options for gpuclinic stand before the command
  gpuclinic run -- ./train.sh                    the same, said explicitly
  srun gpuclinic run --bundle-dir /shared/runs python train.py      one recorder for each rank; the first failure is named
  torchrun --nproc-per-node 8 --no-python gpuclinic run python train.py
  gpuclinic run --hang-after 10m torchrun train.py        stacks after ten minutes without any progress; nothing is ended
  ENTRYPOINT ["gpuclinic", "run", "--bundle-dir", "/runs", "--"]    in a container: also reaps orphans
  gpuclinic why /shared/runs                     later: the records of all ranks together

The record lies in --bundle-dir, else GPUCLINIC_BUNDLE_DIR, else $XDG_STATE_HOME/gpuclinic/runs (root: /var/lib/gpuclinic/runs).
Nothing is written of a job that ends well (but the few lines of a rank). Should gpuclinic itself be killed, the job goes on.

exit status: that of the command, or its signal; 125 gpuclinic failed before the start, 126 the command cannot be run, 127 not found
"""
_FAILED = 125
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)?")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.allow_abbrev = False  # where the options end is known by their whole names
    parser.usage = "gpuclinic run [OPTIONS] [--] COMMAND [ARGUMENT ...]"
    parser.add_argument(
        "--hang-after", type=_span, default=1800.0, metavar="TIME", help="take stacks after so long a standstill: 90s, 2h; 0: never (default: 30m)"
    )  # fmt: skip
    parser.add_argument(
        "--bundle-dir",
        type=given,
        metavar="DIR",
        help="where records are kept; for ranks a folder that all of them see",
    )
    parser.add_argument(
        "--keep", type=_count, default=20, metavar="N", help="how many records stay there (default: 20)"
    )
    parser.add_argument("--max-size", type=_size, default="20M", metavar="SIZE", help="of one record (default: 20M)")
    parser.add_argument(
        "--job-id", type=given, metavar="NAME", help="the same for all ranks (default: from the launcher's variables)"
    )
    parser.add_argument("--always", action="store_true", help="keep a record of a job that ends well, too")
    parser.add_argument("--quiet", action="store_true", help="say nothing at the end; the record is kept")
    parser.add_argument("-v", "--verbose", action="store_true", help="say when the job stands still")
    parser.add_argument("--lang", choices=("en", "zh"), help="language of the answer (default: from the locale)")
    parser.set_defaults(json=False)


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns only where it could not be started for a fault in our own command line."""
    words = options.words or []
    if not words:
        complain("run: no command was given (see gpuclinic run --help)")
        return _FAILED
    from gpuclinic.watch.flight.front import PATIENCE_S, QUICK_S, Flight, fly

    folder = options.bundle_dir or os.environ.get("GPUCLINIC_BUNDLE_DIR", "")
    lang = chosen_language(options)

    def record(flight: Flight, told: int, answer: int) -> None:
        from gpuclinic.watch.flight.beside import Options
        from gpuclinic.watch.flight.beside import record as live

        where = os.path.abspath(folder) if folder else ""  # noqa: PTH100 - pathlib is not worth importing here
        wanted = Options(
            options.hang_after, where, options.keep, options.max_size, options.always, options.quiet,
            options.verbose, lang, options.job_id or "",
        )  # fmt: skip

        def end(taken: Taken) -> str:
            from gpuclinic.report.flight import run_text
            from gpuclinic.watch.flight.ending import conclude

            return conclude(taken, run_text)

        live(flight, told, answer, wanted, end)

    from gpuclinic.watch.flight.launchers import is_rank

    well_s = PATIENCE_S if options.always else QUICK_S if is_rank(os.environ) else 0.0
    fly(words, record, well_s=well_s, speaks=options.verbose)
    return None


def _span(text: str) -> float:
    found = _SPAN.fullmatch(text.strip().lower())
    value = float(found[1]) * _UNITS[found[2] or "s"] if found else -1.0
    if not 0 <= value <= 30 * 86400:
        raise argparse.ArgumentTypeError(f"not a time as 90s, 30m, 2h: {text}")
    return value


def _size(text: str) -> int:
    from gpuclinic.cli.sizes import size_of

    size = size_of(text)
    if size is None:
        raise argparse.ArgumentTypeError(f"from 64k to 4G, as 20M: {text}")
    return size


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"not a number of records: {text}")
    return int(text)
