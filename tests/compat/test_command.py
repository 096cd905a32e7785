"""`gpuclinic compat` as programs and people call it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from gpuclinic.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

FITS = ["compat", "--gpu", "A100", "--driver", "535.161.08", "--python", "3.11", "--want", "torch==2.1.0"]
FAILS = ["compat", "--gpu", "RTX 5090", "--driver", "570.133.07", "--python", "3.12", "--want", "torch==2.6.0+cu124"]


def test_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(FITS) == 0
    assert main(FAILS) == 2
    assert main(["compat", "--gpu", "Frob 9", "--want", "torch==2.1.0"]) == 3
    capsys.readouterr()


def test_json_is_that_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    main([*FAILS, "--json"])
    body = json.loads(capsys.readouterr().out)
    assert body["schema"] == 1
    assert body["kind"] == "compat"
    assert body["verdict"] == "fails"
    assert body["lang"] == "en"
    assert {"id", "title", "why", "source", "fix"} <= body["problems"][0].keys()
    assert body["problems"][0]["id"] == "compat.arch_unsupported"
    assert body["install"].startswith("pip install torch==2.7")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_text(lang: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([*FAILS, "--lang", lang, "-v"])
    out = capsys.readouterr().out
    assert "sm_120" in out
    assert "pip install" in out


def test_want_takes_several_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listing = tmp_path / "requirements.txt"
    listing.write_text("torch==2.1.0\ntorchvision==0.15.2\n")
    assert main(["compat", "--want", "torch==2.1.0", "torchvision==0.16.0", "--want", "numpy<2"]) == 0
    assert main(["compat", "--want", f"@{listing}"]) == 2
    assert main(["compat", "--want", str(listing)]) == 2
    capsys.readouterr()


def test_wrong_command_lines() -> None:
    from gpuclinic.model import UserError

    for words in (
        ["--want", "@/no/such/file"],
        ["--module", "half", "--want", "torch"],
        ["--env", "X", "--want", "torch"],
    ):
        with pytest.raises(UserError):
            main(["compat", *words])


def test_knowledge_shows_its_age(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compat", "--knowledge"]) == 0
    assert "builds-torch.tsv" in capsys.readouterr().out
    assert main(["compat", "--knowledge", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["knowledge"]


def test_nothing_judged_is_imported_or_executed(capsys: pytest.CaptureFixture[str]) -> None:
    started: list[str] = []

    def hook(event: str, arguments: tuple) -> None:
        if started is not None and event in (
            "subprocess.Popen",
            "os.exec",
            "os.posix_spawn",
            "os.fork",
            "socket.connect",
        ):
            started.append(event)

    sys.addaudithook(hook)
    before = set(sys.modules)
    assert main(FITS) == 0
    assert not started
    assert not {
        name for name in set(sys.modules) - before if name.split(".")[0] in ("torch", "numpy", "jax", "tensorflow")
    }
    capsys.readouterr()
