"""Draws a terminal answer as an SVG for the README: python tools/make_picture.py EXAMPLE OUT.svg [en|zh] [why|check]."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

from gpuclinic.clinic import examine
from gpuclinic.clinic.checking import CheckOptions, as_recorded, check
from gpuclinic.observe import Places
from gpuclinic.observe.snapshot import open_snapshot
from gpuclinic.report.checkup import check_text
from gpuclinic.report.terminal import why_text

COLOURS = {"31": "#ff6b6b", "32": "#5fd38d", "33": "#e5c07b", "36": "#62c6d8"}
LINE, COLUMN, MARGIN = 19, 8.4, 18


def spans(line: str) -> str:
    """One line's runs as SVG tspans with the terminal's colours."""
    out: list[str] = []
    style = ""
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b["):
            codes = part[2:-1].split(";")
            colour = next((COLOURS[c] for c in codes if c in COLOURS), None)
            style = (f' fill="{colour}"' if colour else ' opacity="0.72"' if "2" in codes else "") + (
                ' font-weight="bold"' if "1" in codes else ""
            )
        elif part:
            out.append(f"<tspan{style}>{html.escape(part)}</tspan>")
    return "".join(out)


def picture(text: str, command: str, width: int) -> str:
    """The SVG of a command and its answer."""
    lines = [f"\x1b[1;32m$\x1b[0m {command}", "", *text.rstrip("\n").split("\n")]
    height = MARGIN * 2 + LINE * len(lines)
    rows = "".join(
        f'<text x="{MARGIN}" y="{MARGIN + LINE * (n + 1) - 5}" xml:space="preserve">{spans(line)}</text>\n'
        for n, line in enumerate(lines)
    )
    wide = int(MARGIN * 2 + COLUMN * width)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{height}" viewBox="0 0 {wide} {height}" '
        'font-family="DejaVu Sans Mono, Menlo, Consolas, Noto Sans Mono CJK SC, monospace" font-size="14" fill="#d7dae0">\n'
        f'<rect width="100%" height="100%" rx="8" fill="#1b1e24"/>\n{rows}</svg>\n'
    )


def main() -> None:
    """Writes the picture."""
    example, out = sys.argv[1:3]
    language = sys.argv[3] if len(sys.argv) > 3 else "en"
    extra = " --lang zh" if language == "zh" else ""
    if sys.argv[4:] == ["check"]:
        host = open_snapshot(Path(example))
        try:
            answer = check_text(check(host, as_recorded(host, CheckOptions(lang=language))), colour=True, width=96)
        finally:
            host.close()
        command = f"gpuclinic check{extra} --host {example}"
    else:
        answer = why_text(examine(Places([example]), language), colour=True, width=96, verbose=False)
        command = f"gpuclinic why{extra} {example}"
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text(picture(answer, command, 98), encoding="utf-8")


if __name__ == "__main__":
    main()
