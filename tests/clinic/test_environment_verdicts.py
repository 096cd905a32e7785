"""Environments against the GPUs of their machine: findings of `check`, the list of `compat`, and the versions behind an error in `why`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gpuclinic.clinic import examine
from gpuclinic.clinic.checking import CheckOptions, check
from gpuclinic.clinic.environment_list import list_environments
from gpuclinic.clinic.software_judge import SoftwareQuestion
from gpuclinic.observe import Places
from gpuclinic.report.environments import environments_body, environments_text
from made_environments import conda, interpreter, package, put, torch, venv
from made_snapshots import driver_server

if TYPE_CHECKING:
    from pathlib import Path

    from made_snapshots import Made


class Problem(msgspec.Struct):
    id: str
    title: str
    why: str
    source: str = "the rules"
    fix: str = "pip install torch==2.5.1+cu121"


class Told(msgspec.Struct):
    verdict: str
    problems: list[Problem] = []
    install: str | None = None
    unknown: list[str] = []


class Rules:
    """Stands in for gpuclinic.compat: torch built with CUDA 13 needs R580, builds without CUDA do not use a GPU, vllm is not known."""

    def __init__(self) -> None:
        self.asked: list[SoftwareQuestion] = []

    def __call__(self, question: SoftwareQuestion, lang: str) -> Told:
        self.asked.append(question)
        words = " ".join(question.want)
        driver = int((question.driver or "0").partition(".")[0])
        if "+cpu" in words:
            return Told(
                "fails",
                [Problem("compat.cpu_only_build", "built without CUDA", "+cpu")],
                "pip install torch==2.5.1+cu124",
            )
        if "+cu130" in words and driver < 580:
            why = "CUDA 13 needs 580.65.06" if lang == "en" else "CUDA 13 需要 580.65.06"
            return Told(
                "fails",
                [Problem("driver.too_old_for_cuda", "driver too old", why)],
                "pip install 'torch==2.9.0+cu128' --index-url https://download.pytorch.org/whl/cu128",
            )
        if "1.13.1+cu117" in words:
            return Told(
                "fails",
                [Problem("compat.arch_unsupported", "no sm_90 in torch 1.13.1+cu117", "the list ends at sm_86")],
                "pip install torch==2.5.1+cu124",
            )
        if "vllm" in words:
            return Told("unknown", unknown=["vllm 0.0.1: no row"])
        return Told("works")


def nvml(made: Made, *names: str) -> None:
    gpus = [
        {"index": n, "bus_id": f"00000000:{0x18 + n:02x}:00.0", "name": name, "uuid": f"GPU-{n}"}
        for n, name in enumerate(names)
    ]
    (made.folder / "nvml.json").write_text(json.dumps({"gpus": gpus}))


@pytest.fixture
def server(tmp_path: Path) -> Made:
    made = driver_server(tmp_path / "snapshot", version="535.183.01")
    interpreter(made.folder / "root")
    return made


def root_of(made: Made) -> Path:
    return made.folder / "root"


def findings(made: Made, rules: Rules, lang: str = "en") -> list[Any]:
    answer = check(made.host(), CheckOptions(only=["software"], lang=lang), software=rules)
    return [one for one in answer.findings if one.id.startswith("software.")]


def test_one_finding_an_environment_with_the_command_that_mends_it(server: Made) -> None:
    torch(venv(root_of(server) / "opt/venvs/new"), "2.9.0+cu130", "13.0")
    site = venv(root_of(server) / "opt/venvs/twice")
    torch(site, "2.9.0+cu130", "13.0")
    package(site, "torch", "2.8.0")  # broken, too: still one finding
    torch(venv(root_of(server) / "opt/venvs/good"), "2.5.1+cu124", "12.4")
    rules = Rules()
    found = findings(server, rules)
    assert [(one.id, one.severity, one.subject) for one in found] == [
        ("software.environment.driver", "warning", "/opt/venvs/new"),
        ("software.environment.driver", "warning", "/opt/venvs/twice"),
    ]
    first = found[0]
    assert first.cause == "driver.too_old_for_cuda"
    assert first.component == "software"
    assert "CUDA 13 needs 580.65.06" in first.detail
    assert first.steps[0]["command"].startswith("pip install 'torch==2.9.0+cu128' --index-url")
    assert found[1].implies == ["software.environment.broken"]
    asked = next(one for one in rules.asked if "cu130" in one.want[0])
    assert not any("torch==2.8.0" in one.want for one in rules.asked)
    assert asked.driver == "535.183.01"
    assert asked.gpu
    assert asked.want == ["torch==2.9.0+cu130"]
    assert asked.python == "3.11.4"
    assert asked.installed
    assert "CUDA 13 需要" in findings(server, Rules(), "zh")[0].detail


def test_the_question_is_one_that_the_rules_take() -> None:
    from gpuclinic.cli.software import judge_software
    from gpuclinic.compat import Question

    assert set(SoftwareQuestion.__struct_fields__) <= set(Question.__struct_fields__)
    told = judge_software(SoftwareQuestion(gpu="no such GPU", want=["torch==2.5.1"]), "en")
    assert told.verdict == "unknown"
    assert not told.problems


def test_a_command_with_words_for_a_shell_is_not_shown(server: Made) -> None:
    torch(venv(root_of(server) / "opt/v"), "2.9.0+cu130", "13.0")

    def rules(question: SoftwareQuestion, lang: str) -> Told:
        return Told("fails", [Problem("driver.too_old_for_cuda", "t", "w")], "pip install torch; rm -rf $HOME")

    assert [step["command"] for step in findings(server, rules)[0].steps] == ["", "gpuclinic compat"]  # type: ignore[arg-type]


def test_without_cuda_is_no_fault_and_unknown_is_none(server: Made) -> None:
    torch(venv(root_of(server) / "opt/cpu"), "2.5.1+cpu", None)
    package(venv(root_of(server) / "opt/serve"), "vllm", "0.0.1")
    package(venv(root_of(server) / "opt/plain"), "requests", "2.32.0")
    package(venv(root_of(server) / "opt/science"), "numpy", "2.1.0")
    found = findings(server, Rules())
    assert [(one.id, one.severity) for one in found] == [("software.environment.cpu_only", "info")]


def test_a_healthy_server_with_fitting_environments_has_none(server: Made) -> None:
    for name in ("a", "b"):
        torch(venv(root_of(server) / f"home/{name}/.venv"), "2.5.1+cu124", "12.4")
    conda(root_of(server) / "opt/conda", ("pytorch", "2.5.1", "py3.10_cuda12.4_cudnn9.1.0_0"))
    put(
        root_of(server) / "usr/local/cuda-12.4/version.json",
        json.dumps({"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}),
    )
    put(root_of(server) / "usr/local/cuda-12.4/lib64/stubs/libcuda.so")
    put(root_of(server) / "etc/ld.so.conf.d/cuda.conf", "/usr/local/cuda/lib64\n/usr/local/cuda/lib64/stubs\n")
    server.link("usr/local/cuda", "/usr/local/cuda-12.4")
    answer = check(server.host(), CheckOptions(only=["software"]), software=Rules())
    assert not [one for one in answer.findings if one.id.startswith("software.")]
    toolkit = [f for f in answer.facts if f.kind == "toolkit"]
    assert [(f.fields["path"], f.fields["version"], f.fields["chosen"]) for f in toolkit] == [
        ("/usr/local/cuda-12.4", "12.4.1", True)
    ]


def test_search_paths_that_hide_the_driver(server: Made) -> None:
    root = root_of(server)
    put(root / "etc/ld.so.conf.d/a.conf", "# none\n/usr/local/cuda/lib64/stubs\n/usr/local/cuda-12.0/compat\n")
    put(root / "usr/local/cuda/lib64/stubs/libcuda.so")
    server.link("usr/local/cuda/lib64/stubs/libcuda.so.1", "libcuda.so")
    put(root / "usr/local/cuda-12.0/compat/libcuda.so.525.60.13")
    server.link("usr/local/cuda-12.0/compat/libcuda.so.1", "libcuda.so.525.60.13")
    found = {one.id: one for one in findings(server, Rules())}
    assert set(found) == {"software.library.stub", "software.library.other_libcuda"}
    assert found["software.library.other_libcuda"].severity == "warning"
    assert found["software.library.other_libcuda"].cause == "compat.cuda_compat_libs"


MAPS = """\
7f0000000000-7f0000001000 r-xp 00000000 08:01 11 /opt/v/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so
7f0000001000-7f0000002000 r-xp 00000000 08:01 12 /opt/v/lib/python3.11/site-packages/torch/lib/libc10.so
7f0000002000-7f0000003000 r-xp 00000000 08:01 13 /usr/lib/x86_64-linux-gnu/libcuda.so.535.161.08 (deleted)
7f0000003000-7f0000004000 r-xp 00000000 08:01 14 /usr/lib/x86_64-linux-gnu/libcudnn.so.8.9.7
7f0000004000-7f0000005000 r-xp 00000000 08:01 14 /opt/v/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12
"""


def test_what_processes_really_mapped(server: Made) -> None:
    root = root_of(server)
    site = venv(root / "opt/v")
    torch(site, "2.9.0+cu130", "13.0")
    package(site, "nvidia-cudnn-cu12", "9.1.0.70", module="nvidia")
    put(root / "proc/4711/maps", MAPS)
    put(root / "proc/4711/environ", "HOME=/root\0LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu:/x/stubs\0")
    put(root / "proc/4711/status", "Name:\tpython\nPid:\t4711\nTgid:\t4711\nUid:\t1000\t1000\t1000\t1000\n")
    gpu = {
        "index": 0,
        "bus_id": "00000000:18:00.0",
        "name": "NVIDIA H100 80GB HBM3",
        "compute_processes": [{"pid": 4711, "memory_mib": 1000}],
    }
    (server.folder / "nvml.json").write_text(json.dumps({"gpus": [gpu]}))
    from gpuclinic.clinic.environment_places import Search
    from gpuclinic.clinic.looks.software import software_of
    from gpuclinic.model import Fact

    facts = [Fact("driver_state", "host", {"version": "535.183.01"}, {}, "test")]
    seen = software_of(server.host(), facts, Search(pids=[4711]))
    env = next(f for f in seen.facts if f.kind == "environment" and f.key == "/opt/v")
    assert env.fields["in_use"] is True
    assert env.fields["pids"] == "4711"
    mapped = {f.fields["name"]: f.fields for f in seen.facts if f.kind == "mapped_library"}
    assert mapped["libcuda"]["deleted"] is True
    assert mapped["libcudart"]["version"] == "12"
    shadow = next(f for f in seen.facts if f.kind == "shadowed_library")
    assert (shadow.fields["name"], shadow.fields["version"], shadow.fields["older"]) == ("libcudnn", "8.9.7", True)
    gone = next(f for f in seen.facts if f.kind == "replaced_library")
    assert gone.fields["names"] == "libcuda.so.535.161.08"


def test_the_environment_of_a_process_in_a_container(server: Made) -> None:
    from gpuclinic.clinic.environment_places import Search
    from gpuclinic.clinic.looks.software import software_of

    root = root_of(server)
    container = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
    inside = root / "proc/5000/root"
    torch(inside / "usr/local/lib/python3.12/dist-packages", "2.6.0a0+ecf3bae40a.nv25.1", "12.8")
    put(inside / "etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\n')
    maps = "7f00-7f01 r-xp 00000000 00:2a 11 /usr/local/lib/python3.12/dist-packages/torch/lib/libtorch_cuda.so\n"
    put(root / "proc/5000/maps", maps)
    put(root / "proc/5000/cgroup", f"0::/system.slice/docker-{container}.scope\n")
    server.link("proc/5000/ns/mnt", "mnt:[4026532999]").link("proc/self/ns/mnt", "mnt:[4026531841]")
    seen = software_of(server.host(), [], Search(pids=[5000]))
    env = next(f for f in seen.facts if f.kind == "environment" and f.fields.get("container"))
    assert env.fields["container"] == container[:12]
    assert env.fields["in_use"] is True
    assert (env.fields["torch"], env.fields["glibc"], env.fields["python"]) == (
        "2.6.0a0+ecf3bae40a.nv25.1",
        "2.39",
        "3.12",
    )


def test_packages_of_the_distribution(server: Made) -> None:
    put(
        root_of(server) / "var/lib/dpkg/status",
        "Package: libcudnn9-cuda-12\nStatus: install ok installed\nPriority: optional\nVersion: 9.1.0.70-1\n\n"
        "Package: bash\nStatus: install ok installed\nVersion: 5\n\n"
        "Package: libnccl2\nStatus: deinstall ok config-files\nVersion: 2.18\n\n"
        "Package: cuda-compat-12-6\nStatus: install ok installed\nVersion: 560.35.05-0ubuntu1\n",
    )
    answer = list_environments(server.host(), Rules(), "en")
    told = {f.key: f.fields["version"] for f in answer.facts if f.kind == "toolkit"}
    assert told == {"libcudnn9-cuda-12": "9.1.0.70-1", "cuda-compat-12-6": "560.35.05-0ubuntu1"}


def test_packages_of_an_rpm_distribution(server: Made) -> None:
    root = root_of(server)
    (root / "var/lib/rpm").mkdir(parents=True)
    put(
        server.folder / "commands/rpm-qa.txt",
        "bash-5.1.8-9.el9.x86_64\ncuda-toolkit-12-6-12.6.3-1.x86_64\nlibcudnn9-cuda-12-9.5.1.17-1.x86_64\ncuda-compat-12-6-560.35.05-1.el9.x86_64\n",
    )
    put(root / "usr/lib64/libcudnn.so.9.5.1")
    server.link("usr/lib64/libcudnn.so.9", "libcudnn.so.9.5.1")
    put(root / "usr/lib64/libnccl.so.2.23.4")
    server.link("usr/lib64/libnccl.so.2", "libnccl.so.2.23.4")
    answer = list_environments(server.host(), Rules(), "en")
    told = {f.key: f.fields["version"] for f in answer.facts if f.kind == "toolkit"}
    assert told == {
        "cuda-toolkit-12-6": "12.6.3-1", "libcudnn9-cuda-12": "9.5.1.17-1", "cuda-compat-12-6": "560.35.05-1.el9",
        "cudnn /usr/lib64 9.5.1": "9.5.1", "nccl /usr/lib64 2.23.4": "2.23.4",
    }  # fmt: skip


def test_rpm_that_cannot_be_asked_is_a_gap(server: Made) -> None:
    (root_of(server) / "var/lib/rpm").mkdir(parents=True)
    answer = list_environments(server.host(), Rules(), "en")
    assert any("rpm -qa" in gap.why for gap in answer.gaps)


def test_the_list_of_a_host_with_a_verdict_each(server: Made) -> None:
    torch(venv(root_of(server) / "home/alice/x/y/.venv"), "2.9.0+cu130", "13.0")
    torch(venv(root_of(server) / "opt/good"), "2.5.1+cu124", "12.4")
    package(venv(root_of(server) / "opt/serve"), "vllm", "0.0.1")
    package(venv(root_of(server) / "opt/plain"), "requests", "2.32.0")
    answer = list_environments(server.host(), Rules(), "en")
    assert answer.verdict == "fails"
    body = environments_body(answer)
    told = {one["path"]: one for one in body["environments"]}
    assert {path: one["verdict"] for path, one in told.items()} == {
        "/home/alice/x/y/.venv": "fails", "/opt/good": "works", "/opt/serve": "unknown", "/opt/plain": None,
    }  # fmt: skip
    assert told["/home/alice/x/y/.venv"]["problems"][0]["id"] == "driver.too_old_for_cuda"
    assert told["/home/alice/x/y/.venv"]["install"]
    assert told["/opt/good"]["packages"] == {"torch": "2.5.1+cu124"}
    assert [one["id"] for one in body["problems"]] == ["driver.too_old_for_cuda"]
    json.dumps(body)
    text = environments_text(answer)
    assert text.index("/home/alice/x/y/.venv") < text.index("/opt/serve") < text.index("/opt/good")
    assert "pip install 'torch==2.9.0+cu128'" in text
    assert "不可用" in environments_text(list_environments(server.host(), Rules(), "zh"))


def test_why_joins_an_error_with_the_versions_beside_it(tmp_path: Path) -> None:
    log = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    put(tmp_path / "train.log", log)
    put(tmp_path / "freeze.txt", "numpy==1.26.4\ntorch==1.13.1+cu117\n")
    put(tmp_path / "gpus.txt", "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5b7d0a91-6b3c-4b0c-8b1c-0a1b2c3d4e5f)\n")
    answer = examine(Places([str(tmp_path)], None), software=Rules())
    assert answer.causes[0].id == "compat.arch_unsupported"
    assert answer.causes[0].steps[0]["command"] == "pip install torch==2.5.1+cu124"
    assert "no sm_90 in torch 1.13.1+cu117" in answer.notes[0]
    assert any("torch==1.13.1+cu117" in place.text for place in answer.causes[0].evidence)
    alone = tmp_path / "alone"
    put(alone / "train.log", log)
    rules = Rules()
    plain = examine(Places([str(alone)], None), software=rules)
    assert plain.causes[0].id == "compat.arch_unsupported"
    assert not rules.asked
