"""Module files, kernel versions and boot entries, from bytes made here."""

from __future__ import annotations

import gzip
import lzma

import pytest

from gpuclinic.recognise.kernel_modules import (
    grub_default,
    kernel_in_entry,
    kernel_of_entry,
    kernel_order,
    kernels_in,
    loader_entry,
    module_info,
    unpacked,
)
from made_snapshots import kernel_module

INFO = {
    "version": "580.95.05",
    "license": "Dual MIT/GPL",
    "vermagic": "6.8.0-45-generic SMP mod_unload",
    "firmware": "x",
}


def test_the_section_is_read_without_running_anything() -> None:
    found = module_info(kernel_module(**INFO))
    assert found == {
        "version": "580.95.05", "license": "Dual MIT/GPL", "vermagic": "6.8.0-45-generic SMP mod_unload", "signed": "no",
    }  # fmt: skip
    assert module_info(kernel_module(**INFO) + b"sig~Module signature appended~\n")["signed"] == "yes"


def test_compressed_modules() -> None:
    data = kernel_module(**INFO)
    assert unpacked(lzma.compress(data), "nvidia.ko.xz") == data
    assert unpacked(gzip.compress(data), "nvidia.ko.gz") == data
    assert unpacked(data, "nvidia.ko") == data


def test_zstd_modules() -> None:
    zstandard = pytest.importorskip("zstandard", reason="needs the extra zstandard")
    data = kernel_module(**INFO)
    assert unpacked(zstandard.ZstdCompressor().compress(data), "nvidia.ko.zst") == data
    assert unpacked(b"\x28\xb5\x2f\xfd" + b"x" * 20, "nvidia.ko.zst") is None


@pytest.mark.parametrize("cut", [0, 3, 63, 64, 100, 200])
def test_damaged_files_give_nothing(cut: int) -> None:
    assert module_info(kernel_module(**INFO)[:cut]) == {}
    assert unpacked(b"no archive", "nvidia.ko.xz") is None
    assert unpacked(b"no archive", "nvidia.ko.gz") is None


def test_every_cut_and_flip_is_survived() -> None:
    data = kernel_module(**INFO)
    for place in range(0, len(data), 7):
        module_info(data[:place] + b"\xff\xff\xff" + data[place + 3 :])


def test_kernels_by_age() -> None:
    names = [
        "vmlinuz-6.8.0-100-generic",
        "vmlinuz-6.8.0-45-generic",
        "vmlinuz-0-rescue-ab",
        "initrd.img-6.9.0",
        "vmlinuz-6.8.0-45-generic.old",
        "vmlinuz",
        "vmlinuz-6.8.0-1015-nvidia",
    ]
    assert kernels_in(names) == ["6.8.0-45-generic", "6.8.0-100-generic", "6.8.0-1015-nvidia"]
    assert kernel_order("6.10.0-rc1") < kernel_order("6.10.0")
    assert kernel_order("5.14.0-427.el9.x86_64") < kernel_order("5.14.0-503.el9.x86_64")


def test_entries_name_kernels() -> None:
    known = ["6.8.0-4-generic", "6.8.0-45-generic"]
    assert kernel_in_entry("gnulinux-6.8.0-45-generic-advanced-ab", known) == "6.8.0-45-generic"
    assert kernel_in_entry("Ubuntu, with Linux 6.8.0-4-generic", known) == "6.8.0-4-generic"
    assert kernel_in_entry("Windows", known) is None
    assert grub_default('GRUB_DEFAULT="saved"\n# GRUB_DEFAULT=3\n') == "saved"
    fields = loader_entry("title Fedora\n# x\nlinux /vmlinuz-6.11.4-301.fc41.x86_64\nversion 6.11.4-301.fc41.x86_64\n")
    assert kernel_of_entry(fields) == "6.11.4-301.fc41.x86_64"
