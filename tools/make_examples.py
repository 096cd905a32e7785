"""Makes the example captures from the fake server of the tests: examples/healthy-server.tar.gz and examples/sick-server.tar.gz.

Run by hand where looks have changed: PYTHONPATH=src python tools/make_examples.py
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from fakes.server import build_server  # noqa: E402 - found only with the tests' folder in the path
from gpuclinic.clinic.packing import pack  # noqa: E402

EXAMPLES = {"healthy-server": [], "sick-server": ["lost:3", "remap_pending:1"]}
UNKNOWN = re.compile(rb"this fake does not know: [^\"\\]*")
LIBRARY = b"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"


def captured(faults: list[str], folder: Path) -> tuple[dict[str, bytes], str, Path]:
    """The members of a capture of a fake server, the folder they stand in, and the library that was asked."""
    server = build_server(folder / "server", "h100-sxm", 8, faults=faults)
    archive = folder / "a.tar"
    subprocess.run(
        [sys.executable, "-c", "from gpuclinic.cli.main import entry; entry()", "capture", "-o", str(archive)],
        env={**server.env, "PYTHONPATH": str(ROOT / "src"), "HOME": "/root", "LC_ALL": "C.UTF-8", "TZ": "UTC"}, cwd="/", check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    with tarfile.open(archive) as file:
        names = {m.name: (file.extractfile(m) or io.BytesIO()).read() for m in file}
    top = next(iter(names)).split("/")[0]
    return {name.partition("/")[2]: data for name, data in names.items()}, top, server.library


def main() -> None:
    """Makes both."""
    for name, faults in EXAMPLES.items():
        with tempfile.TemporaryDirectory() as folder:
            members, top, library = captured(faults, Path(folder))
        members = {
            path: UNKNOWN.sub(b"not a valid field to query", data.replace(os.fsencode(library), LIBRARY))
            for path, data in members.items()
        }
        first = ("capture.json", members.pop("capture.json"))
        out = io.BytesIO()
        pack(out, ".tar.gz", top, first, members, lambda _: {}, 1 << 20, 0.0)
        (ROOT / "examples" / f"{name}.tar.gz").write_bytes(out.getvalue())
        sys.stdout.write(f"examples/{name}.tar.gz: {len(out.getvalue())} bytes\n")


if __name__ == "__main__":
    main()
