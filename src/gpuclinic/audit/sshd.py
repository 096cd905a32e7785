"""Weak settings of the SSH server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.audit.hits import Hit
from gpuclinic.audit.sshd_config import MAIN, SshdConfig, read_config
from gpuclinic.model import Where

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Scene

_OLD = {
    "ciphers": (
        "arcfour",
        "3des-cbc",
        "blowfish-cbc",
        "cast128-cbc",
        "aes128-cbc",
        "aes192-cbc",
        "aes256-cbc",
        "rijndael-cbc",
    ),
    "macs": ("hmac-md5", "hmac-md5-96", "hmac-sha1-96", "umac-64@openssh.com", "hmac-ripemd160"),
    "kexalgorithms": (
        "diffie-hellman-group1-sha1",
        "diffie-hellman-group-exchange-sha1",
        "diffie-hellman-group14-sha1",
    ),
    "hostkeyalgorithms": ("ssh-dss",),
    "pubkeyacceptedalgorithms": ("ssh-dss",),
    "pubkeyacceptedkeytypes": ("ssh-dss",),
}
"""Algorithms that ssh-audit and OpenSSH's release notes call broken or weak."""


def installed(scene: Scene, config: SshdConfig) -> bool:
    """There is an SSH server: its program, its package, its process or its socket; a configuration alone does not listen."""
    if any(p.comm == "sshd" or (p.exe or "").endswith("/sshd") for p in scene.processes.values()):
        return True
    if any(s.state == "LISTEN" and s.local[1] == 22 for s in scene.sockets):
        return True
    if scene.packages.known:
        return (
            any(scene.packages.owner(path) for path in ("/usr/sbin/sshd", "/sbin/sshd", MAIN))
            or scene.state("/usr/sbin/sshd") is not None
        )
    return config.found


def settings(scene: Scene) -> list[Hit]:
    """sshd_root_password, sshd_password_auth, sshd_empty_passwords, sshd_x11_forwarding, sshd_weak_algorithms."""
    config = read_config(scene)
    if not config.found:
        if any(p.comm == "sshd" for p in scene.processes.values()):
            scene.gap("audit.sshd", f"{MAIN} was not found though sshd runs")
        return []
    if not installed(scene, config):
        return []
    out = []
    password = config.get("PasswordAuthentication", "yes")
    keyboard = config.get("KbdInteractiveAuthentication", config.get("ChallengeResponseAuthentication", "yes"))
    pam = config.get("UsePAM", "no") == "yes"
    by_password = password == "yes" or (
        keyboard == "yes" and pam and config.where("KbdInteractiveAuthentication") is not None
    )
    root = config.get("PermitRootLogin", "prohibit-password")
    if root == "yes" and by_password:
        out.append(_hit("sshd_root_password", config, "PermitRootLogin", "PasswordAuthentication"))
    if by_password:
        out.append(
            _hit(
                "sshd_password_auth",
                config,
                "PasswordAuthentication",
                "KbdInteractiveAuthentication",
                default="PasswordAuthentication yes",
            )
        )
    if config.get("PermitEmptyPasswords", "no") == "yes":
        out.append(_hit("sshd_empty_passwords", config, "PermitEmptyPasswords"))
    if config.get("X11Forwarding", "no") == "yes":
        out.append(_hit("sshd_x11_forwarding", config, "X11Forwarding"))
    for keyword, old in _OLD.items():
        value = config.settings.get(keyword)
        named = (
            []
            if value is None or value.value.startswith("-")
            else [n for n in value.value.lstrip("+^").split(",") if n.strip() in old]
        )
        if value is not None and named:
            out.append(
                Hit(id="sshd_weak_algorithms", subject=f"sshd: {keyword}", evidence=[value.where], values={"keyword": keyword, "names": ", ".join(named[:4])})
            )  # fmt: skip
    if config.get("PermitUserEnvironment", "no") not in ("no", ""):
        out.append(_hit("sshd_user_environment", config, "PermitUserEnvironment"))
    for who, keyword, setting in config.matched:
        risky = {"permitrootlogin": "sshd_root_password", "permitemptypasswords": "sshd_empty_passwords"}.get(keyword)
        if risky and setting.value.lower() == "yes" and "127.0.0.1" not in who and "address" not in who.lower():
            if risky == "sshd_root_password" and not by_password:
                continue
            out.append(
                Hit(
                    id=risky,
                    subject=f"sshd (Match {who[:60]})",
                    evidence=[setting.where],
                    values={"value": f"Match {who[:60]}"},
                )
            )
    return out


def _hit(identity: str, config: SshdConfig, *keywords: str, default: str = "") -> Hit:
    lines = [where for keyword in keywords if (where := config.where(keyword)) is not None]
    evidence = lines or [Where(MAIN, None, f"{default} (sshd's default)")]
    return Hit(id=identity, subject="sshd", evidence=evidence, values={"value": evidence[0].text})


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (("audit.sshd", settings),)
