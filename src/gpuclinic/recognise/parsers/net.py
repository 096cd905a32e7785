"""Network of the host: ip addr, ip link, ifconfig, routes, ethtool, ping, hosts, getent, resolv.conf."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.model import Document, Fact, Where
from gpuclinic.recognise.parsers._host_util import MAX_FACTS, clipped_lines, command_of, fact, number, whole

if TYPE_CHECKING:
    from gpuclinic.model._types import Scalar

_IP_HEAD = re.compile(r"^\s*(?P<index>\d+):\s+(?P<name>[\w.@:-]+?):\s+<(?P<flags>[\w,-]*)>\s*(?P<rest>.*)$")
_IP_BRIEF = re.compile(r"^(?P<name>[a-z][\w.@-]*)\s+(?P<state>UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT)\s*(?P<rest>.*)$")
_INET = re.compile(r"^\s+inet6?\s+(?P<address>[0-9a-fA-F.:]+)(?:/(?P<prefix>\d+))?")
_IP_ONE = re.compile(r"^\s*\d+:\s+(?P<name>[\w.@-]+)\s+inet6?\s+(?P<address>[0-9a-fA-F.:]+)/(?P<prefix>\d+)")
_IFCONFIG = re.compile(
    r"^(?P<name>[a-z][\w.-]*(?::\d+)?)(?::\s+flags=\d+<(?P<flags>[\w,]*)>\s+mtu\s+(?P<mtu>\d+)|\s+Link "
    r"encap:(?P<encap>\S+).*)\s*$"
)
_COUNTS = re.compile(
    r"(?P<side>RX|TX)\s+(?:errors[ :]+(?P<errors>\d+)\s+dropped[ :]*(?P<dropped>\d+)|packets:\d+ "
    r"errors:(?P<errors2>\d+) dropped:(?P<dropped2>\d+))"
)
_SETTINGS = re.compile(r"^Settings for (?P<name>[\w.@-]+):")
_PING = re.compile(
    r"^(?P<sent>\d+) packets transmitted, (?P<received>\d+) (?:packets )?received.*?(?P<loss>[\d.]+)% packet loss"
)
_PING_TO = re.compile(
    r"^(?:PING|ping)\s+(?P<name>\S+?)(?:\s+\((?P<address>[^)]+)\))?\b.*\bbytes of data|^--- (?P<name2>\S+) ping "
    r"statistics ---"
)
_PING_SIZE = re.compile(r"\) (?P<size>\d+)\(\d+\) bytes of data|(?:^|[$#>] ?)ping6? .*?-s ?(?P<size2>\d+)")
_PING_COMMAND = re.compile(r"(?:^|[$#>] ?)ping6? (?:.*\s)?(?P<name>[\w.:-]+)\s*$")
_RTT = re.compile(r"rtt min/avg/max/mdev = [\d.]+/(?P<avg>[\d.]+)/(?P<max>[\d.]+)")
_UNREACHABLE = re.compile(
    r"^From (?P<by>\S+)\s+icmp_seq=\d+ (?P<what>Destination \w+ (?:Unreachable|Prohibited)|Packet filtered|Frag "
    r"needed.*)"
)
_HOSTS = re.compile(
    r"^\s*(?P<address>(?:\d{1,3}\.){3}\d{1,3}|[0-9a-fA-F]*:[0-9a-fA-F:]+(?:%\w+)?)\s+(?P<names>[A-Za-z][\w.-]*(?:\s+"
    r"[\w.-]+)*)\s*(?:#.*)?$"
)
_SOCKET_TYPES = re.compile(r"\b(?:STREAM|DGRAM|RAW)\b")
_NAMESERVER = re.compile(r"^\s*nameserver\s+(?P<address>\S+)")
_ROUTE = re.compile(r"^\s*(?P<to>default|[\d.]+(?:/\d+)?)\s+(?:via (?P<via>\S+)\s+)?dev (?P<dev>\S+)(?P<rest>.*)$")


class _Interfaces:
    """Interfaces by name as their lines come in."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.found: list[tuple[dict[str, Scalar], dict[str, Where]]] = []

    def start(self, name: str, fields: dict[str, Scalar], index: int, line: str) -> None:
        fields["name"] = name.split("@")[0]
        fields["virtual"] = bool(
            re.match(r"lo$|docker|veth|br-|virbr|cni|flannel|cali|tun|tap|kube|dummy|lxc|vnet", name)
        )
        self.found.append((fields, {"": self.document.at(index, line)}))

    def put(self, field: str, value: Scalar, index: int, line: str) -> None:
        if self.found and value is not None:
            fields, places = self.found[-1]
            if field == "address" and field in fields and ":" in str(value):
                return
            fields[field] = value
            places[field] = self.document.at(index, line)

    def facts(self) -> list[Fact]:
        return [
            Fact(
                "net_interface",
                str(fields["name"]),
                {k: v for k, v in fields.items() if v is not None},
                places,
                self.document.source,
                self.document.host,
            )
            for fields, places in self.found[:MAX_FACTS]
        ]


def parse_interfaces(document: Document) -> list[Fact]:
    """ip addr, ip -br addr, ip link, ip -o addr, ifconfig old and new, ethtool: "net_interface"."""
    interfaces = _Interfaces(document)
    for index, line in enumerate(clipped_lines(document)):
        if len(line) > 1000 or not line.strip():
            continue
        if _interface_head(interfaces, index, line):
            continue
        match = _INET.match(line) or re.match(r"^\s+inet6? addr:\s*(?P<address>\S+)", line)
        if match:
            interfaces.put("address", match["address"], index, line)
            continue
        _interface_detail(interfaces, index, line)
    return interfaces.facts()


def _interface_head(interfaces: _Interfaces, index: int, line: str) -> bool:
    match = _IP_HEAD.match(line)
    if match:
        flags, rest = match["flags"].split(","), match["rest"]
        state = re.search(r"\bstate (\w+)", rest)
        mtu = re.search(r"\bmtu (\d+)", rest)
        fields: dict[str, Scalar] = {
            "state": state.group(1) if state else ("UP" if "UP" in flags else "DOWN"),
            "mtu": whole(mtu.group(1)) if mtu else None,
            "carrier": "NO-CARRIER" not in flags and ("LOWER_UP" in flags or "UP" in flags),
            "flags": match["flags"],
        }
        interfaces.start(match["name"], fields, index, line)
        return True
    match = _IP_ONE.match(line)
    if match:
        interfaces.start(match["name"], {"address": match["address"]}, index, line)
        return True
    match = _IP_BRIEF.match(line)
    if match:
        address = re.search(r"\d+\.\d+\.\d+\.\d+", match["rest"])
        fields = {"state": match["state"], "address": address.group() if address else None}
        interfaces.start(match["name"], fields, index, line)
        return True
    match = _IFCONFIG.match(line)
    if match:
        flags = (match["flags"] or "").split(",")
        fields = {"mtu": whole(match["mtu"]), "flags": match["flags"]}
        if match["flags"] is not None:
            fields["state"] = "UP" if "UP" in flags else "DOWN"
            fields["carrier"] = "RUNNING" in flags
        interfaces.start(match["name"], fields, index, line)
        return True
    match = _SETTINGS.match(line.strip())
    if match:
        interfaces.start(match["name"], {}, index, line)
    return bool(match)


def _interface_detail(interfaces: _Interfaces, index: int, line: str) -> None:
    text = line.strip()
    match = re.match(r"Speed:\s+(\d{1,9})\s*([MG]b/s)", text)
    if match:
        interfaces.put("speed_mbps", float(match.group(1)) * (1000 if match.group(2)[0] == "G" else 1), index, line)
    match = re.match(r"Link detected:\s+(yes|no)", text)
    if match:
        interfaces.put("link", match.group(1) == "yes", index, line)
        interfaces.put("carrier", match.group(1) == "yes", index, line)
    match = re.match(r"Duplex:\s+(\w+)", text)
    if match:
        interfaces.put("duplex", match.group(1).lower(), index, line)
    match = _COUNTS.search(text)
    if match:
        side = match["side"].lower()
        interfaces.put(f"{side}_errors", whole(match["errors"] or match["errors2"]), index, line)
        interfaces.put(f"{side}_dropped", whole(match["dropped"] or match["dropped2"]), index, line)
    match = re.search(r"\bMTU:(\d+)", text)
    if match:
        interfaces.put("mtu", whole(match.group(1)), index, line)
    match = re.match(r"UP\b.*\bRUNNING\b", text)
    if match:
        interfaces.put("state", "UP", index, line)


def parse_ping(document: Document) -> list[Fact]:
    """ping: "ping" with target, address, size, loss_pct, avg_ms, error."""
    facts: list[Fact] = []
    target, address, error = "", None, None
    size: int | None = None
    for index, line in enumerate(clipped_lines(document)):
        text = line.strip()[:500]
        command = _PING_COMMAND.search(text)
        if command:
            target, address, error, size = command["name"], None, None, None
        told = _PING_SIZE.search(text)
        if told:
            size = whole(told["size"] or told["size2"])
        match = _PING_TO.match(text)
        if match:
            if match["name"]:
                target, address, error = match["name"], match["address"], None
            else:
                target = target or match["name2"]
            continue
        match = _UNREACHABLE.match(text)
        if match:
            error = match["what"]
        match = _PING.match(text)
        if match:
            fields: dict[str, Scalar] = {
                "target": target,
                "address": address,
                "size": size,
                "sent": whole(match["sent"]),
                "received": whole(match["received"]),
                "loss_pct": number(match["loss"]),
                "error": error,
            }
            facts.append(fact(document, "ping", target, fields, index, line))
        match = _RTT.search(text)
        if match and facts:
            facts[-1].fields["avg_ms"] = number(match["avg"])
    return facts[:200]


def parse_hosts(document: Document) -> list[Fact]:
    """/etc/hosts and getent hosts/ahosts: "host_entry" for each name, with address and loopback."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        text = line.strip()
        match = _HOSTS.match(text) if len(text) < 500 and not text.startswith("#") else None
        if not match:
            continue
        names = _SOCKET_TYPES.sub("", match["names"]).split()
        loopback = match["address"].startswith("127.") or match["address"] == "::1"
        for name in names[:10]:
            fields: dict[str, Scalar] = {
                "name": name,
                "address": match["address"],
                "loopback": loopback,
                "localhost": name.startswith(("localhost", "ip6-", "ip6", "loopback")),
                "own": match["address"].startswith("127.0.1."),
            }
            facts.append(fact(document, "host_entry", name, fields, index, line))
        if len(facts) >= MAX_FACTS:
            break
    return facts


def parse_resolver(document: Document) -> list[Fact]:
    """resolv.conf: "nameserver"."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        match = _NAMESERVER.match(line[:300])
        if match:
            facts.append(fact(document, "nameserver", match["address"], {"address": match["address"]}, index, line))
    return facts[:50]


def parse_routes(document: Document) -> list[Fact]:
    """ip route: "route" with to, via, dev, source."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        match = _ROUTE.match(line) if len(line) < 500 else None
        if not match or command_of(line):
            continue
        source = re.search(r"\bsrc (\S+)", match["rest"])
        fields: dict[str, Scalar] = {
            "to": match["to"],
            "via": match["via"],
            "dev": match["dev"],
            "source": source.group(1) if source else None,
            "down": "linkdown" in match["rest"],
        }
        facts.append(fact(document, "route", match["to"], fields, index, line))
    return facts[:500]


def parse_nic_counters(document: Document) -> list[Fact]:
    """ethtool -S: "nic_counter" for counters of errors, drops and pauses that are not zero."""
    facts: list[Fact] = []
    name = ""
    for index, line in enumerate(clipped_lines(document)):
        command = command_of(line)
        asked = re.search(r"ethtool -S (\S+)", command)
        name = asked.group(1) if asked else name
        match = re.match(r"^\s+(?P<counter>[\w\[\]-]+):\s+(?P<value>\d+)\s*$", line[:300])
        if match and match["value"] != "0" and re.search(r"err|drop|discard|crc|pause|symbol|out_of", match["counter"]):
            fields: dict[str, Scalar] = {"interface": name, "counter": match["counter"], "value": whole(match["value"])}
            facts.append(fact(document, "nic_counter", match["counter"], fields, index, line))
    return facts[:500]
