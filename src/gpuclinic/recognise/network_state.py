"""RDMA ports, network interfaces and names of a machine, out of the texts of /proc, /sys and /etc. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.model import Document, Fact
from gpuclinic.recognise.making import Making, number, whole
from gpuclinic.recognise.parsers.net import parse_hosts, parse_resolver
from gpuclinic.recognise.parsers.rdma import parse_sys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PORT = re.compile(r"^/sys/class/infiniband/(?P<device>[\w.-]{1,60})/ports/(?P<port>\d{1,3})/")


def rdma_ports(
    files: Mapping[str, str],
    boards: Mapping[str, str],
    devices: Mapping[str, str],
    functions: frozenset[str] = frozenset(),
) -> list[Fact]:
    """Facts `ib_port` and `ib_counters` of files under /sys/class/infiniband, by path.

    boards: texts of board_id, fw_ver and hca_type, by path. devices: where the links named "device" lead.
    functions: names of devices that are virtual functions.
    Ports of one `group` have the same board, the same PCI function and the same port number, so that they ought to be alike;
    peers, peers_up and rate_typical_gbs tell about the others of the group.
    """
    lines = "\n".join(f"{path}: {' '.join(text.split())}" for path, text in files.items() if _PORT.match(path))
    found = parse_sys(Document("/sys/class/infiniband", lines, name_hint="/sys/class/infiniband"))
    out: list[Fact] = []
    for fact in found:
        if fact.kind == "ib_port":
            _describe(fact, files, boards, devices)
            fact.fields["virtual"] = fact.fields.get("device") in functions
        else:
            fact.fields["port"] = whole(fact.key.rpartition("/")[2])
        out.append(fact)
    ports = [fact for fact in out if fact.kind == "ib_port" and not fact.fields["virtual"]]
    beside_peers(ports)
    downed = {fact.key: fact.fields.get("link_downed") for fact in out if fact.kind == "ib_counters"}
    for fact in ports:
        if isinstance(count := downed.get(fact.key), int):
            fact.fields["link_downed"] = count
    return out


def beside_peers(ports: list[Fact]) -> None:
    """Tells each port of the others of its group: peers, peers_up, rate_typical_gbs (of those that are up)."""
    for fact in ports:
        peers = [p for p in ports if p is not fact and p.fields.get("group") == fact.fields.get("group")]
        rates = sorted(
            float(rate)
            for p in peers
            if p.fields.get("up") and isinstance(rate := p.fields.get("rate_gbs"), (int, float))
        )
        fact.fields["peers"] = len(peers)
        fact.fields["peers_up"] = sum(bool(p.fields.get("up")) for p in peers)
        if rates:
            fact.fields["rate_typical_gbs"] = rates[len(rates) // 2]


def _describe(fact: Fact, files: Mapping[str, str], boards: Mapping[str, str], devices: Mapping[str, str]) -> None:
    device, port = str(fact.fields["device"]), fact.fields.get("port")
    place = f"/sys/class/infiniband/{device}"
    rate = files.get(f"{place}/ports/{port}/rate", "")
    width = re.search(r"\((\d{1,2})X", rate)
    if width:
        fact.fields["link_width"] = int(width[1])
    for name, field in (("board_id", "board"), ("fw_ver", "firmware"), ("hca_type", "ca_type")):
        text = boards.get(f"{place}/{name}", "").strip()
        if text:
            fact.fields[field] = text[:60]
    address = devices.get(f"{place}/device", "").rsplit("/", 1)[-1]
    if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", address):
        fact.fields["address"] = address
    function = address[-1:] if "address" in fact.fields else "-"
    fact.fields["group"] = f"{fact.fields.get('board', '-')} {fact.fields.get('link_layer', '-')} {function}/{port}"


_VALUES = {
    "mtu": "mtu",
    "speed": "speed_mbps",
    "carrier_changes": "carrier_changes",
    "carrier_down_count": "carrier_down_count",
}


def interfaces(files: Mapping[str, str], devices: Mapping[str, str], models: Mapping[str, str]) -> list[Fact]:
    """Facts `net_interface` of files under /sys/class/net/NAME, counters of its statistics included.

    devices: where the links named "device" lead, so real hardware only. models: texts of device/device (the PCI id), by path.
    Interfaces of one `group` have the same PCI id; peers_up, speed_typical_mbps and mtu_typical tell about the others that are up.
    """
    found: dict[str, Making] = {}
    for path, text in files.items():
        place = re.match(r"/sys/class/net/([\w.@:-]{1,40})/(?:statistics/)?(\w{1,40})$", path)
        if not place:
            continue
        name, what, value = place[1], place[2], text.strip()
        if name not in found:
            making = found[name] = Making("net_interface", name, f"/sys/class/net/{name}")
            making.put("name", name)
            device = devices.get(f"/sys/class/net/{name}/device", "")
            model = models.get(f"/sys/class/net/{name}/device/device", "").strip()
            making.put("physical", bool(device))
            making.put("virtual", not device)
            making.put("usb", bool(re.search(r"/usb\d|^\d+-\d", device) or re.search(r"\d+-\d[\d.]*:\d", device)))
            making.put("group", model or None)
        making = found[name]
        if what in _VALUES:
            count = whole(value)
            making.put(
                _VALUES[what], count if count is not None and (count > 0 or what != "speed") else None, path, value
            )
        elif what == "carrier":
            making.put("carrier", value == "1", path, value)
        elif what in ("operstate", "duplex"):
            making.put(
                "state" if what == "operstate" else "duplex",
                value.upper() if what == "operstate" else value,
                path,
                value,
            )
        elif what == "flags":
            flags = whole(value, 16)
            making.put("enabled", bool(flags & 1) if flags is not None else None, path, value)
        elif re.fullmatch(r"[rt]x_\w+", what):
            making.put(what, whole(value), path, f"{what} {value}")
    out = [making.fact() for making in found.values()]
    for fact in out:
        fields = fact.fields
        errors = sum(int(fields.get(name) or 0) for name in ("rx_errors", "tx_errors"))
        fields["errors"] = errors
        packets = sum(int(fields.get(name) or 0) for name in ("rx_packets", "tx_packets"))
        if packets:
            fields["errors_ppm"] = round(1e6 * errors / packets, 2)
        _among_peers(fact, out)
    return out


def _among_peers(fact: Fact, every: Iterable[Fact]) -> None:
    group = fact.fields.get("group")
    peers = [
        p
        for p in every
        if p is not fact and group is not None and p.fields.get("group") == group and p.fields.get("carrier")
    ]
    fact.fields["peers_up"] = len(peers)
    for field, name in (("speed_mbps", "speed_typical_mbps"), ("mtu", "mtu_typical")):
        values = sorted(int(v) for p in peers if isinstance(v := p.fields.get(field), int))
        if values:
            fact.fields[name] = values[len(values) // 2]
            if field == "mtu":
                fact.fields["mtu_agreeing"] = values.count(values[len(values) // 2])


def bonds(texts: Mapping[str, str]) -> list[Fact]:
    """Facts `bond` and `bond_member` of /proc/net/bonding/*."""
    out: list[Fact] = []
    for path, text in texts.items():
        name = path.rsplit("/", 1)[-1]
        blocks = re.split(r"^Slave Interface: ", text[:200_000], flags=re.MULTILINE)
        bond = Making("bond", name, path)
        bond.put("name", name)
        _bond_fields(bond, blocks[0], {"Bonding Mode": "mode"})
        members: list[Fact] = []
        for block in blocks[1:64]:
            member = block.partition("\n")[0].strip()[:40]
            making = Making("bond_member", f"{name}/{member}", path)
            making.put("bond", name)
            making.put("name", member)
            _bond_fields(making, block, {"Speed": "speed_mbps", "Duplex": "duplex", "Link Failure Count": "failures"})
            members.append(making.fact())
        bond.put("members", len(members))
        bond.put("members_up", sum(bool(m.fields.get("up")) for m in members))
        speeds = [int(s) for m in members if isinstance(s := m.fields.get("speed_mbps"), int)]
        for one in members:
            if speeds:
                one.fields["speed_most_mbps"] = max(speeds)
        out += [bond.fact(), *members]
    return out


def _bond_fields(making: Making, block: str, names: Mapping[str, str]) -> None:
    for line in block.splitlines():
        name, _, value = line.partition(": ")
        value = value.strip()
        if name.strip() == "MII Status" and "up" not in making.fields:
            making.put("up", value == "up", text=line.strip())
        elif name.strip() in names:
            field = names[name.strip()]
            making.put(field, whole(value) if field in ("speed_mbps", "failures") else value[:60], text=line.strip())


def tcp_counters(snmp: str) -> list[Fact]:
    """Fact `tcp` of /proc/net/snmp: segments sent and sent again since boot."""
    lines = [line.split()[1:] for line in snmp.splitlines() if line.startswith("Tcp: ")]
    if len(lines) != 2:
        return []
    values = dict(zip(*lines, strict=False))
    making = Making("tcp", "host", "/proc/net/snmp")
    for name, field in (("OutSegs", "segments_out"), ("RetransSegs", "segments_again"), ("InErrs", "errors_in")):
        making.put(field, whole(values.get(name)), text=f"Tcp {name} {values.get(name)}")
    return [making.fact()] if making.fields else []


def local_addresses(fib_trie: str) -> list[str]:
    """This machine's own IPv4 addresses, as /proc/net/fib_trie lists them."""
    found = re.findall(r"\|-- (\d{1,3}(?:\.\d{1,3}){3})\n\s+/32 host LOCAL", fib_trie)
    return sorted(set(found))


def own_name(hostname: str, hosts: str, resolv: str | None, nsswitch: str, addresses: list[str]) -> list[Fact]:
    """Fact `own_name`: how files resolve this machine's name, and what they say of localhost.

    leads: "none", "loopback", "local" (an address of this machine), "elsewhere" (none of them is), "unknown" (no list of addresses).
    """
    name = hostname.strip().split("\n")[0][:255]
    if not name:
        return []
    short = name.partition(".")[0]
    entries = parse_hosts(Document("/etc/hosts", hosts, name_hint="hosts"))
    mine = [e for e in entries if str(e.fields.get("name", "")).lower() in (name.lower(), short.lower())]
    ips = [str(e.fields.get("address")) for e in mine]
    making = Making("own_name", name, "/etc/hosts")
    making.put("name", name)
    outside = [ip for ip in ips if not ip.startswith("127.") and ip != "::1"]
    v4 = [ip for ip in outside if ":" not in ip]
    leads = "none" if not ips else "loopback" if not outside else "unknown"
    if v4 and addresses:
        leads = "local" if any(ip in addresses for ip in v4) else "elsewhere"
    shown = mine[0].where() if mine else None
    making.put("leads", leads, "/etc/hosts", shown.text if shown else f"no line names {name}")
    if ips:
        making.put("address", ips[0], "/etc/hosts", shown.text if shown else "")
    if hosts.strip():
        local = [str(e.fields.get("address")) for e in entries if e.fields.get("name") == "localhost"]
        if local:
            loops = all(ip.startswith("127.") or ip == "::1" for ip in local)
            making.put("localhost_loopback", loops, "/etc/hosts", f"localhost is {', '.join(local[:4])}")
    if resolv is not None:
        found = parse_resolver(Document("/etc/resolv.conf", resolv, name_hint="resolv.conf"))
        servers = [str(fact.fields.get("address")) for fact in found]
        making.put("nameservers", len(servers), "/etc/resolv.conf", ", ".join(servers[:4]) or "no nameserver line")
    order = re.search(r"^hosts:\s*(.{1,200})$", nsswitch, re.MULTILINE)
    if order:
        making.put("order", order[1].strip(), "/etc/nsswitch.conf", order[0].strip())
    return [making.fact()]


def resolution(name: str, answer: str, ok: bool, seconds: float, why: str | None) -> list[Fact]:
    """Fact `resolution`: what `getent ahostsv4 NAME` answered."""
    making = Making("resolution", name, f"getent ahostsv4 {name}")
    making.put("name", name)
    words = answer.split()
    address = words[0] if ok and words else None
    making.put("resolved", address is not None, text=address or why or "no address")
    making.put("address", address)
    making.put("loopback", address.startswith("127.") if address else None)
    making.put("seconds", round(seconds, 2))
    return [making.fact()]


def softnet(text: str) -> list[Fact]:
    """Fact `softnet` of /proc/net/softnet_stat: packets that the processors dropped or could not finish in time, since boot."""
    rows = [line.split() for line in text.splitlines()[:2048]]
    values = [[number(word, 16) or 0 for word in row[:3]] for row in rows if len(row) >= 3]
    if not values:
        return []
    making = Making("softnet", "host", "/proc/net/softnet_stat")
    making.put("processed", int(sum(row[0] for row in values)))
    making.put("dropped", int(sum(row[1] for row in values)))
    making.put("squeezed", int(sum(row[2] for row in values)))
    return [making.fact()]
