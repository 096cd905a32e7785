"""What an answer about a running machine says: state as it is now, lines counted once, advice with the names that were asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from check.clinic_room import FastHost, Room, seen_by
from clinic.asked_fake import NOW, FakeAsked, kmsg
from clinic.test_gathered_deaths import SEGFAULT, XID_79
from clinic.test_whose_fault import GSP, MACHINE, process
from gpuclinic.clinic import Answer, examine
from gpuclinic.clinic.checking import CheckAnswer
from gpuclinic.clinic.collect import still_missing
from gpuclinic.clinic.gathering import Question, gather, parse_job
from gpuclinic.clinic.gathering.repeated import without_repeats
from gpuclinic.clinic.live_state import state_of
from gpuclinic.model import Finding
from gpuclinic.observe import Places

if TYPE_CHECKING:
    from pathlib import Path


def ask(host: FakeAsked, lang: str = "en", **question: Any) -> Answer:
    return examine(Places([]), lang, None, gather(host, Question(**question)))


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    return Room(tmp_path_factory.mktemp("servers"))


def why(room: Room, patch: pytest.MonkeyPatch, *faults: str, lang: str = "en") -> Answer:
    """`gpuclinic why --live` on a fake server with these faults."""
    answers: list[Answer] = []

    class Asking(FastHost):
        def close(self) -> None:
            question = Question()
            state = state_of(self, question, lang)
            gathered = gather(self, question)
            gathered.state = state
            answers.append(examine(Places([]), lang, None, gathered))
            super().close()

    seen_by(room.server("h100-sxm", faults=list(faults)), patch, Asking, only=["pcie"])
    return answers[0]


@pytest.mark.parametrize(
    ("fault", "cause", "gpu"),
    [
        ("hot", "hw.thermal.overheat", True),
        ("no_driver", "driver.not_loaded", False),
        ("lost:3", "hw.gpu.fallen_off_bus", True),
    ],
)
def test_what_check_calls_critical_is_not_nothing_wrong(
    room: Room, monkeypatch: pytest.MonkeyPatch, fault: str, cause: str, *, gpu: bool
) -> None:
    answer = why(room, monkeypatch, fault)
    root = answer.causes[0]
    assert (answer.outcome, root.id, root.role) == ("cause", cause, "root")
    assert root.steps
    assert root.evidence
    assert answer.fingerprint
    assert (root.gpu is not None) == gpu


def test_a_healthy_server_stays_clean(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = why(room, monkeypatch)
    assert (answer.outcome, answer.causes) == ("nothing_wrong", [])
    commands = [item["command"] for item in still_missing(answer)]
    assert any(command.startswith("gpuclinic check") for command in commands)
    assert not any("torchrun" in command or "JOBID" in command for command in commands)


def test_the_logs_cause_stays_first_and_the_state_is_told(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = why(room, monkeypatch, "gsp_timeout")
    assert answer.causes[0].id == "hw.gpu.gsp_failure"
    assert any("gpuclinic check" in note for note in answer.notes)
    assert any("gpuclinic check" in note for note in why(room, monkeypatch, "gsp_timeout", lang="zh").notes)


RESTART = Finding(
    id="kernel.reboot.unexpected", severity="warning", component="host", subject="2026-03-02T03:59:00+00:00", title="booted without a shutdown",
    detail="", cause="host.unexpected_reboot", action="collect_evidence", steps=[], observed=None, expected=None, evidence=[],
)  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "before", "root"),
    [
        ((), 0.0, "host.unexpected_reboot"),
        (SEGFAULT, 120.0, "host.unexpected_reboot"),
        (SEGFAULT, 30.0, "process.segfault"),
        (XID_79, 120.0, "hw.gpu.fallen_off_bus"),
    ],
)
def test_a_restart_ended_all_that_ran_before(lines: tuple[str, ...], before: float, root: str) -> None:
    host = FakeAsked({"/dev/kmsg": kmsg(*(line.format(pid=7) for line in lines), before=before)})
    gathered = gather(host, Question())
    gathered.state = CheckAnswer("warning", "full", [RESTART], [], [], "en")
    answer = examine(Places([]), "en", None, gathered)
    assert (answer.outcome, answer.causes[0].id) == ("cause", root)
    assert [c.role for c in answer.causes].count("root") == 1
    told = any("booted without a shutdown" in note for note in answer.notes)
    assert told == (root != "host.unexpected_reboot")


WALL = "2026-03-02T03:58:00.000001+00:00 node17 kernel: "


def test_a_line_in_four_logs_is_one_piece_of_evidence() -> None:
    line = WALL + GSP + "\n"
    host = FakeAsked(
        {"/dev/kmsg": kmsg("old", "older", GSP)},
        {"journalctl": line, "systemctl": "!Unit not found"},
    )
    answer = ask(host, pid=41004)
    assert [place.text.count("Xid") for place in answer.causes[0].evidence] == [1]
    only_one = ask(FakeAsked({"/dev/kmsg": kmsg(GSP)}), pid=41004)
    assert answer.causes[0].confidence == only_one.causes[0].confidence


@pytest.mark.parametrize(
    ("files", "commands"),
    [({"/dev/kmsg": kmsg("old", GSP)}, {}), ({"/dev/kmsg": 1}, {"dmesg --raw": f"<6>[863879.999998] old\n<3>[863880.000001] {GSP}\n"})],
    ids=["ring", "dmesg"],
)  # fmt: skip
def test_the_kernels_lines_read_as_people_know_them(files: dict[str, Any], commands: dict[str, str]) -> None:
    """Evidence is the line with its time since boot, as dmesg prints it, not the kernel's raw record."""
    place = ask(FakeAsked(files, commands), pid=41004).causes[0].evidence[0]
    assert place.text == f"[863880.000001] {GSP}"
    assert place.line == 2


def test_repeats_leave_line_numbers_and_storms_alone() -> None:
    journal = "".join(f"2026-03-02T03:58:0{n}.0+00:00 node17 kernel: again\n" for n in range(3)).encode()
    whole = journal + b"2026-03-02T03:59:00.0+00:00 node17 sshd[5]: hello\n"
    ring = b"".join(b"3,%d,%d,-;again\n" % (n, n) for n in range(5)) + b" SUBSYSTEM=pci\n3,9,9,-;other\n"
    syslog = b"Mar  2 03:58:00 node17 kernel: [  12.000000] again\nMar  2 03:59:00 node17 sshd[5]: hello\n"
    texts = [("a", journal), ("b", whole), ("c", syslog), ("d", ring)]
    a, b, c, d = (data for _, data in without_repeats(texts))
    assert a == journal
    assert b == b"\n\n\n" + whole.splitlines(keepends=True)[3]
    assert c == b"\n\n"
    assert d.count(b"again") == 2
    assert d.count(b"\n") == ring.count(b"\n")
    assert d.splitlines()[0] == b"3,0,0,-;again"
    assert d.endswith(b"3,9,9,-;other\n")


def test_a_pod_is_named_as_it_was_asked_for() -> None:
    answer = ask(FakeAsked(), job=parse_job("pod ml/train-0"))
    assert any("pod ml/train-0" in note for note in answer.notes)
    assert any(item["command"] == "kubectl describe pod train-0 -n ml" for item in answer.missing)


@pytest.mark.parametrize("job", ["771204", "train.service", "train1", "pod ml/train-0"])
def test_advice_has_the_name_that_was_asked_about(job: str) -> None:
    host = FakeAsked({"/dev/kmsg": 13}, {"dmesg": "!Operation not permitted"})
    commands = " ".join(item["command"] for item in still_missing(ask(host, job=parse_job(job))))
    assert not any(place in commands.split() for place in ("JOBID", "POD", "NAME", "NAMESPACE", "PID", "..."))
    assert f"gpuclinic why --job {job if ' ' not in job else repr(job)}" in commands


def test_advice_has_the_number_that_was_asked_about() -> None:
    host = FakeAsked({**process(900, "python3", stack=13, syscall=13), "/dev/kmsg": 13}, {"dmesg": "!not permitted"})
    commands = [item["command"] for item in ask(host, pid=900, uid=1001).missing]
    assert "sudo gpuclinic why --pid 900" in commands
    assert any(command.startswith("sudo gpuclinic why --pid 900 ") for command in commands)
    assert not any("PID" in command.split() for command in commands)


def test_no_advice_about_ranks_for_what_is_no_python() -> None:
    stopped = process(900, "bash", state="T")
    host = FakeAsked({**MACHINE, **stopped})
    answer = ask(host, pid=900)
    assert answer.causes[0].id == "app.hang"
    commands = [item["command"] for item in [*still_missing(answer), *answer.causes[0].steps]]
    assert not any("torchrun" in command or "py-spy" in command for command in commands)
    assert not any("rank" in step["text"] for step in answer.causes[0].steps)
    python = ask(FakeAsked({**MACHINE, **process(900, "python3", state="T")}), pid=900)
    assert any("py-spy" in step["command"] for step in python.causes[0].steps)


def test_now_is_not_asked_about_the_past(tmp_path: Path) -> None:
    assert state_of(FakeAsked(), Question(until=NOW - 9), "en") is None
    assert state_of(FakeAsked(), Question(pid=5), "en") is None
    assert state_of(FakeAsked(live=False), Question(), "en") is None


def test_until_alone_asks_about_the_day_before() -> None:
    oom = "Out of memory: Killed process 41822 (python3) total-vm:8kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:1007 pgtables:8kB oom_score_adj:0"
    host = FakeAsked({"/dev/kmsg": kmsg(oom, before=300_000)})
    assert ask(host, until=NOW - 290_000).causes[0].id == "host.oom_killer"
    assert not ask(host, until=NOW - 310_000).causes


def test_a_time_that_no_log_reaches_back_to() -> None:
    answer = ask(FakeAsked({"/dev/kmsg": kmsg(GSP)}), since=NOW - 3e6, until=NOW - 2e6)
    assert answer.outcome == "not_enough_evidence"
    assert any("reaches back" in note for note in answer.notes)
    journal = FakeAsked(commands={"journalctl": "2026-02-01T03:58:00.1+00:00 node17 kernel: eth0: link up\n"})
    assert ask(journal, since=NOW - 3e6, until=NOW - 2e6).outcome == "nothing_wrong"


def test_a_change_that_two_logs_tell_is_told_once() -> None:
    files = {
        "/dev/kmsg": kmsg(*(line.format(pid=7) for line in SEGFAULT)),
        "/var/log/dpkg.log": "2026-03-01 10:00:00 upgrade linux-image-amd64:amd64 6.1.176-1 6.1.192-3\n2026-03-01 10:00:05 remove linux-image-6.1.0-50-amd64:amd64 6.1.176-1 <none>\n",
        "/var/log/apt/history.log": "Start-Date: 2026-03-01  10:00:01\nUpgrade: linux-image-amd64:amd64 (6.1.176-1, 6.1.192-3)\nRemove: linux-image-6.1.0-50-amd64:amd64 (6.1.176-1)\nEnd-Date: 2026-03-01  10:00:09\n",
    }
    notes = [note for note in ask(FakeAsked(files)).notes if "Changed before it" in note]
    assert len(notes) == 1
    assert notes[0].count("linux-image-6.1.0-50-amd64 6.1.176-1 removed") == 1
    assert notes[0].count("6.1.176-1 -> 6.1.192-3") == 1
    kill = {
        **files,
        "/dev/kmsg": kmsg("x"),
        "/proc/7/stat": "7 (a) Z 1 1 1 0 -1 4 0 0 0 0 3 4 0 0 20 0 1 0 118747 0 0" + " 0" * 27 + " 9",
    }
    assert not any("Changed before it" in note for note in ask(FakeAsked(kill), pid=7).notes)
