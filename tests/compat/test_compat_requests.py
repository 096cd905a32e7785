"""What `compat --want` is handed: files, pipes, several wants of one package, values that are none. Nothing unread is ever "works"."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from gpuclinic.cli import _want_files
from gpuclinic.cli.main import main
from gpuclinic.compat import Question, judge
from gpuclinic.compat.listings import MOST_LINES
from gpuclinic.model import UserError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "wants",
    [
        ["torch==2.6.0", "torch==2.5.0"],
        ["torch==2.6.0", "torch<2.0"],
        ["torch<2.0", "torch==2.6.0"],
        ["numpy==1.26.4", "numpy>=2"],
        ["torch==2.6.0+cu124", "torch==2.6.0+cu126"],
        ["torch==2.6.0\ntorch==2.5.1\n"],
        ["torch==2.6.0", "torch-1.8.0-cp38-cp38-linux_x86_64.whl"],
    ],
)
def test_wants_that_exclude_one_another(wants: list[str]) -> None:
    answer = judge(Question(want=wants))
    assert answer.verdict == "fails"
    assert "exclude one another" in answer.problems[0].title


@pytest.mark.parametrize(
    "wants", [["torch==2.6.0+cu124", "torch==2.6.0"], ["torch==2.6.0", "torch>=2,<3"], ["torch=2.6", "torch==2.6.0"]]
)
def test_wants_that_agree(wants: list[str]) -> None:
    assert judge(Question(want=wants)).verdict == "works"


@pytest.mark.parametrize(
    "other",
    ["./local/torch-1.8.0.whl", "torch~=2", "-r base.txt", "-c constraints.txt", "-e .", "torch>=2.5\ntorch<2\n"],
)
def test_what_was_not_understood_is_never_said_to_work(other: str) -> None:
    answer = judge(Question(gpu="A100", driver="550.54.15", want=["torch==2.6.0", other]))
    assert answer.verdict in ("unknown", "fails")


def test_ranges_that_no_version_satisfies() -> None:
    assert judge(Question(want=["torch<2.0", "torch>=2.5"])).verdict == "unknown"


def test_a_build_of_ones_own_is_named_whole() -> None:
    answer = judge(Question(gpu="H100", driver="550.54.15", want=["torch==2.6.0+weird.local"]))
    assert answer.verdict == "unknown"
    assert "torch 2.6.0+weird.local" in answer.unknown[0]


def test_requirement_files_that_a_file_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "requirements.txt").write_text("-r sub/base.txt  # ours\nnumpy==1.26.4\n")
    (tmp_path / "sub/base.txt").write_text("--requirement more.txt\n-r ../requirements.txt\n")
    (tmp_path / "sub/more.txt").write_text("torch==2.6.0+cu124\n")
    asks = ["compat", "--gpu", "RTX 5090", "--driver", "570.133.07", "--want", f"@{tmp_path / 'requirements.txt'}"]
    assert main(asks) == 2
    (tmp_path / "sub/more.txt").write_text("torch==2.7.0+cu128\n")
    assert main(asks) == 0
    capsys.readouterr()


@pytest.mark.parametrize("named", ["../outside.txt", "/etc/hostname", "missing.txt", "link.txt", "pipe"])
def test_files_elsewhere_are_not_followed(tmp_path: Path, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside.txt").write_text("numpy==1.26.4\n")
    (inside / "link.txt").symlink_to(tmp_path / "outside.txt")
    os.mkfifo(inside / "pipe")
    (inside / "requirements.txt").write_text(f"-r {named}\ntorch==2.6.0\n")
    assert main(["compat", "--want", f"@{inside / 'requirements.txt'}"]) == 3
    assert f"-r {named}" in capsys.readouterr().out


def test_a_pipe_is_read_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("torch==2.6.0\n",))
    writer.start()
    assert main(["compat", "--want", f"@{pipe}"]) == 0
    writer.join()
    assert "torch 2.6.0" in capsys.readouterr().out


def test_what_is_no_text_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_want_files, "MOST_SECONDS", 0.05)
    monkeypatch.setattr(_want_files, "MOST_BYTES", 1000)
    os.mkfifo(tmp_path / "silent")
    (tmp_path / "large").write_text("x" * 1001)
    for want, says in (
        (f"@{tmp_path / 'silent'}", "nothing came"),
        (f"@{tmp_path / 'large'}", "larger than"),
        ("@/dev/zero", "no file"),
        (f"@{tmp_path}", "Is a directory"),
        ("@", "names no file"),
    ):
        with pytest.raises(UserError, match=says):
            main(["compat", "--want", want])
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UserError, match="closed"):
        main(["compat", "--want", "-"])


def test_lines_beyond_the_cap_are_told() -> None:
    listing = "".join(f"plain-{number}==1.{number}\n" for number in range(MOST_LINES)) + "torch==2.6.0+cu124\n"
    answer = judge(Question(gpu="RTX 5090", driver="570.133.07", want=[listing]))
    assert answer.verdict == "unknown"
    assert any(f"first {MOST_LINES}" in text for text in answer.unknown)


@pytest.mark.parametrize(
    "words",
    [
        ["--cuda", "abc"],
        ["--cudnn", "x"],
        ["--glibc", "abc"],
        ["--container-cuda", "x"],
        ["--driver", "550.54.15; rm"],
        ["--kernel", "junk"],
        ["--python", "three"],
        ["--machine", "toaster"],
    ],
)
def test_values_that_are_none(words: list[str]) -> None:
    with pytest.raises(UserError, match=f"^{words[0]}: such as "):
        main(["compat", *words, "--want", "torch==2.6.0"])


@pytest.mark.parametrize("words", [["--cuda", "12.4"], ["--gpu", "H100", "--python", "3.11"], ["--glibc", "2.31"]])
def test_a_question_that_asks_nothing(words: list[str]) -> None:
    with pytest.raises(UserError, match="nothing to judge"):
        main(["compat", *words])


def test_the_verdict_says_what_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compat", "--gpu", "A100", "--want", "torch==2.6.0"]) == 0
    assert capsys.readouterr().out.startswith("WORKS (driver not given, so not judged)")
    assert main(["compat", "--want", "torch==2.6.0", "--lang", "zh"]) == 0
    assert "未给出GPU和驱动" in capsys.readouterr().out.splitlines()[0]
    assert main(["compat", "--want", "numpy==1.26.4"]) == 0
    assert "not given" not in capsys.readouterr().out


def test_a_gpu_and_a_toolkit_tell_what_is_known_of_the_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compat", "--gpu", "H100", "--cuda", "12.4"]) == 0
    out = capsys.readouterr().out
    assert "Hopper" in out
    assert "11.8" in out
    assert "--want" in out
