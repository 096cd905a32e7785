"""What is only quoted is told apart from what happened."""

from __future__ import annotations

import pytest

from gpuclinic.model import Document
from gpuclinic.recognise.parsers import parse, parsers_for
from gpuclinic.recognise.parsers.quotations import parse_quotations
from gpuclinic.recognise.parsers.system import parse_date

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."


def _lines(text: str, source: str = "some.txt") -> set[int]:
    found: set[int] = set()
    for fact in parse_quotations(Document(source, text)):
        first, last = fact.fields["first"], fact.fields["last"]
        assert isinstance(first, int)
        assert isinstance(last, int)
        found |= set(range(first, last + 1))
    return found


@pytest.mark.parametrize(
    "line",
    [
        f'{{"prompt": "dmesg says {XID} Is it dead?", "response": "Reseat it."}}',
        f"""INFO 02-12 10:01:40 [logger.py:43] Received request chat-1: prompt: 'why "{XID}"?', params: SamplingParams(n=1)""",
        r'    {"reason": "Xid79", "pattern": "NVRM: Xid \\(PCI:.*\\): 79,.*GPU has fallen off the bus"},',
        "Rules:[{Type:permanent Reason:GPULost Pattern:NVRM: Xid .*: 79, .*GPU has fallen off the bus}]",
        '    raise RuntimeError("CUDA out of memory")',
        '        if "GPU has fallen off the bus" in line:',
        f"docs/gpu.md:41:{XID}",
        '$ dmesg | grep -i "fallen off the bus"',
        '+ grep -q "fallen off the bus" /tmp/dmesg',
    ],
)
def test_a_quoting_line(line: str) -> None:
    assert _lines(f"first\n{line}\nlast") == {2}
    assert [entry.name for entry in parsers_for(line)].count("quotations") == 1


@pytest.mark.parametrize(
    "line",
    [
        f"[123.456789] {XID}",
        f"/var/log/kern.log:41:Mar 2 10:00:00 gn kernel: {XID}",
        "RuntimeError: CUDA out of memory",
        "ggml-cuda.cu:98: CUDA error",
        "2026-02-12 10:00:00 ERROR request failed: {'role': 'user'} CUDA error: an illegal memory access was encountered",
        "File system pattern: none",
        "$ nvidia-smi",
    ],
)
def test_a_line_that_tells_what_happened(line: str) -> None:
    assert _lines(line) == set()


def test_patches_are_quoted_to_their_counted_end() -> None:
    text = f'$ git diff\n@@ -1,2 +1,3 @@\n a\n+    "{XID}",\n b\n{XID}\n'
    assert _lines(text) == {2, 3, 4, 5}


def test_help_is_quoted_and_the_error_below_is_not() -> None:
    text = 'usage: train.py [-h]\n\noptions:\n  -h, --help  show\n  --oom  what to do on "CUDA out of memory"\ntrain.py: error: x\n'
    assert _lines(text) == {3, 4, 5}


def test_a_handbook_is_quoted_and_a_report_is_not() -> None:
    handbook = f"# GPU runbook\n\nIf the kernel log shows\n\n    {XID}\n\nthen drain the node.\n"
    report = f"# GPU lost on node 7\n\nIf you need more, ask.\n\n    {XID}\n"
    assert _lines(handbook) == set(range(1, 9))
    assert _lines(report) == set()
    assert _lines(report.replace("[", "("), "README.md") == set(range(1, 7))
    assert _lines(report + "2026-02-02 10:00:00 died\n", "README.md") == set()


def test_a_search_through_sources_is_quoted_up_to_the_next_command() -> None:
    text = f'$ grep -rn fallen src\nsrc/watch.py:3:    "{XID}",\n$ dmesg | tail -1\n[1.000000] {XID}\n'
    assert _lines(text) == {1, 2}


def test_dates() -> None:
    text = "Tue Mar 10 09:12:00 2026\nThu 12 Feb 2026 09:00:01 AM CET\nTimestamp      : Tue Mar 10 09:12:00 2026\nTue Mar 10 09:12:00\n"
    assert [f.fields["seconds"] for f in parse_date(Document("x", text))] == [1773133920.0, 1770886801.0, 1773133920.0]
    assert any(parse(entry, Document("x", text)) for entry in parsers_for(text) if entry.name == "date")


def test_commits_are_quoted() -> None:
    short = "$ git log --oneline\n9a1c2f1 fix: CUDA out of memory\n8b1c2f1 NCCL timeout\n7c1c2f1 Xid 79\nlast\n"
    long = f"commit {'9a1c2f1b' * 5}\nAuthor: Kim\n\n    fix: CUDA out of memory\n\n$ dmesg\n"
    assert _lines(short) == {2, 3, 4}
    assert _lines(long) == {1, 2, 3, 4, 5}


def test_tests_that_pass_are_quoted_and_those_that_fail_are_not() -> None:
    go = f'=== RUN   TestA\n  x: "{XID}"\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n  CUDA out of memory\n--- FAIL: TestB (0.00s)\n'
    google = f"[ RUN      ] Ecc.Double\n{XID}\n[       OK ] Ecc.Double (3 ms)\nlast\n"
    lines = " 2/6 Test  #2: cuda_illegal_memory_access .......   Passed    1.21 sec\ntests/a.py::test_oom FAILED\ntest x ... ok\n"
    assert _lines(go) == {1, 2, 3}
    assert _lines(google) == {1, 2, 3}
    assert _lines(lines) == {1, 3}


def test_remarks_on_a_node_that_works_are_quoted() -> None:
    node = "NodeName=a\n   State={}\n   Comment=Xid 79 in May\n   Reason=Xid 79 [root@2025-05-05]\n"
    assert _lines(node.format("MIXED")) == {3, 4}
    assert _lines(node.format("IDLE+DRAIN")) == {3}


def test_release_notes_are_quoted() -> None:
    assert _lines(
        "- Fixed an issue that could cause Xid 119 on H100.\nFixed point overflow\n- 修复了 Xid 79 的问题\n"
    ) == {1, 3}


def test_exceptions_that_python_ignores_are_quoted() -> None:
    text = (
        "Exception ignored in: <function X.__del__ at 0x7f11>\nTraceback (most recent call last):\n"
        '  File "a.py", line 1, in __del__\nAssertionError: can only test a child process\nRuntimeError: CUDA error\n'
    )
    assert _lines(text) == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        (f'Example 0:\n  log: "{XID}"\nstep 1\n', {1, 2}),
        (f'  "title": "{XID}",\n  "expr": "x"\n', {1, 2}),
        (f"Assistant: it was {XID}\n{XID}\n", {1}),
        ('[OK]   no "No space left on device"\n[  OK  ] Reached target reboot.target\n', {1}),
        ('  812  dmesg | grep -i "fallen off"\n  813  python train.py\n', {1}),
        (f"$ strings nvidia-smi\n{XID}\n$ dmesg\n{XID}\n", {2}),
        (f"$ cat README.md\n{XID}\n$ cat train.log\n{XID}\n", {2}),
        (f'- name: inject\n  description: "{XID}"\n', {2}),
        (f'<!DOCTYPE html>\n<div class="question">{XID}</div>\n', {1, 2, 3}),
        (f"<!DOCTYPE html>\n<h1>report</h1>\n<pre>{XID}</pre>\n", set()),
    ],
)
def test_more_that_only_quotes(text: str, quoted: set[int]) -> None:
    assert _lines(text) == quoted
    if quoted:
        assert any(entry.name == "quotations" for entry in parsers_for(text))
