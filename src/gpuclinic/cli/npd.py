"""`gpuclinic npd`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpuclinic.cli.main import given

if TYPE_CHECKING:
    import argparse

DESCRIPTION = "Answers node-problem-detector from the agent's state: one line of at most 80 bytes, at once; writes its configuration."
EXAMPLES = """\
examples:
  gpuclinic npd                                  0 well, 1 a critical finding, 2 not known (no agent, or its state is old)
  gpuclinic npd --about gpu --least warning      one group of findings (gpu, driver, host), from warnings on
  gpuclinic npd --config > /etc/node-problem-detector/gpuclinic.json
  gpuclinic npd --kernel-config                  a monitor of the kernel's log with Xids, SXids, AER and machine checks

exit status: 0 OK, 1 NonOK, 2 Unknown, as node-problem-detector wants them; 64 wrong command line
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--about", choices=("gpu", "driver", "host"), help="only findings of this group (default: all)")
    parser.add_argument(
        "--least",
        choices=("info", "warning", "critical"),
        default="critical",
        help="mildest finding that counts (default: critical)",
    )
    parser.add_argument(
        "--state", type=given, metavar="FOLDER", help="the folder of state.json (default: as the agent's)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--config", action="store_true", help="print a custom plugin's configuration")
    what.add_argument("--kernel-config", action="store_true", help="print a configuration of the kernel log's monitor")
    parser.add_argument(
        "--path",
        type=given,
        default="/usr/bin/gpuclinic",
        metavar="FILE",
        help="with --config: where gpuclinic is on the node",
    )


def run(options: argparse.Namespace) -> int:
    """Prints the line; whatever is wrong is a line and 2, for NPD shows only standard output."""
    from pathlib import Path

    from gpuclinic.watch.npd import UNKNOWN, kernel_config, plugin_config, said, shortened

    if options.config or options.kernel_config:
        import json

        content = plugin_config(options.path) if options.config else kernel_config()
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
        return 0
    from gpuclinic.model import CouldNotError
    from gpuclinic.store import runtime_state_folder
    from gpuclinic.watch.state import read_state

    try:
        folder = Path(options.state) if options.state else runtime_state_folder(make=False)
        line, code = said(read_state(folder), options.about, options.least)
    except CouldNotError as problem:
        line, code = shortened(f"agent.absent {problem}"), UNKNOWN
    sys.stdout.write(line + "\n")
    return code
