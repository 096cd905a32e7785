"""Records that would tell more of a death (how to get them), and the sentences about the process that is asked about."""

from __future__ import annotations

import functools

import msgspec

from gpuclinic.knowledge._load import DATA, packed


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What it is, why it would help, how to get it."""

    id: str
    en: str
    zh: str
    why_en: str
    why_zh: str
    command: str
    source: str


class Sentence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sentence with {places}."""

    id: str
    en: str
    zh: str


class Records(msgspec.Struct, frozen=True):
    """All rows of data/records.toml."""

    records: list[Record]
    sentences: list[Sentence]


@functools.cache
def _all() -> Records:
    return packed(
        "records",
        [DATA / "records.toml"],
        lambda raw: Records(
            msgspec.convert(raw["record"], list[Record]), msgspec.convert(raw["sentence"], list[Sentence])
        ),
        Records,
    )


def wished(ids: list[str], lang: str) -> list[dict[str, str]]:
    """The rows as an answer's `missing`, in the order asked for."""
    rows = {row.id: row for row in _all().records}
    zh = lang == "zh"
    return [
        {"what": row.zh if zh else row.en, "why": row.why_zh if zh else row.why_en, "command": row.command}
        for row in (rows[name] for name in ids)
    ]


def sentence(name: str, lang: str) -> str:
    """The sentence's template."""
    row = next(row for row in _all().sentences if row.id == name)
    return row.zh if lang == "zh" else row.en
