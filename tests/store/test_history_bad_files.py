"""Whatever is wrong with the file: a clear message, and nothing is lost or deleted."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING

import pytest

from gpuclinic.model import CouldNotError
from gpuclinic.store.history import History
from store.made_ticks import START, finding, gpu, steady, tick, xid

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3600


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


def made(path: Path, seconds: int = 2 * HOUR) -> None:
    with History.open(path) as history:
        for sample in steady(seconds):
            history.append(sample)
        history.pack_all(START + 9 * HOUR)
        history._files.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def kept_aside(path: Path) -> list[Path]:
    return [place for place in path.parent.iterdir() if ".damaged-" in place.name]


def test_no_database(path: Path) -> None:
    path.write_bytes(b"something else entirely\n" * 100)
    with pytest.raises(CouldNotError, match="no SQLite database"):
        History.open(path, read_only=True)
    assert path.read_bytes().startswith(b"something")
    with History.open(path) as history:
        history.append(tick(0, gpu(power_w=1.0)))
        assert len(history.notes) == 1
        assert "a new history was begun" in history.notes[0]
    assert [place.read_bytes()[:9] for place in kept_aside(path)] == [b"something"]


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = path.read_bytes()
    for read_only in (True, False):
        with pytest.raises(CouldNotError, match="another program"):
            History.open(path, read_only=read_only)
    assert path.read_bytes()[100:] == before[100:]
    assert not kept_aside(path)


def test_a_newer_format_is_left_alone(path: Path) -> None:
    made(path, 10)
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    for read_only in (True, False):
        with pytest.raises(CouldNotError, match="newer gpuclinic"):
            History.open(path, read_only=read_only)
    assert not kept_aside(path)


def test_no_history_yet(path: Path) -> None:
    with pytest.raises(CouldNotError, match="no history yet"):
        History.open(path, read_only=True)
    assert not path.exists()


def test_a_folder_in_its_place(path: Path) -> None:
    path.mkdir()
    for read_only in (True, False):
        with pytest.raises(CouldNotError, match="not a file"):
            History.open(path, read_only=read_only)


def test_an_empty_file_becomes_a_history(path: Path) -> None:
    path.touch()
    made(path, 5)
    assert not kept_aside(path)


def _ask_everything(path: Path) -> None:
    with History.open(path, read_only=True) as reader:
        for series in reader.series():
            reader.query(series, START, START + 2 * HOUR, 7200)


def test_pages_that_are_damaged(path: Path) -> None:
    made(path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        for page in range(1, size // 4096):
            file.seek(page * 4096)
            file.write(os.urandom(256))
    with pytest.raises(CouldNotError, match="damaged"):
        _ask_everything(path)
    with History.open(path) as history:
        for sample in steady(200, first=3 * HOUR):
            history.append(sample)
        history.flush()
        found = history.query(history.series("gpu", None, "power_w")[0], START + 3 * HOUR, START + 4 * HOUR, 3600)
        assert len(found) == 200
    assert len(kept_aside(path)) >= 1
    assert max(place.stat().st_size for place in kept_aside(path)) == size


def test_damage_while_it_is_written(path: Path) -> None:
    """The pages go bad under a writer; it begins anew, with the series and what waited."""
    with History.open(path) as history:
        for sample in steady(100):
            history.append(sample)
        history.flush()
        history._files.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with path.open("r+b") as file:
            for page in range(1, path.stat().st_size // 4096):
                file.seek(page * 4096)
                file.write(b"\xff" * 4096)
        history._files.connection.execute("PRAGMA shrink_memory")
        for sample in steady(100, first=100):
            history.append(sample)
        history.add_finding(finding(), START)
        history.flush()
        found = history.query(history.series("gpu", None, "power_w")[0], START, START + 200, 400)
        assert [bucket.at - START for bucket in found][-100:] == list(range(100, 200))
        assert any("damaged" in note for note in history.notes)
    assert kept_aside(path)


def test_a_column_that_is_damaged_costs_only_itself(path: Path) -> None:
    made(path)
    db = sqlite3.connect(path)
    place, length, part = db.execute(
        "SELECT place, length, part FROM rollup JOIN series ON series.id = series WHERE field = 'power_w' ORDER BY opened LIMIT 1"
    ).fetchone()
    cells = bytearray(db.execute("SELECT cells FROM bundle WHERE part = ?", (part,)).fetchone()[0])
    cells[place : place + length] = os.urandom(length)
    db.execute("UPDATE bundle SET cells = ? WHERE part = ?", (bytes(cells), part))
    db.commit()
    db.close()
    with History.open(path, read_only=True) as reader:
        with pytest.raises(CouldNotError, match="damaged"):
            reader.query(reader.series("gpu", None, "power_w")[0], START, START + 100, 100)
        assert len(reader.query(reader.series("gpu", None, "energy_j")[0], START, START + 100, 100)) == 100


def test_a_full_disk_keeps_what_waits(path: Path) -> None:
    with History.open(path) as history:
        for sample in steady(50):
            history.append(sample)
        history.flush()
        pages = history._files.connection.execute("PRAGMA page_count").fetchone()[0]
        history._files.connection.execute(f"PRAGMA max_page_count = {pages}")
        problems = []
        for second in range(50, 3050):
            try:
                history.append(
                    tick(second, *steady_facts(second), events=[xid(second, text=f"Xid at {second} " + "x" * 900)])
                )
            except CouldNotError as problem:
                problems.append(str(problem))
                if len(problems) > 50:
                    break
        assert problems
        assert all("no space left" in problem for problem in problems)
        last = second
        history._files.connection.execute("PRAGMA max_page_count = 1000000")
        history.flush()
        found = history.query(history.series("gpu", None, "power_w")[0], START, START + last + 1, 9000)
        assert [bucket.at - START for bucket in found] == list(range(last + 1))
        assert len(history.events(START, START + last)) == last - 49


def steady_facts(second: int) -> list[object]:
    return next(iter(steady(1, first=second))).facts


def test_a_disk_that_stays_full_is_bounded_in_memory(path: Path) -> None:
    with History.open(path) as history:
        history.append(tick(0, gpu(power_w=1.0)))
        history.flush()
        history._files.connection.execute("PRAGMA query_only = 1")
        problems = []
        for sample in steady(3000, first=1):
            try:
                history.append(sample)
            except CouldNotError as problem:
                problems.append(str(problem))
        assert problems
        assert all("cannot be written" in problem for problem in problems)
        assert max(len(part.rows) for part in history._tail.waiting) < 1000
        assert sum("quarter of an hour" in note for note in history.notes) == 1
        history._files.connection.execute("PRAGMA query_only = 0")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(path: Path) -> None:
    made(path, 10)
    path.parent.chmod(0o500)
    try:
        with pytest.raises(CouldNotError):
            History.open(path)
    finally:
        path.parent.chmod(0o700)


def test_a_read_only_file_system(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(path, 10)
    real = os.open

    def refuse(name: object, flags: int, *args: object, **more: object) -> int:
        if str(name).endswith(".lock"):
            raise OSError(30, "Read-only file system")
        return real(name, flags, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(CouldNotError, match="Read-only file system"):
        History.open(path)
    with History.open(path, read_only=True) as reader:
        assert len(reader.series()) == 5


def test_the_lock_is_no_link_to_elsewhere(path: Path) -> None:
    precious = path.with_name("precious")
    precious.write_text("precious")
    path.with_name("history.db.lock").symlink_to(precious)
    with pytest.raises(CouldNotError):
        History.open(path)
    assert precious.read_text() == "precious"
