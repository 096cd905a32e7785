"""RDMA ports: ibstat, ibstatus, ibv_devinfo, rdma link, perfquery, show_gids, ethtool -S, /sys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_text import Draft, Scalar, make, number, snake, whole

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_STATES = {
    "1": "DOWN", "2": "INIT", "3": "ARMED", "4": "ACTIVE", "active": "ACTIVE", "down": "DOWN",
    "initializing": "INIT", "init": "INIT",
    "armed": "ARMED", "port_active": "ACTIVE", "port_down": "DOWN", "port_init": "INIT", "port_armed": "ARMED",
}  # fmt: skip
_PHYSICAL = {
    "1": "Sleep", "2": "Polling", "3": "Disabled", "4": "Training", "5": "LinkUp", "6": "LinkErrorRecovery",
    "link_up": "LinkUp", "linkup": "LinkUp", "polling": "Polling", "disabled": "Disabled", "sleep": "Sleep",
    "link_error_recovery": "LinkErrorRecovery", "linkerrorrecovery": "LinkErrorRecovery", "training": "Training",
    "portconfigurationtraining": "Training", "port_configuration_traning": "Training",
}  # fmt: skip
_COUNTERS = frozenset(
    [
        "symbol_error",
        "link_error_recovery",
        "link_downed",
        "port_rcv_errors",
        "port_rcv_remote_physical_errors",
        "port_xmit_discards",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
        "out_of_sequence",
        "packet_seq_err",
        "rnr_nak_retry_err",
        "local_ack_timeout_err",
        "implied_nak_seq_err",
        "req_cqe_error",
        "resp_cqe_error",
        "out_of_buffer",
        "port_xmit_wait",
        "np_cnp_sent",
        "rp_cnp_handled",
        "np_ecn_marked_roce_packets",
        "roce_adp_retrans",
        "roce_adp_retrans_to",
        "roce_slow_restart",
        "rx_icrc_encapsulated",
        "req_remote_access_errors",
        "resp_remote_access_errors",
    ]
)
_PERFQUERY = {
    "SymbolErrorCounter": "symbol_error", "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed",
    "PortRcvErrors": "port_rcv_errors", "PortRcvRemotePhysicalErrors": "port_rcv_remote_physical_errors",
    "PortXmitDiscards": "port_xmit_discards", "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors", "VL15Dropped": "vl15_dropped",
    "PortXmitWait": "port_xmit_wait",
}  # fmt: skip


def _state(text: str) -> str | None:
    first = text.strip().lower().split(":")[0].split(" ")[0]
    after = text.split(":", 1)[1].strip().lower() if ":" in text else ""
    return _STATES.get(after) or _STATES.get(first)


def _physical(text: str) -> str | None:
    first = text.strip().lower().split(":")[0].split(" ")[0]
    after = text.split(":", 1)[1].strip().lower() if ":" in text else ""
    return _PHYSICAL.get(after) or _PHYSICAL.get(first)


def _port(document: Document, device: str, port: int, index: int, line: str) -> Draft:
    draft = Draft(document, "ib_port", f"{device}/{port}", index, line)
    draft.fields.update(device=device, port=port)
    return draft


def _set(draft: Draft, key: str, value: str, index: int, line: str) -> None:
    """One attribute of a port, whichever tool named it."""
    low = key.strip().lower().replace(" ", "_")
    if low == "state":
        draft.put("state", _state(value), index, line)
        draft.fields["up"] = draft.fields["state"] == "ACTIVE"
    elif low in ("physical_state", "phys_state", "phys_port_state"):
        draft.put("physical_state", _physical(value.split("(")[-1].rstrip(")") if "(" in value else value), index, line)
    elif low in ("rate", "active_rate"):
        rate = number(value)
        draft.put("rate_gbs", None if rate is None else float(rate), index, line)
    elif low == "link_layer":
        draft.put("link_layer", value.strip().rstrip(">"), index, line)
    elif low in ("active_mtu", "max_mtu"):
        draft.put(f"{low}_bytes", whole(value), index, line)
    elif low in ("base_lid", "port_lid"):
        draft.put("lid", value.strip(), index, line)
    elif low == "sm_lid":
        draft.put("sm_lid", value.strip(), index, line)
    elif low in ("ca_type", "firmware_version", "fw_ver", "board_id"):
        draft.put("firmware" if low in ("firmware_version", "fw_ver") else low, value.strip(), index, line)


_IBSTAT_CA = re.compile(r"^\s*CA '(?P<device>[\w.-]+)'")
_IBSTAT_PORT = re.compile(r"^\s*Port (?P<port>\d+):\s*$")
_DEVICE_STATUS = re.compile(r"Infiniband device '(?P<device>[\w.-]+)' port (?P<port>\d+) status")
_HCA = re.compile(r"^\s*hca_id:\s*(?P<device>[\w.-]+)")
_DEVINFO_PORT = re.compile(r"^\s*port:\s*(?P<port>\d+)\s*$")
_KEY = re.compile(r"^\s*(?P<key>[A-Za-z_][\w ]{1,30}?)\s*:\s*(?P<value>\S.*)$")


def parse_ports(document: Document) -> list[Fact]:
    """Facts ib_port of ibstat, ibstatus and ibv_devinfo."""
    facts: list[Fact] = []
    device = ""
    common: list[tuple[str, str, int, str]] = []
    draft: Draft | None = None
    blanks = 0
    for index, line in enumerate(document.lines()):
        if len(line) > 400:
            continue
        head = _IBSTAT_CA.match(line) or _HCA.match(line)
        status = _DEVICE_STATUS.search(line)
        port = _IBSTAT_PORT.match(line) or _DEVINFO_PORT.match(line)
        if head or status:
            facts += _closed(draft)
            device, draft, common = (head or status)["device"], None, []  # type: ignore[index]
            if status:
                draft = _port(document, device, int(status["port"][:4]), index, line)
        elif port and device:
            facts += _closed(draft)
            draft = _port(document, device, int(port["port"][:4]), index, line)
            for item in common:
                _set(draft, *item)
        elif device:
            pair = _KEY.match(line)
            if pair and draft is not None:
                _set(draft, pair["key"], pair["value"], index, line)
            elif pair:
                common.append((pair["key"], pair["value"], index, line))
            blanks = blanks + 1 if not line.strip() else 0
            if line.startswith(("$", "#")) or blanks > 2:
                facts += _closed(draft)
                device, draft = "", None
    return facts + _closed(draft)


def _closed(draft: Draft | None) -> list[Fact]:
    return [draft.fact()] if draft is not None and len(draft.fields) > 2 else []


_RDMA_LINK = re.compile(
    r"^\s*(?:\d+/\d+: |link )(?P<device>[\w.-]+)/(?P<port>\d+):? .*?state (?P<state>\w+)(?: physical_state (?P<phy"
    r"s>\w+))?(?: netdev (?P<netdev>\S+))?"
)
_IBDEV2NETDEV = re.compile(
    r"^\s*(?P<device>mlx\w+|bnxt_re\w+|irdma\w+) port (?P<port>\d+) ==> (?P<netdev>\S+) \((?P<state>Up|Down)\)"
)


def parse_links(document: Document) -> list[Fact]:
    """Facts ib_port of `rdma link` and ibdev2netdev."""
    facts: list[Fact] = []
    for index, line in enumerate(document.lines()):
        if len(line) > 400:
            continue
        found = _RDMA_LINK.match(line)
        if found:
            draft = _port(document, found["device"], int(found["port"][:4]), index, line)
            _set(draft, "state", found["state"], index, line)
            if found["phys"]:
                _set(draft, "physical_state", found["phys"], index, line)
            if found["netdev"]:
                draft.put("netdev", found["netdev"], index, line)
            facts.append(draft.fact())
            continue
        found = _IBDEV2NETDEV.match(line)
        if found:
            draft = _port(document, found["device"], int(found["port"][:4]), index, line)
            draft.put("netdev", found["netdev"], index, line)
            draft.put("netdev_up", found["state"] == "Up", index, line)
            facts.append(draft.fact())
    return facts


_PERF_HEAD = re.compile(
    r"^# Port (?:extended )?counters: (?:(?P<device>[\w.-]+) port|Lid (?P<lid>\d+)) ?(?:port )?(?P<port>\d+)?"
)
_PERF = re.compile(r"^(?P<key>[A-Z]\w+):\.+(?P<value>\d+)\s*$")


def parse_perfquery(document: Document) -> list[Fact]:
    """Facts ib_counters of perfquery."""
    facts: list[Fact] = []
    draft: Draft | None = None
    for index, line in enumerate(document.lines()):
        head = _PERF_HEAD.match(line) if line.startswith("# Port") else None
        if head:
            facts += [draft.fact()] if draft else []
            key = head["device"] or f"lid {head['lid']}"
            draft = Draft(document, "ib_counters", f"{key}/{head['port'] or '1'}", index, line)
            draft.fields["device"] = key
            continue
        found = _PERF.match(line) if draft is not None and len(line) < 200 else None
        if found and draft is not None:
            name = _PERFQUERY.get(found["key"], snake(found["key"]))
            draft.put(name, int(found["value"][:18]), index, line)
    return facts + ([draft.fact()] if draft else [])


_GID = re.compile(
    r"^(?P<device>[a-z]\w+)\s+(?P<port>\d+)\s+(?P<index>\d+)\s+(?P<gid>[0-9a-f:]{19,45})\s+(?:(?P<ip>\d+\.\d+\.\d+"
    r"\.\d+)\s+)?(?P<ver>v1|v2|IB|RoCE v[12])\s*(?P<dev>\S*)"
)


def parse_gids(document: Document) -> list[Fact]:
    """Facts gid of show_gids: index, RoCE version, address, network device."""
    facts: list[Fact] = []
    for index, line in enumerate(document.lines()):
        found = _GID.match(line) if len(line) < 300 else None
        if found:
            fields: dict[str, Scalar] = {
                "device": found["device"],
                "port": int(found["port"][:4]),
                "gid_index": int(found["index"][:6]),
                "gid": found["gid"],
                "ip": found["ip"],
                "roce": found["ver"].replace("RoCE ", ""),
                "netdev": found["dev"] or None,
            }
            facts.append(
                make(document, "gid", f"{found['device']}/{found['port']}/{found['index']}", fields, index, line)
            )
    return facts


_ETHTOOL_HEAD = re.compile(r"ethtool (?:-S|--statistics) (?P<dev>\S+)")
_STAT = re.compile(r"^\s+(?P<name>[\w.-]{3,60}): (?P<value>\d+)\s*$")
_TELLING = re.compile(
    r"discard|drop|err|crc|pause|timeout|link_down|symbol|out_of_(?:buffer|sequence)|retrans|cnp|ecn|prio\d_(?:pau"
    r"se|discard)"
)


def parse_ethtool(document: Document) -> list[Fact]:
    """Facts nic_counters of `ethtool -S`: the counters of errors, drops, pauses and congestion that are not zero."""
    facts: list[Fact] = []
    draft: Draft | None = None
    name = "?"
    for index, line in enumerate(document.lines()):
        head = _ETHTOOL_HEAD.search(line)
        if head:
            name = head["dev"]
        if line.startswith("NIC statistics:"):
            facts += [draft.fact()] if draft else []
            draft = Draft(document, "nic_counters", name, index, line)
            draft.fields["device"] = name
            continue
        if draft is None:
            continue
        found = _STAT.match(line) if len(line) < 200 else None
        if found:
            value = int(found["value"][:18])
            if value and _TELLING.search(found["name"]):
                draft.put(snake(found["name"]), value, index, line)
        elif line.strip():
            facts.append(draft.fact())
            draft, name = None, "?"
    return facts + ([draft.fact()] if draft else [])


_SYS = re.compile(
    r"(?:/sys/class/infiniband/|^infiniband/)(?P<device>[\w.-]+)/ports/(?P<port>\d+)/(?:(?:hw_)?counters/)?(?P<nam"
    r"e>\w+)[:\s]+(?P<value>\S.*?)\s*$"
)
_SYS_PATH = re.compile(r"/(?P<device>[\w.-]+)/ports/(?P<port>\d+)/(?P<name>state|phys_state|rate|link_layer)$")


def parse_sys(document: Document) -> list[Fact]:
    """Facts ib_port and ib_counters of /sys/class/infiniband: `grep .` over it, or a single file by its path."""
    single = _SYS_PATH.search(document.source)
    lines = document.lines()
    if single and len(document.text) < 100:
        draft = _port(document, single["device"], int(single["port"][:4]), 0, lines[0])
        _set(draft, single["name"], lines[0], 0, lines[0])
        return [draft.fact()]
    ports: dict[str, Draft] = {}
    for index, line in enumerate(lines):
        found = _SYS.search(line) if "infiniband/" in line and len(line) < 300 else None
        if not found:
            continue
        key = f"{found['device']}/{found['port']}"
        if found["name"] in ("state", "phys_state", "rate", "link_layer"):
            draft = ports.setdefault(f"p{key}", _port(document, found["device"], int(found["port"][:4]), index, line))
            _set(draft, found["name"], found["value"], index, line)
        elif found["name"] in _COUNTERS and found["value"].isdecimal():
            draft = ports.setdefault(f"c{key}", Draft(document, "ib_counters", key, index, line))
            draft.fields["device"] = found["device"]
            draft.put(found["name"], int(found["value"][:18]), index, line)
    return [d.fact() for d in ports.values()]


_QUERY_PORT = re.compile(r"^\s+GUID 0x[0-9a-f]+ port (?P<port>\d+|ALL): (?P<rest>\[.*)$")
_QUERY_HEAD = re.compile(r'^Errors for (?:0x(?P<guid>[0-9a-f]+) )?"(?P<name>[^"]+)"')
_QUERY_COUNT = re.compile(r"\[(?P<key>\w+) == (?P<value>\d+)[^\]]*\]")


def parse_query_errors(document: Document) -> list[Fact]:
    """Facts ib_counters of ibqueryerrors: the counters over their thresholds of each port of each node."""
    facts: list[Fact] = []
    name = ""
    for index, line in enumerate(document.lines()):
        if len(line) > 1000:
            continue
        head = _QUERY_HEAD.match(line)
        if head:
            name = head["name"]
            continue
        port = _QUERY_PORT.match(line) if name else None
        if port is None or port["port"] in ("0", "ALL"):
            continue
        words = name.split()
        device = words[-1] if len(words) > 1 else name
        draft = Draft(document, "ib_counters", f"{name}/{port['port']}", index, line)
        draft.fields.update(device=device, node=words[0], port=int(port["port"][:4]))
        for found in _QUERY_COUNT.finditer(port["rest"]):
            key = _PERFQUERY.get(found["key"], snake(found["key"]))
            draft.put(key, int(found["value"][:18]), index, line)
        facts.append(draft.fact())
    return facts


_QOS_COMMAND = re.compile(r"mlnx_qos .*?-i ?(?P<dev>\S+)")
_QOS_ENABLED = re.compile(r"^\s*enabled\s+(?P<bits>[01](?:\s+[01]){3,7})\s*$")
_QOS_TRUST = re.compile(r"^Priority trust state: (?P<trust>\w+)")


def parse_qos(document: Document) -> list[Fact]:
    """Facts pfc of mlnx_qos: trust mode and how many priorities have flow control."""
    facts: list[Fact] = []
    name, trust = "?", None
    inside = False
    for index, line in enumerate(document.lines()):
        if len(line) > 300:
            continue
        command, told = _QOS_COMMAND.search(line), _QOS_TRUST.match(line)
        if command:
            name, trust, inside = command["dev"], None, False
        elif told:
            trust = told["trust"]
        elif line.startswith("PFC configuration:"):
            inside = True
        found = _QOS_ENABLED.match(line) if inside else None
        if found:
            count = found["bits"].split().count("1")
            fields: dict[str, Scalar] = {"device": name, "enabled_priorities": count, "trust": trust}
            facts.append(make(document, "pfc", name, fields, index, line))
            inside = False
    return facts


_MLXLINK_DEVICE = re.compile(r"mlxlink .*?-d ?(?P<dev>\S+)")
_MLXLINK = re.compile(r"^(?P<key>[A-Z][\w \[\]]{2,33}?)\s*: (?P<value>\d+)\s*$")
_MLXLINK_KEYS = {
    "Symbol Errors": "symbol_error",
    "Effective Physical Errors": "effective_errors",
    "Link Down": "link_downed",
    "Link Down Counter": "link_downed",
    "Link Error Recovery Counter": "link_error_recovery",
}


def parse_mlxlink(document: Document) -> list[Fact]:
    """Facts ib_counters of mlxlink -c: errors on the wire and links down."""
    name = "?"
    draft: Draft | None = None
    for index, line in enumerate(document.lines()):
        if len(line) > 300:
            continue
        asked = _MLXLINK_DEVICE.search(line)
        if asked:
            name = asked["dev"]
        if line.startswith("Physical Counters and BER Info"):
            draft = Draft(document, "ib_counters", name, index, line)
            draft.fields["device"] = name
        found = _MLXLINK.match(line) if draft is not None else None
        if found and draft is not None and found["key"].strip() in _MLXLINK_KEYS:
            draft.put(_MLXLINK_KEYS[found["key"].strip()], int(found["value"][:18]), index, line)
    return [draft.fact()] if draft is not None and len(draft.fields) > 1 else []
