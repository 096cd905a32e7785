"""Weak settings of the SSH server."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from gpuclinic.audit.accounts import names_without_password
from gpuclinic.audit.hits import Hit
from gpuclinic.audit.sockets import LISTEN, is_own
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
_FACTORS = (
    "pam_google_authenticator",
    "pam_duo",
    "pam_oath",
    "pam_yubico",
    "pam_u2f",
    "pam_radius",
    "pam_rsa",
    "pam_securid",
    "pam_otpw",
    "pam_privacyidea",
)
"""PAM modules that ask for more than a password."""


def installed(scene: Scene, config: SshdConfig) -> bool:
    """There is an SSH server: its program, its package, its process or its socket; a configuration alone does not listen."""
    if any(p.comm == "sshd" or (p.exe or "").endswith("/sshd") for p in scene.processes.values()):
        return True
    if any(s.state == LISTEN and s.local[1] == 22 for s in scene.sockets):
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
    by_password = _by_password(scene, config)
    near = "info" if _only_from_here(scene, config) else None
    if (
        config.get("PermitRootLogin", "prohibit-password") == "yes"
        and by_password
        and (way := _root_comes_in(config)) is not None
    ):
        out.append(
            _hit(
                "sshd_root_password", config, "PermitRootLogin", "PasswordAuthentication", severity=near or way or None
            )
        )
    if by_password:
        out.append(
            _hit(
                "sshd_password_auth",
                config,
                "PasswordAuthentication",
                "KbdInteractiveAuthentication",
                default="PasswordAuthentication yes",
                severity=near,
            )
        )
    if config.get("PermitEmptyPasswords", "no") == "yes":
        used = ("critical" if names_without_password(scene) else "warning") if by_password else "info"
        out.append(_hit("sshd_empty_passwords", config, "PermitEmptyPasswords", severity=near or used))
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


def _by_password(scene: Scene, config: SshdConfig) -> bool:
    """A password alone opens a session: by the password method, or by PAM's questions where these were switched on and ask for nothing else."""
    password = config.get("PasswordAuthentication", "yes") == "yes"
    asked = config.where("KbdInteractiveAuthentication") or config.where("ChallengeResponseAuthentication")
    keyboard = config.get("KbdInteractiveAuthentication", config.get("ChallengeResponseAuthentication", "yes")) == "yes"
    keyboard = keyboard and asked is not None and config.get("UsePAM", "no") == "yes" and not _second_factor(scene)
    methods = config.get("AuthenticationMethods", "any").split()
    if methods and methods != ["any"]:
        alone = {way.split(":")[0] for way in methods if "," not in way}
        return (password and "password" in alone) or (keyboard and "keyboard-interactive" in alone)
    return password or keyboard


def _second_factor(scene: Scene) -> bool:
    text = scene.text("/etc/pam.d/sshd", "audit.sshd")
    return any(
        not line.lstrip().startswith("#") and any(name in line for name in _FACTORS)
        for line in (text.lines() if text else ())
    )


def _root_comes_in(config: SshdConfig) -> str | None:
    """None where the lists of users keep root out; "info" where root comes only from named places; "" else."""
    if any(name.partition("@")[0] in ("root", "*") and "@" not in name for name in config.get("DenyUsers", "").split()):
        return None
    allowed = config.get("AllowUsers", "").split()
    if not allowed:
        return (
            None
            if (groups := config.get("AllowGroups", "").split()) and not {"root", "wheel", "*"} & set(groups)
            else ""
        )
    ways = [name for name in allowed if fnmatch.fnmatchcase("root", name.partition("@")[0])]
    if not ways:
        return None
    return "info" if all("@" in name and name.partition("@")[2] not in ("*", "0.0.0.0/0") for name in ways) else ""


def _only_from_here(scene: Scene, config: SshdConfig) -> bool:
    """It listens to the machine itself alone: by its sockets where these are told, else by ListenAddress."""
    ports = {int(p) for p in config.get("Port", "22").split() if p.isdecimal() and len(p) < 6}
    bound = [s for s in scene.sockets if s.state == LISTEN and (s.name == "sshd" or s.local[1] in ports)]
    if bound:
        return all(is_own(s.local[0]) for s in bound)
    addresses = [a for a in config.get("ListenAddress", "").split() if a != "rdomain"]
    return bool(addresses) and all(is_own(a) or is_own(a.rpartition(":")[0]) for a in addresses)


def _hit(identity: str, config: SshdConfig, *keywords: str, default: str = "", severity: str | None = None) -> Hit:
    lines = [where for keyword in keywords if (where := config.where(keyword)) is not None]
    evidence = lines or [Where(MAIN, None, f"{default} (sshd's default)")]
    return Hit(id=identity, subject="sshd", evidence=evidence, values={"value": evidence[0].text}, severity=severity)


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (("audit.sshd", settings),)
