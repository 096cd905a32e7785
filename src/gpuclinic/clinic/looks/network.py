"""The network, passively: RDMA ports and their counters, interfaces, bonds, and what files say of names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.clinic.looks._look import Seen, Wanted
from gpuclinic.clinic.looks._texts import Texts
from gpuclinic.model import Gap, digits
from gpuclinic.recognise import network_state
from gpuclinic.recognise.host_state import table

if TYPE_CHECKING:
    from gpuclinic.observe.asking import Asked

_RDMA = "/sys/class/infiniband"
_COUNTERS = (
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors", "port_xmit_discards",
    "local_link_integrity_errors", "excessive_buffer_overrun_errors",
)  # fmt: skip
_HW_COUNTERS = (
    "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "out_of_sequence", "roce_adp_retrans", "rx_icrc_encapsulated",
)  # fmt: skip
_MOST_PORTS = 64
_RESOLVER_S = 5.0
_MOST_INTERFACES = 64


def look_at_rdma(host: Asked, wanted: Wanted) -> Seen:  # noqa: ARG001 - all looks are called alike
    """Facts `ib_port` and `ib_counters`; nothing where there is no RDMA device."""
    seen = Seen()
    texts = Texts(host, seen, "network.rdma")
    states = texts.many(f"{_RDMA}/*/ports/*/state", most=256)
    if not states:
        return seen
    files = dict(states)
    for name in ("phys_state", "link_layer", "rate"):
        files |= texts.many(f"{_RDMA}/*/ports/*/{name}", most=256)
    for path, state in list(states.items())[:_MOST_PORTS]:
        port = path.rpartition("/")[0]
        names = [f"{port}/counters/link_downed"]
        if (
            "ACTIVE" in state
        ):  # firmware refuses the counters of functions that are not ours, and the kernel logs each refusal
            names = [f"{port}/counters/{name}" for name in _COUNTERS] + [
                f"{port}/hw_counters/{name}" for name in _HW_COUNTERS
            ]
        files |= texts.many(*names, most=256)
    boards = texts.many(*(f"{_RDMA}/*/{name}" for name in ("board_id", "fw_ver", "hca_type")), most=256)
    functions = frozenset(path.split("/")[4] for path in host.links(f"{_RDMA}/*/device/physfn"))
    seen.facts += network_state.rdma_ports(files, boards, host.links(f"{_RDMA}/*/device"), functions)
    return seen


def look_at_interfaces(host: Asked, wanted: Wanted) -> Seen:  # noqa: ARG001
    """Facts `net_interface` (of real hardware), `bond`, `bond_member`, `tcp`, `softnet`, `connection_table`."""
    seen = Seen()
    texts = Texts(host, seen, "network.interfaces")
    functions = {path.split("/")[4] for path in host.links("/sys/class/net/*/device/physfn")}
    devices = {
        path: to for path, to in host.links("/sys/class/net/*/device").items() if path.split("/")[4] not in functions
    }
    files: dict[str, str] = {}
    for path in sorted(devices)[:_MOST_INTERFACES]:
        folder = path.rpartition("/")[0]
        files |= texts.many(f"{folder}/[cdfmos]*", f"{folder}/statistics/[rt]x_[cdefp]*", most=256)
    seen.facts += network_state.interfaces(files, devices, texts.many("/sys/class/net/*/device/device", most=64))
    seen.facts += network_state.bonds(texts.many("/proc/net/bonding/*"))
    seen.facts += network_state.tcp_counters(texts.one("/proc/net/snmp") or "")
    seen.facts += network_state.softnet(texts.one("/proc/net/softnet_stat") or "")
    counts = texts.many("/proc/sys/net/netfilter/nf_conntrack_count", "/proc/sys/net/netfilter/nf_conntrack_max")
    values = [digits(text) for _, text in sorted(counts.items())]
    if len(values) == 2:
        place = "/proc/sys/net/netfilter/nf_conntrack_count"
        seen.facts += table(
            "connections", values[0], values[1], place, f"{values[0]} of {values[1]}", "connection_table"
        )
    return seen


def look_at_names(host: Asked, wanted: Wanted) -> Seen:  # noqa: ARG001
    """Fact `own_name`: how files resolve this machine's own name."""
    seen = Seen()
    texts = Texts(host, seen, "network.names")
    name = texts.one("/proc/sys/kernel/hostname", 4096) or texts.one("/etc/hostname", 4096) or ""
    found, resolv = texts.one("/etc/hosts"), texts.one("/etc/resolv.conf")
    if found is None and not host.live:
        return seen  # the file is on every machine: it was not taken along
    hosts = found or ""
    addresses = network_state.local_addresses(texts.one("/proc/net/fib_trie", 4 << 20) or "")
    seen.facts += network_state.own_name(name, hosts, resolv, texts.one("/etc/nsswitch.conf") or "", addresses)
    return seen


def look_at_resolution(host: Asked, wanted: Wanted) -> Seen:
    """Fact `resolution`: whether this machine's own name resolves, DNS included; so only where --deep was given."""
    seen = Seen()
    if not wanted.deep:
        seen.gaps.append(Gap("network.resolution", "whether the own name resolves is asked of DNS with --deep only"))
        return seen
    for fact in wanted.of("own_name"):
        name = str(fact.fields.get("name"))
        if host.live and name.partition(".")[0] != host.label.partition(".")[0]:
            continue  # files of another machine are looked at here: our resolver is not its
        if re.fullmatch(r"[A-Za-z0-9][\w.-]{0,250}", name):
            answer = host.command("getent", "ahostsv4", name, deadline=_RESOLVER_S)
            if answer.ok or (host.live and answer.code is not None):
                seen.facts += network_state.resolution(name, answer.text, answer.ok, answer.seconds, answer.why)
            else:  # a name server that is slow has not said that there is no such name
                late = "did not answer in time: " if str(answer.why).startswith("no answer within") else ""
                seen.gaps.append(Gap("network.resolution", f"getent ahostsv4 {name}: {late}{answer.why}"))
    return seen
