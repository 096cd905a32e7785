"""What the logs of a machine become: each fault and each GPU told, aged as the table says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuclinic.clinic.logged import Now, logged
from gpuclinic.clinic.reading import Reader
from gpuclinic.diagnose import diagnose
from gpuclinic.diagnose.evidence import Reading
from gpuclinic.knowledge import load, load_checks
from gpuclinic.knowledge.causes import cause_ids
from gpuclinic.observe.host import Item

if TYPE_CHECKING:
    from gpuclinic.model import Finding

BOOTED = 1_796_000_000.0


class Texts:
    label = "test"

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def items(self):  # type: ignore[no-untyped-def]
        import io

        for name, text in self._texts.items():
            data = text.encode()
            yield Item(name, len(data), lambda data=data: io.BytesIO(data))


def told(text: str | dict[str, str], up_s: float = 10_000.0, lang: str = "en", **more: object) -> list[Finding]:
    reader = Reader(load())
    reader.read_host(Texts(text if isinstance(text, dict) else {"/dev/kmsg": text}))  # type: ignore[arg-type]
    sources = {item.path: item.kind for item in reader.read}
    result = diagnose(Reading(reader.signals, [], reader.counts, sources, boots=reader.boots), load())
    return logged(result, reader.signals, lang, Now(BOOTED + up_s, up_s, **more))  # type: ignore[arg-type]


def kmsg(*lines: tuple[float, str]) -> str:
    return "".join(f"6,{number},{int(at * 1e6)},-;{line}\n" for number, (at, line) in enumerate(lines))


def xid(gpu: str, code: int, words: str = "x") -> str:
    return f"NVRM: Xid (PCI:{gpu}): {code}, pid=1234, name=python, {words}"


def brief(findings: list[Finding]) -> set[tuple[str, str, str | None]]:
    return {(f.id, f.severity, f.gpu) for f in findings}


def test_each_gpu_and_each_fault_is_told() -> None:
    found = told(
        kmsg(
            (100, xid("0000:3b:00", 79, "GPU has fallen off the bus.")), (200, xid("0000:86:00", 48, "DBE")),
            (300, xid("0000:af:00", 79, "GPU has fallen off the bus.")), (400, "Out of memory: Killed process 77 (python3) total-vm:1kB, anon-rss:1kB"),
        )
    )  # fmt: skip
    assert brief(found) == {
        ("log.gpu.fallen_off_bus", "critical", "0000:3b:00.0"), ("log.gpu.fallen_off_bus", "critical", "0000:af:00.0"),
        ("log.gpu.ecc_uncorrectable", "critical", "0000:86:00.0"), ("log.host.oom_killer", "warning", None),
    }  # fmt: skip
    assert next(f.time for f in found if f.gpu == "0000:86:00.0") == "2026-11-30T00:56:40+00:00"


@pytest.mark.parametrize(("days", "severity"), [(0.1, "critical"), (2, "warning"), (20, "info")])
def test_old_faults_are_milder(days: float, severity: str) -> None:
    text = kmsg((100, xid("0000:3b:00", 48, "DBE")))
    assert [f.severity for f in told(text, up_s=100 + days * 86400)] == [severity]


def test_a_reload_of_the_driver_ends_a_fault() -> None:
    before = (100, xid("0000:3b:00", 79, "GPU has fallen off the bus."))
    load_line = (200, "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build")
    assert [f.severity for f in told(kmsg(before, load_line))] == ["warning"]
    assert [f.severity for f in told(kmsg((50, load_line[1]), before))] == ["critical"]


def test_faults_before_the_boot_are_milder() -> None:
    text = "2026-11-29T20:00:00.000000+00:00 n1 kernel: " + xid("0000:3b:00", 79, "GPU has fallen off the bus.") + "\n"
    assert [f.severity for f in told({"journalctl": text})] == ["warning"]


def test_local_times_and_left_out_years_are_put_right() -> None:
    line = "Nov 30 12:00:00 n1 kernel: " + xid("0000:3b:00", 48, "DBE") + "\n"
    found = told({"kern.log": line}, up_s=40_000.0, zone_s=8 * 3600.0)
    assert [(f.severity, f.time) for f in found] == [("critical", "2026-11-30T04:00:00+00:00")]
    old = told({"kern.log": line.replace("Nov 30", "Dec 24")}, up_s=40_000.0)
    assert [f.severity for f in old] == ["info"], "24 December of the year before"


def test_a_gpu_that_answers_was_started_after_all() -> None:
    text = kmsg(
        (10, "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0x65:1523)"),
        (10, "NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 0"),
    )
    assert {f.severity for f in told(text)} == {"critical"}
    assert {f.severity for f in told(text, answering=frozenset({"0000:3b:00.0"}))} == {"warning"}


def test_crash_records_have_the_time_of_the_record() -> None:
    path = "/sys/fs/pstore/dmesg-erst-1"
    text = "Panic#1 Part1\n<0>[899651.000000] Kernel panic - not syncing: Attempted to kill init!\n"
    fresh = told({path: text}, crashes={path: BOOTED - 60})
    assert [(f.id, f.severity) for f in fresh] == [("log.kernel.panic", "warning")]
    assert fresh[0].time is not None
    assert fresh[0].time.startswith("2026-11-30")
    assert [f.severity for f in told({path: text}, crashes={path: BOOTED - 90 * 86400})] == ["info"]


def test_mild_codes_are_no_critical_faults() -> None:
    found = told(kmsg((100, xid("0000:3b:00", 94, "Contained: CE User Channel"))))
    assert {f.severity for f in found} <= {"warning", "info"}
    app = told(kmsg((100, xid("0000:3b:00", 31, "MMU Fault: ENGINE GRAPHICS GPC0"))))
    assert {f.severity for f in app} == {"info"}


def test_unknown_codes_are_told() -> None:
    found = told(kmsg((100, xid("0000:3b:00", 977, "nobody knows"))))
    assert ("log.gpu.unknown_code", "warning", None) in brief(found)
    assert "977" in found[0].evidence[0].text
    assert any("\u4e00" <= c <= "\u9fff" for c in told(kmsg((100, xid("0000:3b:00", 977))), lang="zh")[0].title)


def test_a_cause_is_as_grave_as_what_came_of_it() -> None:
    gpu = "0000:02:00.0"
    found = told(
        kmsg(
            (100, f"pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: {gpu}"),
            (
                100.1,
                f"nvidia {gpu}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)",
            ),
            (101, xid("0000:02:00", 79, "GPU has fallen off the bus.")),
        )
    )
    assert len(found) == 1
    assert found[0].severity == "critical"


def test_the_echo_of_a_kill_at_a_limit_is_no_graver() -> None:
    found = told(
        kmsg(
            (
                100,
                "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job,task_memcg=/job,task=python,pid=15988,uid=0",
            ),
            (
                100,
                "Memory cgroup out of memory: Killed process 15988 (python) total-vm:53636kB, anon-rss:43648kB, file-rss:5780kB",
            ),
        )
    )
    assert {f.severity for f in found} == {"info"}


def _corrected(count: int, apart: float) -> str:
    lines = [
        (100 + n * apart, "pcieport 0000:50:01.0: AER: Corrected error message received from 0000:54:00.0")
        for n in range(count)
    ]
    more = [
        (at + 0.001, "nvidia 0000:54:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)")
        for at, _ in lines
    ]
    return kmsg(*sorted(lines + more))


def test_corrected_link_errors_count_by_their_rate() -> None:
    assert all(f.severity == "info" for f in told(_corrected(2, 3600.0), up_s=20_000.0))
    assert all(f.severity == "info" for f in told(_corrected(60, 43_200.0), up_s=60 * 43_200.0)), "two a day"
    assert [f.severity for f in told(_corrected(400, 60.0), up_s=30_000.0)] == ["warning"]


@pytest.mark.parametrize(
    "line",
    [
        "nvidia: module license 'NVIDIA' taints kernel.",
        "nvidia: loading out-of-tree module taints kernel.",
        "pcieport 0000:00:01.0: AER: enabled with IRQ 122",
        "ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PCI0.LPCB.HEC.ECAV], AE_NOT_FOUND (20230628/psargs-330)",
        "[Firmware Bug]: TPM interrupt not working, polling instead",
        "usb 1-3: device descriptor read/64, error -71",
        "perf: interrupt took too long (2504 > 2500), lowering kernel.perf_event_max_sample_rate to 79750",
        "INFO: NMI handler (perf_event_nmi_handler) took too long to run: 1.336 msecs",
        "mce: CPU14: Core temperature is above threshold, cpu clock is throttled (total events = 812)",
        "EXT4-fs (nvme0n1p2): recovery complete",
        "nvme nvme0: missing or invalid SUBNQN field.",
        "mlx5_core 0000:18:00.0 ens1f0: Link down",
        "NVRM: Xid (PCI:0000:3b:00): 45, pid=1234, name=python, Ch 00000008",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1234 offset:0x0 grain:32 syndrome:0x0)",
        "pcieport 0000:50:01.0: AER: Corrected error message received from 0000:54:00.0",
    ],
)
def test_what_healthy_machines_log_is_no_fault(line: str) -> None:
    assert [f for f in told(kmsg((100, line))) if f.severity != "info"] == []


@pytest.mark.parametrize(
    ("line", "identity", "severity"),
    [
        ("watchdog: BUG: soft lockup - CPU#17 stuck for 26s! [python3:41003]", "log.kernel.lockup", "warning"),
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 17", "log.kernel.lockup", "warning"),
        ("INFO: task python3:41003 blocked for more than 241 seconds.", "log.kernel.hung_task", "warning"),
        ("EXT4-fs (nvme1n1): Remounting filesystem read-only", "log.storage.read_only", "critical"),
        ("EDAC MC0: 2 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1 offset:0x0 grain:32)", "log.host.machine_check", "critical"),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: be00000000800400", "log.host.machine_check", "warning"),
        ("nfs: server 10.0.0.5 not responding, still trying", "log.storage.network_fs", "warning"),
        ("Memory cgroup out of memory: Killed process 41003 (python3) total-vm:9kB, anon-rss:1kB", "log.host.cgroup_oom", "info"),
        ("nvidia-nvswitch0: SXid (PCI:0000:04:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "log.nvlink.switch", "critical"),
    ],
)  # fmt: skip
def test_faults_have_their_severity(line: str, identity: str, severity: str) -> None:
    assert (identity, severity) in {(f.id, f.severity) for f in told(kmsg((100, line)))}


def test_the_table_names_every_cause() -> None:
    import fnmatch

    rows = [row for row in load_checks().log_findings if row.cause != "*"]
    for cause in cause_ids():
        assert any(fnmatch.fnmatchcase(cause, row.cause) for row in rows), f"{cause}: only the row for all"
    signatures = {s.id for s in load().signatures}
    for row in rows:
        assert row.ends in ("", "boot", "driver", "answers")
        for sign in row.signs:
            assert fnmatch.filter(signatures, sign), f"{row.id}: no signature like {sign}"


def test_rows_behind_a_catch_all_are_reached() -> None:
    """A row without conditions hides every later one of the same cause."""
    seen: set[str] = set()
    for row in load_checks().log_findings:
        assert row.cause not in seen, f"{row.id}: never reached"
        if not row.signs and not row.per_day and row.least <= 0.5:
            seen.add(row.cause)
