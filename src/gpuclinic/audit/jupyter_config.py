"""Jupyter's settings out of Python (as a syntax tree, never executed), JSON and command lines. Pure; tokens are never kept."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.model import Where

if TYPE_CHECKING:
    from gpuclinic.audit.scene import Text

_CLASSES = re.compile(
    r"^(?:ServerApp|NotebookApp|LabApp|ExtensionApp|IdentityProvider|PasswordIdentityProvider|JupyterApp|SingleUserNotebookApp|LabServerApp|JupyterNotebookApp)$"
)
_SHORT = {
    "--ip": "ip",
    "--port": "port",
    "--allow-root": "allow_root",
    "--certfile": "certfile",
    "--keyfile": "keyfile",
    "--no-mathjax": "",
    "--ServerApp": "",
}
_WANTED = frozenset(
    [
        "ip", "port", "token", "password", "hashed_password", "certfile", "keyfile", "ssl_options", "allow_root", "allow_origin",
        "allow_origin_pat", "disable_check_xsrf", "allow_unauthenticated_access",
    ]
)  # fmt: skip
_MOST_SETTINGS = 500
"""Assignments that are read of one file; a hostile one may hold ten thousand."""
UNTOLD = object()
"""The value of what is computed."""


class Value(msgspec.Struct, frozen=True):
    """A setting: what it is (a literal, or the text of an expression), and the line."""

    value: Any
    where: Where
    text: str = ""


Settings = dict[str, Value]


def from_python(text: Text) -> Settings:
    """`c.ServerApp.token = ""` and the like; what is computed is kept as its text."""
    try:
        tree = ast.parse(text.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    out: Settings = {}
    left = _MOST_SETTINGS
    for node in ast.walk(tree):
        if left <= 0:
            break
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if isinstance(call.func, ast.Attribute) and call.func.attr == "update" and len(call.args) == 1:
                left -= 1
                _take(out, text, call.func.value, call.args[0], node.lineno)
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets[:8]:
            left -= 1
            _take(
                out,
                text,
                target.value
                if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Attribute)
                else target,
                node.value,
                node.lineno,
                target,
            )
    return out


def _take(
    out: Settings, text: Text, target: ast.expr, value: ast.expr, line: int, whole: ast.expr | None = None
) -> None:
    """One assignment, or the update of a dictionary. A part of ssl_options adds to what stands there."""
    if not (
        isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Attribute)
        and _CLASSES.match(target.value.attr)
    ):
        return
    if target.attr not in _WANTED:
        return
    try:
        shown = ast.unparse(value)[:2000]  # without comments, adjacent strings joined
    except (RecursionError, ValueError):
        shown = ""
    part = isinstance(whole, ast.Subscript) or whole is None
    if part and target.attr != "ssl_options":
        return
    if part:
        key = ast.unparse(whole.slice) if isinstance(whole, ast.Subscript) else ""
        before = out.get(target.attr)
        shown = f"{before.text if before else ''} {key}: {shown}"
    try:
        told = UNTOLD if part else ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        told = UNTOLD
    out[target.attr] = Value(told, _hushed(text, line - 1, target.attr), shown)


def _hushed(text: Text, index: int, name: str) -> Where:
    """The line; of a token or password only its name and whether it is empty."""
    if name in ("token", "password", "hashed_password"):
        line = _line(text, index)
        return text.at(
            index,
            re.sub(r"=.*", lambda m: "= ''" if re.match(r"=\s*u?(''|\"\")\s*(?:$|#|;)", m[0]) else "= (hidden)", line),
        )
    return text.at(index, re.sub(r"((?:token|password)\"?\s*[=:]).*", r"\1 (hidden)", _line(text, index)))


def _line(text: Text, index: int) -> str:
    """Python's parser counts a bare carriage return as the end of a line; then no line is told."""
    lines = text.lines()
    return lines[index] if index < len(lines) else ""


def from_json(text: Text) -> Settings:
    """{"ServerApp": {"ip": "*"}}."""
    try:
        told = json.loads(text.text)
    except (ValueError, RecursionError):
        return {}
    out: Settings = {}
    for name, rows in told.items() if isinstance(told, dict) else ():
        if _CLASSES.match(str(name)) and isinstance(rows, dict):
            for key, value in rows.items():
                if key not in _WANTED:
                    continue
                index = next((n for n, line in enumerate(text.lines()) if f'"{key}"' in line), 0)
                out[str(key)] = Value(
                    value,
                    _hushed(text, index, str(key))
                    if key not in ("token", "password", "hashed_password")
                    else text.at(index, f"{key}: {'(empty)' if value == '' else '(hidden)'}"),
                    str(value)[:2000],
                )
    return out


def from_arguments(words: list[str], where: Where) -> Settings:
    """Options of a command line, traits and their short names."""
    out: Settings = {}
    for n, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not equals and name in ("--ip", "--port", "--certfile", "--keyfile") and n + 1 < len(words):
            equals, value = "=", words[n + 1]
        value = value.strip("\"'")
        trait = re.match(r"^--(\w+)\.(\w+)$", name)
        key = trait[2] if trait and _CLASSES.match(trait[1]) else _SHORT.get(name)
        if not key or (not equals and name != "--allow-root"):
            continue
        told: Any = value if equals else True
        if isinstance(told, str) and told in ("True", "False"):
            told = told == "True"
        out[key] = Value(told, where, value)
    return out
