"""The whole screen as lines: zones, how high each is, and what lies over them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.top.choices import SECONDS_A_DOT, Choices, matches, shown_alerts, shown_holders
from gpuclinic.top.overlays import overlay_lines
from gpuclinic.top.painting import Line, clip, fit, graph, heat_role, plain, width_of
from gpuclinic.top.tables import device_head, device_lines, process_head, process_line
from gpuclinic.top.words import WORDS, size_text, whole

if TYPE_CHECKING:
    from gpuclinic.top.feed import Past, Point
    from gpuclinic.top.view import Gpu, View
    from gpuclinic.watch.alerts import Alert

LEAST_WIDTH, LEAST_HEIGHT = 40, 10
_ALERT_ROLE = {"critical": "bad", "warning": "warn", "info": "note"}
_MOST_FINDINGS = 8
_LEAST_GRAPH, _MOST_GRAPH = 6, 24
_LEAST_PROCESSES = 5
_DRAWN_ONCE_S = 2


class Zones(msgspec.Struct):
    """Height of each zone in lines, titles included; 0: not shown."""

    gpus: int
    findings: int
    graphs: int
    processes: int


class Painted(msgspec.Struct):
    """The screen. zone_at: for each line the zone and the row of it that stand there; row -1: a title."""

    lines: list[Line]
    zone_at: list[tuple[str, int]]


def zones_of(height: int, device_rows: int, findings: int, holders: int, *, graphs: bool) -> Zones:
    """How the height is shared; two lines at the top and one at the bottom belong to nobody."""
    room = height - 3
    told = 1 + min(findings, _MOST_FINDINGS if height >= 40 else 3 if height >= 30 else 2)
    if height < 16:
        told = min(told, 2)
    gpus = min(1 + max(device_rows, 1), max(3, room - told - _LEAST_PROCESSES))
    left = room - gpus - told
    drawn = 0
    if graphs and left - _LEAST_PROCESSES >= _LEAST_GRAPH:
        needed = max(_LEAST_PROCESSES, min(holders + 2, left // 2))
        drawn = min(max(_LEAST_GRAPH, left - needed), _MOST_GRAPH)
    return Zones(gpus, told, drawn, left - drawn)


def paint(view: View | None, past: Past, choices: Choices, width: int, height: int) -> Painted:
    """The screen at this moment."""
    words = WORDS[choices.lang]
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return _only(words["narrow"], width, height)
    if view is None:
        return _only(words["waiting"], width, height)
    rows = [(gpu, line) for gpu in view.gpus for line in device_lines(gpu, width, choices.lang)]
    alerts = shown_alerts(view)
    zones = zones_of(
        height,
        len(rows) if rows else 1 + len(view.gaps[:3]),
        len(alerts),
        len(view.holders),
        graphs=choices.graphs and bool(view.gpus),
    )
    out = Painted(header(view, choices, width), [("", -1)] * 2)
    _put_gpus(out, view, rows, choices, width, zones.gpus)
    _put_findings(out, alerts, len(view.gaps), choices, width, zones.findings)
    if zones.graphs:
        for line in graph_lines(view, past, choices, width, zones.graphs):
            _put(out, line)
    _put_processes(out, view, choices, width, zones.processes)
    _put(out, _bottom(choices, width))
    if choices.overlay:
        _lay_over(out, overlay_lines(view, choices, width), choices, width, height)
    return out


def _put(out: Painted, line: Line, zone: str = "", row: int = -1) -> None:
    out.lines.append(line)
    out.zone_at.append((zone, row))


def _only(text: str, width: int, height: int) -> Painted:
    lines: list[Line] = [clip([], width) for _ in range(height)]
    if height:
        lines[height // 2] = clip([(fit(text, width), "")], width)
    return Painted(lines, [("", -1)] * height)


def header(view: View, choices: Choices, width: int) -> list[Line]:
    """Who, when, and the host in two lines."""
    words, host = WORDS[choices.lang], view.host
    clock = time.strftime("%H:%M:%S", time.localtime(view.at))
    first: Line = [("gpuclinic top ", "title"), (f" {host.name}  {clock}", "")]
    if choices.paused:
        first.append((f"  {words['paused']}", "warn"))
    lost = sum(gpu.trouble is not None for gpu in view.gpus)
    first.append((f"  {len(view.gpus)} GPU", ""))
    if lost:
        first.append((f" ({lost} {words['unread']})", "bad"))
    draw = [value for gpu in view.gpus if gpu.trouble is None and (value := gpu.number("power_w")) is not None]
    if draw:
        first.append((f"  {sum(draw) / 1000:.1f} kW", ""))
    right = f"{words['agent_on'] if view.agent else words['agent_off']}"
    if host.driver and width >= 100:
        right = (
            f"{words['driver']} {host.driver}" + (f"  {words['cuda']} {host.cuda}" if host.cuda else "") + f"  {right}"
        )
    space = width - width_of(first) - width_of([(right, "")])
    if space > 1:
        first += [(" " * space, ""), (right, "dim")]
    used = f"{size_text(host.memory_used_mib)}/{size_text(host.memory_total_mib)}"
    second: Line = [
        (f"{words['cpu']} ", "dim"), (f"{whole(host.cpu_pct):>3}%" if host.cpu_pct is not None else "  -", ""),
        (f"  {words['load']} ", "dim"), (f"{host.load1:.1f}" if host.load1 is not None else "-", ""), (f"/{host.cpus}" if host.cpus else "", "dim"),
        (f"  {words['ram']} ", "dim"), (used, heat_role(_share(host.memory_used_mib, host.memory_total_mib))),
        (f"  {words['swap']} ", "dim"), (size_text(host.swap_used_mib), ""),
    ]  # fmt: skip
    if host.pressure:
        values = "/".join(whole(host.pressure.get(name)) for name in ("cpu", "io", "memory"))
        second += [
            (f"  {words['pressure']} ", "dim"),
            (f"{values} %", "warn" if max(host.pressure.values()) >= 40 else ""),
        ]
    return [clip(first, width), clip(second, width)]


def _share(used: float | None, total: float | None) -> float | None:
    return used / total if used is not None and total else None


def _scrolled(choices: Choices, zone: str, count: int, room: int) -> int:
    """The first row that is shown, so that the chosen one is seen."""
    row = max(0, min(choices.row(zone), count - 1))
    choices.at[zone] = row
    first = min(choices.first.get(zone, 0), max(0, count - room))
    first = min(max(first, row - room + 1), row) if room > 0 else 0
    choices.first[zone] = first
    return first


def _chosen(line: Line, choices: Choices, zone: str) -> Line:
    role = "chosen" if choices.zone == zone else "chosen_idle"
    return [(text, role) for text, _ in line]


def _put_gpus(out: Painted, view: View, rows: list[tuple[Gpu, Line]], choices: Choices, width: int, room: int) -> None:
    words = WORDS[choices.lang]
    _put(out, device_head(width, choices.lang), "gpus")
    if not rows:
        lines: list[Line] = [[(words["no_gpu"], "warn")]]
        lines += [
            [(f"  {words['gap']}: {gap.why}" + (f" ({gap.fix})" if gap.fix else ""), "")]
            for gap in view.gaps
            if gap.required
        ]
        for line in lines[: room - 1]:
            _put(out, clip(line, width), "gpus")
        for _ in range(room - 1 - len(lines)):
            _put(out, clip([], width), "gpus")
        return
    count = room - 1
    first = _scrolled(choices, "gpus", len(rows), count)
    for place, (gpu, line) in enumerate(rows[first : first + count], first):
        marked = choices.only_gpus and gpu.index in choices.only_gpus
        chosen = choices.zone == "gpus" and place == choices.row("gpus")
        _put(out, _chosen(line, choices, "gpus") if chosen else _marked(line) if marked else line, "gpus", place)
    if len(rows) > count:
        _note_more(out, first, len(rows), count, width)


def _marked(line: Line) -> Line:
    """The row of a GPU whose processes alone are shown."""
    return [(line[0][0], "sorted"), *line[1:]] if line else line


def _note_more(out: Painted, first: int, count: int, room: int, width: int) -> None:
    """On a zone's title: which rows are shown, where not all are."""
    note = f" {first + 1}-{min(first + room, count)}/{count} "
    place = len(out.lines) - min(room, count - first) - 1
    out.lines[place] = [*clip(out.lines[place], width - len(note)), (note, "key")]


def _put_findings(out: Painted, alerts: list[Alert], gaps: int, choices: Choices, width: int, room: int) -> None:
    words = WORDS[choices.lang]
    counts = [(severity, sum(a.severity == severity for a in alerts)) for severity in ("critical", "warning", "info")]
    title: Line = [(words["findings"], "head")]
    for severity, count in counts:
        if count:
            title += [("  ", "head"), (f"{count} {words[severity]}", f"head_{_ALERT_ROLE[severity]}")]
    if not alerts:
        title += [("  ", "head"), (words["no_findings"], "head")]
    if gaps:
        title += [("  ", "head"), (f"{gaps} {words['gap']} (i)", "head_warn")]
    _put(out, clip(title, width, "head"), "findings")
    count = room - 1
    if count <= 0 or not alerts:
        for _ in range(count):
            _put(out, clip([], width), "findings")
        return
    first = _scrolled(choices, "findings", len(alerts), count)
    for place, alert in enumerate(alerts[first : first + count], first):
        line = alert_line(alert, choices.lang, width)
        chosen = choices.zone == "findings" and place == choices.row("findings")
        _put(out, _chosen(line, choices, "findings") if chosen else line, "findings", place)
    if len(alerts) > count:
        _note_more(out, first, len(alerts), count, width)


def alert_line(alert: Alert, lang: str, width: int) -> Line:
    """A finding in a line."""
    from gpuclinic.top.view import text_of

    words = WORDS[lang]
    since = time.strftime(
        "%H:%M:%S" if time.time() - alert.since < 86400 else "%m-%d %H:%M", time.localtime(alert.since)
    )
    mark = {"critical": "!!", "warning": "! ", "info": "· "}[alert.severity]
    role = _ALERT_ROLE[alert.severity]
    size = 8 if lang == "en" else 4
    return clip(
        [
            (f"{mark} ", role),
            (fit(words[alert.severity], size), role),
            (f" {since}  ", "dim"),
            (text_of(alert.text(lang).title), ""),
        ],
        width,
    )


def _put_processes(out: Painted, view: View, choices: Choices, width: int, room: int) -> None:
    if room <= 0:
        return
    words = WORDS[choices.lang]
    holders = shown_holders(view, choices)
    _put(out, process_head(width, choices.lang, choices.sort), "processes")
    count = room - 1
    first = _scrolled(choices, "processes", len(holders), count)
    for place, (depth, holder) in enumerate(holders[first : first + count], first):
        line = process_line(holder, width, choices.lang, depth)
        if choices.zone == "processes" and place == choices.row("processes"):
            line = _chosen(line, choices, "processes")
        elif matches(holder, choices):
            line = [(text, "sorted") for text, _ in line]
        _put(out, line, "processes", place)
    shown = max(0, min(count, len(holders) - first))
    if len(holders) > count:
        _note_more(out, first, len(holders), count, width)
    for number in range(count - shown):
        text = f"  {words['no_processes']}" if not holders and not number else ""
        _put(out, clip([(text, "dim")], width), "processes")


def _bottom(choices: Choices, width: int) -> Line:
    words = WORDS[choices.lang]
    if choices.asking:
        text = choices.filter if choices.asking == "filter" else choices.search
        return clip([(f"{words[choices.asking]}: ", "key"), (text, ""), ("▏", "key")], width)
    line: Line = []
    if choices.said:
        line.append((choices.said + "  ", "warn"))
    if choices.filter:
        line.append((f"{words['filter']}: {choices.filter}  ", "warn"))
    if choices.only_user:
        line.append((f"{words['user']}: {choices.only_user}  ", "warn"))
    if choices.only_gpus:
        line.append((f"GPU {','.join(map(str, choices.only_gpus))}  ", "warn"))
    return clip([*line, (words["bar"], "key")], width, "key")


# ---- graphs


def graph_lines(view: View, past: Past, choices: Choices, width: int, height: int) -> list[Line]:
    """Two graphs beside one another, four where there is room; of the chosen GPU, or the mean of all."""
    words = WORDS[choices.lang]
    gpus = [gpu for gpu in view.gpus if not choices.only_gpus or gpu.index in choices.only_gpus]
    one = gpus[0] if len(gpus) == 1 else None
    name = f"GPU {one.index}" if one is not None else words["all"]
    panels = ["g_util", "g_memory"] + (["g_power", "g_temp"] if width >= 160 else [])
    gap = 2
    each = (width - gap * (len(panels) - 1)) // len(panels)
    step = SECONDS_A_DOT[choices.zoom]
    drawn = [
        _panel(
            _samples(past, gpus, panel, 2 * (each - 5), step, view.at),
            _top(panel, gpus),
            each,
            height,
            f"{name} {words[panel]}",
            words,
            step,
        )
        for panel in panels
    ]
    out: list[Line] = []
    for row in range(height):
        line: Line = []
        for number, panel in enumerate(drawn):
            line += [(" " * gap, "")] if number else []
            line += panel[row]
        out.append(clip(line, width))
    return out


_FIELD = {"g_util": 1, "g_memory": 2, "g_power": 3, "g_temp": 4}


def _samples(past: Past, gpus: list[Gpu], panel: str, count: int, step: int, now: float) -> list[float | None]:
    """The mean of all these GPUs over each step; None where nothing was told. A short step is shown once it is over, so that it is drawn once."""
    sums, counts = [0.0] * count, [0] * count
    field = _FIELD[panel]
    end = int(now) // step + (step > _DRAWN_ONCE_S or step == 1)
    wanted = (panel, tuple(gpu.key for gpu in gpus), count, step, end)
    if step <= _DRAWN_ONCE_S and (known := past.drawn.get(panel)) is not None and known[0] == wanted:
        return known[1]
    for gpu in gpus:
        points = past.points.get(gpu.key, ())
        for point in reversed(points):
            place = count - (end - int(point.at) // step)
            if place < 0:
                break
            value = _value(point, field)
            if value is not None and place < count:
                sums[place] += value
                counts[place] += 1
    means = [total / number if number else None for total, number in zip(sums, counts, strict=True)]
    past.drawn[panel] = (wanted, means)
    return means


def _value(point: Point, field: int) -> float | None:
    value = point[field]
    return value if isinstance(value, int | float) else None


def _top(panel: str, gpus: list[Gpu]) -> float:
    if panel in ("g_util", "g_memory"):
        return 100.0
    if panel == "g_power":
        return max((gpu.number("power_limit_w") or 0.0 for gpu in gpus), default=0.0) or 100.0
    return max((gpu.heat_limit_c or 0.0 for gpu in gpus), default=0.0) or 100.0


def _panel(
    values: list[float | None], top: float, width: int, height: int, title: str, words: dict[str, str], step: int
) -> list[Line]:  # fmt: skip
    inside = width - 5
    last = next((value for value in reversed(values) if value is not None), None)
    span = len(values) * step
    told = f"{words['past']} {span // 60} min" if span >= 120 else f"{words['past']} {span} s"
    head = clip([(f"     {title} ", ""), (whole(last), "graph")], width - width_of([(told, "")]))
    lines: list[Line] = [[*head, (told, "dim")]]
    rows = graph(values, inside, height - 1, top)
    for number, row in enumerate(rows):
        label = whole(top) if not number else "0" if number == height - 2 else ""
        lines.append([(f"{label:>4}", "dim"), ("┤" if label else "│", "edge"), (row, "graph")])
    return lines


# ---- over all


def _lay_over(out: Painted, lines: list[Line], choices: Choices, width: int, height: int) -> None:
    """A box in the middle; what does not fit can be scrolled."""
    inner = min(max((width_of(line) for line in lines), default=10), width - 6)
    most = max(1, height - 4)
    choices.overlay_first = max(0, min(choices.overlay_first, len(lines) - most))
    shown = lines[choices.overlay_first : choices.overlay_first + most]
    top, left = max(0, (height - len(shown) - 2) // 2), max(0, (width - inner - 4) // 2)
    hint = f" {WORDS[choices.lang]['close']} "
    edge = "─" * (inner + 2)
    upper = (
        edge
        if len(lines) <= most
        else fit(
            f"─ {choices.overlay_first + 1}-{choices.overlay_first + len(shown)}/{len(lines)} ", inner + 2
        ).replace("  ", "──")
    )
    box: list[Line] = [[("┌" + upper + "┐", "edge")]]
    box += [[("│ ", "edge"), *clip(line, inner), (" │", "edge")] for line in shown]
    hint = hint if width_of([(hint, "")]) <= inner else ""
    box.append([("└" + edge[: inner + 2 - width_of([(hint, "")])] + hint + "┘", "edge")])
    for number, line in enumerate(box):
        place = top + number
        if place < len(out.lines):
            under = plain(out.lines[place])
            before = fit(under, left)
            out.lines[place] = clip([(before, "dim"), *line], width)


def once_text(view: View, choices: Choices, width: int) -> str:
    """The plain snapshot: everything, nothing cut off below."""
    words, lang = WORDS[choices.lang], choices.lang
    lines = header(view, choices, width)
    gpus = [gpu for gpu in view.gpus if not choices.only_gpus or gpu.index in choices.only_gpus]
    lines.append([])
    if gpus:
        lines.append(device_head(width, lang))
        lines += [line for gpu in gpus for line in device_lines(gpu, width, lang)]
    elif not view.gpus:
        lines.append([(words["no_gpu"], "warn")])
    alerts = shown_alerts(view)
    if alerts:
        lines += [[], [(words["findings"], "head")], *(alert_line(alert, lang, width) for alert in alerts)]
    holders = shown_holders(view, choices)
    lines.append([])
    if holders:
        lines.append(process_head(width, lang, choices.sort))
        lines += [process_line(holder, width, lang, depth) for depth, holder in holders]
    else:
        lines.append([(words["no_processes"], "dim")])
    if view.gaps:
        lines += [[], *([(f"{words['gap']}: {gap.check}: {gap.why}", "dim")] for gap in view.gaps)]
    return "\n".join(plain(line) for line in lines) + "\n"
