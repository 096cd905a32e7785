"""What is known of the screen that an answer is written to."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def wants_colour(options: argparse.Namespace) -> bool:
    """Colours only on a terminal, and where nobody forbids them."""
    return (
        sys.stdout.isatty()
        and not options.no_color
        and "NO_COLOR" not in os.environ
        and os.environ.get("TERM") != "dumb"
    )


def text_width() -> int:
    """Columns to write in: the terminal's, between 40 and 120; 100 where there is no terminal."""
    import shutil

    asked = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    return max(40, min(120, shutil.get_terminal_size((100, 24)).columns)) if asked else 100
