"""Facts of programs' outputs, given the fields that the rows of `check` need."""

from __future__ import annotations

import datetime as dt

from gpuclinic.model import Document, Fact, Where
from gpuclinic.recognise import told
from gpuclinic.recognise.parsers.disk import parse_df, parse_mounts
from gpuclinic.recognise.parsers.lspci import parse_lspci
from gpuclinic.recognise.parsers.memory import parse_free
from gpuclinic.recognise.parsers.rdma import parse_ports
from gpuclinic.recognise.parsers.system import parse_boots, parse_last

NOW = dt.datetime(2026, 3, 12, 9, 30, tzinfo=dt.timezone.utc).timestamp()
DF = """Filesystem     1K-blocks      Used Available Use% Mounted on
/dev/sda2      479232000 455270400         0 100% /
/dev/loop3         65536     65536         0 100% /snap/core20/2434
tmpfs              65536         0     65536   0% /dev/shm
10.0.0.9:/x    1000000000 990000000  10000000  99% /data
"""
DF_I = """Filesystem      Inodes   IUsed    IFree IUse% Mounted on
/dev/sda2     29952000 29952000        0  100% /
/dev/sda1            0        0        0     - /boot/efi
"""
LAST = """reboot   system boot  5.15.0-139-generic Wed Mar 11 10:00   still running
bob      pts/1        10.20.0.3        Wed Mar 11 09:53 - crash  (00:07)
reboot   system boot  5.15.0-139-generic Wed Feb 25 10:00 - crash (14+00:00)

wtmp begins Mon Jan  5 10:00:00 2026
"""
BOOTS = """-1 11112222333344445555666677778888 Wed 2026-02-25 10:00:00 UTC—Wed 2026-03-11 09:53:00 UTC
 0 9999aaaabbbbccccddddeeeeffff0000 Wed 2026-03-11 10:00:30 UTC—Thu 2026-03-12 09:30:00 UTC
"""


def _df(*texts: tuple[str, str]) -> list[Fact]:
    return told.merged([fact for name, text in texts for fact in parse_df(Document(name, text, name_hint=name))])


def test_df_and_df_i_make_one_file_system() -> None:
    made = told.file_systems(_df(("df.txt", DF), ("df-i.txt", DF_I)), {}, 131072.0)
    by_place = {fact.key: fact.fields for fact in made}
    assert "/snap/core20/2434" not in by_place
    assert "/boot/efi" not in by_place
    root = by_place["/"]
    assert (root["system"], root["network"], root["available_mib"], root["use_pct"]) == (True, False, 0, 100)
    assert (root["inode_use_pct"], root["inodes_free"]) == (100, 0)
    assert by_place["/data"]["network"] is True
    assert by_place["/dev/shm"]["size_mib"] == 64


def test_only_mounted_places_count_where_mounts_are_known() -> None:
    found = parse_mounts(Document("mount.txt", "/dev/sda2 on / type ext4 (ro,relatime,errors=remount-ro)\n"))
    mounted = told.mounts(found, "/dev/sda2 / ext4 errors=remount-ro 0 1\n")
    assert mounted[0].fields["read_only"] is True
    assert mounted[0].fields["fstab_read_only"] is False
    assert mounted[0].source == "mount.txt"
    made = told.file_systems(_df(("df.txt", DF)), {fact.key: fact for fact in mounted}, None)
    assert [fact.key for fact in made] == ["/"]
    assert made[0].fields["read_only"] is True


def test_last_and_the_journal_tell_of_the_same_boots() -> None:
    facts = [*parse_boots(Document("boots.txt", BOOTS)), *parse_last(Document("last.txt", LAST))]
    first, latest = told.restarts(facts, NOW, 84600.0, 0.0)
    assert (first.fields["latest"], latest.fields["latest"]) == (False, True)
    assert latest.fields["how"] == "unclean"
    assert latest.fields["age_s"] == 84600.0
    assert latest.source == "last.txt"


def test_a_list_older_than_this_boot_has_no_latest() -> None:
    made = told.restarts(parse_last(Document("last.txt", LAST)), NOW, 600.0, 0.0)
    assert not any(fact.fields["latest"] for fact in made)


def test_a_day_that_never_was_is_no_boot() -> None:
    facts = parse_last(Document("last.txt", LAST.replace("Wed Mar 11 10:00", "Mon Mar 11 10:00")))
    assert len(told.restarts(facts, NOW, None, 0.0)) == 1


def test_free_gets_the_shares_of_meminfo() -> None:
    text = "              total        used        free      shared  buff/cache   available\nMem:         128000       64000       32000         100       32000       60000\nSwap:          8000        2000        6000\n"
    (fact,) = parse_free(Document("free-m.txt", "$ free -m\n" + text, name_hint="free-m.txt"))
    made = told.memory(fact)
    assert made is not None
    assert made.fields["swap_used_pct"] == 25
    assert 46 < float(made.fields["usable_pct"] or 0) < 48


def test_ports_know_their_siblings() -> None:
    one = "CA 'mlx5_{n}'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: {s}\n\t\tPhysical state: {p}\n\t\tRate: {r}\n\t\tLink layer: InfiniBand\n"
    text = "".join(one.format(n=n, s="Active", p="LinkUp", r=200) for n in range(4)) + one.format(
        n=4, s="Down", p="Polling", r=10
    )
    made = told.ports(parse_ports(Document("ibstat.txt", text)), [])
    down = next(fact for fact in made if fact.fields["device"] == "mlx5_4")
    assert (down.fields["peers"], down.fields["peers_up"], down.fields["rate_typical_gbs"]) == (4, 4, 200)


def test_lspci_knows_the_port_above() -> None:
    text = """80:01.0 PCI bridge: Intel Corporation Device 352a (rev 04) (prog-if 00 [Normal decode])
\tBus: primary=80, secondary=81, subordinate=81, sec-latency=0
\tCapabilities: [60] Express (v2) Root Port (Slot+), MSI 00
\t\tLnkCap:\tPort #1, Speed 32GT/s, Width x8, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s, Width x8

81:00.0 3D controller: NVIDIA Corporation GA100 [A100 PCIe 80GB] (rev a1)
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s, Width x8 (downgraded)
\tKernel driver in use: nvidia
"""
    made = {fact.key: fact.fields for fact in told.bus(told.merged(parse_lspci(Document("lspci-vvv.txt", text))), None)}
    gpu = made["0000:81:00.0"]
    assert (gpu["parent"], gpu["slot_width_max"], gpu["width_possible"], gpu["width"]) == ("0000:80:01.0", 8, 8, 8)
    assert (gpu["gen"], gpu["gen_possible"]) == (4, 4)


def test_one_look_at_a_sleeping_task_is_enough_where_the_kernel_calls_it_blocked() -> None:
    task = Fact(
        "stuck_task", "7", {"pid": 7, "confirmed": False, "stuck_s": 0.0}, {"": Where("/proc/7/wchan")}, "/proc"
    )
    place = Where("dmesg", 3, "INFO: task python3:7 blocked for more than 122 seconds.")
    assert told.confirmed(task, {7: (122.0, place)}).fields["stuck_s"] == 122.0
    assert told.confirmed(task, {8: (122.0, place)}).fields["confirmed"] is False
