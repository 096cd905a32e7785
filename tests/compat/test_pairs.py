"""The pairs that the guides name, and each rule from both sides."""

from __future__ import annotations

import pytest

from gpuclinic.compat import Question, judge


def verdict(want: str | list[str], **given: str | list[str]) -> tuple[str, str]:
    answer = judge(Question(want=[want] if isinstance(want, str) else want, **given))
    return answer.verdict, answer.problems[0].id if answer.problems else ""


GUIDES = [
    ("torch==1.10.0+cu113", {"gpu": "A100", "driver": "450.80.02", "python": "3.8"}, "works", ""),
    ("tensorflow==2.4.0", {"gpu": "T4", "driver": "450.80.02", "python": "3.8", "cuda": "11.0", "cudnn": "8.0"}, "works", ""),
    ("tensorflow==2.4.0", {"gpu": "T4", "driver": "450.80.02", "python": "3.8", "cuda": "10.1", "cudnn": "7.6"}, "fails", "compat.framework_cuda"),
    ("tensorflow==2.6.0", {"gpu": "T4", "driver": "460.32.03", "python": "3.9", "cuda": "11.2", "cudnn": "8.1"}, "works", ""),
    ("torch==1.13.1+cu117", {"gpu": "A100", "driver": "450.80.02", "python": "3.10"}, "works", ""),
    ("torch==1.13.1+cu117", {"gpu": "A100", "driver": "440.33.01", "python": "3.10"}, "fails", "driver.unsupported_gpu"),
    ("torch==1.13.1+cu117", {"gpu": "V100", "driver": "440.33.01", "python": "3.10"}, "fails", "driver.too_old_for_cuda"),
    ("torch==2.5.1+cu121", {"gpu": "A100", "driver": "580.95.05", "python": "3.12"}, "works", ""),
    ("torch==2.5.1+cu121", {"gpu": "A100", "driver": "620.70.06", "python": "3.12"}, "works", ""),
    ("torch==1.12.1+cu116", {"gpu": "RTX 4090", "driver": "525.60.13", "python": "3.10"}, "works", ""),
    ("torch==2.9.0+cu130", {"gpu": "V100", "driver": "580.65.06", "python": "3.12"}, "fails", "compat.arch_unsupported"),
    ("torch==1.13.1", {"gpu": "H100", "driver": "525.105.17", "python": "3.10"}, "fails", "compat.arch_unsupported"),
    ("torch==2.6.0+cu124", {"gpu": "RTX 5090", "driver": "570.86.16", "python": "3.12"}, "fails", "compat.arch_unsupported"),
    ("torch==2.7.0+cu128", {"gpu": "RTX 5090", "driver": "570.86.16", "python": "3.12"}, "works", ""),
]  # fmt: skip


@pytest.mark.parametrize(("want", "given", "expected", "first"), GUIDES)
def test_pair_of_the_guides(want: str, given: dict, expected: str, first: str) -> None:
    assert verdict(want, **given) == (expected, first)


SIDES = [
    # PTX needs a driver as new as the compiler; machine code does not
    ("jaxlib==0.1.74+cuda11.cudnn82", {"gpu": "RTX 3080", "driver": "465.19.01"}, "fails", "driver.too_old_for_cuda"),
    ("jaxlib==0.1.74+cuda11.cudnn82", {"gpu": "RTX 3080", "driver": "470.57.02"}, "works", ""),
    ("jaxlib==0.1.74+cuda11.cudnn82", {"gpu": "V100", "driver": "465.19.01"}, "works", ""),
    # forward compatibility: which cards, which bases, which direction
    ("torch==2.9.0+cu130", {"gpu": "A100", "driver": "535.161.08", "container_cuda": "13.0"}, "works", ""),
    ("torch==2.9.0+cu130", {"gpu": "A100", "driver": "535.161.08"}, "fails", "driver.too_old_for_cuda"),
    ("torch==2.9.0+cu130", {"gpu": "RTX 4090", "driver": "570.86.16", "container_cuda": "13.0"}, "fails", "compat.cuda_compat_libs"),
    ("torch==2.4.0", {"gpu": "A100", "driver": "530.30.02", "container_cuda": "12.4"}, "fails", "driver.too_old_for_cuda"),
    ("torch==2.4.0", {"gpu": "A100", "driver": "550.54.15", "env": ["LD_LIBRARY_PATH=/usr/local/cuda-12.2/compat"]}, "fails", "compat.cuda_compat_libs"),
    ("torch==2.4.0", {"gpu": "A100", "driver": "550.54.15", "container_cuda": "12.2"}, "works", ""),
    # modules
    ("torch==2.7.0+cu128", {"gpu": "B200", "driver": "570.133.20", "module": "open"}, "works", ""),
    ("torch==2.7.0+cu128", {"gpu": "B200", "driver": "570.133.20", "module": "proprietary"}, "fails", "driver.unsupported_gpu"),
    ("torch==2.7.0+cu126", {"gpu": "V100", "driver": "570.133.20", "module": "open"}, "fails", "driver.unsupported_gpu"),
    # machines
    ("torch==2.10.0", {"gpu": "GH200", "driver": "580.95.05"}, "fails", "compat.cpu_only_build"),
    ("torch==2.11.0", {"gpu": "GH200", "driver": "580.95.05"}, "works", ""),
    ("torch==2.10.0", {"gpu": "H100", "driver": "580.95.05", "machine": "aarch64"}, "fails", "compat.cpu_only_build"),
    ("torch==2.9.1+cu130", {"gpu": "NVIDIA Thor", "driver": "580.00", "python": "3.12"}, "works", ""),
    ("torch==2.9.1+cu130", {"gpu": "Jetson AGX Orin", "driver": "540.4.0"}, "unknown", ""),
    ("torch==2.9.1+cu129", {"gpu": "GB200", "driver": "580.95.05"}, "works", ""),
    # wheels of a Python, of a glibc
    ("torch==2.5.1", {"python": "3.13"}, "works", ""),
    ("torch==2.4.1", {"python": "3.13"}, "fails", "compat.python"),
    ("torch==2.7.0", {"glibc": "2.17"}, "fails", "compat.host_libs"),
    ("torch==2.6.0", {"glibc": "2.17"}, "works", ""),
    ("flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl", {"glibc": "2.31"}, "fails", "compat.host_libs"),
    # several together
    (["torch==2.1.0", "torchvision==0.15.2"], {}, "fails", "compat.abi"),
    (["torch==2.1.0+cu118", "torchvision==0.16.0+cu121"], {}, "fails", "compat.framework_cuda"),
    (["torch==2.5.1+cu121", "torchaudio==2.5.1"], {}, "fails", "compat.framework_cuda"),
    (["torch==2.5.1+cu121", "torchvision==0.20.1"], {}, "works", ""),
    (["torch==2.1.2+cu118", "xformers==0.0.23.post1"], {}, "fails", "compat.framework_cuda"),
    (["torch==2.1.2+cu118", "xformers==0.0.23.post1+cu118"], {}, "works", ""),
    (["torch==2.11.0+cu129", "vllm==0.22.0"], {}, "fails", "compat.framework_cuda"),
    (["pytorch==1.10.0", "cudatoolkit=11.3"], {"gpu": "A100", "driver": "450.80.02"}, "works", ""),
    (["pytorch==1.10.0", "cudatoolkit=10.2"], {"gpu": "A100", "driver": "450.80.02"}, "fails", "compat.arch_unsupported"),
    ("torch==2.1.0+cu122", {}, "fails", "compat.framework_cuda"),
    (["torch==2.3.1", "jax[cuda12]==0.4.31"], {"gpu": "H100"}, "fails", "compat.cudnn"),
    (["torch==2.9.0+cu130", "onnxruntime-gpu==1.23.2"], {}, "fails", "compat.framework_cuda"),
    (["torch==2.9.0+cu130", "onnxruntime-gpu==1.23.2"], {"cuda": "12.8"}, "works", ""),
    (["torch==2.2.2", "numpy==2.0.0"], {}, "fails", "compat.abi"),
    (["torch==2.6.0", "flash_attn-2.7.4.post1+cu12torch2.6cxx11abiTRUE-cp310-cp310-linux_x86_64.whl"], {}, "fails", "compat.abi"),
    (["torch==2.6.0", "flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp310-cp310-linux_x86_64.whl"], {}, "works", ""),
    (["torch==2.4.0+cu124", "tensorflow[and-cuda]==2.15.0"], {"python": "3.11"}, "fails", "compat.cudnn"),
    (["torch==2.1.2+cu121", "apex==0.1"], {"cuda": "12.2"}, "fails", "compat.framework_cuda"),
    (["torch==2.1.2+cu121", "apex==0.1"], {"cuda": "12.1"}, "works", ""),
    (["torch==2.1.2+cu121", "deepspeed==0.14.0"], {"cuda": "12.2"}, "works", ""),
    # the cuDNN that torch brings has dropped what its own code still knows
    ("torch==2.3.1+cu118", {"gpu": "Tesla K80", "driver": "470.256.02"}, "works", ""),
    ("torch==2.5.1+cu118", {"gpu": "Tesla K80", "driver": "470.256.02"}, "fails", "compat.cudnn"),
    # search paths
    ("torch==2.5.1", {"env": ["LD_LIBRARY_PATH=/usr/local/cuda-12.1/lib64"]}, "fails", "compat.framework_cuda"),
    ("torch==2.5.1", {"env": ["LD_LIBRARY_PATH=/usr/local/cuda-11.8/lib64"]}, "works", ""),
    # a toolkit alone
    ([], {"gpu": "H100", "driver": "535.54.03", "cuda": "11.7"}, "fails", "compat.arch_unsupported"),
    ([], {"gpu": "RTX 4090", "driver": "535.54.03", "cuda": "11.8"}, "works", ""),
    ([], {"gpu": "RTX 4090", "driver": "535.54.03", "cuda": "13.0"}, "fails", "driver.too_old_for_cuda"),
]  # fmt: skip


@pytest.mark.parametrize(("want", "given", "expected", "first"), SIDES)
def test_rule_from_both_sides(want: str | list[str], given: dict, expected: str, first: str) -> None:
    assert verdict(want, **given) == (expected, first)


UNKNOWN = [
    ("torch==2.9.1+cu130", {"gpu": "GeForce RTX 7090", "driver": "580.95.05"}),
    ("torch==9.9.0", {"gpu": "A100", "driver": "580.95.05"}),
    ("torch==2.9.1", {"gpu": "A100", "driver": "999.10"}),
    ("torch==2.1.0a0+b5021ba", {"gpu": "H100", "driver": "580.95.05"}),
    ("nobody-knows-cuda==1.0", {"gpu": "A100", "driver": "580.95.05"}),
    ("torch==2.9.1", {"gpu": "A100", "driver": "620.70.06", "kernel": "9.1.0"}),
    ("this is no requirement ==", {"gpu": "A100"}),
]


@pytest.mark.parametrize(("want", "given"), UNKNOWN)
def test_unknown_is_never_a_guess(want: str, given: dict) -> None:
    answer = judge(Question(want=[want], **given))
    assert answer.verdict == "unknown"
    assert answer.unknown
    assert answer.install is None
