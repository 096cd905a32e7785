"""What a fast engine looks for in place of a signature's expression.

`plan` gives texts of which every match holds at least one: a plain-text search for them nominates lines, and the
expression itself decides. Where no telling text can be had, it gives a simplified expression that matches at least
wherever the original does. Neither crosses a line feed; both may nominate too much, never too little.
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any, NamedTuple

_MOST_FORMS = 12
_MOST_TOGETHER = 48
_MOST_SEQUENCES = 64
_LONGEST_ANCHOR = 40
_TELLING = 4.2
_PER_TEXT = 0.15
_MOST_EXPRESSIONS = 3
_LETTERS = 3
_FEW_LETTERS = 4
_MARKED = 2.2
_TELLING_END = 2.5
_MOST_ENDS = 6
_COMMON = re.compile(
    r"(?i)NCCL|INFO|WARN(?:ING)?|ERROR|fail(?:ed|ure)?|torch|rank|step|loss|time(?:d )?(?: ?out)?|GPU|CUDA|memory"
    r"|device|kernel|connect(?:ion)?|process|python|node|worker|server|client|error|data|train(?:ing)?|epoch|grad_norm|perplexity|check|file|start(?:ed|ing)?"
    r"|systemd|docker|container|\bto\b|\bfrom\b|\bin\b|\bof\b|\bis\b|\bnot\b|\bfor\b|\bthe\b|\bwith\b|\bon\b|\d+|CMD|/etc/(?:cron)?|/tmp/|Accepted"
)
_SHOUTED = frozenset({"NCCL", "INFO", "WARN", "WARNING", "ERROR", "GPU", "CUDA", "CMD"})
_Node = Any  # of a parsed expression: the standard library declares no types for these
_Items = list[tuple[_Node, _Node]]


def parse(pattern: str) -> tuple[_Items, bool]:
    """The parsed items of an expression, and whether it says (?i) itself."""
    if sys.version_info >= (3, 11):
        parser = importlib.import_module("re._parser")  # the public module for this was renamed without a successor
    else:
        parser = importlib.import_module("sre_parse")
    parsed = parser.parse(pattern)
    return list(parsed), bool(parsed.state.flags & re.IGNORECASE)


class Plan(NamedTuple):
    """How lines are nominated for a signature: any of the texts, or any of the expressions (bytes as UTF-8)."""

    texts: tuple[str, ...]
    expressions: tuple[str, ...]


def plan(pattern: str) -> Plan:
    """Telling texts for those alternatives of an expression that have them, a simplified expression for the others."""
    texts: dict[str, None] = {}
    expressions: dict[str, None] = {}
    _plan(parse(pattern)[0], texts, expressions, pattern.isascii(), _MOST_SEQUENCES)
    kept = [text for text in texts if not any(other != text and other in text for other in texts)]
    return Plan(tuple(kept), tuple(expressions))


def _plan(items: _Items, texts: dict[str, None], expressions: dict[str, None], ascii_only: bool, budget: int) -> None:
    best = _best(items)
    if best is not None and min(map(rarity, best)) >= _TELLING:
        texts.update(dict.fromkeys(text[:_LONGEST_ANCHOR] for text in best))
        return
    parts = _split(items)
    telling: dict[str, None] = {}
    others: dict[str, None] = {}
    for part in parts if parts is not None and len(parts) <= budget else []:
        _plan(part, telling, others, ascii_only, budget // len(parts or [()]))
    if telling and len(others) <= _MOST_EXPRESSIONS:
        texts.update(telling)
        expressions.update(others)
    else:  # no alternative is better off alone
        end = _end(items)
        edge = r"\b" if end is not None and ascii_only and str(items[-1][1]) == "AT_BOUNDARY" else ""
        expressions[nominator(_core(items) if end is None else end, ascii_only) + edge] = None


def _core(items: _Items) -> _Items:
    """The items from the first text of some letters on: what stands before it costs an engine a look at every line."""
    for first in range(len(items)):
        forms = _exact(*items[first - 1]) if first else None
        if forms is not None and min(map(len, forms)) > 0:
            continue  # in the middle of a text
        if _letters_in_front(items[first:]) >= (_LETTERS if first else _LETTERS - 1):
            return items[first:]
    return items


def _end(items: _Items) -> _Items | None:
    """A short alternation that ends the items, where it tells more than their beginning does: "loss ... nan"."""
    last = len(items) - 1
    while last > 0 and str(items[last][0]) == "AT":
        last -= 1
    forms = _exact(*items[last])
    before = _exact(*items[last - 1]) if last else None
    if not forms or len(forms) > _MOST_ENDS or not last or (before is not None and min(map(len, before)) > 0):
        return None
    if min(map(rarity, forms)) < _TELLING_END or any(_letters_in_front(items[n:]) > _FEW_LETTERS for n in range(last)):
        return None
    return items[last:]


def _letters_in_front(items: _Items) -> int:
    """How many letters or digits the shortest text has that items begin with."""
    texts = _exact_items(items[:1])
    for length in range(2, len(items) + 1):
        longer = _exact_items(items[:length]) if texts is not None else None
        if longer is None:
            break
        texts = longer
    texts = texts or _inside(*items[0]) or [""]
    return min(map(_letters, texts))


def _letters(text: str) -> int:
    """How many letters and digits a text has; none where it is all common words, enough where it has many marks."""
    count = sum(map(str.isalnum, text))
    worth = rarity(text)
    return max(count, _LETTERS) if worth >= _MARKED else count if worth >= 1.0 else 0


def _split(items: _Items) -> list[_Items] | None:
    """The sequence for each branch of its first alternation; None where it has none."""
    for place, (operation, argument) in enumerate(items):
        name = str(operation)
        if name == "SUBPATTERN":
            inner = _split(list(argument[3]))
            if inner is not None:
                return [items[:place] + part + items[place + 1 :] for part in inner]
        elif name == "BRANCH":
            return [items[:place] + list(branch) + items[place + 1 :] for branch in argument[1]]
    return None


def longest_literal(pattern: str) -> str:
    """The most telling text that every match of the expression holds, or "" where there is none."""
    best = _best(parse(pattern)[0])
    return best[0] if best is not None and len(best) == 1 else ""


def rarity(text: str) -> float:
    """How rare a text is in ordinary logs: its length, where common words count little and other scripts much."""
    words: list[str] = _COMMON.findall(text)
    common = sum(len(word) for word in words if not word.isupper() or word in _SHOUTED)
    letters = sum(3.0 if ord(c) > 127 else 0.6 if c in " .:,'\"-_/=[](){}" else 1.0 for c in text)
    return letters - 0.75 * common


def _best(items: _Items) -> list[str] | None:
    """The most telling set of texts of which every match of the sequence holds one."""
    best: list[str] | None = None
    run = [""]

    def consider(texts: list[str] | None) -> None:
        nonlocal best
        if texts and "" not in texts:
            value = min(map(rarity, texts)) - _PER_TEXT * len(texts)
            if best is None or value > min(map(rarity, best)) - _PER_TEXT * len(best):
                best = texts

    for operation, argument in items:
        forms = _exact(operation, argument)
        if forms is not None and len(run) * len(forms) <= _MOST_FORMS:
            run = [first + second for first in run for second in forms]
            continue
        consider(run)
        run = forms if forms is not None else [""]
        if forms is None:
            consider(_inside(operation, argument))
    consider(run)
    return best


def _inside(operation: object, argument: _Node) -> list[str] | None:
    """The best texts within an item that is not exact itself."""
    name = str(operation)
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and argument[0] >= 1:
        return _best(list(argument[2]))
    if name == "SUBPATTERN":
        return _best(list(argument[3]))
    if name == "BRANCH":
        together: list[str] = []
        for branch in argument[1]:
            best = _best(list(branch))
            if best is None:
                return None
            together.extend(best)
        return together if len(together) <= _MOST_TOGETHER else None
    return None


def _exact(operation: object, argument: _Node) -> list[str] | None:
    """All texts an item can match, where they are few."""
    name = str(operation)
    if name == "LITERAL":
        return [chr(argument)] if argument != 10 else None
    if name == "AT":
        return [""]
    if name == "IN":
        return _exact_class(argument)
    if name == "SUBPATTERN":
        return _exact_items(list(argument[3]))
    if name == "BRANCH":
        texts: list[str] = []
        for branch in argument[1]:
            forms = _exact_items(list(branch))
            if forms is None or len(texts) + len(forms) > _MOST_FORMS:
                return None
            texts.extend(forms)
        return texts
    if name in ("MAX_REPEAT", "MIN_REPEAT") and argument[1] == argument[0] <= 8 and argument[0] > 0:
        forms = _exact_items(list(argument[2]))
        return [forms[0] * argument[0]] if forms is not None and len(forms) == 1 else None
    if name in ("MAX_REPEAT", "MIN_REPEAT") and tuple(argument[:2]) == (0, 1):
        forms = _exact_items(list(argument[2]))
        return ["", *forms] if forms is not None and len(forms) < 6 else None
    return None


def _exact_items(items: _Items) -> list[str] | None:
    texts = [""]
    for operation, argument in items:
        forms = _exact(operation, argument)
        if forms is None or len(texts) * len(forms) > _MOST_FORMS:
            return None
        texts = [first + second for first in texts for second in forms]
    return texts


def _exact_class(members: _Node) -> list[str] | None:
    if any(str(operation) != "LITERAL" for operation, _ in members) or len(members) > 4:
        return None
    return [chr(argument) for _, argument in members]


_CATEGORIES = {
    "CATEGORY_DIGIT": "0-9",
    "CATEGORY_NOT_DIGIT": r"\x00-\x09\x0b-\x2f\x3a-\xff",
    "CATEGORY_SPACE": r" \t\r\f\v",
    "CATEGORY_NOT_SPACE": r"\x00-\x08\x0e-\x1f\x21-\xff",
    "CATEGORY_WORD": r"0-9A-Za-z_\x80-\xff",
    "CATEGORY_NOT_WORD": r"\x00-\x09\x0b-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\xff",
}
_HIGH = r"\x80-\xff"
_PLACES = {"AT_BEGINNING": "^", "AT_BEGINNING_STRING": "^", "AT_END": "$", "AT_END_STRING": "$", "AT_BOUNDARY": r"\b"}


def nominator(items: _Items, ascii_only: bool) -> str:
    """A simpler expression, in bytes as UTF-8, that matches in each line where the items do."""
    return _sequence(_without_edges(items), ascii_only)


def for_hyperscan(pattern: str) -> str:
    """The whole expression, simplified as a nominator."""
    return nominator(parse(pattern)[0], pattern.isascii())


def _without_edges(items: _Items) -> _Items:
    """Items without what may be missing at the front and at the end: a search finds the same lines without it."""
    kept = list(items)
    while kept and _optional(kept[0]):
        kept.pop(0)
    while kept and _optional(kept[-1]):
        kept.pop()
    if not kept:
        return list(items)
    kept[0] = _headless(kept[0])
    operation, argument = kept[-1]
    if str(operation) in ("MAX_REPEAT", "MIN_REPEAT") and argument[0] >= 1:
        kept[-1] = (operation, (argument[0], argument[0], argument[2]))
    elif str(operation) == "SUBPATTERN":
        kept[-1] = (operation, (*argument[:3], _without_tail(list(argument[3]))))
    elif str(operation) == "BRANCH":
        kept[-1] = (operation, (argument[0], [_without_tail(list(branch)) for branch in argument[1]]))
    return kept


def _headless(item: tuple[_Node, _Node]) -> tuple[_Node, _Node]:
    """An alternation whose branches begin with what they must have."""
    operation, argument = item
    if str(operation) == "SUBPATTERN":
        inner = list(argument[3])
        return (operation, (*argument[:3], [_headless(inner[0]), *inner[1:]])) if inner else item
    if str(operation) != "BRANCH":
        return item
    branches: list[_Items] = []
    for branch in argument[1]:
        kept = list(branch)
        while len(kept) > 1 and _optional(kept[0]):
            kept.pop(0)
        branches.append(kept)
    return (operation, (argument[0], branches))


def _without_tail(items: _Items) -> _Items:
    kept = list(items)
    while len(kept) > 1 and _optional(kept[-1]):
        kept.pop()
    return kept[:-1] + _without_edges(kept[-1:]) if kept else kept


def _optional(item: tuple[Any, Any]) -> bool:
    name = str(item[0])
    return (name in ("MAX_REPEAT", "MIN_REPEAT") and item[1][0] == 0) or (
        name == "AT" and str(item[1]) == "AT_BOUNDARY"
    )


def _written(operation: object, argument: _Node, boundaries: bool) -> str:
    name = str(operation)
    if name == "LITERAL":
        return _literal(argument)
    if name == "NOT_LITERAL":
        return rf"[^\n{_byte(argument)}]" if argument < 128 else "."
    if name == "ANY":
        return "."
    if name == "IN":
        return _class(argument)
    if name == "AT":
        place = _PLACES.get(str(argument), "")
        return place if boundaries or place != r"\b" else ""
    if name in ("SUBPATTERN", "ATOMIC_GROUP"):
        return "(?:" + _sequence(argument[3] if name == "SUBPATTERN" else argument, boundaries) + ")"
    if name == "BRANCH":
        return "(?:" + "|".join(_sequence(branch, boundaries) for branch in argument[1]) + ")"
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _repeat(argument, boundaries)
    raise re.error(f"{name} cannot be searched for by a fast engine")


def _sequence(items: _Node, boundaries: bool) -> str:
    return "".join(_written(operation, argument, boundaries) for operation, argument in items)


def _repeat(argument: _Node, boundaries: bool) -> str:
    least, most, items = argument
    body = _sequence(items, boundaries)
    if not body:
        return ""
    single = ("LITERAL", "ANY", "IN", "NOT_LITERAL", "SUBPATTERN", "BRANCH")
    if len(items) != 1 or str(items[0][0]) not in single or (str(items[0][0]) == "LITERAL" and items[0][1] > 127):
        body = f"(?:{body})"
    if (least, most) == (0, 1):
        return body + "?"
    wide = str(items[0][0]) in ("ANY", "NOT_LITERAL") or (str(items[0][0]) == "IN" and "x80-" in body)
    if int(most) > 12 or wide:  # counting costs an engine much; more than enough is as good here
        return body + ("*" if least == 0 else "+" if least == 1 or wide else f"{{{least},}}")
    return body + (f"{{{least}}}" if least == most else f"{{{least},{int(most)}}}")


def _literal(code: int) -> str:
    return "".join(rf"\x{byte:02x}" for byte in chr(code).encode("utf-8", "replace")) if code > 127 else _byte(code)


def _byte(code: int) -> str:
    character = chr(code)
    return character if character.isalnum() or character in " _" else rf"\x{code:02x}"


def _class(members: _Node) -> str:
    """A class of bytes, as an alternation where it names characters above ASCII; it never holds the line feed."""
    negated = bool(members) and str(members[0][0]) == "NEGATE"
    parts: list[str] = []
    foreign: list[str] = []
    for operation, argument in members:
        name = str(operation)
        if name == "LITERAL" and argument > 127:
            foreign.append(_literal(argument))
        elif name == "LITERAL" and argument != 10:
            parts.append(_byte(argument))
        elif name == "RANGE":
            first, last = argument
            parts.append(rf"{_byte(first)}-{_byte(last)}" if last < 128 else _HIGH)
            if first < 128 <= last:
                parts.append(rf"{_byte(first)}-\x7f")
            if first > 127 and not negated:
                parts.pop()
                foreign.append(r"[\xc2-\xf4][\x80-\xbf]{1,3}")
        elif name == "CATEGORY":
            parts.append(_CATEGORIES[str(argument)])
    if negated:
        kept = "".join(part for part in parts if part != _HIGH)
        return rf"[^\n{kept}]"
    choices = ([f"[{''.join(parts)}]"] if parts else []) + foreign
    return choices[0] if len(choices) == 1 and not foreign else f"(?:{'|'.join(choices)})"
