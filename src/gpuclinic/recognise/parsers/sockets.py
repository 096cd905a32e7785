"""Sockets and firewalls: ss, netstat; iptables, nft, firewalld, ufw."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers._host_util import MAX_FACTS, clipped_lines, command_of, fact, whole

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact
    from gpuclinic.model._types import Scalar

_SS = re.compile(
    r"^(?:(?P<net>tcp|udp|tcp6|udp6|u_\w+|mptcp)\s+)?(?P<state>LISTEN|ESTAB|SYN-SENT|SYN-RECV|CLOSE-WAIT|TIME-WAIT|"
    r"FIN-WAIT-[12]|"
    r"UNCONN|LAST-ACK|CLOSING)\s+(?P<recv>\d+)\s+(?P<send>\d+)\s+(?P<local>\S+):(?P<port>\d+|\*|[a-z][\w-]*)\s+"
    r"(?P<peer>\S+):(?P<peer_port>\d+|\*|[a-z][\w-]*)\s*(?P<rest>.*)$"
)
_NETSTAT = re.compile(
    r"^(?P<net>tcp6?|udp6?)\s+(?P<recv>\d+)\s+(?P<send>\d+)\s+(?P<local>\S+):(?P<port>\d+|\*)\s+(?P<peer>\S+)"
    r":(?P<peer_port>\d+|\*)\s+"
    r"(?:(?P<state>LISTEN|ESTABLISHED|SYN_SENT|SYN_RECV|CLOSE_WAIT|TIME_WAIT|FIN_WAIT[12]|LAST_ACK)\s*)?(?P<rest>.*)$"
)
_SS_USER = re.compile(r'\(\("(?P<name>[^"]+)",pid=(?P<pid>\d+)')
_NETSTAT_USER = re.compile(r"(?P<pid>\d+)/(?P<name>\S+)")
_POOL_PORTS = frozenset(
    {3333, 4444, 5555, 7777, 9999, 14433, 14444, 45560, 45700, 3357, 13333, 20535, 20580, 10128, 10343}
)
_RULE = re.compile(
    r"^\s*(?:\d+\s+)?(?:[\d.]+[KMG]?\s+[\d.]+[KMG]?\s+)?(?P<target>ACCEPT|DROP|REJECT)\s+(?P<proto>all|tcp|udp|icmp|"
    r"\d+)\s+--\s+(?P<rest>.*)$"
)
_RULE_SPEC = re.compile(
    r"^\s*(?:iptables\s+)?-[AI]\s+(?P<chain>\w[\w-]*)\s+(?P<rest>.*?)-j\s+(?P<target>ACCEPT|DROP|REJECT)"
    r"\b(?P<tail>.*)$"
)
_CHAIN = re.compile(
    r"^\s*(?:Chain (?P<name>\S+) \(policy (?P<policy>\w+)|chain (?P<name2>\w+) \{|:(?P<name3>\w+) (?P<policy3>ACCEPT|"
    r"DROP)|-P (?P<name4>[A-Z]+) (?P<policy4>ACCEPT|DROP|REJECT))"
)
_NFT_POLICY = re.compile(r"hook (?P<hook>input|forward|output) .*policy (?P<policy>accept|drop)")
_NFT = re.compile(
    r"^\s*(?P<match>(?:ip6?|tcp|udp|ct|iifname|oifname|meta|icmp|counter|limit|type)\b.{0,300}?)?\s*"
    r"\b(?P<target>accept|drop|reject)\b"
)
_UFW = re.compile(
    r"^(?:\[\s*\d+\]\s+)?(?P<to>\S.*?)\s{2,}(?P<target>ALLOW|DENY|REJECT|LIMIT)(?:\s+(?:IN|OUT|FWD))?\s+"
    r"(?P<from>\S.*)$"
)
_FIREWALLD = re.compile(r"^\s+(?P<name>services|ports|rich rules|interfaces|target|sources):\s*(?P<value>.*)$")


def _host(text: str) -> str:
    return text.strip("[]").split("%")[0]


def _neighbours(first: str, second: str) -> bool:
    """Whether two addresses are likely of one local network: they differ in the last number only."""
    return "." in first and first.rsplit(".", 1)[0] == second.rsplit(".", 1)[0]


def parse_sockets(document: Document) -> list[Fact]:
    """ss and netstat: listening sockets as "port", the others as "connection"."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        text = line.strip()
        match = (_SS.match(text) or _NETSTAT.match(text)) if len(text) < 2000 else None
        if not match:
            continue
        user = _SS_USER.search(match["rest"]) or _NETSTAT_USER.search(match["rest"])
        state = (match["state"] or "UNCONN").replace("ESTABLISHED", "ESTAB").replace("_", "-")
        address, port = _host(match["local"]), whole(match["port"])
        fields: dict[str, Scalar] = {
            "address": address,
            "port": port,
            "protocol": match["net"] or "tcp",
            "state": state,
            "process": user["name"] if user else None,
            "pid": whole(user["pid"]) if user else None,
            "recv_q": whole(match["recv"]),
            "send_q": whole(match["send"]),
        }
        if state in ("LISTEN", "UNCONN"):
            fields["public"] = address in ("0.0.0.0", "*", "::", "") or not address.startswith(("127.", "::1"))
            facts.append(fact(document, "port", f"{address}:{port}", fields, index, line))
        else:
            peer_port = whole(match["peer_port"])
            peer = _host(match["peer"])
            private = re.match(
                r"(?:::ffff:)?(?:10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|127\.|169\.254\.|fe80|::1|fd)", peer
            )
            fields.update(
                {
                    "peer": peer,
                    "peer_port": peer_port,
                    "peer_public": not private and not _neighbours(address, peer),
                    "pool_port": peer_port in _POOL_PORTS,
                }
            )
            facts.append(fact(document, "connection", f"{peer}:{peer_port}", fields, index, line))
        if len(facts) >= MAX_FACTS:
            break
    return facts


def parse_firewall(document: Document) -> list[Fact]:
    """iptables -L/-S, nft list, ufw status, firewall-cmd --list-all: "firewall_rule" and "firewall"."""
    facts: list[Fact] = []
    chain, nft = "", False
    for index, line in enumerate(clipped_lines(document)):
        if not line.strip() or len(line) > 1000:
            continue
        command = command_of(line)
        asked = re.search(r"iptables\s.*-\w*L\s+(\w+)", command)
        if command:
            chain = asked.group(1) if asked else chain
            continue
        match = _CHAIN.match(line)
        if match:
            chain = match["name"] or match["name2"] or match["name3"] or match["name4"]
            nft = bool(match["name2"])
            policy = match["policy"] or match["policy3"] or match["policy4"]
            if policy:
                facts.append(_policy(document, index, line, chain, policy))
            continue
        default = _NFT_POLICY.search(line) if nft else None
        if default:
            facts.append(_policy(document, index, line, default["hook"], default["policy"].upper()))
            continue
        found = _rule(document, index, line, chain, nft=nft)
        if found:
            facts.append(found)
    return facts[:1000]


def _policy(document: Document, index: int, line: str, chain: str, policy: str) -> Fact:
    """What a chain does with what no rule names."""
    blocks = policy in ("DROP", "REJECT")
    fields: dict[str, Scalar] = {"chain": chain, "target": policy, "policy": True, "blocks": blocks, "detail": ""}
    fields["catch_all"] = False
    return fact(document, "firewall_rule", chain, fields, index, line)


def _rule(document: Document, index: int, line: str, chain: str, *, nft: bool) -> Fact | None:
    match = _RULE.match(line) or _RULE_SPEC.match(line)
    if match:
        groups = match.groupdict()
        detail = f"{groups.get('rest') or ''} {groups.get('tail') or ''}".strip()
        return _rule_fact(document, index, line, groups.get("chain") or chain, match["target"], detail)
    match = _UFW.match(line)
    if match:
        target = {"ALLOW": "ACCEPT", "DENY": "DROP", "REJECT": "REJECT", "LIMIT": "ACCEPT"}[match["target"]]
        return _rule_fact(document, index, line, "ufw", target, f"{match['to']} from {match['from']}")
    match = _FIREWALLD.match(line)
    if match and "firewall" not in line:
        fields: dict[str, Scalar] = {"name": match["name"], "value": match["value"].strip()[:500]}
        return fact(document, "firewall", match["name"], fields, index, line)
    match = _NFT.match(line) if nft else None
    return _rule_fact(document, index, line, chain, match["target"].upper(), match["match"] or "") if match else None


def _rule_fact(document: Document, index: int, line: str, chain: str, target: str, detail: str) -> Fact:
    port = re.search(r"(?:dpts?|dport|--dport)[: ]+(\d+)", detail)
    anything = not re.search(
        r"dpt|dport|ctstate (?:INVALID|RELATED|ESTAB)|state (?:INVALID|RELATED|ESTAB)|icmp(?!-)|icmptype", detail
    )
    fields: dict[str, Scalar] = {
        "chain": chain,
        "target": target,
        "detail": detail[:300],
        "port": whole(port.group(1)) if port else None,
        "blocks": target in ("DROP", "REJECT"),
        "catch_all": target in ("DROP", "REJECT") and anything,
        "policy": False,
    }
    return fact(document, "firewall_rule", chain or target, fields, index, line)
