"""Texts and names of Python environments and CUDA libraries, as they are and as nobody would want them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuclinic.recognise import cuda_libraries as libraries
from gpuclinic.recognise import python_env as env
from gpuclinic.recognise.python_env import Package, cuda_of_conda_build, is_cpu_build, requirement


@pytest.mark.parametrize(
    ("entry", "name", "version", "manager"),
    [
        ("torch-2.5.1+cu124.dist-info", "torch", "2.5.1+cu124", "pip"),
        ("nvidia_cudnn_cu12-9.1.0.70.dist-info", "nvidia-cudnn-cu12", "9.1.0.70", "pip"),
        ("zope.interface-6.0.dist-info", "zope-interface", "6.0", "pip"),
        ("vllm-0.6.4.dev12+g3e1a2b4.cu121.dist-info", "vllm", "0.6.4.dev12+g3e1a2b4.cu121", "pip"),
        ("PyYAML-5.3.1.egg-info", "pyyaml", "5.3.1", "egg"),
        ("numpy-1.21.5-py3.10.egg-info", "numpy", "1.21.5", "egg"),
        ("apex-0.1-py3.10-linux-x86_64.egg", "apex", "0.1", "egg"),
        ("flash_attn.egg-link", "flash-attn", "", "egg"),
    ],
)
def test_names_of_metadata(entry: str, name: str, version: str, manager: str) -> None:
    (found,) = env.site_of([entry]).packages
    assert (found.name, found.version, found.manager) == (name, version, manager)


@pytest.mark.parametrize(
    ("build", "cuda"),
    [
        ("py3.10_cuda12.4_cudnn9.1.0_0", "12.4"),
        ("cuda121py310h2b9a52d_300", "12.1"),
        ("cuda_118py39h0_0", "11.8"),
        ("cuda112py38h_201", "11.2"),
        ("py37_cuda92_0", "9.2"),
        ("cuda129_mkl_py312_h1", "12.9"),
        ("cpu_generic_py311_h7_2", None),
        ("gpu_py37hc3743a6_0", None),
    ],
)
def test_cuda_of_conda_builds(build: str, cuda: str | None) -> None:
    assert cuda_of_conda_build(build) == cuda


def test_requirements_name_the_build() -> None:
    def wanted(version: str, **told: object) -> str | None:
        return requirement(Package("torch", version), **{"cuda": None, "hip": None, "told": False, **told})  # type: ignore[arg-type]

    assert wanted("2.5.1") == "torch==2.5.1"
    assert wanted("2.5.1", cuda="12.4") == "torch==2.5.1+cu124"
    assert wanted("2.5.1", told=True) == "torch==2.5.1+cpu"
    assert wanted("2.5.1", hip="6.2", told=True) == "torch==2.5.1+rocm6.2"
    assert wanted("2.6.0a0+ecf3bae40a.nv25.1", cuda="12.8") == "torch==2.6.0a0+ecf3bae40a.nv25.1"
    assert wanted("") is None
    conda = Package("pytorch", "2.5.1", "conda", "cpu_generic_py311_h7_2")
    assert is_cpu_build(conda)
    assert requirement(conda, cuda=None, hip=None, told=False) == "torch==2.5.1+cpu"


@pytest.mark.parametrize(
    "text",
    [
        "__version__ = '2.5.1+cu124'\ndebug = False\ncuda = '12.4'\nhip = None\n",
        "from typing import Optional\n__version__ = '2.5.1+cu124'\ncuda: Optional[str] = '12.4'\nhip: Optional[str] = None\n",
        '__version__: str = "2.5.1+cu124"\ncuda: str | None = "12.4"\nhip: str | None = None\n',
    ],
)
def test_version_py_of_torch(text: str) -> None:
    assert {k: v for k, v in env.parse_build(text).items() if k != "debug"} == {
        "version": "2.5.1+cu124", "cuda": "12.4", "hip": None,
    }  # fmt: skip


def test_version_py_that_computes_is_not_run() -> None:
    assert env.parse_build("__version__ = open('/etc/passwd').read()\ncuda = __import__('os').system('x')\n") == {}


def test_settings_of_venv_virtualenv_and_uv() -> None:
    assert env.python_of(env.parse_pyvenv("home = /usr/bin\nversion = 3.10.12\n")) == "3.10.12"
    assert env.python_of(env.parse_pyvenv("home = /x\nversion_info = 3.11.4.final.0\nvirtualenv = 20.24\n")) == "3.11.4"
    assert env.python_of(env.parse_pyvenv("home=/x\nuv=0.5.1\nversion_info=3.12\n")) == "3.12"
    assert env.python_of({}) is None


def test_headers_toolkits_and_search_paths() -> None:
    assert libraries.parse_toolkit("a/version.json", '{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}') == "12.4.1"
    assert libraries.parse_toolkit("a/version.txt", "CUDA Version 10.2.89\n") == "10.2.89"
    assert libraries.parse_toolkit("a/version.json", "[1]") is None
    assert (
        libraries.parse_header("#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 1\n#define CUDNN_PATCHLEVEL 0\n") == "9.1.0"
    )
    assert libraries.parse_header("#define NCCL_MAJOR 2\n#define NCCL_MINOR 21\n#define NCCL_PATCH 5\n") == "2.21.5"
    conf = {"/etc/ld.so.conf.d/a.conf": "# /no\n/opt/x/lib /opt/y\n\n/opt/x/lib\nrelative\n"}
    assert [folder for folder, _ in libraries.library_folders(conf)] == ["/opt/x/lib", "/opt/y"]


def test_maps_of_a_process() -> None:
    lines = [
        "7f00-7f01 r-xp 00000000 08:01 11                 /opt/my env/lib/python3.11/site-packages/torch/lib/libtorch.so",
        "7f01-7f02 r--p 00000000 08:01 12                 /opt/my env/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9",
        "7f02-7f03 r--p 00000000 08:01 13                 /usr/lib64/libcuda.so.535.161.08 (deleted)",
        "7f03-7f04 r--p 00000000 08:01 14                 /usr/lib64/libcudnn_ops.so.9.1.0",
        "7f04-7f05 rw-p 00000000 00:00 0                  [heap]",
    ]
    found = libraries.parse_maps("\n".join(lines) + "\n")
    assert [(one.name, one.version, one.deleted) for one in found] == [
        ("libcudnn", "9", False),
        ("libcuda", "535.161.08", True),
    ]
    assert libraries.packages_folder("\n".join(lines)) == "/opt/my env/lib/python3.11/site-packages"
    assert libraries.packages_folder("") is None


@given(st.lists(st.text(max_size=60), max_size=40))
def test_any_names_are_taken(names: list[str]) -> None:
    found = env.site_of(names)
    assert len(found.packages) + len(found.unnamed) <= len(names)
    for name in names:
        env.conda_package(name)
        libraries.library_of(name)


@given(st.binary(max_size=400))
def test_any_bytes_are_taken(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    told = env.parse_metadata(data)
    assert told.problem is not None or (told.name and told.version)
    for parse in (
        env.parse_wheel_tags,
        env.parse_direct_url,
        env.parse_build,
        env.parse_pyvenv,
        libraries.parse_maps,
        libraries.parse_header,
    ):
        parse(text)
    env.parse_conda_file(data)
    libraries.parse_toolkit("version.json", text)
    libraries.parse_os_release(text)
