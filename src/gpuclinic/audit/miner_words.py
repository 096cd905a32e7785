"""How much a command line or a configuration looks like mining: several signs of its shape, never one word. Pure."""

from __future__ import annotations

import base64
import binascii
import re

import msgspec

from gpuclinic.audit.places import in_system_place
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
_MOST_TEXT = 20_000
_PASSWORDS = frozenset(["-p", "--pass", "-pass", "--password", "-epsw", "-zpsw"])
_DUMMY = re.compile(r"^(?:x|[cdm]=[\w.,=]{1,40})$", re.IGNORECASE)
"""What pools take for a password: nothing, or settings."""
_TOOLS = ("/usr/local/", "/snap/", "/nix/store/", "/opt/conda/", "/home/linuxbrew/")
_STARTERS = frozenset(
    [
        "x",
        "sh",
        "sudo",
        "nice",
        "ionice",
        "nohup",
        "setsid",
        "timeout",
        "exec",
        "env",
        "xargs",
        "time",
        "then",
        "do",
        "else",
        "if",
        "while",
        "until",
        "!",
        "watch",
        "busybox",
        "command",
    ]
)
"""Words before the program itself; "x" stands for one that is not told."""
_SEPARATORS = re.compile(r"[;&|\n]{1,4}")
_QUOTES = re.compile(r"[\"',()\[\]{}`]|\$(?=\()")
_CODED = re.compile(r"(?<![\w+/])(?:[\da-fA-F]{32,8000}|[A-Za-z\d+/]{24,8000}={0,2})(?![\w+/=])")
_ASSETS = re.compile(r"\.(?:txt|json|yaml|yml|log|csv|pt|bin|h5|py|sh|conf|pot|out)$", re.IGNORECASE)


class Score(msgspec.Struct):
    """points: see ENOUGH. why: the signs, in words of the command line. ports: of the pools it names. hosts: of them."""

    points: int = 0
    why: list[str] = []
    ports: list[int] = []
    hosts: list[str] = []
    known: str | None = None
    wallet: bool = False

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
    if only_mentions(argv, program):
        return out
    names = {base_name(program), base_name(argv[0] if argv else "")}
    out.known = next((name for name in sorted(names) if name in words().programs), None)
    pairs = _pairs(argv[:_MOST_ARGUMENTS])
    seen: set[str] = set()
    for option, value in pairs:
        value_signs(option, value, out, seen)
    given = {option for option, _ in pairs}
    host = next(
        (v for o, v in pairs if o in ("--server", "-server", "--host", "-s", "--pool", "-P") and v and "." in v), None
    )
    if host and given & {"--port", "-port"} and "place" not in seen and given & words().user_options:
        out.add(1, f"{host} and a port")
        out.ports += [n for o, v in pairs if o in ("--port", "-port") and (n := digits(v or "")) is not None]
    dummy = next((v for o, v in pairs if o in _PASSWORDS and v and _DUMMY.match(v)), None)
    if dummy is not None and "place" in seen and given & words().user_options:
        out.add(1, f"password {dummy[:20]}")
    if own := sorted(given & words().options):
        out.add(1, " ".join(own[:3]))
    if out.points == 1 and out.known is None and not seen:
        out.points, out.why = 0, []
    return out


def only_mentions(argv: list[str], program: str = "") -> bool:
    """A program whose arguments may be about mining (grep, an editor). Its name counts where such programs lie, not in a folder of somebody's."""
    if program and not (in_system_place(program) or program.startswith(_TOOLS) or "/.cargo/bin/" in program):
        return False
    for word in [program, *argv[:6]] if program else argv[:6]:
        name = base_name(word)
        if name in words().mentions or name.partition(".")[0] in words().mentions:
            return True
        if word != program and not (name in _STARTERS or word.startswith("-") or word[:1].isdigit() or "=" in word):
            return False
    return False


def value_signs(option: str, value: str | None, out: Score, seen: set[str]) -> None:
    """Adds what an option with its value, or a word alone, tells; `seen` keeps each sign to once."""
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
            out.add(1 if low in w.ambiguous else 2, f"{option} {text[:40]}")
    place = _HOST_PORT.match(text)
    if place and not _ASSETS.search(place[1]):
        host = place[1]
        if is_pool(host) and "pool" not in seen:
            seen.add("pool")
            out.add(2, host)
        web = scheme is not None and scheme[1] in ("http", "https", "ws", "wss")
        named = (option in w.host_options and not web) or (scheme is not None and scheme[1] in w.schemes)
        if named and ("." in host or host.lower() == "localhost") and "place" not in seen:
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
        and (is_wallet(user.partition(":")[0] if "://" in text else user) or is_wallet(user))
    ):
        seen.add("wallet")
        out.wallet = True
        out.add(2, "a wallet as user")


def is_wallet(text: str) -> bool:
    """Shaped as a wallet's address, with or without a rig's name. Digests and addresses of Web3 work look alike."""
    return _WALLETS.match(text[:200]) is not None


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
        if len(word) > 4 and word[1].isalpha() and word.startswith(("-a", "-o", "-u")):
            out.append((word[:2], word[2:]))  # "-arx/0": getopt takes a value that is glued on
        n += 1
    return out


def is_miner_url(text: str) -> bool:
    """An address with a scheme that nothing but mining uses.

    >>> is_miner_url("stratum+tcp://p.example:1"), is_miner_url("https://stratum.example/")
    (True, False)
    """
    scheme = _SCHEME.match(text[:300].lower())
    return scheme is not None and scheme[1] in words().schemes


def pieces(line: str) -> list[list[str]]:
    """The commands of a line of a shell's or another language's, as words; what is coded in base64 or hexadecimal is added decoded.

    >>> pieces("Popen(['./w', '-a', 'x']); y")
    [['Popen', './w', '-a', 'x'], ['y']]
    """
    out = []
    for text in (line, *decoded(line)):
        for piece in _SEPARATORS.split(text[:_MOST_TEXT])[:200]:
            found = _QUOTES.sub(" ", piece).split()
            if found:
                out.append(found)
    return out


def decoded(text: str) -> list[str]:
    """What long words of base64 or hexadecimal in a text say, if it is text."""
    out = []
    for found in list(_CODED.finditer(text[:_MOST_TEXT]))[:20]:
        word = found[0]
        for way in (bytes.fromhex, base64.b64decode):
            try:
                plain = way(word if way is bytes.fromhex else word + "=" * (-len(word) % 4)).decode("ascii")
            except (ValueError, binascii.Error):
                continue
            if plain.isprintable() or all(sign.isprintable() or sign in "\n\t" for sign in plain):
                out.append(plain)
                break
    return out
