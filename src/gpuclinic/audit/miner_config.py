"""Configurations of miners: JSON of several projects, INI, and command-line options in text files. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from gpuclinic.audit.miner_words import ENOUGH, Score, is_wallet, pieces, score_arguments, value_signs

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_NODES = 3000
_MOST_DEPTH = 8
_MOST_LINES = 500
_REMARKS = re.compile(r"(?m)^\s{0,40}//[^\n]{0,500}$|/\*[^*]{0,500}\*/|,(?=\s{0,20}[\]}])")
_PAIR = re.compile(r"^[\s{]{0,20}\"?([\w-]{1,40})\"?\s{0,5}[:=]\s{0,5}\"?([^\",;]{1,300})")
_OPTIONS = {
    "url": "--url", "pool": "--url", "pool1": "--url", "pool_address": "--url", "server": "--url", "stratum": "--url", "poolurl": "--url", "pool_url": "--url", "daemon": "--url", "host": "--url",
    "algo": "--algo", "algorithm": "--algo", "algos": "--algo", "coin": "--coin", "currency": "--coin", "cryptonight_type": "--algo",
    "user": "--user", "wallet": "--user", "wallet_address": "--user", "username": "--user", "address": "--user", "zwal": "--user", "wal": "--user", "pool_user": "--user",
}  # fmt: skip
"""What settings of XMRig, xmr-stak, cpuminer, lolMiner, BzMiner, nanominer, GMiner, SRBMiner and PhoenixMiner mean, as options of a command line."""
_ONLY_MINERS = frozenset(
    ["donate-level", "donate-over-proxy", "randomx", "nicehash", "use_nicehash", "rig-id", "rig_id", "rigname", "tls-fingerprint", "tls_fingerprint", "randomx-1gb-pages", "devfee", "pool_configs", "pool_list", "cpu_threads_conf", "gpu_threads_conf", "worker_name", "dag_build_mode"]
)  # fmt: skip
_OFTEN = frozenset(["autosave", "cuda", "opencl", "background", "keepalive", "cpu", "colors", "pass", "workername"])
_PLACEHOLDER = re.compile(r"^(?:<.*>|your[_\s-]?\w*|x{4,}|wallet[_\w]*address|\$\{?\w+\}?|change.?me)", re.IGNORECASE)


def miner_config(text: str) -> list[str]:
    """Signs in a configuration file, where there are enough of them and it names whom to mine for, and where; else none.

    >>> bool(miner_config('{"pools":[{"url":"p.example:3333","user":"4x","algo":"rx/0"}],"donate-level":1}'))
    True
    >>> miner_config('{"pool":{"host":"db.example:5432","user":"app","keepalive":true},"cuda":true}')
    []
    """
    if text.lstrip()[:1] in ("{", "["):
        for form in (text, _REMARKS.sub("", text)):
            try:
                return _weighed(list(_in_json(json.loads(form))))
            except (ValueError, RecursionError):
                continue
    return _in_text(text)


def _weighed(pairs: list[tuple[str, str]]) -> list[str]:
    out, seen = Score(), set[str]()
    keys = {key for key, _ in pairs}
    for key, value in pairs:
        option = _OPTIONS.get(key)
        if option is not None and value:
            if option == "--user" and _PLACEHOLDER.match(value):
                return []  # the sample of a miner's source, in which nobody has named anybody
            value_signs(option, value, out, seen)
    ports = [value for key, value in pairs if key == "port" and value.isdigit()]
    if "place" not in seen and ports and any(k in ("host", "server") and "." in v for k, v in pairs):
        seen.add("place")
        out.add(1, f"a host and port {ports[0]}")
    users = [value for key, value in pairs if _OPTIONS.get(key) == "--user" and value]
    if own := sorted(keys & _ONLY_MINERS):
        out.add(2, ", ".join(own[:4]))
    if len(often := sorted(keys & _OFTEN)) >= 2 and own:
        out.add(1, ", ".join(often[:4]))
    named = seen & {"scheme", "place", "pool"} and (users or "@" in " ".join(v for _, v in pairs[:200]))
    return out.why if named and out.points >= ENOUGH and len(out.why) >= 2 and (own or seen & _SIGNS) else []


_SIGNS = {"scheme", "pool", "algorithm", "wallet"}


def _in_json(told: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Keys in small letters with their plain values, however deep; a list of values counts as several of the key."""
    waiting: list[tuple[str, Any, int]] = [("", told, depth)]
    number = 0
    while waiting and number < _MOST_NODES:
        key, value, level = waiting.pop(0)
        number += 1
        if level > _MOST_DEPTH:
            continue
        if isinstance(value, dict):
            if key:
                yield key, ""
            waiting += [(str(name).lower(), one, level + 1) for name, one in list(value.items())[:300]]
        elif isinstance(value, list):
            if key:
                yield key, ""
            waiting += [(key, one, level + 1) for one in value[:100]]
        elif key:
            yield key, value[:300] if isinstance(value, str) else "" if value is None else str(value)[:40]


def _in_text(text: str) -> list[str]:
    """Pairs of an INI file or of unfinished JSON, or options of a command line, on one line or over several."""
    pairs: list[tuple[str, str]] = []
    options: list[str] = []
    for line in text.split("\n")[:_MOST_LINES]:
        bare = line.strip()
        if not bare or bare.startswith(("#", ";", "//")) or len(bare) > 4000:
            continue
        if found := best_line(bare):
            return found.why
        if bare.startswith("-"):
            options += bare.split()
        for piece in re.split(r",\s{1,10}(?=\"?\w)", bare.lstrip("[{ "))[:30]:
            if pair := _PAIR.match(piece):
                pairs.append((pair[1].lower(), pair[2].strip()))
    whole = score_arguments(["x", *options[:500]])
    return whole.why if firm(whole) else _weighed(pairs)


def best_line(line: str) -> Score | None:
    """A line of a script that starts a miner; what only mentions one is none."""
    return next((found for piece in pieces(line) if firm(found := score_arguments(["x", *piece]))), None)


def firm(score: Score) -> bool:
    """Enough for text that may also be about mining: several signs, and a place or a wallet among them."""
    return (
        score.points >= ENOUGH
        and len(score.why) >= 2
        and bool(score.hosts or score.ports or any(is_wallet(word) for word in score.why) or score.wallet)
    )
