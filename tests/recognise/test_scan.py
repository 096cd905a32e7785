from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuclinic.knowledge import Signature
from gpuclinic.recognise import scan
from gpuclinic.recognise.engine import Confirmer, Engine, HyperscanEngine, PlainEngine, needles_of
from gpuclinic.recognise.scan import StreamScanner
from gpuclinic.recognise.signals import SignalMaker

SIGNATURES = [
    Signature("nvrm.xid", r"NVRM: Xid \((?P<gpu>[^)]*)\): (?P<code>\d+)", "test", ["x"], level="strong", cause="hw.x"),
    Signature("run.step", r"\bstep[ :=]+(?P<step>\d+)", "test", ["x"]),
    Signature(
        "torch.oom", r"CUDA out of memory\. Tried to allocate (?P<need>[\d.]+ \wiB)", "test", ["x"], level="strong"
    ),
    Signature("os.killed", r"^Killed$", "test", ["x"], level="hint"),
]
NEEDLES = needles_of([(s.pattern, s.ignore_case) for s in SIGNATURES], "")
ENGINES = [HyperscanEngine(NEEDLES, ""), PlainEngine(NEEDLES)]
XID = "Mar  2 04:11:09 n1 kernel: NVRM: Xid (PCI:0000:9a:00): 79, GPU has fallen off the bus."


def found(data: bytes, engine: Engine = ENGINES[0], chunk: int = 0) -> list[tuple[int, str]]:
    scanner = StreamScanner(engine, Confirmer(SIGNATURES), frozenset({1}))
    stream = io.BytesIO(data)
    lines = scanner.scan(lambda b: stream.readinto(b[:chunk])) if chunk else scanner.scan_bytes(data)
    return [(f.line, SIGNATURES[number].id) for f in lines for number, _ in f.matches]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_lines_are_numbered_by_line_feeds(engine: Engine) -> None:
    data = f"a\r\n{XID}\r\nb\n\n{XID}\nKilled\n".encode()
    assert found(data, engine) == [(2, "nvrm.xid"), (5, "nvrm.xid"), (6, "os.killed")]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_escapes_within_a_message(engine: Engine) -> None:
    data = b"x\n\x1b[31mCUDA out of\x1b[0m memory. Tried to allocate 2.00 GiB\n\x00\x00NVRM: Xid (x): 79\n"
    assert found(data, engine) == [(2, "torch.oom"), (3, "nvrm.xid")]


def test_progress_bars_and_folded_records() -> None:
    data = f"\r 1%|\r 2%|\rCUDA out of memory. Tried to allocate 2 GiB\r 3%\nlog#012{XID}#012end\ntext\\n{XID}\\nmore\n"
    assert found(data.encode()) == [(1, "torch.oom"), (2, "nvrm.xid"), (3, "nvrm.xid")]


def test_the_part_between_carriage_returns_is_what_matched() -> None:
    scanner = StreamScanner(ENGINES[0], Confirmer(SIGNATURES))
    (one,) = scanner.scan_bytes(b"50%|###|\rCUDA out of memory. Tried to allocate 2 GiB\r60%|\n")
    assert one.text == "CUDA out of memory. Tried to allocate 2 GiB"


def test_a_line_longer_than_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "CHUNK", 1 << 16)
    filler = b"x" * 200_000
    data = filler + XID.encode() + filler + b"\n" + XID.encode() + b"\n"
    assert set(found(data, chunk=1 << 20)) == {(1, "nvrm.xid"), (2, "nvrm.xid")}
    assert set(found(data)) == {(1, "nvrm.xid"), (2, "nvrm.xid")}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([XID, "step 5 loss 1", "quiet", "", "Killed", "\x1b[1mbold\x1b[0m"]), max_size=60),
    st.integers(1, 700),
)
def test_chunks_do_not_matter(lines: list[str], chunk: int) -> None:
    data = "\n".join(lines).encode()
    assert found(data, chunk=chunk) == found(data) == found(data, ENGINES[1])


def test_storms_of_progress_are_only_counted() -> None:
    data = b"".join(b"step %d loss 1.0\n" % n for n in range(60000)) + XID.encode() + b"\n"
    scanner = StreamScanner(ENGINES[0], Confirmer(SIGNATURES), frozenset({1}))
    maker = SignalMaker("log", SIGNATURES, None, kernel=False)
    for one in scanner.scan_bytes(data):
        maker.take(one)
    signals = maker.finish(1)
    assert maker.counts()["run.step"] + scanner.skipped[1] == 60000
    assert len(signals) < 80
    assert signals[-1].signature == "nvrm.xid"
    assert signals[-1].where.line == 60001
    assert [s.groups["step"] for s in signals if s.signature == "run.step"][-1] == "59999"


def test_a_storm_keeps_each_gpu() -> None:
    lines = [f"NVRM: Xid (PCI:0000:{n % 8:02x}:00): 31, pid={n}" for n in range(3000)]
    maker = SignalMaker("log", SIGNATURES, None, kernel=False)
    scanner = StreamScanner(ENGINES[0], Confirmer(SIGNATURES))
    for one in scanner.scan_bytes("\n".join(["NVRM: Xid (PCI:0000:01:00): 1"] * 100 + lines).encode()):
        maker.take(one)
    assert {s.gpu for s in maker.finish(1)} == {f"0000:{n:02x}:00.0" for n in range(8)}
    assert maker.counts()["nvrm.xid"] + scanner.skipped[0] == 3100


def test_a_storm_hides_neither_another_code_nor_the_end() -> None:
    lines = [f"n1 kernel: NVRM: Xid (PCI:0000:9a:00): 31, pid={n}" for n in range(20000)]
    lines[15003] = "n1 kernel: NVRM: Xid (PCI:0000:9a:00): 79, pid=7"
    scanner = StreamScanner(ENGINES[0], Confirmer(SIGNATURES))
    found = list(scanner.scan_bytes("\n".join(lines).encode()))
    assert len(found) < 2000
    assert [f.line for f in found if ": 79" in f.text] == [15004]
    assert (found[-1].line, found[-1].text) == (20000, lines[-1])
    assert len(found) + scanner.skipped[0] == 20000
    maker = SignalMaker("log", SIGNATURES, None, kernel=False)
    for one in found:
        maker.take(one)
    assert [s.where.line for s in maker.finish(1) if s.groups["code"] == "79"] == [15004]


def test_a_region_continues_with_the_habits_of_the_one_before() -> None:
    data = "\n".join(f"CUDA out of memory. Tried to allocate {n} GiB" for n in range(1000)).encode()
    first = StreamScanner(ENGINES[0], Confirmer(SIGNATURES))
    list(first.scan_bytes(data))
    later = first.clone()
    later.continues(first)
    found = list(later.scan_bytes(data))
    assert len(found) < 80
    assert (found[-1].line, later.lines) == (1000, 999)
    assert later.skipped[2] + len(found) == 1000


def test_regions_joined_are_as_one() -> None:
    part = "\n".join([XID] * 60 + ["step 1"] * 5) + "\n"
    whole = SignalMaker("log", SIGNATURES, None, kernel=False)
    scanner = StreamScanner(ENGINES[0], Confirmer(SIGNATURES))
    for one in scanner.scan_bytes((part * 3).encode()):
        whole.take(one)
    first = SignalMaker("log", SIGNATURES, None, kernel=False)
    for one in StreamScanner(ENGINES[0], Confirmer(SIGNATURES)).scan_bytes(part.encode()):
        first.take(one)
    for region in (1, 2):
        later = first.twin()
        for one in StreamScanner(ENGINES[0], Confirmer(SIGNATURES)).scan_bytes(part.encode()):
            later.take(one)
        first.join(later, 65 * region)
    assert first.counts() == whole.counts()
    assert whole.counts()["nvrm.xid"] == 180
    lines = [s.where.line for s in first.finish(1)]
    assert lines == sorted(lines, key=lambda n: n or 0)
    assert lines[-1] == [s.where.line for s in whole.finish(1)][-1] == 195
