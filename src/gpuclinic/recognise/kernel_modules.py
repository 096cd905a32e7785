"""What a module file says of itself, kernels by age, what boots next: read from bytes, never run."""

from __future__ import annotations

import io
import lzma
import re
import struct
import zlib

MOST_MODULE = 256 << 20
"""Bytes of a module file, unpacked; the largest of NVIDIA's are below 120 MiB."""
_KEYS = re.compile(
    rb"(?<![\x20-\x7e])(version|license|vermagic|srcversion|sig_id|supported)=([\x20-\x7e]{1,300})(?:\0|$)"
)
_SIGNED = b"~Module signature appended~\n"


def unpacked(data: bytes, name: str) -> bytes | None:
    """The module in a .ko, .ko.xz, .ko.gz or .ko.zst file; None where it cannot be unpacked here or is cut."""
    try:
        if name.endswith(".xz"):
            return lzma.LZMADecompressor(memlimit=512 << 20).decompress(data, MOST_MODULE)
        if name.endswith(".gz"):
            return zlib.decompressobj(wbits=31).decompress(data, MOST_MODULE)
        if name.endswith(".zst"):
            return _zstd(data)
    except (lzma.LZMAError, zlib.error, EOFError, ValueError):
        return None
    return data


def _zstd(data: bytes) -> bytes | None:
    try:
        import zstandard
    except ImportError:
        return None
    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 28).stream_reader(io.BytesIO(data)) as stream:
            return bytes(stream.read(MOST_MODULE))
    except zstandard.ZstdError:
        return None


def module_info(data: bytes) -> dict[str, str]:
    """version, license, vermagic, srcversion of an ELF module's .modinfo section; signed: "yes" or "no" where its end is there."""
    section = _modinfo(data)
    if section is None:
        return {}
    out: dict[str, str] = {}
    for found in _KEYS.finditer(section):
        out.setdefault(found[1].decode(), found[2].decode("ascii", "replace").strip())
    out["signed"] = "yes" if data.endswith(_SIGNED) else "no"
    return out


def _modinfo(data: bytes) -> bytes | None:
    """The bytes of the section; None where this is no whole 64-bit little-endian ELF file."""
    if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        start = struct.unpack_from("<Q", data, 40)[0]
        size, count, names_at = struct.unpack_from("<HHH", data, 58)
        if size < 64 or count > 10_000 or start + size * count > len(data):
            return None
        heads = [struct.unpack_from("<IIQQQQ", data, start + size * n) for n in range(count)]
        strings = heads[names_at][4]
        for name, _, _, _, offset, length in heads:
            if data[strings + name : strings + name + 9] == b".modinfo\0":
                return data[offset : offset + min(length, 1 << 20)]
    except (struct.error, IndexError):
        return None
    return None


def kernel_order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts kernel versions as boot loaders do: numbers as numbers, a release candidate before its release.

    >>> sorted(["6.8.0-100-generic", "6.8.0-45-generic", "6.10.0-rc1", "6.10.0"], key=kernel_order)
    ['6.8.0-45-generic', '6.8.0-100-generic', '6.10.0-rc1', '6.10.0']
    """
    parts = re.findall(r"\d{1,18}|[A-Za-z]+|~", version)
    key = [(2, int(p), "") if p.isdigit() else (0, 0, p) if p in ("rc", "~") else (1, 0, p) for p in parts]
    return (*key, (1, 0, ""))


_IMAGE = re.compile(r"^(?:vmlinuz|vmlinux|Image|kernel)-(?P<version>\d+\.\d+[\w.+~-]*)$")
_RESCUE = re.compile(r"rescue|\.old$|\.bak$|\.dpkg-|kdump|-debug$|\+debug$")


def kernels_in(names: list[str]) -> list[str]:
    """Versions of the kernel images in a listing of /boot, the newest last; rescue images and backups left out."""
    found = {m["version"] for name in names if not _RESCUE.search(name) and (m := _IMAGE.match(name))}
    return sorted(found, key=kernel_order)


def grub_environment(text: str) -> dict[str, str]:
    """Settings of grubenv."""
    lines = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): value.strip() for name, equals, value in lines if equals}


def grub_default(text: str) -> str | None:
    """GRUB_DEFAULT of /etc/default/grub."""
    found = re.findall(r"^\s*GRUB_DEFAULT=[\"']?([^\"'\n#]*)", text, re.MULTILINE)
    return found[-1].strip() if found else None


def kernel_in_entry(entry: str, known: list[str]) -> str | None:
    """The kernel that a boot entry's name, title or file speaks of, among those that are installed; the longest that fits.

    >>> kernel_in_entry("gnulinux-advanced-ab>gnulinux-6.8.0-45-generic-advanced-ab", ["6.8.0-45-generic", "6.8.0-4"])
    '6.8.0-45-generic'
    """
    fits = [k for k in known if re.search(rf"(?<![\w.]){re.escape(k)}(?![\w.]|-\d)", entry)]
    return max(fits, key=len, default=None)


def loader_entry(text: str) -> dict[str, str]:
    """Fields of a boot loader entry (title, version, linux, options)."""
    out: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.strip().partition(" ")
        if name and not name.startswith("#"):
            out.setdefault(name.lower(), value.strip())
    return out


def kernel_of_entry(fields: dict[str, str]) -> str | None:
    """The kernel of a boot loader entry: its image's version, else its version field."""
    image = fields.get("linux", "").rsplit("/", 1)[-1]
    found = _IMAGE.match(image)
    return found["version"] if found else fields.get("version") or None
