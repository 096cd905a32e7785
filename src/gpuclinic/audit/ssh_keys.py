"""authorized_keys by OpenSSH's grammar: which keys open which accounts, and what they start."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.audit.accounts_file import NO_LOGIN, Account
from gpuclinic.audit.commands import deeds
from gpuclinic.audit.hits import Hit
from gpuclinic.audit.places import odd_place
from gpuclinic.audit.refs import file_ref
from gpuclinic.audit.scene import Text
from gpuclinic.audit.sshd_config import read_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Scene
    from gpuclinic.model import Where

_TYPE = re.compile(
    r"(?:ssh-(?:rsa|dss|ed25519|ed448|xmss)(?:-cert-v\d\d)?(?:@openssh\.com)?|ecdsa-sha2-nistp(?:256|384|521)(?:-cert-v\d\d)?(?:@openssh\.com)?|"
    r"sk-(?:ssh-ed25519|ecdsa-sha2-nistp256)(?:-cert-v\d\d)?@openssh\.com|rsa-sha2-(?:256|512)(?:-cert-v\d\d@openssh\.com)?)"
)
_DEFAULT = ".ssh/authorized_keys .ssh/authorized_keys2"
_HARMLESS = re.compile(
    r"Please login as the user|^(?:/usr/bin/)?(?:borg\s+serve|rrsync|/usr/(?:share|lib|bin)/\S*rrsync|git-shell|gitolite-shell|/\S*gitolite\S*|validate-rsync|/bin/false|internal-sftp|scponly|/usr/lib/openssh/sftp-server)"
)
_SMALL_RSA = 2048
_MANY = 3


class Key(msgspec.Struct, frozen=True):
    """A key that opens an account. options: as written, by name in small letters. bits: of RSA and DSA keys."""

    account: Account
    text: Text
    index: int
    kind: str
    fingerprint: str
    options: dict[str, list[str]]
    bits: int | None = None


def parse_line(line: str) -> tuple[dict[str, list[str]], str, bytes] | None:
    """Options, type and blob of a line; None for comments and lines that sshd would not take.

    >>> parse_line('command="echo \\\\"a b\\\\"",no-pty ssh-ed25519 AAAA x')[0]["command"]
    ['echo "a b"']
    """
    line = line.strip()
    if not line or line.startswith("#") or len(line) > 16_384:
        return None
    options: dict[str, list[str]] = {}
    found = _TYPE.match(line)
    if not found or not line[found.end() : found.end() + 1].isspace():
        end, quoted = 0, False
        while end < len(line) and (quoted or not line[end].isspace()):
            if line[end] == "\\" and line[end + 1 : end + 2] == '"':
                end += 1
            elif line[end] == '"':
                quoted = not quoted
            end += 1
        options = _options(line[:end])
        line = line[end:].strip()
        found = _TYPE.match(line)
        if not found:
            return None
    cells = line.split()
    try:
        return options, cells[0], base64.b64decode(cells[1] if len(cells) > 1 else "", validate=False)
    except (binascii.Error, ValueError):
        return options, cells[0], b""


def _options(text: str) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for found in re.finditer(r'([\w-]{1,40})(?:="((?:[^"\\]|\\.){0,8000})")?(?:,|$)', text):
        out.setdefault(found[1].lower(), []).append((found[2] or "").replace('\\"', '"'))
    return out


def bits_of(kind: str, blob: bytes) -> int | None:
    """The length of the modulus of an RSA or DSA key, from its blob (RFC 4253, 6.6)."""
    parts: list[bytes] = []
    at = 0
    while at + 4 <= len(blob) and len(parts) < 4:
        size = int.from_bytes(blob[at : at + 4], "big")
        parts.append(blob[at + 4 : at + 4 + size])
        at += 4 + size
    number = (
        parts[2]
        if kind.startswith(("ssh-rsa", "rsa-")) and len(parts) > 2
        else parts[1]
        if kind.startswith("ssh-dss") and len(parts) > 1
        else b""
    )
    return int.from_bytes(number, "big").bit_length() or None


def keys(scene: Scene) -> list[Key]:
    """All keys of all accounts, from the files that sshd_config names."""
    config = read_config(scene)
    named = (
        config.settings["authorizedkeysfile"].value if "authorizedkeysfile" in config.settings else _DEFAULT
    ).split()
    out: list[Key] = []
    seen: set[tuple[str, str]] = set()
    for account, home in scene.homes():
        for pattern in dict.fromkeys([*named, *_DEFAULT.split()]):
            path = pattern.replace("%h", home).replace("%u", account.name).replace("%%", "%")
            path = path if path.startswith("/") else f"{home.rstrip('/')}/{path}"
            if path.lower() == "none" or (account.name, path) in seen:
                continue
            seen.add((account.name, path))
            text = scene.text(path, "audit.ssh_keys")
            for index, line in enumerate(text.lines()[:5000] if text else ()):
                found = parse_line(line)
                if found is not None and text is not None:
                    options, kind, blob = found
                    fingerprint = "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
                    out.append(Key(account, text, index, kind, fingerprint, options, bits_of(kind, blob)))
    return out


def forced(scene: Scene) -> list[Hit]:
    """ssh_key_forced_command: a key that starts foreign code, or hands programs a library; ssh_key_service_account."""
    out = []
    for key in keys(scene):
        where = [_shown(key)]
        for command in key.options.get("command", []):
            found = [] if _HARMLESS.search(command) else deeds(command)
            tools = (
                re.search(r"\bbase64\b|\bxxd\b|\beval\b|/dev/tcp/|\bopenssl\s+enc|\bcurl\b|\bwget\b", command)
                if not _HARMLESS.search(command)
                else None
            )
            if found or tools:
                about = found[0].about if found else command[:200]
                paths = frozenset(file_ref(d.path) for d in found if d.path and d.path.startswith("/"))
                out.append(
                    Hit(id="ssh_key_forced_command", subject=f"{key.text.path}:{key.index + 1}", refs=paths | {f"key:{key.fingerprint}"}, evidence=where,
                        values={"user": key.account.name, "about": about}, grade=None if found else "medium")
                )  # fmt: skip
        for value in key.options.get("environment", []):
            if "LD_PRELOAD=" in value or "LD_LIBRARY_PATH=" in value or odd_place(value.partition("=")[2]):
                out.append(
                    Hit(id="ssh_key_forced_command", subject=f"{key.text.path}:{key.index + 1}", refs=frozenset({f"key:{key.fingerprint}"}), evidence=where,
                        values={"user": key.account.name, "about": f"environment {value[:100]}"})
                )  # fmt: skip
    return out


def _shown(key: Key) -> Where:
    """The line without the key itself."""
    line = key.text.lines()[key.index]
    return key.text.at(key.index, re.sub(r"AAAA[\w+/=]{20,}", key.fingerprint, line))


def shared(scene: Scene) -> list[Hit]:
    """ssh_key_shared_many: one key opens many accounts, of which some let nobody log in; or a service account alone has a key."""
    by_print: dict[str, list[Key]] = {}
    for key in keys(scene):
        by_print.setdefault(key.fingerprint, []).append(key)
    out = []
    for fingerprint, group in by_print.items():
        accounts = {key.account.name: key.account for key in group}
        closed = sorted(name for name, account in accounts.items() if _closed(account))
        files = {key.text.path for key in group}
        if len(accounts) >= _MANY and len(files) >= _MANY:
            grade = "strong" if closed else "weak"  # an administrator has one key for all, and for root
            out.append(
                Hit(id="ssh_key_shared_many", subject=fingerprint, refs=frozenset({f"key:{fingerprint}"}), grade=grade, evidence=[_shown(k) for k in group[:4]],
                    values={"count": len(accounts), "names": ", ".join(sorted(accounts)[:8])})
            )  # fmt: skip
        elif closed:
            out.append(
                Hit(id="ssh_key_service_account", subject=group[0].text.path, refs=frozenset({f"key:{fingerprint}"}), evidence=[_shown(k) for k in group[:3]],
                    values={"user": ", ".join(closed)})
            )  # fmt: skip
    return out


def _closed(account: Account) -> bool:
    """A system account that lets nobody work, and is no account of git or backups by its shell."""
    return account.shell.rpartition("/")[2] in NO_LOGIN - {"git-shell"} and account.uid != 0


def weak(scene: Scene) -> list[Hit]:
    """ssh_weak_key: DSA, or RSA of less than 2048 bits."""
    out = []
    for key in keys(scene):
        small = key.kind.startswith("ssh-rsa") and key.bits is not None and key.bits < _SMALL_RSA
        if small or key.kind.startswith("ssh-dss"):
            out.append(
                Hit(id="ssh_weak_key", subject=f"{key.text.path}:{key.index + 1}", evidence=[_shown(key)],
                    values={"user": key.account.name, "kind": "DSA" if not small else "RSA", "bits": key.bits})
            )  # fmt: skip
    return out


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (
    ("audit.ssh_keys", forced),
    ("audit.ssh_keys", shared),
    ("audit.ssh_keys", weak),
)
