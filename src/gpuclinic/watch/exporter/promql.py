"""The condition language of check rows as PromQL, as far as our series carry what a row asks about. Pure.

A condition becomes a vector that has one element for each subject for which it holds. A missing value has no element, so a comparison
with it does not hold, as in the language. `not` is `unless`; a condition that is nothing but `not` is taken from all subjects of its kind.
What cannot be said is an Untranslated with the reason: nothing is said in other words than the row's.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.diagnose.expression import parse
from gpuclinic.knowledge.metrics import Metric, metric_of
from gpuclinic.watch.exporter.devices import label_of_field
from gpuclinic.watch.exporter.families import STATES, reason_label
from gpuclinic.watch.exporter.regexes import contains

if TYPE_CHECKING:
    from gpuclinic.knowledge import Check

LEAST_WINDOW_S = 120.0
"""Over so much at least a growth is looked for: a server that scrapes every 30 s has four values in it."""
_SUBJECTS = {
    "gpu": "gpuclinic_gpu_up", "fs": "gpuclinic_filesystem_size_bytes", "pressure": "gpuclinic_pressure_some_avg10_ratio",
    "ib_port": "gpuclinic_infiniband_port_up", "ib_counters": "gpuclinic_infiniband_link_downed_total",
    "net_interface": "gpuclinic_network_received_packets_total", "block_device": "gpuclinic_disk_requests_in_flight",
    "nvlink_gpu": "gpuclinic_gpu_nvlinks_active", "nvlink": "gpuclinic_nvlink_replay_errors_total",
    "memory": "gpuclinic_memory_size_bytes", "sensor": "gpuclinic_sensor_reading", "kernel_table": "gpuclinic_kernel_table_used",
    "time_sync": "gpuclinic_clock_offset_seconds", "process_count": "gpuclinic_processes", "cpu_times": "gpuclinic_load1",
    "vm_counters": "gpuclinic_oom_kills_total", "cgroup": "gpuclinic_cgroup_oom_kills_total",
}  # fmt: skip
"""A series that every subject of a kind has."""
_LIKE_A_GPU = frozenset(("gpu", "nvlink_gpu"))
_OPS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_OF_ALL = {"peak": "max", "lowest": "min", "total": "sum", "typical": "quantile", "count": "count", "some": "count"}
_NAME_OF_OUTER = "name == outer.name"


class Untranslated(ValueError):  # noqa: N818 - no error: an answer
    """Why a condition cannot be said in PromQL."""


class _Part(NamedTuple):
    """A condition: where `text` has an element it holds, or, if `negated`, where it has none."""

    text: str
    negated: bool = False


def translated(row: Check, condition: str) -> str:
    """A row's `where` and one of its conditions. Raises Untranslated."""
    return _Translation(row.over, row.window_s).whole([row.where, condition])


class _Translation:
    """One condition about subjects of a kind. matchers: what label conditions come to, for all selectors."""

    def __init__(self, kind: str, window_s: float, matchers: tuple[str, ...] = ()) -> None:
        self._kind = kind
        self._window = f"{max(window_s or 60.0, LEAST_WINDOW_S):.0f}s"
        self._matchers = matchers

    def whole(self, conditions: list[str]) -> str:
        """All of them together, as one vector."""
        nodes = [part for text in conditions if text for part in _conjuncts(parse(text))]
        rest = []
        for node in nodes:
            matchers = self._of_labels(node)
            if matchers is None:
                rest.append(node)
            else:
                self._matchers += matchers
        if not rest:
            return self._subjects()
        return self._plain(self._every([self._part(node) for node in rest]))

    # ---- selectors

    def _selector(self, name: str, *more: str, after: str = "") -> str:
        inner = ",".join((*more, *self._matchers))
        return f"{name}{{{inner}}}{after}" if inner else f"{name}{after}"

    def _subjects(self, after: str = "") -> str:
        name = _SUBJECTS.get(self._kind)
        if name is None:
            raise Untranslated(f"nothing says which {self._kind or 'machine'} there are")
        return self._selector(name, after=after)

    def _metric(self, field: str) -> Metric:
        metric = metric_of(self._kind, field)
        if metric is None:
            raise Untranslated(f"{self._kind or 'machine'}.{field} is not exported")
        return metric

    def _words(self, field: str, matcher: str) -> str:
        if self._kind == "nvlink_gpu" and field == "state":
            field = "nvlink_state"
        elif self._kind not in _LIKE_A_GPU or field not in STATES:
            raise Untranslated(f"{self._kind or 'machine'}.{field} is not exported")
        chosen = self._selector("gpuclinic_gpu_state_info", f'field="{field}"', matcher)
        return f"count without (field, value) ({chosen})"

    def _of_labels(self, node: ast.expr) -> tuple[str, ...] | None:
        """Matchers that say the same; None where it is no condition on a label alone."""
        wanted = not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))
        inner = node.operand if isinstance(node, ast.UnaryOp) and not wanted else node
        match inner:
            case ast.Compare(
                left=ast.Name(id=field),
                ops=[ast.Eq() | ast.NotEq() as op],
                comparators=[ast.Constant(value=str(value))],
            ):
                label = label_of_field(self._kind, field)
                sign = "=" if isinstance(op, ast.Eq) == wanted else "!="
                return None if label is None else (f'{label}{sign}"{_quoted(value)}"',)
            case ast.Compare(
                left=ast.Name(id=field), ops=[ast.In() | ast.NotIn() as op], comparators=[ast.List(elts=parts)]
            ):
                label = label_of_field(self._kind, field)
                sign = "=~" if isinstance(op, ast.In) == wanted else "!~"
                return None if label is None else (f'{label}{sign}"{_any_of(parts)}"',)
            case ast.Call(func=ast.Name(id="has"), args=[ast.Name(id=field), ast.Constant(value=str(pattern))]):
                label = label_of_field(self._kind, field)
                sign = "=~" if wanted else "!~"
                return None if label is None else (f'{label}{sign}"{_quoted(contains(pattern))}"',)
        return None

    # ---- conditions

    def _part(self, node: ast.expr) -> _Part:
        match node:
            case ast.BoolOp(op=ast.And()):
                return self._every([self._part(part) for part in node.values])
            case ast.BoolOp():
                return _Part(_joined([self._plain(self._part(part)) for part in node.values], "or"))
            case ast.UnaryOp(op=ast.Not()):
                inner = self._part(node.operand)
                return inner._replace(negated=not inner.negated)
            case ast.Compare(ops=[operator]):
                return self._compared(node.left, operator, node.comparators[0])
            case ast.Name(id=field):
                return _Part(f"{self._selector(self._metric(field).name)} != 0")
            case ast.Call(func=ast.Name(id="has"), args=[ast.Name(id=field), ast.Constant(value=str(pattern))]):
                return _Part(self._has(field, pattern))
            case ast.Call(func=ast.Name(id="some"), args=[ast.Constant(value=str(kind)), *rest]):
                return _Part(self._some(kind, rest))
        raise Untranslated(f"no way to say {ast.unparse(node)[:80]}")

    def _every(self, parts: list[_Part]) -> _Part:
        told = [part.text for part in parts if not part.negated]
        against = [part.text for part in parts if part.negated]
        if not told:
            return _Part(_joined(against, "or"), negated=True)
        text = _joined(told, "and")
        for one in against:
            text = f"{_bracketed(text)} unless {_bracketed(one)}"
        return _Part(text)

    def _plain(self, part: _Part) -> str:
        return f"{self._subjects()} unless {_bracketed(part.text)}" if part.negated else part.text

    def _has(self, field: str, pattern: str) -> str:
        if field == "throttle_active" and self._kind == "gpu":
            matcher = f'reason=~"{_quoted(contains(reason_label(pattern)))}"'
            return f"count without (reason) ({self._selector('gpuclinic_gpu_throttled', matcher)} == 1)"
        return self._words(field, f'value=~"{_quoted(contains(pattern))}"')

    def _some(self, kind: str, rest: list[ast.expr]) -> str:
        """Some fact of a kind: of the same GPU, where both are about GPUs; of the same model, where that is asked."""
        texts = [part.value for part in rest if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        parts = [part for text in texts for part in _conjuncts(parse(text))]
        same = [part for part in parts if ast.unparse(part) in ("index == outer.gpu_index", "key == outer.key")]
        if len(same) == 1 and kind in _LIKE_A_GPU and self._kind in _LIKE_A_GPU:
            others = [part for part in parts if part not in same]
            other = _Translation(kind, 0.0)
            return other._plain(other._every([other._part(part) for part in others]))
        raise Untranslated(f"looks at facts of another kind ({kind})")

    def _compared(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> _Part:
        match left, operator, right:
            case ast.Name(id=field), ast.Is() | ast.IsNot(), ast.Constant(value=None):
                return _Part(self._there(field), negated=isinstance(operator, ast.Is))
            case ast.Name(id=field), ast.Eq() | ast.NotEq(), ast.Constant(value=str(value)):
                return _Part(self._words(field, f'value="{_quoted(value)}"'), negated=isinstance(operator, ast.NotEq))
            case ast.Name(id=field), ast.In() | ast.NotIn(), ast.List(elts=parts):
                return _Part(self._words(field, f'value=~"{_any_of(parts)}"'), negated=isinstance(operator, ast.NotIn))
            case ast.Call(func=ast.Name(id="span")), ast.GtE(), ast.Constant(value=int(seconds)):
                return _Part(self._subjects(f" offset {seconds}s"))
        sign = _OPS.get(type(operator))
        if sign is None:
            raise Untranslated(f"no way to say {ast.unparse(left)} {type(operator).__name__}")
        negated = isinstance(operator, ast.NotEq)  # a missing value is different from everything
        first, second = self._sides(left, right)
        return _Part(f"{first} {'==' if negated else sign} {second}", negated)

    def _there(self, field: str) -> str:
        if self._kind == "gpu" and field in STATES:
            return self._words(field, 'value!=""')
        return self._selector(self._metric(field).name)

    # ---- numbers

    def _sides(self, left: ast.expr, right: ast.expr) -> tuple[str, str]:
        """Both sides; a lone field is left in its base unit and the number beside it is brought to that."""
        factors = {self._metric(field).factor for field in [*_own_fields(left), *_own_fields(right)]}
        if (constant := _constant(right)) is not None and len(factors) == 1 and _scales(left):
            return self._number(left, raw=True), _figure(constant * factors.pop())
        if len(factors) == 1 and _scales(left) and _scales(right):
            return self._number(left, raw=True), self._number(right, raw=True)
        return self._number(left), self._number(right)

    def _number(self, node: ast.expr, *, raw: bool = False) -> str:
        """A number for each subject, in the units of the fields; raw: in base units."""
        constant = _constant(node)
        if constant is not None:
            return _figure(constant)
        match node:
            case ast.Name(id=field):
                metric = self._metric(field)
                return self._in_unit(self._selector(metric.name), metric, raw=raw)
            case ast.BinOp(op=op) if type(op) in _SIGNS:
                return f"({self._number(node.left, raw=raw)} {_SIGNS[type(op)]} {self._number(node.right, raw=raw)})"
            case ast.Call(func=ast.Name(id="abs"), args=[inner]):
                return f"abs({self._number(inner, raw=raw)})"
            case ast.Call(
                func=ast.Name(id="grown" | "per_minute" | "slope_per_hour" as name),
                args=[ast.Constant(value=str(field))],
            ):
                return self._over_window(name, self._metric(field), raw=raw)
            case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(kind)), *rest]) if name in _OF_ALL:
                return self._of_all(
                    name, kind, [part.value for part in rest if isinstance(part, ast.Constant)], raw=raw
                )
        raise Untranslated(f"no way to say {ast.unparse(node)[:80]}")

    @staticmethod
    def _in_unit(text: str, metric: Metric, *, raw: bool) -> str:
        return text if raw or metric.factor == 1.0 else f"({text} / {_figure(metric.factor)})"

    def _over_window(self, name: str, metric: Metric, *, raw: bool) -> str:
        series = self._selector(metric.name, after=f"[{self._window}]")
        counts = metric.type == "counter"
        if name == "grown":
            return self._in_unit(f"{'increase' if counts else 'delta'}({series})", metric, raw=raw)
        rate = self._in_unit(f"{'rate' if counts else 'deriv'}({series})", metric, raw=raw)
        return f"({rate} * {60 if name == 'per_minute' else 3600})"

    def _of_all(self, name: str, kind: str, given: list[object], *, raw: bool) -> str:
        """A number over all GPUs of a server, or all of the same model, put beside each of them."""
        if kind != self._kind or kind not in _LIKE_A_GPU:
            raise Untranslated(f"looks at facts of another kind ({kind})")
        field = str(given[0]) if name in ("peak", "lowest", "total", "typical") else None
        condition = next((str(text) for text in given[1 if field else 0 :]), "")
        parts = _conjuncts(parse(condition)) if condition else []
        of_model = [part for part in parts if ast.unparse(part) == _NAME_OF_OUTER]
        others = [part for part in parts if part not in of_model]
        if any("outer" in ast.unparse(part) for part in others):
            raise Untranslated(f"compares each with each other ({condition[:80]})")
        inner = _Translation(kind, 0.0, self._matchers)
        values = inner._number(ast.Name(id=field), raw=raw) if field else inner._subjects()
        if others:
            values = f"{_bracketed(values)} and {_bracketed(inner._plain(inner._every([inner._part(part) for part in others])))}"
        group = "job, instance, model" if of_model else "job, instance"
        quantile = "0.5, " if name == "typical" else ""
        return (
            f"(0 * {self._subjects()} + on ({group}) group_left () {_OF_ALL[name]} by ({group}) ({quantile}{values}))"
        )


def _conjuncts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [part for value in node.values for part in _conjuncts(value)]
    return [node]


def _own_fields(node: ast.expr) -> list[str]:
    """Fields that stand for a number of the subject, also those over a window; functions over other facts have their own."""
    match node:
        case ast.Name(id=field):
            return [field] if field not in ("true", "false", "none") else []
        case ast.Call(
            func=ast.Name(id="grown" | "per_minute" | "slope_per_hour"), args=[ast.Constant(value=str(field))]
        ):
            return [field]
        case ast.Call(
            func=ast.Name(id="peak" | "lowest" | "total" | "typical"), args=[_, ast.Constant(value=str(field)), *_]
        ):
            return [field]
        case ast.Call(
            func=ast.Name(id="count" | "some" | "hours_until" | "usual" | "usual_low" | "usual_high" | "trend")
        ):
            return []
    children = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
    return [field for child in children if isinstance(child, ast.expr) for field in _own_fields(child)]


def _scales(node: ast.expr) -> bool:
    """Whether it grows with the unit: a field, a sum of such, a multiple of such."""
    match node:
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return _scales(node.left) and _scales(node.right)
        case ast.BinOp(op=ast.Mult()):
            return (_constant(node.left) is not None and _scales(node.right)) or (
                _scales(node.left) and _constant(node.right) is not None
            )
        case ast.Call(func=ast.Name(id="count")):
            return False
    return _constant(node) is None


def _constant(node: ast.expr) -> float | None:
    match node:
        case ast.Constant(value=bool(value)):
            return float(value)
        case ast.Constant(value=int(number) | float(number)):
            return float(number)
        case ast.Name(id="true" | "false" as word):
            return float(word == "true")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _constant(operand)
            return -inner if inner is not None else None
    return None


def _figure(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else format(value, ".10g")


def _any_of(parts: list[ast.expr]) -> str:
    from gpuclinic.watch.exporter.regexes import literal

    values = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    if len(values) != len(parts):
        raise Untranslated("a list of other things than words")
    return _quoted("|".join(literal(value) for value in values))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _bracketed(text: str) -> str:
    return (
        text
        if text.startswith("count without") and " unless " not in text and " and " not in text and " or " not in text
        else f"({text})"
    )


def _joined(texts: list[str], word: str) -> str:
    return texts[0] if len(texts) == 1 else f" {word} ".join(_bracketed(text) for text in texts)
