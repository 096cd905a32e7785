"""The small condition language of rules: a Python-like expression over the fields of facts, evaluated without Python's eval.

Missing fields are None; a comparison or sum with None is false or None, never an error.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import re
import statistics
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class View(Protocol):
    """What a condition may ask about."""

    def facts(self, kind: str) -> Iterable[dict[str, Any]]:
        """The fields of each fact of a kind."""

    def signal_count(self, pattern: str, wanted: dict[str, Any]) -> int:
        """How many signals have an id like the pattern and these identities."""

    def over_window(self, function: str, names: dict[str, Any], field: str) -> Any:
        """grown, per_minute or span of a field of the fact at hand over the window of samples; None where there is only one."""


class ExpressionError(ValueError):
    """A condition that is not in the language; found when the knowledge is tested, not when it is used."""


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> ast.expr:
    """The syntax tree of a condition; raises ExpressionError."""
    try:
        return ast.parse(" ".join(text.split()), mode="eval").body
    except SyntaxError as problem:
        raise ExpressionError(f"{text!r}: {problem.msg}") from None


def holds(text: str, names: dict[str, Any], view: View) -> bool:
    """Whether the condition holds."""
    return bool(_Evaluator(names, view).value(parse(text)))


def number(value: Any) -> float | None:
    """A number out of a value as tools print it ("12.5 W", "85 %", True); None where there is none."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, (int, float)):
        return float(value)
    found = re.search(r"-?\d+(?:\.\d+)?", value) if isinstance(value, str) else None
    return float(found[0]) if found else None


def version(text: Any) -> tuple[int, ...] | None:
    """A dotted version as a tuple that compares; None where there is none."""
    found = re.search(r"\d+(?:\.\d+)*", str(text)) if text is not None else None
    return tuple(int(p) for p in found[0].split(".")) if found else None


class _Namespace:
    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names


class _Evaluator:
    def __init__(self, names: dict[str, Any], view: View) -> None:
        self._names = names
        self._view = view

    def value(self, node: ast.expr) -> Any:  # noqa: C901 - one branch a node type
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return {"true": True, "false": False, "none": None}.get(node.id, self._names.get(node.id))
            case ast.BoolOp(op=ast.And()):
                result: Any = True
                for part in node.values:
                    result = self.value(part)
                    if not result:
                        return result
                return result
            case ast.BoolOp():
                result = False
                for part in node.values:
                    result = self.value(part)
                    if result:
                        return result
                return result
            case ast.UnaryOp(op=ast.Not()):
                return not self.value(node.operand)
            case ast.UnaryOp(op=ast.USub()):
                inner = number(self.value(node.operand))
                return None if inner is None else -inner
            case ast.BinOp():
                return self._arithmetic(node)
            case ast.Compare():
                return self._compare(node)
            case ast.List() | ast.Tuple() | ast.Set():
                return [self.value(e) for e in node.elts]
            case ast.Attribute(value=ast.Name(id="outer")):
                outer = self._names.get("outer")
                return outer.names.get(node.attr) if isinstance(outer, _Namespace) else None
            case ast.IfExp():
                return self.value(node.body) if self.value(node.test) else self.value(node.orelse)
            case ast.Call(func=ast.Name()):
                return self._call(node)
        raise ExpressionError(f"not in the language: {ast.dump(node)[:80]}")

    def _arithmetic(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, str) and isinstance(right, str):
            return left + right
        left, right = number(left), number(right)
        if left is None or right is None:
            return None
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right if right else None
            case ast.FloorDiv():
                return left // right if right else None
            case ast.Mod():
                return left % right if right else None
        raise ExpressionError(f"not in the language: {type(node.op).__name__}")

    def _compare(self, node: ast.Compare) -> bool:
        left = self.value(node.left)
        for operator, expression in zip(node.ops, node.comparators, strict=True):
            right = self.value(expression)
            if not _related(operator, left, right):
                return False
            left = right
        return True

    def _call(self, node: ast.Call) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        arguments = node.args
        if name == "seen":
            wanted = {k.arg: self.value(k.value) for k in node.keywords if k.arg}
            return self._view.signal_count(
                str(self.value(arguments[0])), {k: v for k, v in wanted.items() if v is not None}
            )
        values = [self.value(a) for a in arguments]
        if name in OVER_WINDOW:
            return self._view.over_window(name, self._names, str(values[0]) if values else "")
        if name in _OVER_FACTS:
            return self._over_facts(name, values)
        function = _FUNCTIONS.get(name)
        if function is None:
            raise ExpressionError(f"no function {name}")
        return function(*values)

    def _over_facts(self, name: str, values: list[Any]) -> Any:
        kind = str(values[0])
        field_given = name in ("total", "peak", "lowest", "typical", "values_of")
        condition = values[2 if field_given else 1] if len(values) > (2 if field_given else 1) else None
        tree = parse(str(condition)) if condition else None
        outer = _Namespace(self._names)
        chosen: list[dict[str, Any]] = []
        every = 0
        host = self._names.get("host_name")
        for fields in self._view.facts(kind):
            if host is not None and fields.get("host_name") not in (None, host):
                continue  # a fact of another machine
            every += 1
            if tree is None or _Evaluator({**fields, "outer": outer}, self._view).value(tree):
                chosen.append(fields)
                if name == "some":
                    return True
        if name == "some":
            return False
        if name == "count":
            return len(chosen)
        if name == "all_of":
            return every > 0 and len(chosen) == every
        raw = [f.get(str(values[1])) for f in chosen]
        if name == "values_of":
            return [v for v in raw if v is not None]
        numbers = [n for n in map(number, raw) if n is not None]
        if name == "total":
            return sum(numbers)
        if not numbers:
            return None
        pick: Callable[[list[float]], float] = max if name == "peak" else min if name == "lowest" else statistics.median
        return pick(numbers)


def _related(operator: ast.cmpop, left: Any, right: Any) -> bool:  # noqa: C901 - one branch an operator
    match operator:
        case ast.In():
            return _contains(right, left)
        case ast.NotIn():
            return right is not None and not _contains(right, left)
        case ast.Is():
            return left is right
        case ast.IsNot():
            return left is not right
        case ast.Eq():
            return bool(left == right)
        case ast.NotEq():
            return bool(left != right)
    if left is None or right is None:
        return False
    if isinstance(left, (str, bool)) != isinstance(right, (str, bool)) or (
        isinstance(left, str) and not isinstance(right, tuple)
    ):
        left, right = number(left), number(right)
        if left is None or right is None:
            return False
    try:
        match operator:
            case ast.Lt():
                return bool(left < right)
            case ast.LtE():
                return bool(left <= right)
            case ast.Gt():
                return bool(left > right)
            case ast.GtE():
                return bool(left >= right)
    except TypeError:
        return False
    raise ExpressionError(f"not in the language: {type(operator).__name__}")


def _contains(container: Any, item: Any) -> bool:
    if container is None or item is None:
        return False
    if isinstance(container, str):
        return str(item) in container
    try:
        return item in container
    except TypeError:
        return False


def _has(text: Any, expression: Any) -> bool:
    return text is not None and re.search(str(expression), str(text)) is not None


OVER_WINDOW = frozenset({"grown", "per_minute", "span"})
_OVER_FACTS = frozenset({"some", "all_of", "count", "total", "peak", "lowest", "typical", "values_of"})
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "has": _has,
    "like": lambda text, glob: text is not None and fnmatch.fnmatchcase(str(text), str(glob)),
    "lower": lambda text: str(text).lower() if text is not None else None,
    "version": version,
    "num": number,
    "len": lambda value: len(value) if value is not None else 0,
    "abs": lambda value: abs(n) if (n := number(value)) is not None else None,
    "min": lambda *values: min((n for n in map(number, values) if n is not None), default=None),
    "max": lambda *values: max((n for n in map(number, values) if n is not None), default=None),
    "starts": lambda text, start: text is not None and str(text).startswith(str(start)),
    "basename": lambda text: str(text).rsplit("/", 1)[-1] if text is not None else None,
}
