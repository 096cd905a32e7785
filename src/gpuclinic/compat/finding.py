"""What a rule says: that something fails, or that it cannot be told."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """text: the row of knowledge/data/compat/texts.toml, whose id it is; rows under "unknown." say that a rule or a row is missing.

    values: fill the places of the row's texts. source: of the table row that decided, "" for the rule's own source.
    """

    text: str
    values: dict[str, str]
    subject: str = ""
    source: str = ""

    @property
    def unknown(self) -> bool:
        """Whether it says only that this cannot be told."""
        return self.text.startswith("unknown.")
