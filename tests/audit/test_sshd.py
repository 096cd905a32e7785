"""The SSH server's settings as sshd reads them, and accounts without a password."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuclinic.audit.accounts import CHECKS as ACCOUNTS
from gpuclinic.audit.scene import Scene
from gpuclinic.audit.sshd import CHECKS
from gpuclinic.audit.sshd_config import read_config
from made_snapshots import Made

if TYPE_CHECKING:
    from pathlib import Path

STOCK = "Include /etc/ssh/sshd_config.d/*.conf\nKbdInteractiveAuthentication no\nUsePAM yes\n"
LISTENS = 'LISTEN 0 0 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=760,fd=3))\n'
ROOT, PASSWORD, EMPTY, X11 = "sshd_root_password", "sshd_password_auth", "sshd_empty_passwords", "sshd_x11_forwarding"


def machine(folder: Path, main: str, *dropins: tuple[str, str], listens: str = LISTENS) -> Made:
    made = Made(folder / "snap").put("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n").command("ss-tanp.txt", listens)
    if main:
        made.put("/etc/ssh/sshd_config", main)
    for name, text in dropins:
        made.put(f"/etc/ssh/sshd_config.d/{name}", text)
    return made


def ids(made: Made) -> set[str]:
    scene = Scene(made.host())
    return {hit.id for _, check in CHECKS for hit in check(scene) if hit.severity != "info"}


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        (STOCK, {PASSWORD}),
        ("PermitRootLogin yes\nPasswordAuthentication yes\n", {ROOT, PASSWORD}),
        ("permitrootlogin=yes\nPASSWORDAUTHENTICATION\tyes # lab\n", {ROOT, PASSWORD}),
        ('PermitRootLogin "yes"\n', {ROOT, PASSWORD}),
        ("PasswordAuthentication no\nKbdInteractiveAuthentication yes\nUsePAM yes\n", {PASSWORD}),
        ("PermitEmptyPasswords yes\n", {PASSWORD, EMPTY}),
        ("PasswordAuthentication no\nX11Forwarding yes\n", {X11}),
        ("PasswordAuthentication no\nPasswordAuthentication yes\n", set()),
        ("PasswordAuthentication no\nMatch all\nX11Forwarding yes\n", {X11}),
        # honest ones
        ("PasswordAuthentication no\nPermitRootLogin yes\n", set()),
        ("PasswordAuthentication no\n#PermitRootLogin yes\n#X11Forwarding yes\n", set()),
        ("PasswordAuthentication no\nMatch User viz\n  X11Forwarding yes\n  PasswordAuthentication yes\n", set()),
        ("PasswordAuthentication no\nMatch Address 10.0.0.0/8\n  PermitRootLogin yes\n", set()),
        ("AuthenticationMethods publickey\nPermitRootLogin yes\n", set()),
        ("AuthenticationMethods publickey,password publickey,keyboard-interactive\n", set()),
        ("AuthenticationMethods publickey password\n", {PASSWORD}),
        ("PermitRootLogin yes\nAllowUsers ana ben\nAllowUsers cleo\n", {PASSWORD}),
        ("PermitRootLogin yes\nDenyUsers root\n", {PASSWORD}),
        ("PermitRootLogin yes\nAllowUsers ana root@192.0.2.4\n", {PASSWORD}),
        ("PermitRootLogin yes\nAllowUsers ana\nAllowUsers root\n", {ROOT, PASSWORD}),
        ("PermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n", set()),
        ("", set()),
    ],
)
def test_settings(tmp_path: Path, main: str, expected: set[str]) -> None:
    assert ids(machine(tmp_path, main)) == expected


def test_the_first_value_wins_in_the_order_of_names(tmp_path: Path) -> None:
    made = machine(
        tmp_path,
        STOCK + "PasswordAuthentication no\n",
        ("50-cloud-init.conf", "PasswordAuthentication yes\n"),
        ("60-hard.conf", "PasswordAuthentication no\n"),
    )
    assert ids(made) == {PASSWORD}
    where = read_config(Scene(made.host())).where("PasswordAuthentication")
    assert where is not None
    assert (where.source, where.line) == ("/etc/ssh/sshd_config.d/50-cloud-init.conf", 1)


def test_a_match_block_of_an_included_file_ends_with_it(tmp_path: Path) -> None:
    made = machine(
        tmp_path,
        STOCK + "PasswordAuthentication no\nX11Forwarding yes\n",
        ("10-a.conf", "Match User a\nX11Forwarding no\n"),
    )
    assert ids(made) == {X11}


def test_an_include_below_the_value_comes_too_late(tmp_path: Path) -> None:
    made = machine(
        tmp_path,
        "PasswordAuthentication no\nInclude sshd_config.d/*.conf\n",
        ("99.conf", "PasswordAuthentication yes\n"),
    )
    assert ids(made) == set()


def test_files_that_include_themselves_end(tmp_path: Path) -> None:
    assert ids(machine(tmp_path, STOCK, ("a.conf", "Include /etc/ssh/sshd_config.d/*.conf\nX11Forwarding yes\n"))) == {
        PASSWORD,
        X11,
    }


def test_a_second_factor_is_no_bare_password(tmp_path: Path) -> None:
    made = machine(tmp_path, "PasswordAuthentication no\nKbdInteractiveAuthentication yes\nUsePAM yes\n")
    made.put("/etc/pam.d/sshd", "auth required pam_google_authenticator.so\n")
    assert ids(made) == set()


def test_no_server_is_judged_by_a_file_left_behind(tmp_path: Path) -> None:
    made = machine(tmp_path, "PermitRootLogin yes\n", listens="State\n").put(
        "/var/lib/dpkg/info/bash.list", "/bin/bash\n"
    )
    assert ids(made) == set()
    made.put("/var/lib/dpkg/info/openssh-server.list", "/usr/sbin/sshd\n")
    assert ids(made) == {ROOT, PASSWORD}


@pytest.mark.parametrize(
    "listens", [LISTENS.replace("0.0.0.0:22", "127.0.0.1:22"), LISTENS.replace("0.0.0.0:22", "[::1]:22")]
)
def test_loopback_only_is_no_fault(tmp_path: Path, listens: str) -> None:
    assert ids(machine(tmp_path, "PermitRootLogin yes\n", listens=listens)) == set()


def test_empty_passwords_are_critical_where_somebody_has_one(tmp_path: Path) -> None:
    made = machine(tmp_path, "PermitEmptyPasswords yes\n")
    severity = lambda: [h.severity for _, c in CHECKS for h in c(Scene(made.host())) if h.id == EMPTY]  # noqa: E731
    assert severity() == ["warning"]
    made.put("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\nguest:x:1002:1002::/home/guest:/bin/bash\n")
    made.put("/etc/shadow", "root:!:19000:0:99999:7:::\nguest::19000:0:99999:7:::\n")
    assert severity() == ["critical"]


def test_accounts(tmp_path: Path) -> None:
    made = machine(tmp_path, "")
    made.put(
        "/etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\nguest:x:1002:1002::/home/guest:/bin/bash\nsync:x:4:65534::/bin:/bin/sync\ndaemon:x:1:1::/:/usr/sbin/nologin\n",
    )
    made.put(
        "/etc/shadow",
        "root:$6$made$up:19000:0:99999:7:::\nguest::19000:0:99999:7:::\ndaemon:*:1::::::\nsync:!:1::::::\nbroken\n",
    )
    made.mode("/etc/shadow", kind="file", mode="0640").mode("/etc/passwd", kind="file", mode="0644")
    scene = Scene(made.host())
    hits = [hit for _, check in ACCOUNTS for hit in check(scene) if hit.severity != "info"]
    assert [(hit.id, hit.subject) for hit in hits] == [("account_empty_password", "guest")]
    assert "$6$" not in repr(hits)
    made.mode("/etc/shadow", kind="file", mode="0644")
    scene = Scene(made.host())
    assert "shadow_world_readable" in {hit.id for _, check in ACCOUNTS for hit in check(scene)}
