"""Completion scripts and man page stay in step with the command line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuclinic.cli.completion import commands, global_options, script

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_offered(shell: str) -> None:
    text = script(shell)
    assert {c.name for c in commands()} >= {"why", "explain", "completion"}
    for command in commands():
        assert command.name in text
        for option in command.options:
            for flag in option.option_strings:
                wanted = flag if shell != "fish" else f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                assert wanted in text, (command.name, flag)
        for word in command.words:
            assert word in text
    assert global_options()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_accept_their_script(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    path = tmp_path / "script"
    path.write_text(script(shell))
    subprocess.run([program, "-n", str(path)], check=True, timeout=60)


def test_bash_completes(tmp_path: Path) -> None:
    program = shutil.which("bash")
    if program is None:
        pytest.skip("no bash here")
    (tmp_path / "a b.log").touch()
    (tmp_path / "script").write_text(
        script("bash")
        + '\nt() { COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _gpuclinic; '
        + 'printf "%s\\n" "${COMPREPLY[@]}"; echo ==; }\n'
        + 't gpuclinic w; t gpuclinic why --la; t gpuclinic why --lang ""; '
        + 't gpuclinic why "a "; t gpuclinic explain sx\n'
    )
    done = subprocess.run([program, "script"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert [part.split("\n") for part in done.stdout.strip().split("\n==")][:5] == [
        ["why"],
        ["", "--lang"],
        ["", "en", "zh"],
        ["", "a b.log"],
        ["", "sxid"],
    ]


def test_man_page_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "make_man.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    text = (ROOT / "docs" / "man" / "gpuclinic.1").read_text()
    for command in commands():
        assert f".SS gpuclinic {command.name}" in text
