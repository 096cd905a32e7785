"""Checks knowledge files while they are written: python tools/check_knowledge.py [FILE.toml ...]."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from gpuclinic.knowledge import DATA, parse_files

LEVELS = {"decisive", "strong", "likely", "hint", "context"}


def check(files: list[Path]) -> list[str]:
    """One line for each fault found."""
    faults: list[str] = []
    causes = {line.split("\t")[0] for line in (DATA / "cause_ids.tsv").read_text().splitlines()[1:]}
    knowledge = parse_files(files)
    seen: set[str] = set()
    for s in knowledge.signatures:
        if s.id in seen:
            faults.append(f"{s.id}: twice")
        seen.add(s.id)
        if s.level not in LEVELS:
            faults.append(f"{s.id}: level {s.level}")
        if s.cause and s.cause not in causes:
            faults.append(f"{s.id}: no cause {s.cause}")
        if bool(s.cause) != (s.level != "context"):
            faults.append(f"{s.id}: a cause needs a level above context, context needs none")
        if re.search(r"\(\?(?:[=!]|<[=!])|\\[1-9]|\(\?P=", s.pattern):
            faults.append(f"{s.id}: look-around or back-reference")
        pattern = re.compile(s.pattern, re.IGNORECASE if s.ignore_case else 0)
        unless = [re.compile(u) for u in s.unless]
        if not s.match:
            faults.append(f"{s.id}: no match line")
        for line in s.match:
            if not pattern.search(line) or any(u.search(line) for u in unless):
                faults.append(f"{s.id}: must match {line!r}")
        for line in s.nomatch:
            if pattern.search(line) and not any(u.search(line) for u in unless):
                faults.append(f"{s.id}: must not match {line!r}")
        try:
            import hyperscan

            from gpuclinic.recognise.patterns import for_hyperscan

            flags = hyperscan.HS_FLAG_CASELESS if s.ignore_case else 0
            hyperscan.Database().compile(expressions=[for_hyperscan(s.pattern).encode()], flags=[flags], ids=[0])
        except ImportError:
            pass
        except hyperscan.error as problem:
            faults.append(f"{s.id}: hyperscan: {problem}")
    return faults


if __name__ == "__main__":
    chosen = [Path(p) for p in sys.argv[1:]] or sorted((DATA / "signatures").glob("*.toml"))
    found = check(chosen)
    print("\n".join(found) or f"{len(chosen)} files fine")
    sys.exit(1 if found else 0)
