from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuclinic.model import Document
from gpuclinic.recognise.decoding import binary_reason, decode, encoding_of, printable, transcoded
from gpuclinic.recognise.jsonlines import unwrap, unwrapped
from gpuclinic.recognise.sections import sections

TEXT = "Mar  2 04:11:09 n1 kernel: NVRM: Xid (PCI:0000:9a:00): 79, GPU has fallen off the bus.\n" * 3
CHINESE = "训练进程被杀死：显存不足，请检查节点内核日志。\n设备上没有空间\n" * 20


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "ascii"])
def test_encodings_of_a_plain_log(encoding: str) -> None:
    assert decode(TEXT.encode(encoding)) == TEXT


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030", "gbk", "utf-16", "utf-16-le"])
def test_encodings_of_a_chinese_log(encoding: str) -> None:
    assert decode(CHINESE.encode(encoding)) == CHINESE


def test_latin_1() -> None:
    text = "Mär  2 04:11:09 gpu1 kernel: Gerät läuft nicht: Zugriff verweigert für größere Blöcke\n"
    assert decode(text.encode("latin-1")) == text


def test_escapes_and_nuls_are_dropped() -> None:
    assert decode(b"\x1b[31mred\x1b[0m \x1b]0;title\x07x\x1b(By\n") == "red xy\n"
    assert decode(b"a\x00\x00\x00b\nnext\n") == "ab\nnext\n"
    assert "\x1b" not in decode(b"\x1b[31mred\x1b[0m\n")


def test_a_cut_character_is_no_reason_to_change_the_encoding() -> None:
    data = CHINESE.encode()[:-2]
    assert encoding_of(data) == "utf-8"
    assert decode(data).startswith("训练进程")


@given(st.binary(max_size=400))
def test_decode_never_raises_and_keeps_lines(data: bytes) -> None:
    text = decode(data)
    text.encode("utf-8")
    binary_reason(data)
    assert printable(text) == printable(printable(text))
    if encoding_of(data).startswith("utf-8") or encoding_of(data) == "latin-1":
        assert text.count("\n") == data.count(b"\n")


@given(
    st.text(alphabet="abc 显存\n", max_size=300), st.sampled_from(["gb18030", "utf-16-le", "utf-16"]), st.integers(1, 7)
)
def test_streams_are_transcoded_whole(text: str, encoding: str, size: int) -> None:
    stream = io.BytesIO(text.encode(encoding))
    read = transcoded(lambda buffer: stream.readinto(buffer[:5]), encoding)
    out = bytearray()
    buffer = memoryview(bytearray(size))
    while got := read(buffer):
        out += buffer[:got]
    assert out.decode() == text


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"SQLite format 3\x00" + bytes(80), "a database"),
        (b"\x89PNG\r\n\x1a\n" + bytes(80), "an image"),
        (b"\x80\x04\x95" + bytes(80), "a Python pickle"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x04" + bytes(80), "a core dump"),
        (b"LPKSHHRH" + bytes(80), "a binary journal; export it: journalctl --file FILE > journal.txt"),
        (bytes(100), "not text"),
        (bytes(range(1, 9)) * 40, "not text"),
        (b"a log line\n" + bytes(60) + b"another\n", None),
        (TEXT.encode("utf-16"), None),
        (b"", None),
    ],
)
def test_what_is_no_text(head: bytes, reason: str | None) -> None:
    assert binary_reason(head) == reason


def test_docker_json_file() -> None:
    rows = [{"log": f"line {n}\n", "stream": "stderr", "time": "2026-03-02T04:11:09.1Z"} for n in range(3)]
    text = "\n".join(json.dumps(row) for row in rows) + "\n"
    plain = unwrap(text)
    assert plain is not None
    assert plain.count("\n") == text.count("\n")
    assert plain.split("\n")[1] == "2026-03-02T04:11:09.1Z line 1"


def test_journal_json_with_bytes_and_stamps() -> None:
    row = {
        "MESSAGE": list(b"NVRM: x"),
        "__REALTIME_TIMESTAMP": "1772424669000000",
        "_HOSTNAME": "n1",
        "_TRANSPORT": "kernel",
    }
    assert unwrap(json.dumps(row) + "\n") == "2026-03-02T04:11:09+00:00 n1 kernel: NVRM: x\n"


@pytest.mark.parametrize("array", [True, False])
def test_pretty_json_keeps_line_numbers(array: bool) -> None:
    rows = [{"MESSAGE": f"m{n}", "_HOSTNAME": "n1", "_COMM": "x"} for n in range(3)]
    text = json.dumps(rows, indent=1) if array else "\n".join(json.dumps(row, indent=1) for row in rows)
    plain = unwrap(text)
    assert plain is not None
    assert plain.count("\n") == text.count("\n")
    for n in range(3):
        line = next(i for i, part in enumerate(plain.split("\n")) if f": m{n}" in part)
        assert "{" in text.split("\n")[line]


def test_what_is_no_json_log() -> None:
    assert unwrap("plain\n{broken\n") is None
    assert unwrap('{"kind": "List", "items": []}') is None
    assert unwrap("[rank0]: x\n") is None


def test_json_streams_are_unwrapped() -> None:
    text = "".join(json.dumps({"msg": f"message {n}", "ts": n}) + "\n" for n in range(500))
    stream = io.BytesIO(text.encode())
    read = unwrapped(lambda buffer: stream.readinto(buffer[:1000]))
    out = b""
    buffer = memoryview(bytearray(700))
    while got := read(buffer):
        out += buffer[:got]
    assert out.decode() == unwrap(text)


@given(st.text(alphabet='{}[]":,\\nabc1 \n', max_size=200))
def test_unwrap_never_raises_and_keeps_lines(text: str) -> None:
    plain = unwrap(text)
    assert plain is None or plain.count("\n") == text.count("\n")


def test_a_bug_report_is_cut_into_its_outputs() -> None:
    rule = "_" * 44
    text = (
        f"{rule}\n\nStart of NVIDIA bug report log file.  Please include\n\n{rule}\n\n*** /proc/driver/nvidia/version\n"
        f"*** ls: -r--r--r-- 1 root root 0 x\nNVRM version: x\n\n{rule}\n\n/usr/bin/nvidia-smi --query\n\nDriver\n"
    )
    parts = sections(Document("r.log", text))
    assert [part.name_hint for part in parts][1:] == ["/proc/driver/nvidia/version", "/usr/bin/nvidia-smi --query"]
    assert "".join(part.text for part in parts) == text
    for part in parts:
        assert text.split("\n")[part.first_line - 1] == part.text.split("\n")[0]
