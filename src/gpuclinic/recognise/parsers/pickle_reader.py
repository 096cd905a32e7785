"""Reads pickles of plain containers, numbers and strings without executing them: no import, no call, no object."""

from __future__ import annotations

import pickletools
from typing import Any

MOST_BYTES = 256 << 20
_MARK = object()
_PLAIN = frozenset(
    [
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "UNICODE",
        "BININT",
        "BININT1",
        "BININT2",
        "INT",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
    ]
)
_FIXED = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}


class NotPlainError(ValueError):
    """The pickle holds more than plain data, or is damaged."""


def load_plain(data: bytes) -> object:
    """The plain data in a pickle; raises NotPlainError at the first opcode that would import, call or build "
    "anything."""
    if len(data) > MOST_BYTES:
        raise NotPlainError("too large")
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if machine.step(opcode.name, argument):
                return machine.stack[-1] if machine.stack else None
    except NotPlainError:
        raise
    except (
        ValueError,
        IndexError,
        TypeError,
        KeyError,
        AttributeError,
        EOFError,
        OverflowError,
        UnicodeError,
        MemoryError,
    ) as problem:
        raise NotPlainError(f"damaged pickle: {problem}") from None
    raise NotPlainError("no end")


class _Machine:
    """The stack of a pickle, for the opcodes of plain data."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: object) -> bool:
        """Executes one opcode; True at the end."""
        stack = self.stack
        if name in _PLAIN:
            stack.append(argument)
        elif name in _FIXED:
            stack.append(_FIXED[name])
        elif name in ("PROTO", "FRAME"):
            pass
        elif name == "STOP":
            return True
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[int(str(argument))] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[int(str(argument))])
        elif name == "POP":
            stack.pop()
        elif not self._container(name):
            raise NotPlainError(f"opcode {name}")
        return False

    def _container(self, name: str) -> bool:
        stack = self.stack
        if name in ("EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET", "EMPTY_TUPLE"):
            stack.append({"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set, "EMPTY_TUPLE": tuple}[name]())
        elif name == "LIST":
            stack.append(self._since_mark())
        elif name in ("TUPLE", "FROZENSET"):
            stack.append(tuple(self._since_mark()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            size = int(name[-1])
            items = tuple(stack[-size:])
            del stack[-size:]
            stack.append(items)
        elif name == "DICT":
            stack.append(self._pairs(self._since_mark()))
        elif name == "APPEND":
            item = stack.pop()
            stack[-1].append(item)
        elif name == "APPENDS":
            items_found = self._since_mark()
            stack[-1].extend(items_found)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            stack[-1][key] = value
        elif name == "SETITEMS":
            found = self._pairs(self._since_mark())
            stack[-1].update(found)
        elif name == "ADDITEMS":
            added = self._since_mark()
            stack[-1].update(added)
        else:
            return False
        return True

    def _since_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise NotPlainError("no mark")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    @staticmethod
    def _pairs(items: list[Any]) -> dict[Any, Any]:
        return dict(zip(items[::2], items[1::2], strict=True))
