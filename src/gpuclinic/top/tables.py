"""The tables of devices and of processes: which columns fit, and what stands in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.report._layout import columns, ranges
from gpuclinic.top.painting import Column, Line, bar, clip, fit, width_of
from gpuclinic.top.words import WORDS, age_text, rate_text, size_text, whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuclinic.top.view import Gpu, Holder

_LIMIT_WIDTH = 19
_SEVERITY_ROLE = {"critical": "bad", "warning": "warn", "info": "note"}
_QUIET = frozenset(("idle", "busy"))

DEVICE_COLUMNS = (
    Column("gpu", 3, right=True), Column("name", 15, from_width=104), Column("util", 13), Column("memory", 17), Column("temp", 6, right=True),
    Column("mem_temp", 6, right=True, from_width=150),
    Column("power", 9, right=True), Column("clock", 6, right=True), Column("mem_clock", 8, right=True, from_width=170),
    Column("pcie", 10, right=True, from_width=118), Column("nvlink", 13, right=True, from_width=160), Column("link", 6, right=True, from_width=150),
    Column("ecc", 5, right=True, from_width=150), Column("fan", 4, right=True, from_width=190), Column("limit", _LIMIT_WIDTH),
)  # fmt: skip
PROCESS_COLUMNS = (
    Column("pid", 8, right=True), Column("user", 9), Column("gpus", 7), Column("vram", 6, right=True), Column("gpu_pct", 5, right=True),
    Column("cpu_pct", 6, right=True), Column("rss", 6, right=True, from_width=110), Column("age", 7, right=True),
    Column("where", 20, from_width=100), Column("visible", 12, from_width=150), Column("command", 20),
)  # fmt: skip


def device_columns(width: int) -> list[Column]:
    """Columns for a screen of that width; what is left over goes to the bars."""
    chosen = [column for column in DEVICE_COLUMNS if column.from_width <= width]
    if width < 80:
        dropped = ("clock", "power", "temp") if width < 60 else ("clock",)
        chosen = [column for column in chosen if column.id not in dropped]
    spare = width - sum(column.width + 1 for column in chosen) + 1
    out = []
    for column in chosen:
        more = {"util": spare // 2, "memory": spare - spare // 2}.get(column.id)
        out.append(column if more is None else column._replace(width=max(8, column.width + min(more, 40))))
    return out


def device_head(width: int, lang: str) -> Line:
    """The titles."""
    words = WORDS[lang]
    return _row([[(fit(words[c.id], c.width, right=c.right), "head")] for c in device_columns(width)], width, "head")


def device_lines(gpu: Gpu, width: int, lang: str) -> list[Line]:
    """A GPU, and its MIG devices under it."""
    cells = device_columns(width)
    if gpu.trouble is not None:
        return [_troubled(gpu, cells, width, lang)]
    lines = [_row([_device_cell(gpu, column, lang) for column in cells], width)]
    return lines + [_mig_line(fields, cells, width, lang) for fields in gpu.mig]


def _row(cells: list[Line], width: int, role: str = "") -> Line:
    line: Line = []
    for number, cell in enumerate(cells):
        if number:
            line.append((" ", role))
        line += cell
    return clip(line, width, role)


def _troubled(gpu: Gpu, cells: list[Column], width: int, lang: str) -> Line:
    """A GPU of which nothing can be read: what it is, and why."""
    word = WORDS[lang]["hung" if not gpu.lost else "lost"].upper()
    line: Line = [
        (fit(str(gpu.index), cells[0].width, right=True), "bad"),
        (f" {word} ", "bad"),
        (f" {gpu.trouble}  ", "bad"),
    ]
    return clip([*line, (f"{gpu.name} {gpu.key}", "dim")], width)


def _device_cell(gpu: Gpu, column: Column, lang: str) -> Line:
    if column.id == "util":
        return _bar_cell(gpu.number("utilization_pct"), column.width)
    if column.id == "memory":
        return _memory_cell(gpu.number("memory_used_mib"), gpu.number("memory_total_mib"), column.width)
    if column.id == "limit":
        return _limit_cell(gpu, column.width, lang)
    text, role = _device_text(gpu, column.id)
    return [(fit(text, column.width, right=column.right), role)]


def _device_text(gpu: Gpu, column: str) -> tuple[str, str]:
    if column == "gpu":
        return str(gpu.index), ""
    if column == "temp":
        heat, most = gpu.number("temperature_c"), gpu.heat_limit_c
        near = heat is not None and most is not None
        role = "" if not near else "bad" if most - heat <= 2 else "warn" if most - heat <= 6 else ""  # type: ignore[operator]
        return (f"{whole(heat)}/{whole(most)}" if most is not None else f"{whole(heat)}°"), role
    if column == "power":
        draw, cap = gpu.number("power_w"), gpu.number("power_limit_w")
        return f"{whole(draw)}/{whole(cap)}", ""
    if column == "ecc":
        count = gpu.number("ecc_uncorrected_volatile")
        return whole(count), "bad" if count else ""
    if column == "link":
        generation, lanes, most = gpu.number("pcie_gen"), gpu.number("pcie_width"), gpu.number("pcie_width_max")
        narrow = lanes is not None and most is not None and lanes < most
        return f"G{whole(generation)}x{whole(lanes)}", "warn" if narrow else ""
    if column in ("pcie", "nvlink"):
        return f"{rate_text(gpu.number(column + '_rx_kbs'))}/{rate_text(gpu.number(column + '_tx_kbs'))}", ""
    simple = {
        "clock": "sm_clock_mhz",
        "mem_clock": "memory_clock_mhz",
        "mem_temp": "memory_temperature_c",
        "fan": "fan_pct",
    }
    if column in simple:
        return whole(gpu.number(simple[column])), ""
    return gpu.name, ""


def _bar_cell(percent: float | None, width: int) -> Line:
    share = percent / 100 if percent is not None else None
    number = f"{percent:3.0f}%" if percent is not None else "   -"
    return [*bar(share, width - 5, "bar"), (" ", ""), (number, "")]


def _memory_cell(used: float | None, total: float | None, width: int) -> Line:
    share = used / total if used is not None and total else None
    text = f"{size_text(used)}/{size_text(total)}"
    role = "warn" if share is not None and share >= 0.93 else ""
    return [*bar(share, width - 12, "bar"), (" ", ""), (fit(text, 11, right=True), role)]


def _limit_cell(gpu: Gpu, width: int, lang: str) -> Line:
    row = gpu.limit
    if row is None:
        return [(" " * width, "")]
    text = row.zh if lang == "zh" else row.en
    most, now = gpu.number("max_sm_clock_mhz"), gpu.number("sm_clock_mhz")
    if gpu.slowed and most and now is not None and row.severity != "info":
        note = f" {100 * (now - most) / most:+.0f}%"
        text += note if columns(text + note) <= width else ""
    return [(fit(text, width), "dim" if row.id in _QUIET else _SEVERITY_ROLE[row.severity])]


def _mig_line(fields: Mapping[str, Any], cells: list[Column], width: int, lang: str) -> Line:
    used, total = fields.get("memory_used_mib"), fields.get("memory_total_mib")
    line: list[Line] = []
    for column in cells:
        if column.id == "memory":
            numbers = [float(v) if isinstance(v, int | float) else None for v in (used, total)]
            line.append(_memory_cell(numbers[0], numbers[1], column.width))
        elif column.id == "gpu":
            line.append([(fit("└", column.width, right=True), "dim")])
        elif column.id == "util":
            name = f"{WORDS[lang]['mig']} {fields.get('profile') or fields.get('device') or ''}"
            line.append([(fit(name, column.width), "")])
        elif column.id == "limit":
            line.append(
                [
                    (
                        fit(
                            f"GI {fields.get('gi')} CI {fields.get('ci')}" if fields.get("gi") is not None else "",
                            column.width,
                        ),
                        "dim",
                    )
                ]
            )
        else:
            line.append([(" " * column.width, "")])
    return _row(line, width)


# ---- processes


def process_columns(width: int) -> list[Column]:
    """Columns for a screen of that width; the command takes what is left."""
    chosen = [column for column in PROCESS_COLUMNS if column.from_width <= width]
    if width < 60:
        chosen = [column for column in chosen if column.id not in ("cpu_pct", "age")]
    used = sum(column.width + 1 for column in chosen) - 1
    return [
        column._replace(width=max(4, column.width + width - used)) if column.id == "command" else column
        for column in chosen
    ]


def process_head(width: int, lang: str, sort: str) -> Line:
    """The titles; the one that is sorted by stands out."""
    words = WORDS[lang]
    sorted_by = "gpus" if sort == "gpu" else sort
    cells = process_columns(width)
    return _row(
        [[(fit(words[c.id], c.width, right=c.right), "sorted" if c.id == sorted_by else "head")] for c in cells],
        width,
        "head",
    )


def process_line(holder: Holder, width: int, lang: str, depth: int = 0) -> Line:
    """A process."""
    return _row([_process_cell(holder, column, lang, depth) for column in process_columns(width)], width)


def _process_cell(holder: Holder, column: Column, lang: str, depth: int) -> Line:
    if column.id == "command":
        return _command_cell(holder, column.width, lang, depth)
    if column.id == "gpus":
        text = ranges(holder.gpus) + (f" gi{holder.mig}" if holder.mig else "")
    else:
        text = {
            "pid": str(holder.pid) if holder.pid else "-", "user": holder.user or "-", "where": holder.where or "-",
            "vram": size_text(holder.mib), "gpu_pct": whole(holder.gpu_pct), "cpu_pct": whole(holder.cpu_pct), "rss": size_text(holder.rss_mib),
            "age": age_text(holder.age_s), "visible": holder.visible if holder.visible is not None else "-",
        }[column.id]  # fmt: skip
    role = "dim" if text == "-" else ""
    return [(fit(text, column.width, right=column.right), role)]


_MARK_WORDS = {"waiting": "waiting_d"}
_BAD_MARKS = frozenset(("zombie", "hidden", "nobody"))


def _command_cell(holder: Holder, width: int, lang: str, depth: int) -> Line:
    words = WORDS[lang]
    line: Line = [("  " * min(depth - 1, 8) + "└ ", "dim")] if depth else []
    for mark in holder.marks:
        line.append((words[_MARK_WORDS.get(mark, mark)] + " ", "bad" if mark in _BAD_MARKS else "warn"))
    left = width - width_of(line)
    if left > 0:
        line.append((fit(holder.command, left), ""))
    return clip(line, width)
