"""Requirements as pip reads them. Those without markers and addresses, nearly all, need no parser: importing one takes longer than the answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet

if TYPE_CHECKING:
    from packaging.markers import Marker

_PLAIN = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)[ \t]*(?:\[(?P<extras>[A-Za-z0-9 ,._-]*)\])?[ \t]*"
    r"(?:\((?P<inner>[^()]*)\)|(?P<spec>[<>=!~][^;@()]*))?[ \t]*"
)
_EXTRA = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


class NoRequirementError(ValueError):
    """A text that pip would refuse."""


class Demand(NamedTuple):
    """A requirement (PEP 508)."""

    name: str
    extras: frozenset[str]
    specifier: SpecifierSet
    url: str | None = None
    marker: Marker | None = None


def demand(text: str) -> Demand:
    """As pip reads it. NoRequirementError: pip would refuse it."""
    found = _PLAIN.fullmatch(text.strip())
    if found:
        extras = (
            [part.strip() for part in (found["extras"] or "").split(",")] if (found["extras"] or "").strip() else []
        )
        parts = (found["inner"] or found["spec"] or "").split(",")
        try:
            if all(_EXTRA.fullmatch(extra) for extra in extras) and (
                parts == [""] or all(part.strip() for part in parts)
            ):
                return Demand(found["name"], frozenset(extras), SpecifierSet(",".join(parts)))
        except InvalidSpecifier:
            pass  # the parser says what is wrong
    return _parsed(text)


def _parsed(text: str) -> Demand:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        found = Requirement(text)
    except InvalidRequirement as problem:
        raise NoRequirementError(str(problem).split("\n", 1)[0][:200]) from problem
    return Demand(found.name, frozenset(found.extras), found.specifier, found.url, found.marker)


def canonical(name: str) -> str:
    """A package's name as all tools agree on it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
