"""`gpuclinic why` as a program: exit codes, standard input, languages, the JSON contract."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
KERNEL = "NVRM: Xid (PCI:0000:9a:00): 79, pid=41822, name=python, GPU has fallen off the bus."
CAUSE_FIELDS = {
    "key", "role", "id", "confidence", "domain", "title", "explanation", "gpu", "gpu_index", "gpu_uuid", "gpus", "pid", "rank", "host", "time",
    "action", "steps", "evidence", "explains",
}  # fmt: skip


def run(*arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", "from gpuclinic.cli.main import entry; entry()", *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, timeout=60, env={**os.environ, "LC_ALL": "C.UTF-8", **environment}
    )


def answer(*arguments: str, stdin: bytes = b"") -> dict[str, Any]:
    done = run("why", "--json", *arguments, stdin=stdin)
    assert done.stderr == b""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("example", "cause"),
    [
        ("lost-gpu", "hw.gpu.fallen_off_bus"),
        ("who-holds-my-gpu", "app.cuda_oom_shared"),
        ("first-failing-rank", "app.exception"),
        ("killed-at-night", "host.cgroup_oom"),
    ],
)
def test_examples_name_their_cause(example: str, cause: str) -> None:
    found = answer(str(EXAMPLES / example))
    assert found["outcome"] == "cause"
    assert found["causes"][0]["id"] == cause
    assert found["causes"][0]["confidence"] >= 0.8


def test_what_looks_bad_but_is_fine_is_left_alone() -> None:
    found = answer(str(EXAMPLES / "looks-bad-but-fine"))
    assert found["outcome"] in ("nothing_wrong", "not_enough_evidence")
    assert found["causes"] == []


def test_the_json_has_every_field_of_the_contract() -> None:
    found = answer(str(EXAMPLES / "lost-gpu"))
    assert {
        "schema",
        "kind",
        "version",
        "host",
        "boot_id",
        "time",
        "lang",
        "outcome",
        "causes",
        "fingerprint",
        "read",
        "not_read",
        "missing",
    } <= found.keys()
    assert (found["schema"], found["kind"], found["lang"]) == (1, "why", "en")
    root = found["causes"][0]
    assert root.keys() >= CAUSE_FIELDS
    assert root["role"] == "root"
    assert root["gpu"] == "0000:9a:00.0"
    assert root["rank"] == 3
    assert all({"source", "line", "text"} <= e.keys() for e in root["evidence"])
    assert all({"text", "command", "risk"} <= s.keys() for s in root["steps"])
    keys = [c["key"] for c in found["causes"]]
    assert set(root["explains"]) <= set(keys)
    for place in root["evidence"]:
        lines = (EXAMPLES / "lost-gpu" / place["source"]).read_text().split("\n")
        assert place["text"] in lines[place["line"] - 1]


def test_standard_input() -> None:
    found = answer("-", stdin=f"[  812.774009] {KERNEL}\n".encode())
    assert found["causes"][0]["id"] == "hw.gpu.fallen_off_bus"
    assert found["causes"][0]["pid"] == 41822


def test_the_same_fault_has_the_same_fingerprint_on_another_host_and_day(tmp_path: Path) -> None:
    prints = set()
    for name, day in (("node1", "Mar  2"), ("node2", "Apr 19")):
        (tmp_path / name).write_text(f"{day} 04:11:09 {name} kernel: {KERNEL}\n")
        prints.add(answer(str(tmp_path / name))["fingerprint"])
    assert len(prints) == 1


@pytest.mark.parametrize(
    "form", [[], ["--markdown"], ["--oneline"], ["-v"], ["--lang", "zh"], ["--lang", "zh", "--oneline"]]
)
def test_forms_for_people(form: list[str]) -> None:
    done = run("why", *form, str(EXAMPLES / "lost-gpu"))
    assert done.returncode == 0
    assert done.stderr == b""
    text = done.stdout.decode()
    assert "kern.log:7" in text
    assert "\x1b" not in text
    assert ("掉卡" in text or "GPU" in text) if "zh" in form else "fell off the bus" in text


def test_the_language_follows_the_locale_but_not_for_programs() -> None:
    assert "结论" in run("why", str(EXAMPLES / "lost-gpu"), LC_ALL="zh_CN.UTF-8").stdout.decode()
    assert json.loads(run("why", "--json", str(EXAMPLES / "lost-gpu"), LC_ALL="zh_CN.UTF-8").stdout)["lang"] == "en"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["why", "/does/not/exist"], 64),
        (["why", "--no-such-option"], 64),
        (["no-such-command"], 64),
        (["why", "-", "-"], 64),
        ([], 64),
        (["--help"], 0),
        (["--version"], 0),
        (["explain", "xid", "79"], 0),
    ],
)
def test_exit_codes(arguments: list[str], code: int) -> None:
    done = run(*arguments)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
    assert done.stderr.count(b"\n") <= 1


def test_nothing_that_can_be_read_is_exit_3(tmp_path: Path) -> None:
    (tmp_path / "core.1").write_bytes(b"\x7fELF" + bytes(12) + b"\x04" + bytes(200))
    done = run("why", "--json", str(tmp_path))
    assert done.returncode == 3
    found = json.loads(done.stdout)
    assert found["outcome"] == "nothing_read"
    assert found["not_read"][0]["why"] == "a core dump"


def test_a_closed_pipe_makes_no_noise() -> None:
    command = (
        f"{sys.executable} -c 'from gpuclinic.cli.main import entry; entry()' why -v {EXAMPLES / 'lost-gpu'} | head -1"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60)
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr


def test_a_running_process_is_asked_about() -> None:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    found = answer("--pid", str(process.pid))
    process.kill()
    process.wait()
    assert found["outcome"] == "nothing_wrong"
    assert found["asked"] == {"pid": process.pid}
    assert str(process.pid) in found["notes"][0]
    assert found["host"]


def test_a_span_of_this_machine_beside_files(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(KERNEL + "\n")
    found = answer("--since", "1s", str(tmp_path / "train.log"))
    assert found["causes"][0]["id"] == "hw.gpu.fallen_off_bus"
    assert set(found["asked"]) == {"since"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--pid", "0"],
        ["--pid", "x"],
        ["--pid", "1", "--job", "2"],
        ["--job", "a;b"],
        ["--since", "soon"],
        ["--since", "1h", "--until", "2h"],
    ],
)
def test_questions_that_make_no_sense(arguments: list[str]) -> None:
    done = run("why", *arguments)
    assert done.returncode == 64
    assert done.stderr.count(b"\n") == 1


def piped(code: str, *arguments: str) -> tuple[int, str, str]:
    """`why` with what a shell line gives it as standard input."""
    ours = "from gpuclinic.cli.main import entry; entry()"
    done = subprocess.run(
        ["sh", "-c", f'{code} "$0" -c "$1" why "$2" "$3"', sys.executable, ours, *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_dev_null_is_no_text_to_be_read(tmp_path: Path) -> None:
    for path, text in (("proc/uptime", "9.0 9.0\n"), ("dev/kmsg", f"3,1,1,-;{KERNEL}\n")):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", "from gpuclinic.cli.main import entry; entry()", "why", "--json"], stdin=subprocess.DEVNULL,
        capture_output=True, timeout=60, check=False, env={**os.environ, "LC_ALL": "C.UTF-8", "GPUCLINIC_ROOT": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0
    assert "-" not in [item["path"] for item in json.loads(done.stdout)["read"]]
    assert json.loads(done.stdout)["outcome"] != "nothing_read"


def test_an_empty_pipe_names_the_way_out() -> None:
    code, out, err = piped(": |", "--oneline", "--lang=en")
    assert code == 3
    assert out
    assert "gpuclinic why --live" in err


def test_a_silent_pipe_is_told_of() -> None:
    code, out, err = piped(f"(sleep 3; echo '{KERNEL}') |", "--oneline", "--lang=en")
    assert code == 0
    assert "9a:00.0" in out
    assert "reading standard input" in err
    assert "--live" in err


def test_a_file_as_standard_input_is_read(tmp_path: Path) -> None:
    (tmp_path / "kernel.log").write_text(KERNEL + "\n")
    code, out, err = piped(f"< {tmp_path}/kernel.log", "--oneline", "--lang=en")
    assert (code, err) == (0, "")
    assert "9a:00.0" in out


@pytest.mark.parametrize("since", ["2099-01-01", "@4070908800"])
def test_a_time_to_come_is_refused(since: str) -> None:
    done = run("why", "--since", since)
    assert done.returncode == 64
    assert b"in the future" in done.stderr
