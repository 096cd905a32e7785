"""Passwords, tokens, keys and the like in texts: found by their shape or by the name before them, and hidden."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.secret_arguments import (
    COMMANDS,
    lowered,
    masked_arguments,
    masked_command_lines,
    option_literals,
)
from gpuclinic.recognise.secret_names import HIDDEN, is_empty, is_number, is_secret, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["HIDDEN", "mask", "masked_cmdline"]

_NAMED = (
    r"(?:pass(?:word|wd|phrase)?|pwd(?=[\"']?\s{0,3}[=:]\s{0,3}[\"']?[^/~\s\"'])|secret|credentials?|"
    r"(?:api|access|auth|private|secret|account|master|signing|encryption|ssh|license|app)[-_ ]?key|"
    r"(?:api|access|auth|bearer|refresh|session|security|secret|hf|hub|hugging_?face|hugging_?face_?hub|wandb|github|gitlab|"
    r"gh|slack|bot|jupyter|vault|k8s|kube|registry|npm|pypi|join|id)[-_]token)"
)
_QUOTED = r"\"(?:[^\"\\\n]|\\.){0,20000}(?:\"|(?=\n)|\Z)|'(?:[^'\\\n]|\\.){0,20000}(?:'|(?=\n)|\Z)|\\{1,3}[\"'][^\"'\\\n]{0,20000}(?:\\{1,3}[\"'])?"
"""In quotes, as JSON has them inside JSON, too; a text that was cut may lack the last one."""
_ENDS = r"[,;&|)}\]]{0,20}(?:[\s\"'\\]|\Z)|[\w.-]{1,40}\\?[\"']?\s?[=:]"
_PLAIN = rf"(?:[^\s\"',;&|)}}\]\\]|\\[^\s\"'\\]|[,;&|)}}\]](?!{_ENDS}))"
"""A sign that may end a value belongs to it where neither a blank nor another name follows: `a,b` is one value, `a,uid=0` is not."""
_VALUE = rf"(?:{_QUOTED}|{_PLAIN}{{1,8000}})"
_LONG_VALUE = 1000
_NAMES = (
    "pass",
    "pwd",
    "pw",
    "secret",
    "credential",
    "key",
    "token",
    "jwt",
    "psk",
    "auth",
    "community",
    "bearer",
    "-k ",
    "-k=",
    '-k"',
    "-k'",
    "-pin",
    "_pin",
    ".pin",
)
"""What all names that secret_words.tsv tells have in them."""
_SPACE = r"[ \t]{0,3}"
_SEPARATOR = rf"(?:\\{{0,3}}[\"'])?{_SPACE}(?:=>|:=|=(?!=)|:(?!:)){_SPACE}"
_SHORT_PREFIXES = (
    r"hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-(?:ant-|proj-|or-)?[\w-]{20,}|"
    r"nvapi-[\w-]{20,}|xox[abeoprs]-[\w-]{10,}|AIza[\w-]{30,}|ya29\.[\w-]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|"
    r"dckr_pat_[\w-]{16,}|(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}|LTAI[A-Za-z0-9]{12,}|AKID[A-Za-z0-9]{20,}|dop_v1_[a-f0-9]{40,}|"
    r"wandb_v1_[A-Za-z0-9_]{16,}|glsa_\w{20,}|[sr]k_(?:live|test)_\w{16,}|whsec_\w{16,}|hvs\.[\w-]{20,}|dapi[a-f0-9]{32}|xapp-[\w-]{20,}|"
    r"tskey-[\w-]{16,}|shpat_\w{20,}|GOCSPX-[\w-]{16,}|ATATT3[\w=-]{20,}|bce-v3/[\w/-]{20,}|xai-\w{20,}|pplx-\w{20,}|csk-\w{20,}|tgp_v1_[\w-]{16,}|"
    r"AGE-SECRET-KEY-1\w{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|r8_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{30,}|ms-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)


def _hidden(value: str) -> str:
    """Three stars in the quotes of the value, so that JSON stays JSON."""
    opening = re.match(r"\\{0,3}[\"']", value)
    if opening is None:
        return HIDDEN
    closed = len(value) > len(opening[0]) and value.endswith(opening[0])
    return f"{opening[0]}{HIDDEN}{opening[0] if closed else ''}"


def _quotes_kept(found: re.Match[str]) -> str:
    counted = re.search(r"(?i)pass[\"']?\s{0,3}[:=]", found[1][-12:]) and is_number(found[2])
    return found[0] if is_empty(found[2]) or counted else found[1] + _hidden(found[2])


class _Pattern:
    """An expression that is compiled when it is first used: most answers hold nothing that any of these could match."""

    def __init__(self, expression: str, flags: int = 0) -> None:
        self._expression, self._flags = expression, flags

    @functools.cached_property
    def compiled(self) -> re.Pattern[str]:
        """The expression, ready."""
        return re.compile(self._expression, self._flags)

    def sub(self, replacement: str | Callable[[re.Match[str]], str], text: str) -> str:
        """The text with what matches replaced."""
        return self.compiled.sub(replacement, text)


class _Named:
    """Hides the value behind a name that tells of a secret; what stands in the value of another name is searched, too.

    head: finds the name, its second group, and all up to the value.
    """

    def __init__(self, head: str, value: str = _VALUE, *, argument: bool = False) -> None:
        self._head, self._value = _Pattern(head), _Pattern(value)
        self._argument = argument

    def sub(self, _: object, text: str) -> str:
        """The text with the values hidden."""
        head_of, value_of = self._head.compiled, self._value.compiled
        pieces: list[str] = []
        at = end = 0
        while found := head_of.search(text, at):
            at = found.end()
            kind = kind_of(found[1])
            value = value_of.match(text, at) if kind and (self._argument or kind != "perhaps") else None
            if value is not None and is_secret(found[1], value[0], argument=self._argument):
                pieces += [text[end:at], _hidden(value[0])]
                at = end = value.end()
            elif value is not None and len(value[0]) > _LONG_VALUE:
                at = value.end()
        return "".join(pieces) + text[end:] if pieces else text


_RULES: tuple[tuple[tuple[str, ...], _Pattern | _Named, str | Callable[[re.Match[str]], str]], ...] = (
    (
        ("private key", "static key"),
        _Pattern(
            r"(-----BEGIN [A-Za-z0-9 ]{0,30}(?:PRIVATE KEY(?: BLOCK)?|Static key V1)-----).*?"
            r"(?:(-----END [A-Za-z0-9 ]{0,30}(?:KEY(?: BLOCK)?|key V1)-----)|\Z)",
            re.DOTALL,
        ),
        rf"\1{HIDDEN}\2",
    ),
    (("eyj",), _Pattern(r"\beyJ[\w-]{8,2000}\.[\w-]{8,4000}(?:\.[\w-]{0,2000})?"), HIDDEN),
    (
        (
            "hf_",
            "ghp_",
            "gho_",
            "ghu_",
            "ghs_",
            "ghr_",
            "github_pat_",
            "glpat-",
            "sk-",
            "nvapi-",
            "xox",
            "aiza",
            "ya29",
            "npm_",
            "pypi-",
            "dckr_pat_",
            "akia",
            "asia",
            "aroa",
            "aida",
            "ltai",
            "akid",
            "dop_v1_",
            "wandb_v1_",
            "r8_",
            "gsk_",
            "ms-",
            "glsa_",
            "k_live_",
            "k_test_",
            "whsec_",
            "hvs.",
            "dapi",
            "xapp-",
            "tskey-",
            "shpat_",
            "gocspx-",
            "atatt3",
            "bce-v3/",
            "xai-",
            "pplx-",
            "csk-",
            "tgp_v1_",
            "age-secret",
            "sg.",
        ),
        _Pattern(rf"\b(?:{_SHORT_PREFIXES})"),
        HIDDEN,
    ),
    (
        ("://",),
        _Pattern(  # up to the last @ before the next URL: passwords hold @ and /, too, but what begins as a port is one
            r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"']{0,100}):(?!\d{1,5}(?:[/?#\s\"',;)\]}]|\Z))"
            r"(?:(?!://)[^\s\"'<>]){1,2000}@(?!sha\d{3}:)",
            re.IGNORECASE,
        ),
        rf"\1:{HIDDEN}@",
    ),
    (("://",), _Pattern(r"(\b[a-z][a-z0-9+.-]{1,20}://)[\w.~+%-]{16,200}@", re.IGNORECASE), rf"\1{HIDDEN}@"),
    (
        ("authorization", "x-api-key", "x-auth-token"),
        _Pattern(
            r"((?:authorization|proxy-authorization|x-api-key|x-auth-token)[\"']?\s{0,3}[:=]\s{0,3}[\"']?)(?:(bearer|basic|token|digest)\s+)?[^\s\"',]{4,2000}",
            re.IGNORECASE,
        ),
        rf"\1\2 {HIDDEN}",
    ),
    (
        ("bearer",),
        _Pattern(r"\b(bearer\s+)(?=[\w.~+/-]{0,400}\d)[\w.~+/-]{16,4000}=*", re.IGNORECASE),
        rf"\1{HIDDEN}",
    ),
    (
        ("token=", "sig=", "signature=", "secret=", "password=", "key=", "credential=", "code="),
        _Pattern(
            r"([?&](?:[\w-]{0,30}(?:token|sig|signature|secret|password|key|credential|code))=)[^&\s\"'#]{4,1000}",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (
        ("hook", "/services/"),
        _Pattern(r"(https?://[^\s\"']{1,150}/(?:hooks?|services|webhooks?|webhookb2)/)[\w/-]{16,200}"),
        rf"\1{HIDDEN}",
    ),
    (
        ("pass", "pwd", "secret", "credential", "key", "token"),
        _Pattern(
            rf"((?<![a-z]){_NAMED}(?:[-_][a-z0-9]{{1,20}})?[\"']?\s{{0,3}}(?:=|:|=>)\s{{0,3}})"
            rf"(?!\s|=|\*\*\*)({_QUOTED}|{_PLAIN}{{3,8000}})",
            re.IGNORECASE,
        ),
        _quotes_kept,
    ),
    # NAME=value, "name": "value" for all names that secret_words.tsv tells
    (
        _NAMES,
        _Named(rf"(?<![\w.-])-{{0,2}}([A-Za-z_][\w.-]{{1,80}}){_SEPARATOR}"),
        "",
    ),
    # --name value, "--name", "value", and in YAML "- --name" before "- value"
    (
        _NAMES,
        _Named(
            r"(?<![\w-])(-{1,2}[A-Za-z][\w.-]{0,60})(?:[ \t]{1,3}|=|[\"']?[ \t]{0,3}\n\s{0,40}-[ \t]{1,3})(?!--)",
            rf"{_QUOTED}|[^\s\"']{{1,8000}}",
            argument=True,
        ),
        "",
    ),
    (
        _NAMES,
        _Named(
            r"(?<![\w-])(-{1,2}[A-Za-z][\w.-]{0,60})\\{0,3}[\"']\s{0,80},\s{0,80}(?=\\{0,3}[\"'])",
            argument=True,
        ),
        "",
    ),
    (
        (" -p", '"-p', "'-p"),
        _Pattern(
            r"((?<![\w-])-p)(?=[^\s\"',/=]{0,200}[a-z])(?=[^\s\"',/=]{0,200}[A-Z])(?=[^\s\"',/=]{0,200}\d)[^\s\"',/=]{6,200}(?![\w/=])"
        ),
        rf"\1{HIDDEN}",
    ),
    # "name": "N", "value": "x" as containers have their environment, and the same in YAML and XML
    (
        _NAMES,
        _Named(
            r"(?:\b[Nn]ame|\b[Kk]ey)\\{0,3}[\"']?\s{0,3}:\s{0,3}\\{0,3}[\"']?([A-Za-z_][\w.-]{1,80})\\{0,3}[\"']?\s{0,3},?\s{0,80}\\{0,3}[\"']?[Vv]alue\\{0,3}[\"']?"
            r"\s{0,3}:\s{0,3}",
            argument=True,
        ),
        "",
    ),
    (_NAMES, _Named(r"<([A-Za-z][\w.:-]{1,80})(?:\s[^<>]{0,400})?>", r"[^<>\n]{1,8000}(?=</)", argument=True), ""),
    # names before a blank, each at the beginning of its line: redis, LDAP, SNMP, netrc
    (
        ("pass", "auth", "bindpw", "rootpw", "community"),
        _Pattern(
            r"(?m)(^[ \t]{0,8}(?:requirepass|masterauth|bindpw|rootpw|rocommunity6?|rwcommunity6?|"
            r"machine\s\S{1,200}\s{1,4}login\s\S{1,200}\s{1,4}password|"
            r"password_pbkdf2\s\S{1,100}|auth-pass|vnc_password)[ \t]{1,20})(?!\*\*\*)[^\s=:][^\s]{0,400}"
        ),
        rf"\1{HIDDEN}",
    ),
    (
        ("$1$", "$2", "$5$", "$6$", "$7$", "y$", "$apr1$", "$sha1$", "$argon2", "$scrypt$"),
        _Pattern(r"\$(?:1|2[abxy]?|5|6|7|g?y|apr1|sha1|argon2(?:i|d|id)|scrypt)\$[^\s:\"',;]{8,400}"),
        HIDDEN,
    ),
    (("@tcp(", "@unix("), _Pattern(r"(\b[\w.-]{1,60}):[^\s@]{1,200}@(?=(?:tcp|unix)\()"), rf"\1:{HIDDEN}@"),
    (("iscsi:",), _Pattern(r"(\biscsi:[^\s:@]{1,100}):[^\s@]{1,400}@"), rf"\1:{HIDDEN}@"),
    (("/bot",), _Pattern(r"(/bot\d{5,20}:)[\w-]{20,100}"), rf"\1{HIDDEN}"),
    (
        ("auth",),
        _Pattern(r"(\\{0,3}[\"']auth\\{0,3}[\"']\s{0,3}:\s{0,3}\\{0,3}[\"'])[\w+/=-]{8,4000}"),
        rf"\1{HIDDEN}",
    ),
    (("auth",), _Pattern(r"(?m)(^[ \t]{0,20}auth\s{0,3}[=:]\s{0,3}[\"'])[\w+/=-]{8,4000}"), rf"\1{HIDDEN}"),
    (
        ("_token",),
        _Pattern(rf"(\b[A-Z][A-Z0-9_]{{0,40}}_TOKEN\s?=\s?)(?!\*\*\*)({_QUOTED}|{_PLAIN}{{6,8000}})"),
        _quotes_kept,
    ),
    (
        ("token",),
        _Pattern(
            r"((?<![\w-])token[\"']?\s{0,2}[=:]\s{0,2}[\"']?)(?=[^\s\"',;&]{0,400}\d)(?=[^\s\"',;&]{0,400}[a-zA-Z])[\w.~+/-]{16,400}=*",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (
        ("login", "sshpass"),
        _Pattern(r"(\b(?:wandb\s+login|huggingface-cli\s+login\s+--token|sshpass\s+-p)(?:\s+--relogin)?\s+)\S{4,200}"),
        rf"\1{HIDDEN}",
    ),
    # what sets a password without the word before it: PGPASSWORD=, MYSQL_PWD=, mysql -pSECRET, a miner's -p, cookies, 密码：
    (
        ("passw", "pwd"),
        _Pattern(r"(\b(?:[A-Z]{2,12}(?:PASSWORD|PASSWD)|MYSQL_PWD)=)[\"']?[^\s\"']{3,400}"),
        rf"\1{HIDDEN}",
    ),
    (
        ("miner", "xmrig", "t-rex"),
        _Pattern(
            r"(\b(?:xmrig|t-rex|lolMiner|nbminer|gminer|ethminer|phoenixminer|cpuminer|miner\w{0,20})\b[^\n]{0,300}?\s(?:-p|--pass)\s+)\S{4,200}",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (("cookie",), _Pattern(r"(\b(?:set-)?cookie\s?:\s?)[^\n]{4,2000}", re.IGNORECASE), rf"\1{HIDDEN}"),
    (("sig=",), _Pattern(r"([?&;]sig=)[^&\s\"'#]{4,1000}", re.IGNORECASE), rf"\1{HIDDEN}"),
    (
        ("密码", "口令", "密钥", "令牌", "密碼", "パスワード"),
        _Pattern(r"((?:密码|口令|密钥|令牌|密碼|パスワード)\s?[：:=]\s?)[^\s，。；,;]{3,400}"),
        rf"\1{HIDDEN}",
    ),
)
"""Words of which one stands, in small letters, in every text that the pattern matches; the pattern; what replaces it."""
_KEY_RULE = _RULES[0]
_LONG, _LONG_JSON = 1 << 16, 1 << 24
"""Longer texts are searched line by line first; JSON, whose lists run over many lines, only where it is very long."""


@functools.cache
def _literals() -> tuple[str, ...]:
    """One of them stands, in small letters, in every text that holds a secret; none lies in another."""
    words = {*COMMANDS, *option_literals(), *(word for words, _, _ in _RULES for word in words)}
    return tuple(word for word in sorted(words) if not any(other in word for other in words if other != word))


def mask(text: str) -> str:
    """The text with passwords, tokens, keys and the like replaced by three stars; the same object where there were none."""
    low = lowered(text)
    if len(text) <= _LONG or (len(text) <= _LONG_JSON and text.lstrip()[:1] in ("[", "{")):
        return _masked(text, low) if any(word in low for word in _literals()) else text
    if "private key" in low:
        text = _KEY_RULE[1].sub(_KEY_RULE[2], text)
        low = lowered(text)
    pieces: list[str] = []
    end = 0
    for start, stop in _worth_a_look(low):
        old = text[start:stop]
        new = _masked(old, low[start:stop])
        if new is not old:
            pieces += [text[end:start], new]
            end = stop
    return "".join(pieces) + text[end:] if pieces else text


def _worth_a_look(low: str) -> Iterator[tuple[int, int]]:
    """Of a long text the lines that may hold a secret, with the two that follow, in which its value may stand."""
    hits: set[int] = set()
    for word in _literals():
        at = low.find(word)
        while at >= 0:
            hits.add(low.rfind("\n", 0, at) + 1)
            after = low.find("\n", at + len(word))
            at = low.find(word, after) if after >= 0 else -1
    start = stop = -1
    for first in sorted(hits):
        if first > stop >= 0:
            yield start, stop
        if first > stop:
            start = first
        last = first
        for _ in range(3):
            last = low.find("\n", last) + 1 or len(low)
        stop = max(stop, last)
    if stop >= 0:
        yield start, stop


def _masked(text: str, low: str) -> str:
    old = text
    for words, pattern, replacement in _RULES:
        if any(word in low for word in words):
            text = pattern.sub(replacement, text)
    text = masked_command_lines(text, mask)
    return old if text == old else text


def masked_cmdline(data: bytes) -> bytes:
    """/proc/PID/cmdline with its secrets hidden: whole arguments, since zeros part them; a title that a program wrote there is a text."""
    text = data.decode("utf-8", "surrogateescape")
    words = text.split("\0")
    if "\0" in text.rstrip("\0"):
        new = "\0".join(masked_arguments(words, mask))
    else:
        title = text.rstrip("\0")
        new = mask(" ".join(masked_arguments(title.split(" "), mask))) + text[len(title) :]
    return data if new == text else new.encode("utf-8", "surrogateescape")
