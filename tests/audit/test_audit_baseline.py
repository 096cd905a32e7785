"""A baseline: what is new, changed or gone since, and no secret in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from servers_made import PASSWD, server

from gpuclinic.cli.main import main
from gpuclinic.model import UserError

if TYPE_CHECKING:
    from pathlib import Path

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILgp/prrPFmXJvODGrt9mSqzEWa5TQlcqh5WDDc/mK0C ann@laptop\n"
BEFORE = {
    "/home/ann/.ssh/authorized_keys": KEY,
    "/etc/cron.d/backup": "0 3 * * * root /usr/local/sbin/backup --password=hunter2x\n",
    "/etc/systemd/system/llm.service": "[Service]\nExecStart=/opt/llm/run\n",
}
AFTER = {
    **BEFORE,
    "/etc/passwd": PASSWD + "eve:x:1003:1003::/home/eve:/bin/bash\n",
    "/root/.ssh/authorized_keys": KEY.replace("Lgp", "Lgq"),
    "/etc/systemd/system/llm.service": "[Service]\nExecStart=/opt/llm/run --port 1\n",
    "/etc/cron.d/backup": "",
}


def test_what_is_new_since(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = tmp_path / "base.json"
    assert main(["audit", "--save", str(base), "--host", str(server(tmp_path / "a", BEFORE))]) == 0
    assert base.stat().st_mode & 0o777 == 0o600
    assert "hunter2x" not in base.read_text()
    assert "AAAAC3" not in base.read_text()
    capsys.readouterr()
    assert main(["audit", "--json", "--compare", str(base), "--host", str(server(tmp_path / "b", AFTER))]) == 1
    found = {(f["id"], f["subject"]) for f in json.loads(capsys.readouterr().out)["findings"]}
    assert ("new_since", "eve (uid 1003)") in found
    assert any(i == "new_since" and s.startswith("root SHA256:") for i, s in found)
    assert ("changed_since", "/etc/systemd/system/llm.service") in found
    assert any(i == "gone_since" and s.startswith("root: /usr/local/sbin/backup") for i, s in found)


def test_nothing_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = tmp_path / "base.json"
    folder = server(tmp_path / "a", BEFORE)
    assert main(["audit", "--save", str(base), "--host", str(folder)]) == 0
    assert main(["audit", "--compare", str(base), "--host", str(folder), "--lang", "zh"]) == 0
    assert "基线" not in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", "{}", "[", '{"gpuclinic_audit_baseline": 1}'])
def test_what_is_no_baseline(content: str, tmp_path: Path) -> None:
    (tmp_path / "b").write_text(content)
    with pytest.raises(UserError, match="not a baseline"):
        main(["audit", "--compare", str(tmp_path / "b"), "--host", str(server(tmp_path / "a"))])
