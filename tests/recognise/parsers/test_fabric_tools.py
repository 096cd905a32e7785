from __future__ import annotations

from gpu_helpers import one, run

QUERY = """\
Errors for 0xb83fd20300a1c2e4 "gn021 mlx5_2"
   GUID 0xb83fd20300a1c2e4 port 1: [SymbolErrorCounter == 65535] [LinkErrorRecoveryCounter == 87] [PortXmitWait == 4294967295]
   Link info:    231    1[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>  0xfc6a1c0300aa21c0    118   17[  ] "leaf03" ( )
Errors for 0x2c903006e29b0 "MF0;leaf01:MQM8700/U1"
   GUID 0x2c903006e29b0 port ALL: [LinkDownedCounter == 48]
"""

QOS = """\
$ mlnx_qos -i ens1np0
DCBX mode: OS controlled
Priority trust state: dscp
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   1   0   0   0   0
"""

MLXLINK = """\
$ mlxlink -d mlx5_2 -c -e
Physical Counters and BER Info
------------------------------
Time Since Last Clear [Min]        : 1201.2
Symbol Errors                      : 81231
Link Down                          : 11
"""

PING = """\
$ ping -c3 -M do -s 8972 10.77.0.2
PING 10.77.0.2 (10.77.0.2) 8972(9000) bytes of data.
3 packets transmitted, 0 received, 100% packet loss, time 2041ms
$ ping -c3 10.77.0.2
3 packets transmitted, 3 received, 0% packet loss, time 2003ms
"""


def test_ibqueryerrors() -> None:
    counters = one(run("rdma:parse_query_errors", QUERY), "ib_counters")
    assert counters.fields["device"] == "mlx5_2"
    assert counters.fields["node"] == "gn021"
    assert counters.fields["symbol_error"] == 65535
    assert counters.fields["link_error_recovery"] == 87


def test_mlnx_qos() -> None:
    pfc = one(run("rdma:parse_qos", QOS), "pfc")
    assert pfc.fields["device"] == "ens1np0"
    assert pfc.fields["enabled_priorities"] == 1
    assert pfc.fields["trust"] == "dscp"


def test_mlxlink() -> None:
    counters = one(run("rdma:parse_mlxlink", MLXLINK), "ib_counters")
    assert counters.fields["symbol_error"] == 81231
    assert counters.fields["link_downed"] == 11
    assert counters.fields["device"] == "mlx5_2"


def test_sizes_of_pings() -> None:
    large, small = [f for f in run("net:parse_ping", PING) if f.kind == "ping"]
    assert (large.fields["size"], large.fields["loss_pct"]) == (8972, 100.0)
    assert (small.fields["target"], small.fields.get("size")) == ("10.77.0.2", None)


def test_firewall_policies() -> None:
    text = "-P INPUT DROP\n-P FORWARD ACCEPT\n-A INPUT -p tcp --dport 22 -j ACCEPT\n"
    rules = [f for f in run("sockets:parse_firewall", text) if f.kind == "firewall_rule"]
    assert [(r.fields["chain"], r.fields["policy"], r.fields["blocks"]) for r in rules] == [
        ("INPUT", True, True),
        ("FORWARD", True, False),
        ("INPUT", False, False),
    ]
