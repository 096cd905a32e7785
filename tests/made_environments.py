"""Python environments made by hand for tests: folders as pip, venv and conda leave them, without a package in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def put(place: Path, data: str | bytes = "") -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data if isinstance(data, bytes) else data.encode())
    return place


def package(
    site: Path, name: str, version: str, *, module: str | None = None, record: bool = True, tag: str = "py3-none-any"
) -> Path:
    """One package as pip installs it; module "" leaves its own folder away."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    put(info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: >=3.9\n\nText\n")
    put(info / "WHEEL", f"Wheel-Version: 1.0\nGenerator: bdist_wheel\nTag: {tag}\n")
    put(info / "INSTALLER", "pip\n")
    if record:
        put(info / "RECORD", f"{name}/__init__.py,,\n")
    folder = name.replace("-", "_") if module is None else module
    if folder:
        put(site / folder / "__init__.py", "raise SystemExit('imported')\n")
    return info


def torch(site: Path, version: str, cuda: str | None) -> None:
    package(site, "torch", version, tag="cp311-cp311-manylinux_2_28_x86_64")
    shown = f"'{cuda}'" if cuda else "None"
    put(
        site / "torch" / "version.py",
        "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']\n"
        f"__version__ = '{version}'\ndebug = False\ncuda: Optional[str] = {shown}\ngit_version = 'a8d6afb'\nhip: Optional[str] = None\n",
    )


def venv(folder: Path, python: str = "3.11.4", *, home: str = "/usr/bin", more: str = "") -> Path:
    """An empty venv; returns its site-packages."""
    put(folder / "pyvenv.cfg", f"home = {home}\ninclude-system-site-packages = false\nversion = {python}\n{more}")
    site = folder / "lib" / f"python{'.'.join(python.split('.')[:2])}" / "site-packages"
    site.mkdir(parents=True)
    put(site / "_virtualenv.pth", "import evil\n")
    return site


def conda(folder: Path, *entries: tuple[str, str, str], python: str = "3.10.13") -> Path:
    """A conda environment with these (name, version, build); returns its site-packages."""
    for name, version, build in (("python", python, "h955ad1f_0_cpython"), *entries):
        told = {
            "build": build,
            "build_number": 0,
            "channel": "https://conda.anaconda.org/conda-forge/linux-64",
            "name": name,
            "version": version,
        }
        put(folder / "conda-meta" / f"{name}-{version}-{build}.json", json.dumps(told, indent=1))
    put(folder / "conda-meta" / "history", "==> 2026-01-01 <==\n")
    site = folder / "lib" / f"python{'.'.join(python.split('.')[:2])}" / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    return site


def interpreter(root: Path, *names: str) -> None:
    for name in names or ("python3", "python3.10", "python3.11", "python3.12"):
        put(root / "usr" / "bin" / name, "\x7fELF")


def filled(site: Path, count: int) -> None:
    """So many packages that do not matter."""
    for number in range(count):
        package(site, f"some-package-{number}", "1.0.0", module="")
