"""Ends of processes as real machines recorded them: the audit log with and without a rule for kills, core dumps, limits, other users' zombies."""

from __future__ import annotations

import pytest

from clinic.asked_fake import NOW, FakeAsked, kmsg
from clinic.test_gathered_deaths import COREDUMP, MEMCG, OOM, PID, STAT, UNIT, ask, lines_about, living
from gpuclinic.clinic.gathering import parse_job
from gpuclinic.recognise.parsers.audit import audit_lines

AUDIT = "/var/log/audit/audit.log"
RULES = "-a always,exit -F arch=b64 -S kill,tkill,tgkill,pidfd_send_signal -F a1=0x9 -F key=kills\n"


def kill(
    pid: int,
    event: int,
    *,
    success: bool = True,
    sender: str = "bash",
    victim: str = "python3",
    login: int = 4294967295,
    before: float = 120.0,
    call: str = "62",
    arguments: str = "a1=9 a2=0",
) -> str:
    """A call of kill(2) in the audit log, as a rule for it records it; one that failed has no OBJ_PID."""
    stamp = f"msg=audit({NOW - before:.3f}:{event})"
    told = f"success={'yes' if success else 'no'} exit={0 if success else -3}"
    lines = (
        f"type=SYSCALL {stamp}: arch=c000003e syscall={call} {told} a0={pid & 0xFFFFFFFF:x} {arguments} a3=7f50 items=0 ppid=1129 pid=1137 "
        f'auid={login} uid=1000 gid=1000 euid=1000 tty=(none) ses=4294967295 comm="{sender}" exe="/usr/bin/{sender}" '
        f'subj=unconfined key="kills"\x1dARCH=x86_64 SYSCALL=kill AUID="unset" UID="marta"\n'
    )
    if success:
        lines += (
            f"type=OBJ_PID {stamp}: opid={pid} oauid=-1 ouid=1000 oses=-1 obj=unconfined "
            f'ocomm="{victim}"\x1dOAUID="unset" OUID="marta"\n'
        )
    return lines + f"type=PROCTITLE {stamp}: proctitle=2D62617368\n"


def test_the_sender_is_named() -> None:
    root = ask(FakeAsked({AUDIT: kill(5555, 76) + kill(PID, 77)}), pid=PID).causes[0]
    assert (root.id, root.pid) == ("process.killed", PID)
    assert root.title.startswith("bash (process 1137 of user 1000) sent SIGKILL")
    assert root.time is not None
    assert root.time.startswith("2026-03-02T03:58:00")
    assert "SIGKILL" in ask(FakeAsked({AUDIT: kill(PID, 77)}), "zh", pid=PID).causes[0].title


def test_a_kill_that_failed_reached_nobody() -> None:
    answer = ask(FakeAsked({AUDIT: kill(PID, 77, success=False)}), pid=PID)
    assert "not recorded" in answer.causes[0].title


def test_the_signal_of_tgkill_is_its_third_argument() -> None:
    sent = kill(PID, 77, call="234", arguments=f"a1={PID:x} a2=6")
    assert "OBJ_PID" in audit_lines(sent, {PID})
    assert audit_lines(kill(PID, 78, call="234", arguments="a1=9 a2=0"), {PID}) == ""


def test_helpers_of_ours_are_nobodys_death() -> None:
    files = {AUDIT: kill(900, 80, sender="gpuclinic", victim="gpuclinic-nvml", before=5) + kill(PID, 77)}
    assert ask(FakeAsked(files)).causes[0].pid == PID
    only_ours = {AUDIT: kill(900, 80, sender="gpuclinic", victim="systemctl", before=5)}
    assert not ask(FakeAsked(only_ours)).causes


def test_what_services_kill_all_day_does_not_hide_a_death() -> None:
    files = {AUDIT: kill(900, 80, sender="dockerd", before=10), "/dev/kmsg": kmsg(*lines_about(PID, MEMCG))}
    answer = ask(FakeAsked(files))
    assert [(c.id, c.pid) for c in answer.causes if c.role != "consequence"] == [("host.cgroup_oom", PID)]
    by_hand = {**files, AUDIT: kill(900, 80, sender="bash", login=1000, before=10)}
    assert {c.pid for c in ask(FakeAsked(by_hand)).causes} >= {900}
    alone = ask(FakeAsked({AUDIT: kill(900, 80, sender="dockerd", before=10)}))
    assert (alone.causes[0].id, alone.causes[0].pid) == ("process.killed", 900)


def test_of_several_kills_the_latest_with_its_own_time() -> None:
    text = kill(700, 70, login=1000, before=3600) + kill(800, 80, login=1000, before=60)
    root = ask(FakeAsked({AUDIT: text})).causes[0]
    assert root.pid == 800
    assert root.time is not None
    assert root.time.startswith("2026-03-02T03:59:00")
    assert not any("opid=700" in place.text for place in root.evidence)


def test_an_audit_log_without_a_rule_names_no_sender() -> None:
    quiet = f"type=SERVICE_START msg=audit({NOW - 900:.3f}:5): pid=1 uid=0 unit=cron res=success\n"
    zombie = {f"/proc/{PID}/stat": STAT.format(pid=PID, state="Z", ticks=5).rstrip()[:-1] + "9\n", AUDIT: quiet}

    def advised(host: FakeAsked) -> bool:
        return any("auditctl" in item["command"] for item in ask(host, pid=PID).missing)

    assert advised(FakeAsked(zombie, {"auditctl -l": "No rules\n"}))
    assert advised(FakeAsked(zombie, {"auditctl -l": "!You must be root to run this program."}))
    assert not advised(FakeAsked(zombie, {"auditctl -l": RULES}))
    assert not advised(FakeAsked({**zombie, AUDIT: quiet + kill(900, 80)}))


def test_a_job_without_known_processes_is_not_given_those_of_others() -> None:
    late = {"systemctl": "!no answer within 4 s", "coredumpctl info --no-pager -n": COREDUMP}
    answer = ask(FakeAsked({AUDIT: kill(900, 80)}, late), job=parse_job("train.service"))
    assert not answer.causes
    mine = COREDUMP.replace("session-3.scope", "train.service")
    answer = ask(FakeAsked({}, {**late, "coredumpctl info --no-pager -n": mine}), job=parse_job("train.service"))
    assert (answer.causes[0].id, answer.causes[0].pid) == ("process.segfault", PID)


ABEND = 'type=ANOM_ABEND msg=audit({at:.3f}:136): auid=4294967295 uid=0 gid=0 ses=4294967295 subj=unconfined pid={pid} comm="python3" exe="/usr/bin/python3.11" sig={number} res=1\n'
DUMPED = (
    "2026-03-02T03:58:01.488225+0000 node17 systemd-coredump[920]: Process {pid} (python3) of user 1000 dumped core.\n"
)


@pytest.mark.parametrize(
    ("number", "name", "cause"),
    [(6, "ABRT", "app.exception"), (7, "BUS", "host.shm_exhausted"), (4, "ILL", "compat.host_libs"), (31, "SYS", "app.exception")],
)  # fmt: skip
def test_a_dumped_core_is_a_segmentation_fault_only_of_that_signal(number: int, name: str, cause: str) -> None:
    files = {AUDIT: ABEND.format(at=NOW - 120, pid=PID, number=number)}
    dump = COREDUMP.replace("11 (SEGV)", f"{number} ({name})")
    host = FakeAsked(files, {f"coredumpctl info --no-pager {PID}": dump, "journalctl": DUMPED.format(pid=PID)})
    answer = ask(host, pid=PID)
    assert (answer.causes[0].id, answer.causes[0].pid) == (cause, PID)
    assert "process.segfault" not in [c.id for c in answer.causes]
    unread = FakeAsked({}, {"journalctl": DUMPED.format(pid=PID)})
    assert "does not say of which signal" in ask(unread, pid=PID).causes[0].title


@pytest.mark.parametrize(("status", "words"), [(25, "LimitFSIZE"), (24, "LimitCPU")])
def test_limits_of_size_and_time(status: int, words: str) -> None:
    text = UNIT.format(result="core-dump", code=3, status=status, most="infinity")
    root = ask(FakeAsked(commands={"systemctl show train.service": text}), job=parse_job("train.service")).causes[0]
    assert (root.id, root.pid) == ("host.limits", PID)
    assert words in root.title


def test_core_dumps_that_are_kept_from_this_user() -> None:
    hint = "!Hint: You are currently not seeing messages from other users and the system."
    answer = ask(FakeAsked(commands={"coredumpctl": hint}), pid=PID)
    assert any("not shown to this user" in gap.why for gap in answer.not_read)
    assert any("coredumpctl" in item["command"] for item in answer.missing)


def zombie(io: object) -> dict[str, object]:
    return {
        f"/proc/{PID}/stat": STAT.format(pid=PID, state="Z", ticks=5),
        f"/proc/{PID}/status": f"Name:\tpython3\nTgid:\t{PID}\n",
        f"/proc/{PID}/io": io,
    }


def test_the_end_of_another_users_process_is_hidden_and_not_good() -> None:
    answer = ask(FakeAsked(zombie(13)), pid=PID)
    assert (answer.outcome, answer.causes) == ("not_enough_evidence", [])
    assert "only its owner and root" in answer.notes[0]
    assert any("shown to its owner and root" in gap.why for gap in answer.not_read)
    assert any(item["command"] == f"sudo gpuclinic why --pid {PID}" for item in answer.missing)
    mine = ask(FakeAsked(zombie("rchar: 5\nwchar: 5\n")), pid=PID)
    assert (mine.outcome, mine.causes) == ("nothing_wrong", [])
    killed = {**zombie(13), "/dev/kmsg": kmsg(*lines_about(PID, OOM))}
    assert ask(FakeAsked(killed), pid=PID).causes[0].id == "host.oom_killer"


class FullSharedMemory(FakeAsked):
    def space(self, path: str) -> object:  # type: ignore[override]
        from gpuclinic.observe.asking import Answer

        return Answer(f"space {path}", b'{"size": 8388608, "free": 0, "available": 0, "files": 9, "files_free": 8}')


def test_shared_memory_is_looked_at() -> None:
    dump = COREDUMP.replace("11 (SEGV)", "7 (BUS)")
    root = ask(FullSharedMemory(commands={f"coredumpctl info --no-pager {PID}": dump}), pid=PID).causes[0]
    assert root.id == "host.shm_exhausted"
    assert "full" in root.title
    assert any("/dev/shm: 8 MiB" in place.text for place in root.evidence)


def test_a_wait_for_a_disk_is_no_error_of_the_disk() -> None:
    files = {**living("D", wchan="__iomap_dio_rw"), "/dev/kmsg": kmsg(
        "INFO: task jbd2/dm-0-8:1269 blocked for more than 120 seconds.",
        " jbd2_journal_wait_updates+0x73/0xe0 [jbd2]",
        " jbd2_journal_commit_transaction+0x28c/0x1a50 [jbd2]",
        "INFO: task gpuclinic:1295 blocked for more than 120 seconds.",
        " wait_transaction_locked+0x8a/0xd0 [jbd2]",
    )}  # fmt: skip
    recent = ask(FakeAsked(files))
    root = recent.causes[0]
    assert (root.id, root.pid) == ("kernel.hung_task", 1269)
    assert not any("I/O errors" in cause.title for cause in recent.causes)


def test_one_incident_is_told_and_not_all_of_a_day() -> None:
    def at(moment: str, line: str) -> str:
        return f"2026-03-02T{moment}.100000+0000 node17 {line}\n"

    journal = (
        at("02:40:00", "systemd[1]: infer.service: Main process exited, code=killed, status=9/KILL")
        + at("02:50:00", "systemd-journald[9]: File /var/log/journal/7c/system.journal corrupted or uncleanly shut down, renaming and replacing.")
        + at("03:30:00", "systemd[1]: web.service: Killing process 1484 (python3) with signal SIGKILL.")
        + at("03:55:00", "systemd-journald[8]: File /var/log/journal/7c/system.journal corrupted or uncleanly shut down, renaming and replacing.")
        + at("03:58:00", "systemd[1]: train.service: A process of this unit has been killed by the OOM killer.")
    )  # fmt: skip
    files = {"/dev/kmsg": kmsg(*lines_about(PID, MEMCG))}
    answer = ask(FakeAsked(files, {"journalctl": journal}))
    assert (answer.causes[0].id, answer.causes[0].pid) == ("host.cgroup_oom", PID)
    shown = [place.text for cause in answer.causes for place in cause.evidence]
    assert not any("infer.service" in text or "web.service" in text or "journald[9]" in text for text in shown)
    restart = next(cause for cause in answer.causes if cause.id == "host.unexpected_reboot")
    assert restart.pid is None
    assert restart.time is not None
    assert restart.time.startswith("2026-03-02T03:55:00")
