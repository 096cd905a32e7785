"""`gpuclinic compat --host`: environments of a snapshot for its own machine and for another one, and packages for the machine of a snapshot."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gpuclinic.cli.main import main
from gpuclinic.model import UserError
from made_environments import interpreter, put, torch, venv
from made_snapshots import driver_server

if TYPE_CHECKING:
    from pathlib import Path

    from made_snapshots import Made


@pytest.fixture
def server(tmp_path: Path) -> Made:
    made = driver_server(tmp_path / "snapshot", version="535.183.01")
    root = made.folder / "root"
    interpreter(root)
    torch(venv(root / "opt/old"), "2.5.1+cu124", "12.4")
    torch(venv(root / "opt/new"), "2.9.0+cu128", "12.8")
    (made.folder / "nvml.json").write_text(
        json.dumps(
            {"gpus": [{"index": 0, "bus_id": "00000000:18:00.0", "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-0"}]}
        )
    )
    return made


def asked(server: Made, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict]:
    code = main(["compat", "--host", str(server.folder), "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def verdicts(body: dict) -> dict[str, str]:
    return {one["path"]: one["verdict"] for one in body["environments"]}


def test_what_is_there_on_the_machine_as_it_is(server: Made, capsys: pytest.CaptureFixture[str]) -> None:
    code, body = asked(server, capsys)
    assert verdicts(body) == {"/opt/old": "works", "/opt/new": "works"}
    assert code == 0
    assert body["machine"]["said"] == []
    assert body["machine"]["verdict"] is None


def test_what_is_there_on_new_cards(server: Made, capsys: pytest.CaptureFixture[str]) -> None:
    code, body = asked(server, capsys, "--gpu", "RTX 5090", "--driver", "570.144")
    assert code == 2
    assert verdicts(body) == {"/opt/old": "fails", "/opt/new": "works"}
    assert body["machine"]["gpus"] == ["RTX 5090"]
    assert body["machine"]["said"] == ["driver", "gpus"]
    assert body["machine"]["verdict"] == "works"
    assert body["environments"][0]["gpu"] == "RTX 5090"
    assert [one["id"] for one in body["problems"]] == ["compat.arch_unsupported"]
    old = next(one for one in body["environments"] if one["path"] == "/opt/old")
    assert old["install"].startswith("pip install torch==")


def test_the_driver_that_is_there_is_too_old_for_the_new_cards(
    server: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    code, body = asked(server, capsys, "--gpu", "RTX 5090")
    assert code == 2
    assert body["machine"]["driver"] == "535.183.01"
    assert body["machine"]["verdict"] == "fails"
    assert body["problems"][0]["id"] == "driver.unsupported_gpu"
    assert main(["compat", "--host", str(server.folder), "--gpu", "RTX 5090"]) == 2
    text = capsys.readouterr().out
    assert "RTX 5090 (as asked)" in text
    assert text.index("535.183.01 is too old to know RTX 5090") < text.index("/opt/new")
    assert text.count("is too old to know RTX 5090") == 1
    main(["compat", "--host", str(server.folder), "--gpu", "RTX 5090", "--lang", "zh"])
    assert "按您所给" in capsys.readouterr().out


def test_a_driver_that_does_not_build_on_the_kernel_that_is_there(
    server: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = asked(server, capsys)[1]["machine"]["kernel"]
    assert kernel
    code, body = asked(server, capsys, "--driver", "535.161.07", "--kernel", "6.12.1")
    assert (code, body["problems"][0]["id"]) == (2, "driver.kernel_mismatch")
    code, body = asked(server, capsys, "--driver", "550.90.07")
    assert code == 0
    assert body["machine"]["kernel"] == kernel


def test_packages_for_the_machine_of_a_snapshot(server: Made, capsys: pytest.CaptureFixture[str]) -> None:
    code, body = asked(server, capsys, "--want", "torch==2.9.1+cu130")
    assert (code, body["problems"][0]["id"]) == (2, "driver.too_old_for_cuda")
    code, body = asked(server, capsys, "--driver", "580.95.05", "--want", "torch==2.9.1+cu130")
    assert code == 0
    code, body = asked(server, capsys, "--gpu", "V100", "--driver", "580.95.05", "--want", "torch==2.9.1+cu130")
    assert (code, body["problems"][0]["id"]) == (2, "compat.arch_unsupported")


def test_a_python_for_environments_that_have_their_own(server: Made) -> None:
    with pytest.raises(UserError, match="goes with --want"):
        main(["compat", "--host", str(server.folder), "--python", "3.12"])


_WATCHED = """
import sys
told = []
root = sys.argv[1]
def hook(event, arguments):
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "socket.connect", "ctypes.dlopen"):
        told.append((event, str(arguments[0])))
    elif event == "import" and arguments[0].split(".")[0] in ("torch", "vllm", "numpy", "sitecustomize", "tensorflow", "jax"):
        told.append((event, arguments[0]))
    elif event == "open" and root in str(arguments[0]) and isinstance(arguments[2], int) and arguments[2] & 3:
        told.append((event, str(arguments[0])))
    elif event in ("os.remove", "os.rename", "os.mkdir", "os.chmod", "os.chown", "os.link", "os.symlink", "os.utime") and root in str(arguments[0]):
        told.append((event, str(arguments[0])))
sys.addaudithook(hook)
from gpuclinic.cli.main import main
code = main(["compat", "--host", root, "--gpu", "RTX 5090", "--driver", "570.144", "--json"])
print(code, told, file=sys.stderr)
"""


def test_nothing_of_what_is_judged_is_imported_started_or_written(server: Made) -> None:
    site = venv(server.folder / "root/opt/trap")
    torch(site, "2.9.0+cu128", "12.8")
    put(site / "sitecustomize.py", "raise SystemExit('ran')\n")
    put(site / "trap.pth", "import os; os.system('touch /tmp/ran')\n")
    put(site / "torch/__init__.py", "raise SystemExit('ran')\n")
    before = sorted(str(path) for path in server.folder.rglob("*"))
    told = subprocess.run(
        [sys.executable, "-c", _WATCHED, str(server.folder)], capture_output=True, text=True, timeout=120, check=False
    )
    assert told.stderr.splitlines()[-1] == "2 []", told.stderr
    assert json.loads(told.stdout)["verdict"] == "fails"
    assert sorted(str(path) for path in server.folder.rglob("*")) == before
