"""What a check of the audit hands on: a sign of a break-in, or a weak setting, with what shows it. Pure data."""

from __future__ import annotations

import msgspec

from gpuclinic.model import Scalar, Where


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was found.

    id: a row of knowledge/data/audit/findings.toml. subject: what it is about, as a person names it ("pid 41877 (nvupd)",
    "/etc/cron.d/update:3", "sshd"). refs: what links it to other hits of the same intruder, in the forms that `refs.py` makes
    ("pid:41877", "file:/tmp/.X11-cache/nvupd", "unit:x.service"); a user or a host is no such link. evidence: what shows it, secrets
    masked. values: fill the places of the row's texts. grade: where this hit is stronger or weaker than its row says
    ("conclusive", "strong", "medium", "weak" of a break-in; None: the row's). severity: likewise of a weak setting. kind: hits of
    one kind count once (default: the id). alike: an honest twin that it could not be told apart from, as a key of the row's texts.
    """

    id: str
    subject: str
    evidence: list[Where]
    refs: frozenset[str] = frozenset()
    values: dict[str, Scalar] = {}
    grade: str | None = None
    severity: str | None = None
    kind: str | None = None
    pid: int | None = None
    gpu_index: int | None = None
