"""How much a command line or a configuration looks like mining: several signs of its shape, never one word. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from gpuclinic.knowledge.audit_words import is_pool, words
from gpuclinic.model import digits

ENOUGH = 3
"""Points from which on a command line is a miner's (measured in the study: 12 of 12 spellings, 0 of 15 innocent ones)."""
_HOST_PORT = re.compile(
    r"^(?:[a-z][a-z\d+.-]{0,30}://)?(?:[^@/\s]{1,200}@)?([A-Za-z\d.-]{3,200}|\[[\da-fA-F:]{2,40}\]):(\d{1,5})(?:[/#?].*)?$",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"^([a-z][a-z\d+.]{2,30})://", re.IGNORECASE)
_WALLETS = re.compile(
    r"^(?:0x[\da-fA-F]{40}|[48][\dAB][1-9A-HJ-NP-Za-km-z]{93}(?:[1-9A-HJ-NP-Za-km-z]{11})?|bc1[\da-z]{25,60}|(?:kaspa|nexa|karlsen|pyrin|xel|alph|dero|zeph|ltc1|deroi?)[:\da-z]{30,120}|"
    r"[RDtX9ac][1-9A-HJ-NP-Za-km-z]{32,34}|t1[1-9A-HJ-NP-Za-km-z]{33}|(?:ZEPH|Wo|Ccx|hvx|SK1)[1-9A-HJ-NP-Za-km-z]{40,120})(?:[.+/:][\w.+-]{1,60})?$"
)
_MOST_ARGUMENTS = 2000
_ASSETS = re.compile(r"\.(?:txt|json|yaml|yml|log|csv|pt|bin|h5|py|sh|conf|pot|out)$", re.IGNORECASE)


class Score(msgspec.Struct):
    """points: see ENOUGH. why: the signs, in words of the command line. ports: of the pools it names. hosts: of them."""

    points: int = 0
    why: list[str] = []
    ports: list[int] = []
    hosts: list[str] = []
    known: str | None = None

    def add(self, points: int, why: str) -> None:
        """One sign."""
        self.points += points
        self.why.append(why)


def score_arguments(argv: list[str], program: str = "") -> Score:
    """Scores an argument vector. program: the executable's path, for programs whose arguments only mention such words.

    >>> score_arguments(["x", "-a", "kawpow", "-o", "stratum+tcp://rvn.2miners.com:6060", "-u", "R"]).points >= ENOUGH
    True
    >>> score_arguments(["hashcat", "-a", "0", "-o", "/srv/cracked.txt", "h.txt"]).points
    0
    """
    out = Score()
    names = {base_name(program), base_name(argv[0] if argv else "")}
    if names & words().mentions:
        return out
    out.known = next((name for name in sorted(names) if name in words().programs), None)
    pairs = _pairs(argv[:_MOST_ARGUMENTS])
    seen: set[str] = set()
    for option, value in pairs:
        _value_signs(option, value, out, seen)
    given = {option for option, _ in pairs}
    host = next(
        (v for o, v in pairs if o in ("--server", "-server", "--host", "-s", "--pool", "-P") and v and "." in v), None
    )
    if host and given & {"--port", "-port"} and "place" not in seen and given & words().user_options:
        out.add(1, f"{host} and a port")
        out.ports += [n for o, v in pairs if o in ("--port", "-port") and (n := digits(v or "")) is not None]
    if own := sorted(given & words().options):
        out.add(1, " ".join(own[:3]))
    if out.points == 1 and out.known is None and not seen:
        out.points, out.why = 0, []
    return out


def _value_signs(option: str, value: str | None, out: Score, seen: set[str]) -> None:
    w = words()
    text = (value if value is not None else option).strip("\"'")
    low = text.lower()
    scheme = _SCHEME.match(low)
    if scheme and scheme[1] in w.schemes and "scheme" not in seen:
        seen.add("scheme")
        out.add(3, f"{scheme[1]}://")
    if option in w.algorithm_options and value and "algorithm" not in seen:
        coin = option in ("--coin", "-coin", "--proto")
        if low in w.algorithms or low.split(",")[0] in w.algorithms or (coin and low in w.coins):
            seen.add("algorithm")
            out.add(2, f"{option} {text[:40]}")
    place = _HOST_PORT.match(text)
    if place and not _ASSETS.search(place[1]):
        host = place[1]
        if is_pool(host) and "pool" not in seen:
            seen.add("pool")
            out.add(2, host)
        named = option in w.host_options or (scheme is not None and scheme[1] in w.schemes)
        if named and "." in host and "place" not in seen:
            seen.add("place")
            out.add(1, f"{host}:{place[2]}")
        if named or is_pool(host):
            out.ports.append(int(place[2]))
            out.hosts.append(host)
    elif option in w.host_options and value and is_pool(low.partition("/")[0]) and "pool" not in seen:
        seen.add("pool")
        out.add(2, text[:80])
        out.hosts.append(text[:80])
    user = text
    if "://" in text and "@" in text:
        user = text.partition("://")[2].rpartition("@")[0]
    if (
        (option in w.user_options or "@" in text)
        and "wallet" not in seen
        and (_WALLETS.match(user.partition(":")[0] if "://" in text else user) or _WALLETS.match(user))
    ):
        seen.add("wallet")
        out.add(2, "a wallet as user")


def base_name(path: str) -> str:
    """The last part in small letters, without .exe and version."""
    name = path.rpartition("/")[2].lower().removesuffix(" (deleted)").removesuffix(".exe")
    return re.sub(r"[-_]?v?\d+\.\d[\w.]{0,20}$", "", name)


def _pairs(argv: list[str]) -> list[tuple[str, str | None]]:
    """Options with their values ("-a x", "--algo=x", "-ax" is not cut), and words without option as (word, None)."""
    out: list[tuple[str, str | None]] = []
    n = 1
    while n < len(argv):
        word = argv[n]
        if word.startswith("-") and "=" in word:
            option, _, value = word.partition("=")
            out.append((option, value))
        elif word.startswith("-") and n + 1 < len(argv) and not re.match(r"^-[A-Za-z-]", argv[n + 1]):
            out.append((word, argv[n + 1]))
            n += 1
        else:
            out.append((word, None))
        n += 1
    return out


def miner_config(text: str) -> list[str]:
    """Signs in a configuration file, where there are enough of them; else none.

    XMRig's and its kin's JSON (pools with url and user, algo or donate-level), and lists of command-line options in text files.

    >>> bool(miner_config('{"pools":[{"url":"p.example:3333","user":"4x","algo":"rx/0"}],"donate-level":1}'))
    True
    """
    try:
        told = json.loads(re.sub(r"(?m)^\\s*//.*$", "", text)) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        told = None
    if isinstance(told, dict):
        return _in_json(told)
    out = Score()
    for line in text.split("\n")[:500]:
        line = line.strip()
        if line.startswith(("#", ";", "//")) or len(line) > 4000:
            continue
        found = score_arguments(["x", *line.replace('"', " ").split()])
        if found.points >= ENOUGH:
            return found.why
        pair = re.match(r"^\"?([\w-]{1,40})\"?\s{0,5}[:=]\s{0,5}\"?([^\",]{1,300})", line)
        if pair:
            name, value = pair[1].lower(), pair[2].strip()
            key = {
                "pool": "--pool",
                "url": "--url",
                "algo": "--algo",
                "algorithm": "--algo",
                "wallet": "--wallet",
                "user": "--user",
                "coin": "--coin",
                "server": "--server",
                "pool_address": "--url",
                "wallet_address": "--user",
            }.get(name)
            if key is not None:
                _value_signs(key, value, out, set())
    return out.why if out.points >= ENOUGH else []


def _in_json(told: dict[str, Any]) -> list[str]:
    pools = told.get("pools") or told.get("pool_list") or told.get("pool")
    rows = (
        [row for row in pools if isinstance(row, dict)]
        if isinstance(pools, list)
        else [pools]
        if isinstance(pools, dict)
        else []
    )
    why = []
    for row in rows[:20]:
        url = str(row.get("url") or row.get("pool_address") or row.get("host") or "")
        user = row.get("user") or row.get("wallet_address") or row.get("wallet")
        if url and user:
            why.append(f"pool {url[:80]}")
    own: list[str] = [
        key
        for key in (
            "donate-level",
            "donate-over-proxy",
            "randomx",
            "nicehash",
            "autosave",
            "cuda",
            "opencl",
            "algo",
            "coin",
            "background",
        )
        if key in told
    ]
    own += [f"algo {row['algo']}" for row in rows if str(row.get("algo") or "").lower() in words().algorithms]
    own += [key for row in rows for key in ("nicehash", "rig-id", "keepalive", "tls-fingerprint") if key in row]
    return [*why, *own[:4]] if why and own else []
