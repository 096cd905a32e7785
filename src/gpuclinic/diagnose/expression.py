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

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Compiled = Callable[[Mapping[str, Any], Mapping[str, Any] | None, "View"], Any]


class View(Protocol):
    """What a condition may ask about."""

    def facts(self, kind: str) -> Iterable[Mapping[str, Any]]:
        """The fields of each fact of a kind."""

    def signal_count(self, pattern: str, wanted: dict[str, Any]) -> int:
        """How many signals have an id like the pattern and these identities."""

    def over_window(self, function: str, names: Mapping[str, Any], field: str) -> Any:
        """A function of OVER_WINDOW over a field of the fact at hand; None where there is only one sample, or no past."""


class ExpressionError(ValueError):
    """A condition that is not in the language; found when the knowledge is tested, not when it is used."""


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> ast.expr:
    """The syntax tree of a condition; raises ExpressionError."""
    try:
        return ast.parse(" ".join(text.split()), mode="eval").body
    except SyntaxError as problem:
        raise ExpressionError(f"{text!r}: {problem.msg}") from None


def holds(text: str, names: Mapping[str, Any], view: View) -> bool:
    """Whether the condition holds."""
    return bool(compiled(text)(names, None, view))


@functools.lru_cache(maxsize=4096)
def compiled(text: str) -> Compiled:
    """The condition as a function of the fields of the fact at hand, those of the outer one, and the view; raises ExpressionError."""
    return _compile(parse(text))


class Reads(msgspec.Struct):
    """What a condition looks at. own: fields of the fact at hand. others: kinds of facts, and of each the fields.

    series: fields of the fact at hand over the window. anything: it cannot be said beforehand.
    """

    own: set[str]
    others: dict[str, set[str]]
    series: set[str]
    anything: bool = False


def reads(texts: Iterable[str]) -> Reads:
    """What these conditions look at together."""
    out = Reads(set(), {}, set())
    for text in texts:
        if text:
            _read(parse(text), out, ())
    return out


def _read(node: ast.AST, out: Reads, about: tuple[str, ...]) -> None:
    """about: the kinds of facts of the conditions around this one; empty for the outermost."""
    match node:
        case ast.Name(id=name):
            if name not in _CONSTANTS:
                _field(out, about, name)
            return
        case ast.Attribute(value=ast.Name(id="outer"), attr=field):
            _field(out, about[:-1], field)
            return
        case ast.Call(func=ast.Name(id=name)):
            given = [a.value if isinstance(a, ast.Constant) else None for a in node.args]
            if name in _OVER_FACTS:
                _read_facts(name, given, out, about)
            elif name == "seen":
                out.anything = True
            elif (name in OVER_WINDOW or name == "hours_until") and given and isinstance(given[0], str):
                _field(out, about, given[0])
                out.series.add(given[0])
            for argument in (*node.args, *(k.value for k in node.keywords)):
                _read(argument, out, about)
            return
    for child in ast.iter_child_nodes(node):
        _read(child, out, about)


def _field(out: Reads, about: tuple[str, ...], name: str) -> None:
    (out.others.setdefault(about[-1], set()) if about else out.own).add(name)


def _read_facts(name: str, given: list[Any], out: Reads, about: tuple[str, ...]) -> None:
    place = 2 if name in _OF_A_FIELD else 1
    if not all(isinstance(g, str) for g in given):
        out.anything = True
        return
    fields = out.others.setdefault(given[0], set())
    if name in _OF_A_FIELD:
        fields.add(given[1])
    if len(given) > place:
        _read(parse(given[place]), out, (*about, given[0]))


def number(value: Any) -> float | None:
    """A number out of a value as tools print it ("12.5 W", "85 %", True); None where there is none."""
    if isinstance(value, (int, float)):
        return float(value)
    if value is None:
        return None
    found = re.search(r"-?\d{1,18}(?:\.\d+)?", value[:400]) if isinstance(value, str) else None
    return float(found[0]) if found else None


def version(text: Any) -> tuple[int, ...] | None:
    """A dotted version as a tuple that compares; None where there is none."""
    found = re.search(r"\d{1,18}(?:\.\d{1,18})*", str(text)[:400]) if text is not None else None
    return tuple(int(p) for p in found[0].split(".")) if found else None


def _compile(node: ast.expr) -> Compiled:
    match node:
        case ast.Constant(value=value):
            return lambda names, outer, view: value  # noqa: ARG005
        case ast.Name(id=name):
            if name in _CONSTANTS:
                known = _CONSTANTS[name]
                return lambda names, outer, view: known  # noqa: ARG005
            return lambda names, outer, view: names.get(name)  # noqa: ARG005
        case ast.BoolOp(op=ast.And()):
            return _every([_compile(part) for part in node.values])
        case ast.BoolOp():
            return _either([_compile(part) for part in node.values])
        case ast.UnaryOp(op=ast.Not()):
            negated = _compile(node.operand)
            return lambda names, outer, view: not negated(names, outer, view)
        case ast.UnaryOp(op=ast.USub()):
            operand = _compile(node.operand)
            return lambda names, outer, view: None if (n := number(operand(names, outer, view))) is None else -n
        case ast.BinOp():
            return _arithmetic(node)
        case ast.Compare():
            return _comparison(node)
        case ast.List() | ast.Tuple() | ast.Set():
            parts = [_compile(e) for e in node.elts]
            return lambda names, outer, view: [part(names, outer, view) for part in parts]
        case ast.Attribute(value=ast.Name(id="outer"), attr=field):
            return lambda names, outer, view: outer.get(field) if outer is not None else None  # noqa: ARG005
        case ast.IfExp():
            test, body, otherwise = _compile(node.test), _compile(node.body), _compile(node.orelse)
            return lambda names, outer, view: (body if test(names, outer, view) else otherwise)(names, outer, view)
        case ast.Call(func=ast.Name(id=name)):
            return _call(name, node)
    raise ExpressionError(f"not in the language: {ast.dump(node)[:80]}")


def _every(parts: list[Compiled]) -> Compiled:
    def run(names: Mapping[str, Any], outer: Mapping[str, Any] | None, view: View) -> Any:
        result: Any = True
        for part in parts:
            result = part(names, outer, view)
            if not result:
                break
        return result

    return run


def _either(parts: list[Compiled]) -> Compiled:
    def run(names: Mapping[str, Any], outer: Mapping[str, Any] | None, view: View) -> Any:
        result: Any = False
        for part in parts:
            result = part(names, outer, view)
            if result:
                break
        return result

    return run


def _arithmetic(node: ast.BinOp) -> Compiled:
    work = _OPERATIONS.get(type(node.op))
    if work is None:
        raise ExpressionError(f"not in the language: {type(node.op).__name__}")
    first, second, joins = _compile(node.left), _compile(node.right), isinstance(node.op, ast.Add)

    def run(names: Mapping[str, Any], outer: Mapping[str, Any] | None, view: View) -> Any:
        left, right = first(names, outer, view), second(names, outer, view)
        if joins and isinstance(left, str) and isinstance(right, str):
            return left + right
        left, right = number(left), number(right)
        return None if left is None or right is None else work(left, right)

    return run


def _comparison(node: ast.Compare) -> Compiled:
    first = _compile(node.left)
    rest = [(_relation(op), _compile(e)) for op, e in zip(node.ops, node.comparators, strict=True)]
    if len(rest) == 1:
        relation, second = rest[0]
        return lambda names, outer, view: relation(first(names, outer, view), second(names, outer, view))

    def run(names: Mapping[str, Any], outer: Mapping[str, Any] | None, view: View) -> bool:
        left = first(names, outer, view)
        for related, other in rest:
            right = other(names, outer, view)
            if not related(left, right):
                return False
            left = right
        return True

    return run


def _call(name: str, node: ast.Call) -> Compiled:
    arguments = [_compile(a) for a in node.args]
    if name == "seen":
        wanted = {k.arg: _compile(k.value) for k in node.keywords if k.arg}

        def count(names: Mapping[str, Any], outer: Mapping[str, Any] | None, view: View) -> int:
            found = {k: v for k, f in wanted.items() if (v := f(names, outer, view)) is not None}
            return view.signal_count(str(arguments[0](names, outer, view)), found)

        return count
    if name == "hours_until":
        return _hours_until(arguments)
    if name in OVER_WINDOW:
        return lambda names, outer, view: view.over_window(
            name, names, str(arguments[0](names, outer, view)) if arguments else ""
        )
    if name in _OVER_FACTS:
        return lambda names, outer, view: _over_facts(name, [a(names, outer, view) for a in arguments], names, view)
    function = _FUNCTIONS.get(name)
    if function is None:
        raise ExpressionError(f"no function {name}")
    return lambda names, outer, view: function(*[a(names, outer, view) for a in arguments])


def _hours_until(arguments: list[Compiled]) -> Compiled:
    """Hours until a field that goes on as it did over the window meets a limit; None where it does not go there."""
    if len(arguments) != 2:
        raise ExpressionError("hours_until takes a field and a limit")
    which, where = arguments

    def run(names: Mapping[str, Any], outer: Mapping[str, Any] | None, view: View) -> float | None:
        field = str(which(names, outer, view))
        now, limit = number(names.get(field)), number(where(names, outer, view))
        slope = number(view.over_window("slope_per_hour", names, field))
        if now is None or limit is None or not slope:
            return None
        hours = (limit - now) / slope
        return hours if hours >= 0 else None

    return run


def _over_facts(name: str, values: list[Any], outer: Mapping[str, Any], view: View) -> Any:
    place = 2 if name in _OF_A_FIELD else 1
    condition = values[place] if len(values) > place else None
    fits = compiled(str(condition)) if condition else None
    chosen: list[Mapping[str, Any]] = []
    every = 0
    host = outer.get("host_name")
    for fields in view.facts(str(values[0])):
        if host is not None and fields.get("host_name") not in (None, host):
            continue  # a fact of another machine
        every += 1
        if fits is None or fits(fields, outer, view):
            chosen.append(fields)
            if name == "some":
                return True
    if name == "some":
        return False
    if name == "count":
        return len(chosen)
    if name == "all_of":
        return every > 0 and len(chosen) == every
    return _of_fields(name, [f.get(str(values[1])) for f in chosen])


def _of_fields(name: str, raw: list[Any]) -> Any:
    if name == "values_of":
        return [v for v in raw if v is not None]
    numbers = [n for n in map(number, raw) if n is not None]
    if name == "total":
        return sum(numbers)
    if not numbers:
        return None
    pick: Callable[[list[float]], float] = max if name == "peak" else min if name == "lowest" else statistics.median
    return pick(numbers)


def _relation(operator: ast.cmpop) -> Callable[[Any, Any], bool]:
    match operator:
        case ast.In():
            return lambda left, right: _contains(right, left)
        case ast.NotIn():
            return lambda left, right: right is not None and not _contains(right, left)
        case ast.Is():
            return lambda left, right: left is right
        case ast.IsNot():
            return lambda left, right: left is not right
        case ast.Eq():
            return lambda left, right: bool(left == right)
        case ast.NotEq():
            return lambda left, right: bool(left != right)
        case ast.Lt():
            return _ordered(lambda left, right: left < right)
        case ast.LtE():
            return _ordered(lambda left, right: left <= right)
        case ast.Gt():
            return _ordered(lambda left, right: left > right)
        case ast.GtE():
            return _ordered(lambda left, right: left >= right)
    raise ExpressionError(f"not in the language: {type(operator).__name__}")


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    """An order of numbers, of texts that stand for numbers, and of versions; false where either is missing."""

    def run(left: Any, right: Any) -> bool:
        if left is None or right is None:
            return False
        if type(left) not in _PLAIN or type(right) not in _PLAIN:
            if isinstance(left, (str, bool)) != isinstance(right, (str, bool)) or (
                isinstance(left, str) and not isinstance(right, tuple)
            ):
                left, right = number(left), number(right)
                if left is None or right is None:
                    return False
            try:
                return bool(compare(left, right))
            except TypeError:
                return False
        return bool(compare(left, right))

    return run


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


OVER_WINDOW = frozenset({"grown", "per_minute", "span", "slope_per_hour", "trend", "usual", "usual_low", "usual_high"})
_PLAIN = (int, float)
_OVER_FACTS = frozenset({"some", "all_of", "count", "total", "peak", "lowest", "typical", "values_of"})
_OF_A_FIELD = frozenset({"total", "peak", "lowest", "typical", "values_of"})
_CONSTANTS = {"true": True, "false": False, "none": None}
_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float | None]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right if right else None,
    ast.FloorDiv: lambda left, right: left // right if right else None,
    ast.Mod: lambda left, right: left % right if right else None,
}
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
