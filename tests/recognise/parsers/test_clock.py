"""timedatectl, chronyc tracking, ntpq -p, sysctl."""

from __future__ import annotations

from gpuclinic.model import Document
from gpuclinic.recognise.parsers import parsers_for
from gpuclinic.recognise.parsers.clock import parse_chronyc, parse_ntpq, parse_timedatectl
from gpuclinic.recognise.parsers.system import parse_sysctl

STATUS = """               Local time: Thu 2026-03-12 09:30:00 UTC
                 RTC time: Thu 2026-03-12 09:36:43
System clock synchronized: no
              NTP service: inactive
"""
OLD = """      Local time: Thu 2019-03-12 09:30:00 UTC
     NTP enabled: yes
NTP synchronized: yes
"""
TRACKING = """Reference ID    : A29FC87B (ntp1)
Stratum         : 4
System time     : 37.000023411 seconds slow of NTP time
Leap status     : Normal
"""
PEERS = """     remote           refid      st t when poll reach   delay   offset  jitter
==============================================================================
+10.0.0.1        10.9.0.1         2 u   31   64  377    0.211   -0.512   0.041
*10.0.0.2        .GPS.            1 u   12   64  377    0.187  -12.250   0.030
"""


def test_timedatectl() -> None:
    (fact,) = parse_timedatectl(Document("t", STATUS))
    assert fact.fields == {"tool": "timedatectl", "synchronised": False, "enabled": False}
    assert fact.where("synchronised").line == 3
    (old,) = parse_timedatectl(Document("t", OLD))
    assert (old.fields["synchronised"], old.fields["enabled"]) == (True, True)
    (shown,) = parse_timedatectl(Document("t", "Timezone=Etc/UTC\nNTP=yes\nNTPSynchronized=yes\n"))
    assert (shown.fields["synchronised"], shown.fields["enabled"]) == (True, True)


def test_chronyc_tracking() -> None:
    (fact,) = parse_chronyc(Document("c", TRACKING))
    assert fact.fields == {"tool": "chrony", "synchronised": True, "stratum": 4, "offset_s": -37.000023411}
    (lost,) = parse_chronyc(Document("c", TRACKING.replace("Normal", "Not synchronised")))
    assert lost.fields["synchronised"] is False
    assert parse_chronyc(Document("c", "506 Cannot talk to daemon\n")) == []


def test_ntpq_peers() -> None:
    (fact,) = parse_ntpq(Document("n", PEERS))
    assert fact.fields == {"tool": "ntpd", "synchronised": True, "stratum": 1, "offset_s": 0.01225}
    (lost,) = parse_ntpq(Document("n", PEERS.replace("*", " ").replace("+", " ")))
    assert lost.fields["synchronised"] is False


def test_marks_find_them() -> None:
    for text, name in ((STATUS, "timedatectl"), (TRACKING, "chronyc tracking"), (PEERS, "ntpq -p")):
        assert name in [entry.name for entry in parsers_for(text)]


def test_sysctl() -> None:
    text = "kernel.pid_max = 4194304\nnet.ipv4.tcp_rmem = 4096 131072 6291456\nvm.overcommit_memory = 2\nvm.swappiness = 60\n"
    assert "sysctl" in [entry.name for entry in parsers_for(text)]
    assert {fact.key: fact.fields["value"] for fact in parse_sysctl(Document("sysctl-a.txt", text))} == {
        "kernel.pid_max": 4194304,
        "vm.overcommit_memory": 2,
        "vm.swappiness": 60,
    }
