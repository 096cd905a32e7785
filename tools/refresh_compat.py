"""Brings knowledge/data/compat/wheels.tsv and pins.tsv up to date from package metadata, by pip alone:

    python tools/refresh_compat.py              shows which versions the index has beyond the tables
    python tools/refresh_compat.py --write      writes both tables anew (new versions' metadata is asked for; known rows stay)
    python tools/refresh_compat.py --write vllm torch      these packages only

The packages are those of wheels.tsv. Nothing is installed, no wheel downloaded: pip lists the file names, and a dry run reads metadata.
What no metadata tells (architectures in a build, CUDA of local builds) stays work for people: builds*.tsv.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

FOLDER = Path(__file__).resolve().parent.parent / "src/gpuclinic/knowledge/data/compat"
COLUMNS = ("package", "version", "requires_python", "x86_64", "glibc_x86_64", "aarch64", "glibc_aarch64", "source")
PIN_COLUMNS = ("package", "versions", "extra", "requires", "reason", "source")
PINNED = re.compile(
    r"torch|torchvision|torchaudio|xformers|triton|numpy|jaxlib|jax|jax-cuda1\d-plugin|nvidia-(cudnn|nccl|cublas|cuda-runtime)(-cu1\d)?|cuda-toolkit|"
    r"flash-attn|flashinfer-python|sgl-kernel|bitsandbytes|transformer-engine"
)
EXTRAS = {"tensorflow", "jax", "jax-cuda12-plugin", "jax-cuda13-plugin", "onnxruntime-gpu", "sglang"}
OLD_TAGS = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
FLOORS = (5, 12, 17, 24, 27, 28, 31, 34, 35)


def rows_of(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        lines = [line for line in file if not line.startswith("#")]
    return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def write(name: str, columns: tuple[str, ...], rows: list[dict[str, str]]) -> None:
    lines = ["\t".join(row.get(column, "") for column in columns) for row in rows]
    head = f"# {dt.datetime.now(dt.timezone.utc):%Y-%m-%d} made by tools/refresh_compat.py from package metadata"
    (FOLDER / name).write_text("\n".join([head, "\t".join(columns), *lines]) + "\n", encoding="utf-8")


def files_of(package: str) -> dict[Version, list[tuple[str, str]]]:
    """Of each release the wheels' file names with Requires-Python: what pip tells when it is asked for a version that is not there."""
    with tempfile.TemporaryDirectory() as folder:
        asked = [sys.executable, "-m", "pip", "download", "-vvv", "--no-deps", "-d", folder, f"{package}==999999"]
        out = subprocess.run(asked, capture_output=True, text=True, timeout=300, check=False)
    found: dict[Version, list[tuple[str, str]]] = {}
    for line in (out.stdout + out.stderr).splitlines():
        link = re.search(r"(?:Found link|Skipping link:?.*?) (https?://\S+?\.whl)", line)
        if not link:
            continue
        file = unquote(link[1].rsplit("/", 1)[-1])
        python = re.search(r"requires-python:\s*([^)]*)\)", line)
        try:
            release = parse_wheel_filename(file)[1]
        except InvalidWheelFilename:
            continue
        if not release.is_prerelease and not release.local:
            found.setdefault(release, []).append((file, python[1].replace(" ", "") if python else ""))
    return found


def wheel_row(package: str, release: Version, files: list[tuple[str, str]]) -> dict[str, str]:
    """A row of wheels.tsv."""
    row = {
        "package": package,
        "version": str(release),
        "requires_python": next((p for _, p in files if p), ""),
        "source": "PyPI file names",
    }
    for machine in ("x86_64", "aarch64"):
        pythons: set[str] = set()
        floors: dict[str, tuple[int, int]] = {}
        for file, _ in files:
            for tag in parse_wheel_filename(file)[3]:
                if tag.platform != "any" and not (tag.platform.endswith(machine) and "linux" in tag.platform):
                    continue
                python = re.fullmatch(r"(?:cp|py)(\d)(\d*)", tag.interpreter)
                if not python:
                    continue
                name = f"{python[1]}.{python[2]}" if python[2] else python[1]
                name += (
                    "+"
                    if tag.abi == "abi3" or (python[2] and tag.abi == "none")
                    else "t"
                    if tag.abi.endswith("t") and tag.abi[:2] == "cp"
                    else ""
                )
                pythons.add(name)
                many = re.match(r"manylinux_(\d+)_(\d+)_", tag.platform)
                floor = (int(many[1]), int(many[2])) if many else OLD_TAGS.get(tag.platform.split("_", 1)[0])
                if floor:
                    floors[name] = min(floors.get(name, (9, 9)), floor)
        row[machine] = " ".join(sorted(pythons, key=lambda text: ([int(n) for n in re.findall(r"\d+", text)], text)))
        row[f"glibc_{machine}"] = ".".join(map(str, min(floors.values()))) if floors else ""
    return row


def pins_of(package: str, release: Version, python: str) -> list[dict[str, str]]:
    """Rows of pins.tsv: what the metadata of one release demands of the packages that compat knows."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        asked = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--dry-run",
            "--no-deps",
            "--ignore-installed",
            "--only-binary",
            ":all:",
            "--target",
            folder,
        ]
        asked += ["--python-version", python, "--report", str(report), f"{package}=={release}"]
        for floor in FLOORS:
            asked += ["--platform", f"manylinux_2_{floor}_x86_64"]
        asked += [
            "--platform",
            "manylinux2014_x86_64",
            "--platform",
            "manylinux2010_x86_64",
            "--platform",
            "manylinux1_x86_64",
        ]
        subprocess.run(asked, capture_output=True, timeout=300, check=False)
        if not report.is_file():
            print(f"no metadata: {package} {release}", file=sys.stderr)
            return []
        wants = json.loads(report.read_text())["install"][0]["metadata"].get("requires_dist", [])
    rows = []
    surroundings = {
        "python_version": "3.11",
        "platform_machine": "x86_64",
        "sys_platform": "linux",
        "platform_system": "Linux",
    }
    for text in wants:
        try:
            asked_for = Requirement(text)
        except InvalidRequirement:
            continue
        name, spec = canonicalize_name(asked_for.name), str(asked_for.specifier)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", str(asked_for.marker or ""))
        if not PINNED.fullmatch(name) or not spec or (name == "numpy" and not re.search(r"<|==", spec)):
            continue
        if extra and (package not in EXTRAS or not re.search(r"cuda|cudnn|srt|all$", extra[1])):
            continue
        if asked_for.marker and not asked_for.marker.evaluate({**surroundings, "extra": extra[1] if extra else ""}):
            continue
        rows.append(
            {
                "package": package,
                "versions": f"=={release}",
                "extra": extra[1] if extra else "",
                "requires": name + spec,
                "reason": "metadata",
                "source": "PyPI metadata",
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    wheels, pins = rows_of("wheels.tsv"), rows_of("pins.tsv")
    known = {(row["package"], row["version"]) for row in wheels}
    with_pins = {row["package"] for row in pins}
    for package in options.packages or sorted({row["package"] for row in wheels}):
        files = files_of(package)
        for release in sorted(files):
            if (package, str(release)) in known:
                continue
            print(f"new: {package} {release}")
            if not options.write:
                continue
            row = wheel_row(package, release, files[release])
            wheels.append(row)
            if package in with_pins:
                newest = (row["x86_64"] or "3.12").split()[-1].rstrip("+t")
                pins += pins_of(package, release, newest if newest.startswith("3.") else "3.12")
    if options.write:
        write("wheels.tsv", COLUMNS, sorted(wheels, key=lambda row: (row["package"], Version(row["version"]))))
        write("pins.tsv", PIN_COLUMNS, pins)
    return 0


if __name__ == "__main__":
    sys.exit(main())
