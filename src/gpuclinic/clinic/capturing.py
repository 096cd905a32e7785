"""`capture`: takes the looks of `check` and gathers the logs of `why` on a recording host, and packs what was answered."""

from __future__ import annotations

import datetime as dt
import json
import os
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import msgspec

from gpuclinic import __version__
from gpuclinic.clinic.checking import CheckAnswer, CheckOptions, as_recorded, check
from gpuclinic.clinic.gathering import Question, as_moment, gather
from gpuclinic.clinic.gathering.process import record_processes
from gpuclinic.clinic.packing import pack
from gpuclinic.clinic.scrubbing import Scrubber, unpacked_text
from gpuclinic.observe._file_child import read_regular
from gpuclinic.observe.archives import DAMAGE, Budget, buffered, compression, decompressed
from gpuclinic.observe.recording import OVER, RecordingHost, Written, answer_lines, written
from gpuclinic.observe.replay import ANSWERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuclinic.clinic.software_judge import SoftwareJudge
    from gpuclinic.observe.asking import Asked
    from gpuclinic.observe.recording import Noted
    from gpuclinic.observe.replay import Replay
    from gpuclinic.recognise.anonymising import Anonymiser


FORMAT = 1
FIRST = "capture.json"
"""The first member of an archive, by which it is known without unpacking it."""


class CaptureOptions(msgspec.Struct):
    """check, question: as for `check` and `why`. most: bytes of the archive, about. longest_s: of asking.

    anonymiser: replaces names; None keeps them. as_root: whether root asks, which tells what may be missing.
    """

    check: CheckOptions
    question: Question = Question()
    most: int = 50 << 20
    longest_s: float = 180.0
    anonymiser: Any = None
    as_root: bool = False


class Captured(msgspec.Struct):
    """What was captured: the answer of `check`, the files of the snapshot, what was left out and why, and what is said about it."""

    answer: CheckAnswer
    files: Written
    about: dict[str, Any]
    folder: str
    at: float
    read_anything: bool
    live: bool


def capture(
    host: Asked,
    options: CaptureOptions,
    progress: Callable[[str], None] | None = None,
    more: Callable[[Asked], None] | None = None,
    software: SoftwareJudge | None = None,
) -> Captured:
    """Asks everything once, on the record, and makes it fit to leave the machine. more: asks the host for more. software: as of `check`."""
    options = msgspec.structs.replace(options, check=as_recorded(host, options.check))
    recorder = RecordingHost(host, longest_s=options.longest_s + options.check.seconds)
    begun = host.clock()
    answer = check(recorder, options.check, progress, software)
    recorder.mark("why")
    if progress is not None:
        progress("logs")
    gather(recorder, options.question)
    record_processes(recorder)
    if more is not None:
        more(recorder)
    if progress is not None:
        progress("masking secrets")
    scrubber = Scrubber(options.anonymiser)
    if options.anonymiser is not None:
        _learn(options.anonymiser, recorder.noted, answer)
    files = written(recorder, scrubber.data, scrubber.words)
    if any(one.answer.why == OVER for one in recorder.noted):
        files.left_out.append(
            {"what": "what was not asked yet", "why": f"the capture may take {options.longest_s:g} s"}
        )
    if recorder.damage is not None:
        files.left_out.append({"what": "what came after the damage", "why": recorder.damage})
    if scrubber.variables:
        files.left_out.append(
            {"what": f"environment variables: {scrubber.variables}", "why": "not among those that a capture keeps"}
        )
    files.left_out += [
        {"what": scrubber.words(text), "why": "cannot be searched for secrets"} for text in scrubber.unreadable
    ]
    name = scrubber.words(answer.host or host.label)
    when = dt.datetime.fromtimestamp(begun, dt.timezone.utc)
    folder = "".join(c if c.isalnum() or c in "-_." else "-" for c in f"gpuclinic-{name}-{when:%Y%m%dT%H%M%SZ}")
    about = _about(options, answer, name, when, scrubber)
    if recorder.damage is not None:
        about["damage"] = recorder.damage
    read = any(one.answer.ok and one.ask in ("file", "command", "nvml", "listing") for one in recorder.noted) or any(
        answer.ok for one in recorder.noted for answer in (one.of or {}).values()
    )
    return Captured(answer, files, about, folder, begun, read, host.live)


def _learn(anonymiser: Anonymiser, noted: list[Noted], answer: CheckAnswer) -> None:
    """Every name that any answer shows, before one is replaced."""
    seen: set[bytes] = set()
    for one in noted:
        parts = [(f"root{path}", found.data) for path, found in (one.of or {}).items()]
        parts.append((f"root{one.path}" if one.path else "commands/" + "-".join(one.argv) + ".txt", one.answer.data))
        for name, data in parts:
            anonymiser.learn(name, name)
            if data and (len(data) < 300 or data not in seen):
                seen.add(data)
                anonymiser.learn(name, unpacked_text(data))
    if answer.host:
        anonymiser.learn("root/etc/hostname", answer.host)


def _about(
    options: CaptureOptions, answer: CheckAnswer, name: str, when: dt.datetime, scrubber: Scrubber
) -> dict[str, Any]:
    wanted, asked = options.check, options.question
    return {
        "gpuclinic_snapshot": FORMAT, "version": __version__, "time": when.isoformat(timespec="seconds"), "host": name,
        "boot_id": scrubber.words(answer.boot_id) if answer.boot_id else None, "as_root": options.as_root,
        "anonymised": options.anonymiser is not None, "verdict": answer.verdict,
        "asked": {"deep": wanted.deep, "seconds": wanted.seconds, "expect_gpus": wanted.expect_gpus, "psu_watts": wanted.psu_watts,
                  "since": asked.since, "uid": asked.uid, "home": scrubber.words(asked.home), "folder": scrubber.words(asked.folder)},
    }  # fmt: skip


def looks_captured(path: Path) -> bool:
    """A capture of a running server: a folder with answers.jsonl, or an archive that begins as `capture` writes it; told by its first bytes."""
    try:
        if path.is_dir():
            return b'"live":true' in read_regular(str(path / ANSWERS), 256)[0]
        if not path.is_file():
            return False  # a pipe gives what it holds only once
        with path.open("rb") as file:
            stream = buffered(file)
            kind = compression(stream.peek(16)[:16])
            if kind is not None:
                stream = decompressed(cast("BinaryIO", stream), kind, path.stat().st_size, Budget())
            head = stream.read(1024)
    except DAMAGE:
        return False
    return head[:100].rstrip(b"\0").endswith(b"/" + FIRST.encode()) and b'"live": true' in head[512:]


def recorded_question(replay: Replay, question: Question) -> Question:
    """The question with what the capture asked for where the person asks for nothing else; goes to where its answers begin."""
    replay.seek("why")
    asked = replay.about.get("asked")
    asked = asked if isinstance(asked, dict) else {}
    since, uid = asked.get("since"), asked.get("uid")
    return msgspec.structs.replace(
        question,
        since=as_moment(since) if question.since is None else question.since,
        uid=uid if isinstance(uid, int) and 0 <= uid < 1 << 32 else None,
        home=str(asked.get("home") or "")[:4096],
        folder=str(asked.get("folder") or "")[:4096],
        recorded=True,
        recorded_since=as_moment(since),
    )


def write_capture(captured: Captured, out: BinaryIO, ending: str, most: int) -> list[dict[str, str]]:
    """Writes the archive; returns what is not in it and why."""
    left_out = list(captured.files.left_out)

    def rest(names: set[str]) -> dict[str, bytes]:
        left_out.extend({"what": name, "why": "over the size cap (--max-size)"} for name in sorted(names))
        lines = [_without(line, names) for line in captured.files.lines]
        about = {**captured.about, "left_out": left_out}
        return {
            ANSWERS: answer_lines(lines, __version__, live=captured.live),
            "snapshot.json": json.dumps(about, indent=1).encode() + b"\n",
        }

    first = {"gpuclinic_capture": FORMAT, "version": __version__, "time": captured.about["time"], "live": captured.live}
    first_file = (FIRST, json.dumps(first).encode() + b"\n")
    pack(out, ending, captured.folder, first_file, captured.files.files, rest, most, captured.at)
    return left_out


def _without(line: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """A line whose data did not fit says so."""
    if "of" in line:
        line = {**line, "of": [_without(one, names) for one in line["of"]]}
    if line.get("in") in names:
        line = {key: value for key, value in line.items() if key != "in"}
        line["left_out"] = "over the size cap"
    return line


def is_root() -> bool:
    """Root asks."""
    return os.geteuid() == 0
