"""An archive of a snapshot unpacked into a private folder: read once, in order, under caps; nothing in it reaches outside."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from gpuclinic.model import CouldNotError, UserError
from gpuclinic.observe._private import PrivateFolder
from gpuclinic.observe.archives import (
    DAMAGE,
    LARGEST_RATIO,
    RATIO_FLOOR,
    Budget,
    Careful,
    Pieces,
    buffered,
    compression,
    decompressed,
    is_tar,
    problem_of,
    safe_name,
    shown_name,
    tar_refusal,
)
from gpuclinic.observe.replay import ANSWERS

if TYPE_CHECKING:
    import io
    import tarfile
    import zipfile
    from collections.abc import Callable

MOST_UNPACKED = 1 << 30
MOST_FILES = 50_000
_LONGEST_LINK = 4096
_DEEPEST = 100
"""Folders above a file; no server has so many."""
_OF_THE_NAME = frozenset(
    (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.EINVAL, errno.EILSEQ)
)
"""What is wrong with one member; everything else is wrong with the place it is unpacked to."""


class _Taker:
    """Writes members below a folder; links come last, so that none is ever written through."""

    def __init__(self, folder: Path, progress: Callable[[str], None] | None = None) -> None:
        self._folder = folder
        self._progress = progress
        self._links: list[tuple[str, str]] = []
        self.left = MOST_UNPACKED
        self.members = MOST_FILES
        self.refused: list[str] = []
        self.damage: str | None = None
        """Why the rest is not there."""
        self.half: str | None = None
        """The file that is being written; after damage, the one of which only the beginning is there."""

    def counts(self) -> None:
        """One more member; UserError where there are too many."""
        self.members -= 1
        if self._progress is not None and self.members % 64 == 0:
            self._progress(f"unpacking: {MOST_FILES - self.members} files")
        if self.members < 0:
            raise UserError(f"more than {MOST_FILES} files: refused as a snapshot")

    def file(self, name: str, stream: BinaryIO) -> None:
        """A regular file."""
        place = self._folder / name
        if name.count("/") > _DEEPEST:
            self.refused.append(f"{name[:200]}: deeper than {_DEEPEST} folders")
            return
        try:
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            if problem.errno not in _OF_THE_NAME:
                raise CouldNotError(f"cannot be unpacked to {self._folder}: {problem.strerror or problem}") from None
            self.refused.append(f"{name}: {problem.strerror or problem}")
            return
        self.half = name
        with os.fdopen(handle, "wb", 0) as out:
            while piece := stream.read(1 << 18):
                self.left -= len(piece)
                if self.left < 0:
                    raise UserError(f"unpacks to more than {MOST_UNPACKED >> 20} MiB: refused as a snapshot")
                try:
                    out.write(piece)
                except OSError as problem:
                    raise CouldNotError(
                        f"cannot be unpacked to {self._folder}: {problem.strerror or problem}"
                    ) from None
        self.half = None

    def drop_half(self, name: str) -> None:
        """Removes the file of which only the beginning is there, where it has this name."""
        if self.damage is not None and self.half is not None and self.half.rpartition("/")[2] == name:
            (self._folder / self.half).unlink(missing_ok=True)

    def link(self, name: str, target: str) -> None:
        """A symbolic link of the examined machine; the snapshot resolves it inside root/."""
        if "root" in name.split("/")[:-1] and len(target) <= _LONGEST_LINK:
            self._links.append((name, target))
        else:
            self.refused.append(f"{name}: a link")

    def make_links(self) -> None:
        """Makes the links where nothing else stands."""
        made: set[str] = set()
        for name, target in self._links:
            above = {"/".join(name.split("/")[:count]) for count in range(1, name.count("/") + 1)}
            place = self._folder / name
            if above & made or os.path.lexists(place):
                self.refused.append(f"{name}: a link where something else stands")
                continue
            try:
                place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                place.symlink_to(target)
            except (OSError, ValueError) as problem:
                self.refused.append(f"{name}: {problem}")
                continue
            made.add(name)


def unpacked(path: Path, progress: Callable[[str], None] | None = None) -> tuple[PrivateFolder, list[str], str | None]:
    """A private folder with what the archive holds; what of it was refused and why; where it is damaged or cut short, by what.

    Of a file that the damage met its beginning is there, but for the list of answers: half of it would hide the files that it does not name.

    UserError: no archive, or a bomb.
    """
    folder = PrivateFolder()
    taker = _Taker(Path(folder.name), progress)
    try:
        with path.open("rb") as file:
            stream = buffered(file)
            head = stream.peek(512)[:512]
            if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
                _zip(file, taker)
            else:
                _count(path)
                _tar(stream, head, path.stat().st_size, taker)
        taker.make_links()
        taker.drop_half(ANSWERS)
    except UserError as problem:
        folder.cleanup()
        raise type(problem)(f"{path}: {problem}") from None
    except DAMAGE as problem:
        folder.cleanup()
        raise CouldNotError(f"{path}: cannot be unpacked: {problem or type(problem).__name__}") from None
    except BaseException:
        folder.cleanup()
        raise
    return folder, taker.refused, taker.damage


def _tar(stream: io.BufferedReader, head: bytes, size: int, taker: _Taker) -> None:
    import tarfile

    from gpuclinic.observe._tar import members, open_tar

    budget = Budget()
    kind = compression(head)
    inner = decompressed(cast("BinaryIO", stream), kind, size, budget) if kind is not None else stream
    start = inner.peek(512)[:512]
    if not is_tar(start):
        if kind is not None and len(start) < 512:
            raise CouldNotError("damaged or cut short before anything could be unpacked")
        raise UserError(f"no archive of a snapshot ({problem_of(inner) or 'no tar or zip'})")
    try:
        with open_tar(inner) as archive:
            for member in members(archive):
                taker.counts()
                _tar_member(archive, member, taker)
    except tarfile.TarError as problem:
        taker.damage = problem_of(inner) or f"damaged or cut short: {problem}"
    except DAMAGE as problem:
        if taker.members == MOST_FILES:
            raise
        taker.damage = problem_of(inner) or f"damaged or cut short: {problem or type(problem).__name__}"
    told = problem_of(inner)
    if told is not None and "damaged" not in told:
        raise UserError(told)  # a bomb
    taker.damage = taker.damage or told


def _count(path: Path) -> None:
    """UserError where an archive holds too many files: told by its headers alone, before one is written."""
    with path.open("rb") as file:
        stream = buffered(file)
        kind = compression(stream.peek(512)[:512])
        if kind is not None:
            stream = decompressed(cast("BinaryIO", stream), kind, path.stat().st_size, Budget())
        members = 0
        while len(header := stream.read(512)) == 512 and header.strip(b"\0"):
            size = header[124:136].strip(b"\0 ")
            if not size.isdigit() or size.strip(b"01234567"):
                return  # no plain header: whoever unpacks it will tell
            members += header[156:157] in b"\x000125"
            if members > MOST_FILES:
                raise UserError(f"more than {MOST_FILES} files: refused as a snapshot")
            left = -(-int(size, 8) // 512) * 512
            while left > 0 and (skipped := stream.read(min(left, 1 << 20))):
                left -= len(skipped)


def _tar_member(archive: tarfile.TarFile, member: tarfile.TarInfo, taker: _Taker) -> None:
    name = safe_name(member.name)
    if member.isdir():
        return
    if member.issym() and name:
        taker.link(name, member.linkname)
        return
    reason = "a link" if member.islnk() else tar_refusal(member, name)
    if reason is not None or not name:
        taker.refused.append(f"{shown_name(member.name)}: {reason or 'no name'}")
        return
    file = archive.extractfile(member)
    if file is not None:
        taker.file(name, cast("BinaryIO", Pieces(file)))


def _zip(file: BinaryIO, taker: _Taker) -> None:
    import zipfile

    try:
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                taker.counts()
                if not member.is_dir():
                    _zip_member(archive, member, taker)
    except zipfile.BadZipFile as problem:
        raise CouldNotError(f"damaged or cut short: {problem}") from None


def _zip_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, taker: _Taker) -> None:
    import zipfile

    name = safe_name(member.filename)
    if not name:
        taker.refused.append(f"{shown_name(member.filename)}: its name leads out of the archive")
    elif member.flag_bits & 1:
        taker.refused.append(f"{name}: encrypted")
    elif member.file_size > max(RATIO_FLOOR, member.compress_size * LARGEST_RATIO):
        raise UserError(f"{name} unpacks to far more than it holds: refused as a bomb")
    elif (member.external_attr >> 28) == 0xA:
        target = archive.read(member)[: _LONGEST_LINK + 1] if member.file_size <= _LONGEST_LINK else b"/"
        taker.link(name, target.decode("utf-8", "replace"))
    else:
        opened = archive.open(member)
        stream = buffered(Careful(opened, Budget(), member.compress_size, (zipfile.BadZipFile,)))
        taker.file(name, cast("BinaryIO", stream))
        if problem_of(stream) is not None:
            raise UserError(f"{name}: {problem_of(stream)}")
