"""Weak accounts: empty passwords, who may read the hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.audit.hits import Hit

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Scene


def empty(scene: Scene) -> list[Hit]:
    """account_empty_password: nothing stands where the hash should; that shows who has none, and no hash is kept."""
    out = []
    shadow = scene.text("/etc/shadow", "audit.accounts")
    logs_in = {account.name: account.may_log_in for account in scene.accounts}
    for index, line in enumerate(shadow.lines()[:50_000] if shadow else ()):
        cells = line.split(":")
        if shadow is not None and len(cells) >= 8 and cells[0] and cells[1] == "":
            out.append(
                Hit(id="account_empty_password", subject=cells[0][:64], evidence=[shadow.at(index, f"{cells[0]}:(empty):...")], values={"name": cells[0][:64]},
                    severity=None if logs_in.get(cells[0], True) else "info")
            )  # fmt: skip
    passwd = scene.text("/etc/passwd")
    for account in scene.accounts:
        if account.password == "" and passwd is not None and account.name not in ("+", "-"):
            out.append(
                Hit(id="account_empty_password", subject=account.name, evidence=[passwd.at(account.line - 1)], values={"name": account.name},
                    severity=None if account.may_log_in else "info")
            )  # fmt: skip
    return out


def names_without_password(scene: Scene) -> set[str]:
    """Who may log in with nothing."""
    return {hit.subject for hit in empty(scene) if hit.severity is None}


def readable(scene: Scene) -> list[Hit]:
    """shadow_world_readable: of the file of hashes and of its copies."""
    out = []
    for path in ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/shadow.bak", "/etc/shadow.old"):
        state = scene.state(path)
        if (
            state is not None
            and state.mode is not None
            and state.mode & 0o004
            and state.kind == "file"
            and _told(scene)
        ):
            out.append(
                Hit(
                    id="shadow_world_readable",
                    subject=path,
                    evidence=[scene.where(path, f"mode {state.mode:04o}")],
                    values={"path": path, "mode": f"{state.mode:04o}"},
                )
            )
    return out


def _told(scene: Scene) -> bool:
    """The rights are those of the server, not of whoever unpacked a snapshot (see docs/contract.md, stat.json)."""
    return scene.state("/etc/passwd") is None or scene.state("/etc/passwd").mode is not None  # type: ignore[union-attr]


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (
    ("audit.accounts", empty),
    ("audit.accounts", readable),
)
