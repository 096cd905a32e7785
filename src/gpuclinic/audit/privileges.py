"""Who can become root: accounts of uid 0, PAM, sudo."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.audit.hits import Hit
from gpuclinic.audit.places import odd_place
from gpuclinic.audit.refs import file_ref

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Scene
    from gpuclinic.model import Where

_CLOUD_USERS = frozenset(
    [
        "ubuntu",
        "debian",
        "ec2-user",
        "centos",
        "rocky",
        "almalinux",
        "cloud-user",
        "fedora",
        "opensuse",
        "azureuser",
        "admin",
        "vagrant",
        "core",
        "opc",
    ]
)
"""Default users of cloud images, whom cloud-init gives sudo without a password (cloud-init, system_info.default_user)."""
_MODULE_FOLDERS = (
    "/lib/x86_64-linux-gnu/security",
    "/lib64/security",
    "/usr/lib64/security",
    "/usr/lib/x86_64-linux-gnu/security",
    "/lib/security",
    "/usr/lib/security",
    "/lib/aarch64-linux-gnu/security",
    "/usr/lib/aarch64-linux-gnu/security",
)


def uid_zero(scene: Scene) -> list[Hit]:
    """uid0_account: a second root. FreeBSD's toor and the like do not come with Linux."""
    passwd = scene.text("/etc/passwd")
    return [
        Hit(id="uid0_account", subject=account.name, evidence=[passwd.at(account.line - 1)], values={"name": account.name, "shell": account.shell},
            refs=frozenset({f"account:{account.name}"}), grade=None if account.may_log_in else "medium")
        for account in scene.accounts
        if account.uid == 0 and account.name not in ("root", "+", "-") and passwd is not None
    ]  # fmt: skip


def pam(scene: Scene) -> list[Hit]:
    """pam_exec_hook: a program that gets the password or runs at each login, of no package; pam_permit that lets everybody in."""
    out = []
    for text in scene.texts("/etc/pam.d/*", "audit.pam"):
        for index, line in enumerate(text.lines()[:500]):
            bare = line.split("#")[0].strip()
            if not bare:
                continue
            if "pam_exec.so" in bare:
                path = next((word for word in bare.split()[2:] if word.startswith("/")), "")
                owned = bool(path) and scene.packages.owner(path) is not None
                asks = "expose_authtok" in bare
                if owned or (not asks and not odd_place(path)):
                    continue
                out.append(
                    Hit(id="pam_exec_hook", subject=f"{text.path}:{index + 1}", refs=frozenset({file_ref(path)} if path else ()), evidence=[text.at(index)],
                        values={"path": path or "?"}, grade=None if asks or odd_place(path) == "hidden" else "medium")
                )  # fmt: skip
            elif re.match(
                r"^-?auth\s+(?:sufficient|\[[^\]]{0,80}success=(?:done|\d)[^\]]{0,80}\])\s+pam_permit\.so", bare
            ):
                out.append(
                    Hit(id="pam_exec_hook", subject=f"{text.path}:{index + 1}", evidence=[text.at(index)], values={"path": "pam_permit.so"}, kind="pam_permit")
                )  # fmt: skip
            else:
                out += _modules(scene, text.path, bare, text.at(index))
    return out


def _modules(scene: Scene, source: str, line: str, where: Where) -> list[Hit]:
    """A PAM module that no package brought, where packages are known and it lies on the disk or in an odd place."""
    found = re.search(r"\s(/?[\w./+-]{1,200}\.so)(?:\s|$)", f" {line}")
    if not found or not scene.packages.known:
        return []
    name = found[1]
    paths = [name] if name.startswith("/") else [f"{folder}/{name}" for folder in _MODULE_FOLDERS]
    lies = [path for path in paths if scene.state(path) is not None]
    if not lies or any(scene.packages.owner(path) for path in paths):
        return []
    strong = bool(odd_place(lies[0]))
    return [
        Hit(id="pam_module_unowned", subject=lies[0], refs=frozenset({file_ref(lies[0])}), grade="strong" if strong else None, evidence=[where],
            values={"path": lies[0], "service": source.rpartition("/")[2]})
    ]  # fmt: skip


def sudo(scene: Scene) -> list[Hit]:
    """sudoers_nopasswd_all: everything without a password, for people or service accounts; the default user of a cloud image is an information."""
    out = []
    texts = [t for t in [scene.text("/etc/sudoers", "audit.sudo")] if t is not None]
    texts += [
        t
        for t in scene.texts("/etc/sudoers.d/*", "audit.sudo")
        if "." not in t.path.rpartition("/")[2] and not t.path.endswith("~")
    ]
    for text in texts:
        for index, line in _joined(text.lines()):
            bare = line.split("#")[0].strip() if not re.match(r"^#\d", line) else line
            found = re.match(
                r"^([^\s=]{1,200}(?:\s*,\s*[^\s=,]{1,200})*)\s+[^=]{1,200}=\s*(?:\([^)]{0,200}\)\s*)?(.*)$", bare
            )
            if not found or bare.startswith(("Defaults", "@", "User_Alias", "Cmnd_Alias", "Host_Alias", "Runas_Alias")):
                if re.match(r"^Defaults\s*(?::\S+\s*)?.*!authenticate", bare) and not re.match(
                    r"^Defaults[:@!>]", bare
                ):
                    out.append(
                        Hit(
                            id="sudoers_nopasswd_all",
                            subject=f"{text.path}:{index + 1}",
                            evidence=[text.at(index)],
                            values={"who": "everybody in sudoers"},
                        )
                    )
                continue
            who, what = found[1], found[2]
            if not re.search(r"NOPASSWD\s*:(?:\s*\w+\s*:)*\s*(?:[^,:]{1,200},\s*)*ALL\s*(?:,|$)", what):
                continue
            cloud = who in _CLOUD_USERS and (
                "cloud-init" in text.path or "cloud" in text.path or "waagent" in text.path
            )
            out.append(
                Hit(id="sudoers_nopasswd_all", subject=f"{text.path}:{index + 1}", evidence=[text.at(index)], values={"who": who},
                    severity="info" if cloud or who == "root" else None)
            )  # fmt: skip
    return out


def _joined(lines: list[str]) -> list[tuple[int, str]]:
    out: list[tuple[int, str]] = []
    held, start = "", 0
    for index, line in enumerate(lines[:5000]):
        start = index if not held else start
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        out.append((start, held + line))
        held = ""
    return out


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (
    ("audit.accounts", uid_zero),
    ("audit.pam", pam),
    ("audit.sudo", sudo),
)
