"""`gpuclinic capture`."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from gpuclinic.cli.main import EXIT_DONE, EXIT_UNKNOWN, chosen_language, home_folder, leads_nowhere, working_folder
from gpuclinic.cli.sizes import size_of
from gpuclinic.cli.software import judge_software
from gpuclinic.model import CouldNotError, UserError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from gpuclinic.clinic.capturing import Captured
    from gpuclinic.clinic.gathering import Question
    from gpuclinic.observe.asking import Asked
    from gpuclinic.recognise.anonymising import Anonymiser

_LEFT_OUT_SHOWN = 12


def run_capture(options: argparse.Namespace) -> int:
    """Asks, packs, says what is in it."""
    from gpuclinic.cli.check import asking, look_options
    from gpuclinic.clinic.capturing import CaptureOptions, capture, is_root, write_capture

    if options.output == "-" and sys.stdout.isatty():
        raise UserError("an archive is not written to a terminal; name a file (-o FILE.tar.gz)")
    ending = _ending(options.output)
    _refuse_to_replace(options)
    anonymiser = _anonymiser(options)
    lang = chosen_language(options)
    most = bytes_of(options.max_size)
    with asking(options) as (host, look):
        wanted = CaptureOptions(
            check=look_options(options), question=_question(options, host), most=most, longest_s=options.max_time,
            anonymiser=anonymiser, as_root=is_root(),
        )  # fmt: skip
        captured = capture(host, wanted, progress=look, software=judge_software)
    path = _path(options.output, captured)
    if path is not None and options.mapping:
        _refuse_one_file(str(path), options.mapping)
    if path is None:
        try:
            left_out = write_capture(captured, sys.stdout.buffer, ending, wanted.most)
            sys.stdout.buffer.flush()
        except OSError as problem:  # a reader who went away, too: nobody has the capture
            leads_nowhere()
            raise CouldNotError(f"the archive could not be written: {problem.strerror or problem}") from None
    else:
        with _archive(path, options) as file:
            left_out = write_capture(captured, file, ending, wanted.most)
    if options.mapping and anonymiser is not None:
        _write_mapping(Path(options.mapping), anonymiser)
    _say(captured, path, left_out, lang)
    return EXIT_DONE if captured.read_anything else EXIT_UNKNOWN


def _question(options: argparse.Namespace, host: Asked) -> Question:
    """What `why` would be asked here: this user's recent deaths, or all since a moment."""
    from gpuclinic.clinic.capturing import recorded_question
    from gpuclinic.clinic.gathering import Question, parse_moment
    from gpuclinic.observe.replay import Replay

    since = parse_moment(options.since, host.clock()) if options.since else None
    if isinstance(host, Replay):
        return recorded_question(host, Question(since=since))
    if not host.live:
        return Question(since=since)
    return Question(since=since, uid=os.getuid() or None, home=home_folder(), folder=working_folder())


def bytes_of(text: str) -> int:
    """Bytes of a size as people write it. UserError: it is none."""
    size = size_of(text)
    if size is None:
        raise UserError(f"--max-size: from 64k to 4G, as 50M: {text}")
    return size


def _is_folder(output: str) -> bool:
    """A folder that exists, or one to be made: a name that ends in a slash or has no ending."""
    return os.path.isdir(output) or output.endswith("/") or not (Path(output).suffix or os.path.exists(output))  # noqa: PTH110, PTH112 - as below


def _ending(output: str | None) -> str:
    from gpuclinic.clinic.packing import ENDINGS

    if not output or output == "-" or _is_folder(output):
        return ".tar.gz"
    for ending in ENDINGS:
        if output.endswith(ending):
            return ending
    raise UserError(f"{output}: the name of an archive ends in one of {', '.join(ENDINGS)}")


def _refuse_to_replace(options: argparse.Namespace) -> None:
    """Before anything is asked: an older capture, or the only list of what was replaced by what, is not lost by mistake."""
    output = options.output
    named = [output] if output and output != "-" and not _is_folder(output) else []
    if output and options.mapping:
        _refuse_one_file(output, options.mapping)
    for name in (*named, *([options.mapping] if options.mapping else [])):
        if os.path.exists(name) and not os.path.isfile(name):  # noqa: PTH110, PTH113 - pathlib fails in a folder that is closed to us
            raise UserError(f"{name}: not a file")
        if os.path.lexists(name) and not options.force:
            raise UserError(f"{name}: exists already; give another name, or --force to replace it")


def _refuse_one_file(output: str, mapping: str) -> None:
    """The archive to share and the list that undoes its anonymity must not be one file, by whatever ways they are named."""
    same = os.path.realpath(output) == os.path.realpath(mapping)
    with contextlib.suppress(OSError):
        same = same or os.path.samestat(os.fstat(1) if output == "-" else os.stat(output), os.stat(mapping))  # noqa: PTH116 - as above
    if same:
        raise UserError(
            f"--mapping {mapping}: that is the archive itself, and the list of names must not be shared with it"
        )


def _path(output: str | None, captured: Captured) -> Path | None:
    """Where the archive goes; None for standard output. A name that nobody gave is never one that is taken."""
    if output == "-":
        return None
    if output and not _is_folder(output):
        return Path(output)
    folder = Path(output) if output else Path()
    names = (f"{captured.folder}{f'-{number}' if number else ''}.tar.gz" for number in itertools.count())
    return next(folder / name for name in names if not os.path.lexists(folder / name))


@contextlib.contextmanager
def _archive(path: Path, options: argparse.Namespace) -> Iterator[BinaryIO]:
    """The file to write to; its folder is made where it is missing, and taken back where nothing came of it."""
    from gpuclinic.store import whole_file

    made = None
    try:
        if options.output and _is_folder(options.output) and not path.parent.is_dir():
            path.parent.mkdir()
            made = path.parent
        with whole_file(path) as file:
            yield file
            if not options.force and os.path.lexists(path):  # made by somebody else meanwhile
                raise UserError(f"{path}: exists already; give another name, or --force to replace it")
        made = None
    except OSError as problem:
        raise _unwritable(path, problem) from None
    finally:
        if made is not None:
            with contextlib.suppress(OSError):
                made.rmdir()


def _unwritable(path: Path, problem: OSError) -> UserError:
    """A name that cannot be meant is a wrong command line; a place that takes nothing leaves nobody with a capture."""
    wrong = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)
    return (UserError if problem.errno in wrong else CouldNotError)(f"{path}: {problem.strerror or problem}")


def _anonymiser(options: argparse.Namespace) -> Anonymiser | None:
    if options.mapping and not options.anonymise:
        raise UserError("--mapping goes with --anonymise")
    if not options.anonymise:
        return None
    from gpuclinic.recognise.anonymising import Anonymiser

    return Anonymiser(os.urandom(32))


def _write_mapping(path: Path, anonymiser: Anonymiser) -> None:
    from gpuclinic.store import whole_file

    try:
        with whole_file(path) as file:
            file.write(anonymiser.mapping_json().encode())
    except OSError as problem:
        raise _unwritable(path, problem) from None


def _say(captured: Captured, path: Path | None, left_out: list[dict[str, str]], lang: str) -> None:
    """Verdict, place and what is not in it; on standard error where the archive itself goes to standard output."""
    from gpuclinic.report.captured import captured_text

    size = path.stat().st_size if path is not None else None
    text = captured_text(captured.answer, str(path) if path is not None else "-", size, left_out[:_LEFT_OUT_SHOWN], len(left_out), lang)  # fmt: skip
    out = sys.stderr if path is None else sys.stdout
    if out is not None:
        out.write(text)
