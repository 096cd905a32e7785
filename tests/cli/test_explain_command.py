"""`gpuclinic explain` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from gpuclinic.cli.main import main

if TYPE_CHECKING:
    import pytest


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--json", "xid", "79"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["topic"], body["code"], body["cause"], body["lang"]) == ("xid", 79, "hw.gpu.fallen_off_bus", "en")
    assert body["severity"] == "critical"


def test_negative_codes_are_no_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--lang", "en", "exit", "code", "-9"]) == 0
    assert "SIGKILL" in capsys.readouterr().out


def test_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--lang", "zh", "app.cuda_oom"]) == 0
    out = capsys.readouterr().out
    assert "显存不足" in out
    assert "定界" in out


def test_unknown_topics_are_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--lang", "en", "fallen_off"]) == 0
    assert "hw.gpu.fallen_off_bus" in capsys.readouterr().out


def test_empty_topic_is_a_usage_error() -> None:
    code = "import sys; sys.argv[1:] = ['explain', '']; from gpuclinic.cli.main import entry; entry()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 64
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
