"""gpuclinic agent install: the plan, the unit, the example of the configuration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from exported import REPOSITORY, tool

from gpuclinic.store import toml_loads
from gpuclinic.watch import installing
from gpuclinic.watch.config import Channel, Config, load_config
from gpuclinic.watch.installing import UNIT, example_config, install_plan, shown, uninstall_plan, unit_text


def agent(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuclinic", "agent", *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_a_dry_run_prints_everything_and_does_nothing() -> None:
    done = agent("install", "--dry-run", "--program", "/usr/bin/gpuclinic", "--lang", "en")
    assert done.returncode == 0
    kinds = [line.split()[0] for line in done.stdout.splitlines()]
    assert kinds[0] == "write"
    assert kinds[-2:] == ["run", "run"]
    assert f"/etc/systemd/system/{UNIT}" in done.stdout
    assert not Path(f"/etc/systemd/system/{UNIT}").exists()
    assert "删除" in agent("uninstall", "--dry-run", "--lang", "zh").stdout


def test_nobody_to_ask_and_no_yes_does_nothing(tmp_path: Path) -> None:
    done = agent("install", "--prefix", str(tmp_path))
    assert done.returncode == 3
    assert "--yes" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_installing_below_a_prefix_and_taking_it_away(tmp_path: Path) -> None:
    config = tmp_path / "etc/gpuclinic/agent.toml"
    config.parent.mkdir(parents=True)
    config.write_text("# mine\n")
    assert (
        "keep"
        in agent(
            "install", "--prefix", str(tmp_path), "--yes", "--lang", "en", "--program", "/usr/bin/gpuclinic"
        ).stdout
    )
    unit = tmp_path / "etc/systemd/system" / UNIT
    assert "ExecStart=/usr/bin/gpuclinic agent\n" in unit.read_text()
    assert config.read_text() == "# mine\n"
    assert agent("uninstall", "--prefix", str(tmp_path), "--yes").returncode == 0
    assert not unit.exists()
    assert config.exists()


def test_a_program_with_odd_characters_is_written_as_units_want_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "my $tools 50%"
    odd.mkdir()
    program = odd / "gpuclinic"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(installing.sys, "executable", str(odd / "python"))
    assert installing.own_command() == '"' + str(program).replace("$", "$$").replace("%", "%%") + '"'


def test_the_plan_in_words() -> None:
    assert "写入" in shown(install_plan("/p", "/usr/bin/gpuclinic"), "zh")
    assert next(step.command[:2] for step in uninstall_plan() if step.command) == ("systemctl", "disable")


def test_the_unit_gives_no_view_of_mounts_of_its_own() -> None:
    """A mount namespace shows file systems as read-only that are not: storage.read_only would be told of every server."""
    lines = [line for line in unit_text("/usr/bin/gpuclinic").splitlines() if not line.startswith("#")]
    own_mounts = re.compile(
        r"(ProtectSystem|ProtectHome|PrivateTmp|PrivateDevices|PrivateMounts|ReadOnlyPaths|ReadWritePaths|InaccessiblePaths|BindPaths|"
        r"ProtectKernelTunables|ProtectKernelModules|ProtectKernelLogs|ProtectControlGroups|TemporaryFileSystem|RootDirectory|MountFlags|DynamicUser)=(?!no)"
    )
    assert [line for line in lines if own_mounts.match(line)] == []


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze", "systemd")
    path = tmp_path / UNIT
    path.write_text(unit_text("/bin/true"))
    done = subprocess.run([analyze, "verify", "--man=no", str(path)], capture_output=True, text=True, check=False)
    if "masked" in done.stderr:
        pytest.skip("systemd-analyze cannot look at units here")
    complaints = [line for line in done.stderr.splitlines() if UNIT in line]
    assert complaints == []
    rated = subprocess.run(
        [analyze, "security", "--offline=true", "--no-pager", str(path)], capture_output=True, text=True, check=False
    )
    level = re.search(r"exposure level for .*: ([\d.]+)", rated.stdout)
    if level is not None:
        assert float(level[1]) < 5.0


def test_the_example_is_the_default_and_names_every_key() -> None:
    text = example_config()
    assert (REPOSITORY / "examples" / "agent.toml").read_text(encoding="utf-8") == text
    assert msgspec.convert(toml_loads(text), Config) == Config()
    for part in Config.__struct_fields__:
        for key in type(getattr(Config(), part)).__struct_fields__:
            assert re.search(rf"^(# )?(\[\w+\.)?{key}(\]| =)", text, re.MULTILINE), f"{part}.{key}"
    for key in Channel.__struct_fields__:
        assert re.search(rf"^# {key} =", text, re.MULTILINE), key


def test_what_is_a_comment_in_the_example_is_right_too(tmp_path: Path) -> None:
    text = example_config().replace("channels = []\n", "")
    text = re.sub(
        r"^# (\[\[|kind = |url = |least = |lang = |secret_file = |sender = |server = |expect_gpus)",
        r"\1",
        text,
        flags=re.MULTILINE,
    )
    path = tmp_path / "agent.toml"
    head, _, tail = text.partition("[[alerts.channels]]")
    path.write_text(f"{head}[[alerts.channels]]{tail}")
    config, _ = load_config(str(path))
    assert config.sampling.expect_gpus == 8
    assert config.alerts.channels == [Channel("alertmanager", "http://127.0.0.1:9093")]


def test_only_root_installs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert installing.may_install() is False
    assert shutil.which("sh")
