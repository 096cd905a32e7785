"""How GPUs, requirements, wheel names and listings are read."""

from __future__ import annotations

import pytest

from gpuclinic.compat import Question, judge
from gpuclinic.compat.context import context_of
from gpuclinic.compat.gpus import card_of, cards_of
from gpuclinic.compat.listings import read_listing
from gpuclinic.compat.wants import NotReadError, parse_want

GPUS = [
    ("NVIDIA GeForce RTX 3090", "8.6"), ("RTX4090", "8.9"), ("8xH100", "9.0"), ("A100-SXM4-80GB x8", "8.0"), ("10de:2330", "9.0"),
    ("0x233010DE", "9.0"), ("sm_90", "9.0"), ("9.0", "9.0"), ("compute capability 8.6", "8.6"), ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "9.0"),
    ("GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)", "8.0"), ("A6000", "8.6"), ("NVIDIA RTX 6000 Ada Generation", "8.9"),
    ("Quadro RTX 6000", "7.5"), ("GTX1080Ti", "6.1"), ("Titan V", "7.0"), ("NVIDIA TITAN X (Pascal)", "6.1"), ("GTX TITAN X", "5.2"),
    ("NVIDIA B300 SXM6 AC", "10.3"), ("GB200 NVL72", "10.0"), ("DGX Spark (GB10)", "12.1"), ("NVIDIA GH200 480GB", "9.0"), ("p4d.24xlarge", "8.0"),
    ("g5.xlarge", "8.6"), ("Standard_NC24ads_A100_v4", "8.0"), ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0"), ("4090", "8.9"),
    ("2080ti", "7.5"), ("Jetson AGX Orin", "8.7"), ("GRID V100D-8C", "7.0"), ("A40-48Q", "8.6"), ("NVIDIA GeForce RTX 4090 Laptop GPU", "8.9"),
    ("Tesla K80", "3.7"), ("GeForce GTX 580", "2.0"), ("2x RTX 3090", "8.6"), ("RTX 3090 x2", "8.6"), ("GTX 1080", "6.1"), ("T4", "7.5"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "capability"), GPUS)
def test_gpu(text: str, capability: str) -> None:
    card = card_of(text)
    assert card is not None
    assert card.cc == capability


@pytest.mark.parametrize("text", ["GeForce RTX 6090", "Radeon RX 7900", "sm_42", "GH300", "RTX 6000", "", "x" * 5000])
def test_unheard_gpu(text: str) -> None:
    assert card_of(text) is None


def test_several_gpus() -> None:
    cards, unknown = cards_of("RTX 3090, GTX 1080 Ti and Frob 9")
    assert [card.cc for card in cards] == ["8.6", "6.1"]
    assert unknown == ["Frob 9"]


WANTS = [
    ("torch==2.9.1+cu130", ("torch", "2.9.1", "cu130")),
    ("torch>=2.1,<2.4", ("torch", "", "")),
    ("tensorflow[and-cuda]==2.15.0", ("tensorflow", "2.15.0", "")),
    ("Flash_Attn==2.5.8 ; python_version >= '3.8'", ("flash-attn", "2.5.8", "")),
    ("torch-2.1.0+cu118-cp310-cp310-linux_x86_64.whl", ("torch", "2.1.0", "cu118")),
    (
        "https://download.pytorch.org/whl/cu118/torch-2.1.0%2Bcu118-cp310-cp310-linux_x86_64.whl#sha256=0",
        ("torch", "2.1.0", "cu118"),
    ),
    ("torch @ https://example.org/torch-2.1.0%2Bcu118-cp310-cp310-linux_x86_64.whl", ("torch", "2.1.0", "cu118")),
    ("pytorch=1.13.1=py3.9_cuda11.7_cudnn8.5.0_0", ("torch", "1.13.1", "cu117")),
    ("pytorch=2.1.0=py3.10_cpu_0", ("torch", "2.1.0", "cpu")),
    ("git+https://github.com/NVIDIA/apex.git", ("apex", "", "")),
    ("vllm @ git+https://github.com/vllm-project/vllm@v0.6.0", ("vllm", "0.6.0", "")),
]


@pytest.mark.parametrize(("text", "expected"), WANTS)
def test_want(text: str, expected: tuple[str, str, str]) -> None:
    want = parse_want(text, {"python_version": "3.10"})
    assert (want.name, want.exact, want.local) == expected


def test_what_a_wheel_was_built_for() -> None:
    want = parse_want("flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp310-cp310-linux_x86_64.whl", {})
    assert (want.built_for.torch, want.built_for.cuda, want.built_for.abi) == ("2.6", "12", "old")
    assert want.pythons == ("3.10",)
    other = parse_want("torch_scatter-2.1.2+pt21cu118-cp310-cp310-linux_x86_64.whl", {})
    assert (other.built_for.torch, other.built_for.cuda) == ("2.1", "11.8")


@pytest.mark.parametrize("text", ["==", "a b c", "broken.whl", "\x00", "name @@ x"])
def test_what_is_no_requirement(text: str) -> None:
    with pytest.raises(NotReadError):
        parse_want(text, {})


REQUIREMENTS = """\
--extra-index-url https://download.pytorch.org/whl/cu118
# a comment
torch==2.1.0 \\
    --hash=sha256:0
torchvision==0.16.0  # pair
numpy<2 ; python_version < "3.9"
-e ./here
transformers
"""
FREEZE = (
    "torch==2.1.0+cu118\ntorchvision @ file:///tmp/x/torchvision-0.16.0-cp310-cp310-linux_x86_64.whl\nnumpy==1.26.4\n"
)
CONDA = "# packages in environment at /opt/c:\n#\n# Name  Version  Build  Channel\npytorch   2.1.0  py3.10_cuda12.1_cudnn8.9.2_0  pytorch\nnumpy  1.26.4  py310hb13e2d6_0  conda-forge\n"
POETRY = '[[package]]\nname = "torch"\nversion = "2.1.0"\n\n[[package]]\nname = "numpy"\nversion = "1.26.4"\n'
PIPFILE = '{"_meta": {}, "default": {"torch": {"version": "==2.1.0"}, "numpy": {"version": "==1.26.4"}}, "develop": {}}'
YAML = "name: x\nchannels:\n  - pytorch\ndependencies:\n  - python=3.10\n  - pytorch=2.1.0=py3.10_cuda12.1_cudnn8.9.2_0\n  - pip:\n      - numpy==1.26.4\n"
IMAGE = "PATH=/usr/bin\nCUDA_VERSION=12.4.1\nPYTORCH_VERSION=2.4.0\nLD_LIBRARY_PATH=/usr/local/nvidia/lib\nNVIDIA_REQUIRE_CUDA=cuda>=12.4\n"


def test_requirements() -> None:
    found = read_listing(REQUIREMENTS, {"python_version": "3.10"})
    assert [want.name for want in found.wanted] == ["torch", "torchvision", "transformers"]
    assert found.index == "cu118"
    assert found.not_read


@pytest.mark.parametrize("text", [FREEZE, CONDA, POETRY, PIPFILE, YAML])
def test_listing(text: str) -> None:
    found = {want.name: want for want in read_listing(text, {"python_version": "3.10"}).wanted}
    assert found["torch"].exact == "2.1.0"
    assert found["numpy"].exact == "1.26.4"


def test_environment_of_an_image() -> None:
    context = context_of(Question(want=[IMAGE]))
    assert context.container_cuda == "12.4"
    assert context.variables["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib"
    assert [want.name for want in context.wanted] == ["torch"]


def test_a_named_index_chooses_the_build() -> None:
    text = "--index-url https://download.pytorch.org/whl/cu118\ntorch==2.1.0\n"
    assert judge(Question(gpu="T4", driver="470.82.01", python="3.10", want=[text])).verdict == "works"
    assert judge(Question(gpu="T4", driver="470.82.01", python="3.10", want=["torch==2.1.0"])).verdict == "fails"


@pytest.mark.parametrize(
    "text",
    ["{", "[" * 10_000, '{"default": 3}', "\ufeff\x00\x01", "torch==" + "9" * 5000, "=\n==\n===\n", "name==1;;;", "-r x\n-c y\n", "a" * 200_000, "\n" * 50_000],
)  # fmt: skip
def test_hostile_text_is_no_crash(text: str) -> None:
    assert judge(
        Question(gpu=text[:100], driver=text[:50], python=text[:20], kernel=text[:30], want=[text])
    ).verdict in ("unknown", "fails", "works")


NGC = """\
CUDA_VERSION=12.4.1.003
NVIDIA_PYTORCH_VERSION=24.05
PYTORCH_VERSION=2.4.0a0+07cecf4
TORCH_CUDA_ARCH_LIST=5.2 6.0 6.1 7.0 7.2 7.5 8.0 8.6 8.7 9.0+PTX
NVIDIA_REQUIRE_CUDA=cuda>=9.0
LD_LIBRARY_PATH=/usr/local/lib/python3.10/dist-packages/torch/lib:/usr/local/cuda/compat/lib:/usr/local/nvidia/lib:/usr/local/nvidia/lib64
"""


@pytest.mark.parametrize(
    ("gpu", "driver", "verdict", "first"),
    [
        ("H100", "535.161.08", "works", ""),  # by its compat package
        ("H100", "580.95.05", "works", ""),  # the entry point leaves an older package aside
        ("RTX 4090", "535.161.08", "works", ""),  # minor-version compatibility
        ("RTX 4090", "470.57.02", "fails", "driver.unsupported_gpu"),
        ("RTX 3090", "470.57.02", "fails", "driver.too_old_for_cuda"),
        ("T4", "450.80.02", "fails", "driver.too_old_for_cuda"),
        ("RTX 5090", "580.95.05", "fails", "compat.arch_unsupported"),
        ("K80", "470.82.01", "fails", "compat.arch_unsupported"),
    ],
)
def test_nvidias_framework_image_by_its_own_variables(gpu: str, driver: str, verdict: str, first: str) -> None:
    answer = judge(Question(gpu=gpu, driver=driver, want=[NGC]))
    assert (answer.verdict, answer.problems[0].id if answer.problems else "") == (verdict, first)
    assert verdict == "fails" or answer.install is None
    plain = NGC.replace("/usr/local/cuda/compat/lib", "/usr/local/cuda-12.4/compat")
    if driver == "580.95.05" and gpu == "H100":
        assert judge(Question(gpu=gpu, driver=driver, want=[plain])).problems[0].id == "compat.cuda_compat_libs"
