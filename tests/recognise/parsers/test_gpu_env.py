from __future__ import annotations

import pytest
from gpu_helpers import kinds, one, run

from gpuclinic.recognise.parsers.gpu_tables import compute_capability, cuda_of_tag, lowest_driver
from gpuclinic.recognise.parsers.gpu_text import number, pci_address, stamp, yes


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("PCI:0000:43:00", "0000:43:00.0"),
        ("0000B183:00:00.0", "b183:00:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("9a:00.0", "0000:9a:00.0"),
        ("12:30:45", None),
        ("nothing", None),
    ],
)
def test_pci_address(text: str, address: str | None) -> None:
    assert pci_address(text) == address


def test_words() -> None:
    assert number("568.00 W") == 568.0
    assert number("[N/A]") is None
    assert number("16x") == 16
    assert yes("Not Active") is False
    assert yes("perhaps") is None
    assert stamp("Tue Jul 14 09:00:26 2026") is not None
    assert stamp("no date") is None


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("GeForce GTX 108...", "6.1"),
        ("Tesla V100-SXM2-32GB", "7.0"),
        ("NVIDIA GeForce RTX 5090", "12.0"),
        ("NVIDIA GeForce ...", None),
        ("NVIDIA GH200 480GB", "9.0"),
        ("NVIDIA B300 SXM6 AC", "10.3"),
        ("GRID V100D-16C", "7.0"),
        ("Unheard Of 1", None),
    ],
)
def test_compute_capability(name: str, capability: str | None) -> None:
    assert compute_capability(name) == capability


def test_cuda_table() -> None:
    assert (cuda_of_tag("cu121"), cuda_of_tag("cu92"), cuda_of_tag("cpu")) == ("12.1", "9.2", None)
    assert lowest_driver("12.8") == "525.60.13"
    assert lowest_driver("13.0") == "580.65.06"
    assert lowest_driver("10.2") == "440.33"


def test_lsmod() -> None:
    text = "$ lsmod | grep -i nvidia\n$ uname -r\n6.3.7\n"
    names = {f.fields["name"]: f.fields["loaded"] for f in run("modules:parse_lsmod", text)}
    assert names == {"nvidia": False, "nvidia_uvm": False}
    text = "Module                  Size  Used by\nnova_core             262144  0\nnvme                   65536  3\n"
    names = {f.fields["name"]: f.fields["loaded"] for f in run("modules:parse_lsmod", text)}
    assert names == {"nova_core": True, "nvidia": False, "nvidia_uvm": False}
    text = "nvidia_drm             57344  0\nnvidia_modeset       1232896  1 nvidia_drm\nnvidia              35315712  18 nvidia_modeset\n"
    assert all(f.fields["loaded"] for f in run("modules:parse_lsmod", text))


def test_dkms_and_modinfo() -> None:
    text = "nvidia/535.54.03, 6.3.6-arch1-1, x86_64: installed\nnvidia, 470.57.02, 5.4.0-80-generic, x86_64: installed (original_module exists)\nnvidia/550.54.14: added\n"
    first, second, third = run("modules:parse_dkms", text)
    assert (first.fields["kernel"], first.fields["state"]) == ("6.3.6-arch1-1", "installed")
    assert second.fields["version"] == "470.57.02"
    assert (third.fields["kernel"], third.fields["state"]) == (None, "added")
    text = "filename:       /lib/modules/5.15.0-91-generic/updates/dkms/nvidia.ko\nversion:        570.86.15\nlicense:        Dual MIT/GPL\nvermagic:       5.15.0-91-generic SMP mod_unload modversions \n"
    info = one(run("modules:parse_modinfo", text), "modinfo")
    assert (info.fields["flavour"], info.fields["built_for"]) == ("open", "5.15.0-91-generic")


def test_driver_version() -> None:
    old = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  460.56  Tue Feb 23 23:32:29 UTC 2021"
    new = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (root@n)"
    assert one(run("modules:parse_driver_version", old), "driver").fields["flavour"] == "proprietary"
    assert one(run("modules:parse_driver_version", new), "driver_component").fields["version"] == "570.86.15"
    assert run("modules:parse_secure_boot", "SecureBoot enabled\n")[0].fields["enabled"] is True


def test_device_nodes() -> None:
    text = "crw-rw-rw- 1 root root 195,   0 Oct 21 14:02 /dev/nvidia0\ncrw-rw---- 1 root video 195, 255 Oct 21 14:02 /dev/nvidiactl\n"
    nodes = {f.key: f.fields for f in run("modules:parse_device_nodes", text)}
    assert nodes["/dev/nvidia-uvm"]["present"] is False
    assert nodes["/dev/nvidiactl"]["others_may_write"] is False
    gone = run("modules:parse_device_nodes", "ls: cannot access '/dev/infiniband': No such file or directory\n")
    assert gone[0].fields == {"path": "/dev/infiniband", "present": False}


def test_pip() -> None:
    text = "Package             Version\n------------------- --------------------\nnumpy               1.26.4\ntorch               2.1.0+cu121\n"
    torch = next(f for f in run("pyenv:parse_pip", text) if f.key == "torch")
    assert (torch.fields["cuda_build"], torch.fields["lowest_driver"]) == ("12.1", "525.60.13")
    torch = run("pyenv:parse_pip", "torch==2.5.1\n")[0]
    assert (torch.fields["cuda_build"], torch.fields["sm_lowest"], torch.fields["ptx"]) == ("12.4", 5.0, False)
    cpu = run("pyenv:parse_pip", "torch==2.3.0+cpu\n")[0]
    assert cpu.fields["cpu_build"] is True
    assert "cuda_build" not in cpu.fields
    conda = "# packages in environment at /opt/conda:\n#\n# Name                    Version                   Build  Channel\npytorch                   2.0.1           py3.10_cuda11.7_cudnn8.5.0_0    pytorch\n"
    assert one(run("pyenv:parse_conda", conda), "package").fields["cuda_build"] == "11.7"


def test_system_packages() -> None:
    text = "ii  nvidia-fabricmanager-535   535.54.03-1   amd64   Fabric Manager\nii  libnvidia-compute-535:amd64  535.129.03-0ubuntu0.22.04.1  amd64  NVIDIA libcompute\nii  vim 2:8.2 amd64 editor\n"
    fabric, cuda = run("pyenv:parse_system_packages", text)
    assert (fabric.fields["component"], fabric.fields["upstream"]) == ("fabric manager", "535.54.03")
    assert cuda.fields["upstream"] == "535.129.03"


COLLECT = """\
Collecting environment information...
PyTorch version: 2.9.0+cu130
Is debug build: False
CUDA used to build PyTorch: 13.0
ROCM used to build PyTorch: N/A
Is CUDA available: True
CUDA runtime version: Could not collect
GPU models and configuration: GPU 0: Tesla V100-SXM2-32GB
GPU 1: Tesla V100-SXM2-32GB

Nvidia driver version: 580.82.07
cuDNN version: Could not collect
[pip3] torch==2.9.0+cu130
[conda] nvidia-nccl-cu13          2.27.7                   pypi_0    pypi
"""


def test_collect_env() -> None:
    facts = run("torch_env:parse_collect_env", COLLECT)
    env = one(facts, "torch_env")
    assert (env.fields["cuda_build"], env.fields["sm_lowest"], env.fields["gpu_count"]) == ("13.0", 7.5, 2)
    assert [f.fields["compute_capability"] for f in kinds(facts, "gpu")] == ["7.0", "7.0"]
    assert one(facts, "driver").fields["version"] == "580.82.07"
    assert {f.key for f in kinds(facts, "package")} == {"torch", "nvidia-nccl-cu13"}


def test_prints() -> None:
    text = "$ python -c 'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())'\n2.3.0+cpu None False\n"
    env = one(run("torch_env:parse_prints", text), "torch_env")
    assert (env.fields["cpu_build"], env.fields["cuda_available"]) == (True, False)


def test_ldd() -> None:
    text = "$ ldd /x/site-packages/torch/lib/libtorch_cuda.so\n\tlibcudnn.so.8 => not found\n\tlibcublas.so.12 => /usr/local/cuda-12.1/lib64/libcublas.so.12 (0x00007f)\n"
    missing, shadowed = run("ldd:parse_ldd", text)
    assert missing.fields["missing"] is True
    assert (shadowed.fields["from_system"], shadowed.fields["needed_by_wheel"]) == (True, True)
    need = run(
        "ldd:parse_ldd", "x: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by y.so)\n"
    )
    assert need[0].fields["symbol_version"] == "GLIBC_2.32"
