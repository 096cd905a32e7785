"""Names of people, hosts and things in texts, replaced by others: the same thing by the same name in every text of a capture.

Kept are PCI addresses, pids, times, codes, product names, private and loopback networks as such. What is replaced is learnt first from all
texts (a host name from /etc/hosts is replaced in a log, too), then replaced. Without the key nobody can go back.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import ipaddress
import itertools
import json
import random
import re
from typing import TYPE_CHECKING

from gpuclinic.knowledge import DATA
from gpuclinic.recognise.name_shapes import (
    AFTER_HOST,
    BEFORE_HOST,
    ESCAPED,
    GUID,
    HOST_LIST,
    HOST_LISTS,
    HOSTS,
    HOSTS_LINE,
    LIKE_A_DEVICE,
    MOST_LISTED,
    MOST_PLACES,
    NAME,
    PODS,
    SEARCHED,
    SERIALS,
    SHAPES,
    SPLIT,
    TOKEN,
    URL,
    URL_WORD,
    USER_COLUMN,
    USERS,
)
from gpuclinic.recognise.slurm_node import expanded

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_LEARNT = 20_000


@functools.cache
def plain_words(kind: str) -> frozenset[str]:
    """Words that are no names (tables/plain_words.tsv): of the kind "name", "folder", "unit" or "id"."""
    rows = (DATA / "tables" / "plain_words.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return frozenset(row.split("\t")[1] for row in rows if row.startswith(kind + "\t"))


class Anonymiser:
    """Learns names, then replaces them. key: secret of this capture; another key gives other names."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._words: dict[str, str] = {}
        self._places: dict[str, str] = {}
        self._places_search: tuple[re.Pattern[str], re.Pattern[str]] | None = None
        self._domains: dict[str, str] = {}
        self._long_ids: set[str] = set()
        self._taken: set[str] = set()
        self._made: dict[tuple[str, str], str] = {}
        self._octets: dict[str, list[int]] = {}
        self._tokens: dict[str, str] = {}
        self.mapping: dict[str, str] = {}

    # what is replaced

    def learn(self, name: str, text: str) -> None:
        """Takes the names out of a text. name: where it lies ("root/etc/hosts"), which tells what some texts are."""
        if text.lstrip()[:1] in ("{", "["):
            text = ESCAPED.sub("\n", text)
        if name.endswith(("/etc/hostname", "/kernel/hostname", "commands/hostname.txt")):
            self._host(text.strip())
        elif name.endswith("/etc/hosts"):
            for line in text.splitlines()[:5000]:
                for word in line.partition("#")[0].split()[1:]:
                    self._host(word)
        elif "/dmi/id/" in name and name.endswith(("_serial", "_tag")):
            self._serial(text.strip())
        elif name.endswith("/resolv.conf"):
            for found in SEARCHED.finditer(text):
                for word in found[1].split():
                    self._domain(word)
        self._learn_places(text)
        self._learn_people(text)

    def _learn_places(self, text: str) -> None:
        for pattern in HOSTS:
            for found in pattern.finditer(text):
                self._host(found[1])
        for found in HOST_LISTS.finditer(text):
            for one in itertools.islice(expanded(found[1]), MOST_LISTED):
                if one.lower() not in ("all", "none", "null"):
                    self._host(one)
        for found in URL.finditer(text) if "://" in text else ():
            self._url_host(found[2])
            if found[1]:
                self._user(found[1])
        for pattern in SERIALS:
            for found in pattern.finditer(text):
                self._serial(found[1])
        for found in GUID.finditer(text):
            digits = found[1].replace(":", "").lower()
            new = self._hex(digits)
            if new != digits:
                self._learnt(digits, new)
                self._learnt(f"0x{digits}", f"0x{new}")
        for found in re.finditer(r"(?<![0-9A-Za-z])[0-9a-f]{64}(?![0-9A-Za-z])", text):
            self._long_ids.add(found[0][:12])

    def _learn_people(self, text: str) -> None:
        for pattern in USERS:
            for found in pattern.finditer(text):
                self._user(found[1])
        table = USER_COLUMN.search(text)
        if table is not None:
            for line in table[1].splitlines()[:20_000]:
                self._user(line.split(" ", 1)[0])
        for pattern in PODS:
            for found in pattern.finditer(text):
                if re.search(r"[\d_-]", found[1]) and found[1].lower() not in plain_words("name"):
                    self._learnt(found[1], self._new("pod", found[1], "pod-"))

    def _learnt(self, word: str, new: str) -> None:
        if len(self._words) < MOST_LEARNT and word not in self._words:
            self._words[word] = new
            self._tokens.clear()

    def _host(self, given: str) -> None:
        name, _, domain = given.strip(".").partition(".")
        if not re.fullmatch(NAME, name) or name.isdigit() or len(given) > 200:
            return
        if domain and re.search(r"[A-Za-z]", domain) and re.fullmatch(r"[A-Za-z0-9.-]+", domain):
            self._domain(domain)
        elif domain:
            return  # an address
        if name.lower() in ("localhost", "ip6-localhost", "ip6-loopback", "kernel") or name.lower().startswith("ip6-"):
            return
        new = self._new("host", name.lower(), "node")
        device = LIKE_A_DEVICE.fullmatch(name)
        if name.lower() in plain_words("name") or len(name) < 4 or (device and len(device[1]) < 2):
            self._place(name)
        else:
            self._learnt(name, new)
            if name.lower() != name or not device:
                self._learnt(name.lower(), new)

    def _url_host(self, given: str) -> None:
        """The host of a URL; a plain word there ("cache") is replaced only where hosts stand, and public sites stay."""
        lower = given.strip(".").lower()
        name, _, domain = lower.partition(".")
        if any(lower == site or lower.endswith("." + site) for site in plain_words("domain")):
            return
        if re.fullmatch(r"[\d.]+", lower) or name == "localhost" or name in self._words or name in self._places:
            self._domain(domain)
        elif domain and "." not in domain and domain not in ("local", "internal", "localdomain", "cluster"):
            self._learnt(lower, f"{self._new('host', name, 'node')}.example")
        elif URL_WORD.search(name):
            self._host(lower)
        elif re.fullmatch(NAME, name):
            self._domain(domain)
            self._place(name)

    def _place(self, name: str) -> None:
        if name not in self._places and len(self._places) < MOST_PLACES:
            self._places[name] = self._new("host", name.lower(), "node")
            self._places_search = None

    def _domain(self, given: str) -> None:
        domain = given.strip(".").lower()
        if domain in ("localdomain", "local", "internal", "example.com", "cluster.local", "svc.cluster.local"):
            return
        if "." in domain and len(self._domains) < 200 and not re.search(r"[^a-z0-9.-]", domain):
            self._domains.setdefault(domain, self._new("domain", domain, "site") + ".example")

    def _user(self, name: str) -> None:
        if (
            len(name) >= 3
            and name.lower() not in plain_words("name")
            and re.search(r"[a-z]", name)
            and "systemd" not in name
        ):
            self._learnt(name.rstrip(".-+"), self._new("user", name.rstrip(".-+"), "user"))

    def _serial(self, number: str) -> None:
        if len(number) >= 6 and re.search(r"\d.*\d", number) and not re.fullmatch(r"0x[0-9a-f]+|[0-]+", number):
            self._learnt(number, self._alike("serial", number))

    # by what

    def _digest(self, *what: str) -> bytes:
        return hmac.new(self._key, "\0".join(what).encode("utf-8", "surrogateescape"), hashlib.sha256).digest()

    def _unique(self, kind: str, old: str, make: Callable[[bytes], str]) -> str:
        known = self._made.get((kind, old))
        if known is not None:
            return known
        for turn in range(10_000):
            new = make(self._digest(kind, old, str(turn)))
            if new not in self._taken and new != old:
                break
        self._taken.add(new)
        self._made[kind, old] = new
        if len(self.mapping) < 10 * MOST_LEARNT:
            self.mapping[old] = new
        return new

    def _new(self, kind: str, old: str, prefix: str) -> str:
        return self._unique(kind, old, lambda digest: f"{prefix}{10_000 + int.from_bytes(digest[:6], 'big') % 90_000}")

    def _alike(self, kind: str, old: str) -> str:
        """As long, with digits for digits and letters for letters."""

        def make(digest: bytes) -> str:
            chosen = random.Random(digest)  # noqa: S311 - seeded by a keyed digest
            letters = {True: "ABCDEFGHJKLMNPRSTUVWXYZ", False: "abcdefghjkmnpqrstuvwxyz"}
            return "".join(
                str(chosen.randrange(10)) if c.isdigit() else chosen.choice(letters[c.isupper()]) if c.isalpha() else c
                for c in old
            )

        return self._unique(kind, old, make)

    def _hex(self, digits: str) -> str:
        """As many hexadecimal digits; the first twelve depend on the first twelve only, as short ids of containers do."""
        if digits in plain_words("id") or len(set(digits)) == 1:
            return digits
        head = self._digest("id", digits[:12]).hex()[:12]
        rest = self._digest("rest", digits).hex() + self._digest("more", digits).hex()
        new = (head + rest)[: len(digits)]
        self.mapping.setdefault(digits, new)
        return new

    # the replacing

    def text(self, text: str) -> str:
        """The text with everything replaced; in JSON what stands behind an escaped line feed is a line, too."""
        if text.lstrip()[:1] in ("{", "[") and "\\" in text:
            return "".join(piece if at % 2 else self._plain(piece) for at, piece in enumerate(ESCAPED.split(text)))
        return self._plain(text)

    def _plain(self, text: str) -> str:
        text = SHAPES.sub(self._shape, text)
        if "[" in text:
            text = HOST_LIST.sub(self._host_list, text)
        for domain, new in self._domains.items():
            if domain in text.lower():
                text = re.sub(rf"(?i)(?<![\w-]){re.escape(domain)}(?![\w-])", new, text)
        if self._places:
            text = self._in_place(text)
        return TOKEN.sub(self._token, text)

    def _host_list(self, found: re.Match[str]) -> str:
        """Slurm's short form of many hosts, of which one is known, written out: no short form names the others that they got."""
        listed = found.start() > 0 and found.string[found.start() - 1] in '=,:|"'
        names = [one.partition(".") for one in itertools.islice(expanded(found[0]), MOST_LISTED)]
        if not any(name in self._words or (listed and name in self._places) for name, _, _ in names):
            return found[0]
        new = (
            f"{self._new('host', name.lower(), 'node')}{dot}{self._domains.get(rest.lower(), rest)}"
            for name, dot, rest in names
        )
        return ",".join(new)

    def _in_place(self, text: str) -> str:
        """Hosts' names that are also words or very short, where hosts' names stand."""
        alone = self._places.get(text.strip())
        if alone is not None:
            return text.replace(text.strip(), alone)
        if self._places_search is None:
            names = "|".join(sorted(map(re.escape, self._places), key=len, reverse=True))
            before = "|".join(BEFORE_HOST)
            self._places_search = (
                re.compile(
                    rf"(?m)(?P<before>{before})(?P<one>{names})(?![\w-])|(?<![\w./-])(?P<two>{names})(?={'|'.join(AFTER_HOST)})"
                ),
                re.compile(rf"(?<![\w./-])(?:{names})(?![\w-])"),
            )
        where, names_alone = self._places_search
        text = HOSTS_LINE.sub(lambda m: m[1] + names_alone.sub(lambda n: self._places[n[0]], m[2]), text)
        return where.sub(lambda m: (m["before"] or "") + self._places[m["one"] or m["two"]], text)

    def _shape(self, found: re.Match[str]) -> str:
        kind = found.lastgroup or ""
        old = found[0]
        if kind == "v4":
            return self._v4(old, found)
        if kind == "hex":
            return old if len(old) == 12 and old not in self._long_ids else self._hex(old)
        return str({
            "mail": self._mail, "uuid": self._uuid, "mac": self._mac, "guid": self._guid, "wwn": self._spaced,
            "pairs": self._spaced, "v6": self._v6, "home": self._home,
        }[kind](old))  # fmt: skip

    def _mail(self, old: str) -> str:
        if old.rsplit(".", 1)[-1] in plain_words("unit"):
            return self.text(old.replace("@", "@ ")).replace("@ ", "@") if re.search(r"[\d.]{7}", old) else old
        user, _, place = old.partition("@")
        host = place.partition(".")[0]
        if host in self._words or place.lower() in self._domains:
            return f"{self._token_text(user)}@{self.text(' ' + place)[1:]}"
        return self._unique("mail", old.lower(), lambda d: f"person{10_000 + int.from_bytes(d[:6], 'big') % 90_000}@example.com")  # fmt: skip

    def _uuid(self, old: str) -> str:
        digits = self._hex(old.replace("-", "").lower())
        new = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        return new.upper() if old.upper() == old and old.lower() != old else new

    def _mac(self, old: str) -> str:
        if set(old) <= set("0:") or set(old.lower()) <= set("f:"):
            return old
        pairs = self._digest("mac", old.lower()).hex()
        new = ":".join(["02", *(pairs[n : n + 2] for n in range(0, 2 * old.count(":"), 2))])
        self.mapping.setdefault(old.lower(), new)
        return new

    def _spaced(self, old: str) -> str:
        """An identifier whose digits stand apart: the same as where they stand together."""
        digits = iter(self._hex(old.replace(" ", "").lower()))
        return "".join(c if c == " " else next(digits) for c in old)

    def _guid(self, old: str) -> str:
        digits = self._hex(old.replace(":", "").lower())
        return ":".join(digits[n : n + 4] for n in range(0, 16, 4))

    def _v6(self, old: str) -> str:
        try:
            address = ipaddress.IPv6Address(old)
        except ValueError:
            return old
        if address.is_loopback or address.is_multicast or address.is_unspecified or not re.search(r"\d", old):
            return old
        groups = address.exploded.split(":")
        upper = "".join(groups[:4]) if groups[0] == "fe80" else self._digest("net6", "".join(groups[:4])).hex()[:16]
        upper = upper if groups[0] == "fe80" else "fd" + upper[2:]
        whole = upper + self._digest("host6", "".join(groups)).hex()[:16]
        new = ":".join(whole[n : n + 4] for n in range(0, 32, 4))
        new = new if len(old) == 39 else str(ipaddress.IPv6Address(new))
        self.mapping.setdefault(old, new)
        return new

    def _v4(self, old: str, found: re.Match[str]) -> str:
        parts = [int(part) for part in old.split(".")]
        zeros = any(len(part) > 1 and part[0] == "0" for part in old.split("."))
        first = parts[0]
        if max(parts) > 255 or zeros or first in (0, 127) or first >= 224 or old == "169.254.169.254":
            return old
        before = found.string[max(0, found.start() - 60) : found.start()].rpartition("\n")[2]
        if before.endswith(("==", "-", "~", "+", "v")) or re.search(
            r"(?i)version\W{1,4}$|^\s*[\w.-]*(?:nvidia-|-cu1\d)\S*\s+$", before
        ):
            return old
        kept = self._kept_octets(parts)
        if kept is None:  # a public address: one of the range that is set aside for benchmarks (RFC 2544)
            return self._unique("ip", old, lambda d: f"198.{18 + d[0] % 2}.{d[1]}.{1 + d[2] % 254}")
        out = [str(part) for part in parts[:kept]]
        for at in range(kept, 4):
            second = {172: (16, 32), 100: (64, 128)}.get(first, (0, 256))
            low, high = second if at == 1 else (0, 256) if at == 2 else (1, 255)  # a network's .0 and .255 stay
            out.append(str(self._octet(".".join(map(str, parts[:at])), parts[at], low, high)))
        new = ".".join(out)
        self.mapping.setdefault(old, new)
        return new

    @staticmethod
    def _kept_octets(parts: list[int]) -> int | None:
        """How many of the first numbers say that the address is private and stay; None for a public one."""
        first, second = parts[:2]
        if first == 10 or (first == 172 and 16 <= second < 32) or (first == 100 and 64 <= second < 128):
            return 1
        return 2 if (first, second) in ((192, 168), (169, 254)) else None

    def _octet(self, prefix: str, value: int, low: int, high: int) -> int:
        """Another number in the range, one to one below each prefix, so that neighbours stay neighbours."""
        if not low <= value < high:
            return value
        order = self._octets.get(f"{prefix}/{low}")
        if order is None:
            order = list(range(low, high))
            random.Random(self._digest("net4", prefix)).shuffle(order)  # noqa: S311 - seeded by a keyed digest
            self._octets[f"{prefix}/{low}"] = order
        return order[value - low]

    def _home(self, old: str) -> str:
        parts = old.split("/")
        out = parts[:2]
        user = parts[2]
        if user.lower() in plain_words("name") or len(user) < 3:
            out.append(user if user in ("ubuntu", "runner", "jovyan", "ec2-user") else self._new("user", user, "user"))
        else:
            out.append(self._words.get(user.rstrip(".-+")) or self._new("user", user.rstrip(".-+"), "user"))
        inside = False
        for number, part in enumerate(parts[3:], 4):
            inside = inside or part in ("site-packages", "dist-packages") or part.startswith("python3")
            plain = inside or part in plain_words("folder") or (number == len(parts) and "." in part) or not part
            out.append(part if plain else self._new("folder", part, "folder"))
        return "/".join(out)

    def _token(self, found: re.Match[str]) -> str:
        return self._token_text(found[0])

    def _token_text(self, token: str) -> str:
        known = self._tokens.get(token)
        if known is None:
            known = self._found(token)
            if len(self._tokens) < 500_000:
                self._tokens[token] = known
        return known

    def _found(self, token: str) -> str:
        """A token that is a name, or of whose parts one is ("dgx-03-ib0", "dgx-03.site")."""
        new = self._words.get(token)
        if new is None and not LIKE_A_DEVICE.fullmatch(token):
            new = self._words.get(token.lower())
        if new is not None:
            return new
        parts = SPLIT.split(token)
        if len(parts) < 3 or len(parts) > 25:
            return token
        for length in range(len(parts) - 2, 0, -2):
            for at in range(0, len(parts) - length + 1, 2):
                new = self._words.get("".join(parts[at : at + length]))
                if new is not None:
                    before, after = "".join(parts[:at]), "".join(parts[at + length :])
                    return self._found_around(before) + new + self._found_around(after)
        return token

    def _found_around(self, rest: str) -> str:
        return self._found(rest) if rest else ""

    def binary(self, data: bytes) -> bytes:
        """Names in binary records (wtmp) replaced without moving what stands behind them: longer new names are cut."""
        pieces = re.split(rb"(\0+)", data)
        for at in range(0, len(pieces), 2):
            old = pieces[at]
            new = self.text(old.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
            room = len(pieces[at + 1]) if at + 1 < len(pieces) else 0
            new = new[: len(old) + max(0, room - 1)]
            pieces[at] = new
            if at + 1 < len(pieces):
                pieces[at + 1] = b"\0" * (room + len(old) - len(new))
        return b"".join(pieces)

    def mapping_json(self) -> str:
        """What was replaced by what, for the owner of the machine alone."""
        return json.dumps(self.mapping, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
