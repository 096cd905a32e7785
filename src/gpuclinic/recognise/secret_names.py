"""Which names hold secrets, and which values behind such names are none: `StoragePass=`, `--hf-token`, but not `pad_token`, `--pass 2`."""

from __future__ import annotations

import functools
import re

from gpuclinic.knowledge import DATA

HIDDEN = "***"
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NUMBER = re.compile(r"[-+]?\d[\d.,_]*(?:e[-+]?\d{1,3})?\s?(?:%|[a-zA-Z]{1,3}(?:/[a-z]{1,3})?)?")
_PLACE = re.compile(
    r"[./~].*|[A-Za-z]:\\.*|.*\.(?:pem|key|crt|cer|json|ya?ml|txt|toml|conf|cfg|ini|p12|pfx|jks|asc|gpg|env)"
)
_VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w{0,80}\}?|\$\(.*|\{\{.*|%\w{1,40}%|<[\w -]{1,60}>")
_LONG_NUMBER = 6
_SHORT, _LONG = 8, 20


@functools.cache
def secret_words(kind: str) -> frozenset[str]:
    """Words of names (tables/secret_words.tsv) of a kind."""
    rows = (DATA / "tables" / "secret_words.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return frozenset(row.split("\t")[1] for row in rows if row.startswith(kind + "\t"))


@functools.lru_cache(maxsize=8192)
def kind_of(name: str) -> str | None:
    """What a name says of the value behind it: "secret" (always one), "pass", "token", "key", "perhaps" (by its looks); None: nothing."""
    words = [word.lower() for word in _WORD.findall(name[-120:])]
    while len(words) > 1 and (words[-1].isdigit() or words[-1] in secret_words("ending")):
        words.pop()
    if not words:
        return None
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in secret_words("secret") or last.endswith(("password", "passwd", "passphrase", "secret", "apikey")):
        return "secret"
    if last in secret_words("token"):
        return None if before in secret_words("model_token") else "token"
    if last.endswith("token"):
        return None if last.removesuffix("token") in secret_words("model_token") else "token"
    if last == "key" or (last.endswith("key") and last.removesuffix("key") in secret_words("before_key")):
        return "key" if last != "key" or before in secret_words("before_key") else "perhaps"
    if last in secret_words("pass"):
        return "pass"
    if last.endswith(("pass", "pwd", "pw")) and len(last) > 4 and last not in secret_words("harmless_pass"):
        return "pass"
    return "perhaps" if last in secret_words("perhaps") else None


def _known_pass(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    stems = secret_words("before_pass")
    return before in stems or any(last.removesuffix(end) in stems for end in ("pass", "pwd", "pw") if last != end)


def looks_random(value: str) -> bool:
    """At least eight characters, letters and digits mixed, neither a path nor a number with its unit."""
    mixed = re.search(r"[A-Za-z]", value) and re.search(r"\d", value)
    return bool(
        len(value) >= _SHORT
        and mixed
        and not re.search(r"[\s/]|\w\.\w{1,4}\Z|:\d", value)
        and not _NUMBER.fullmatch(value)
    )


def is_number(value: str) -> bool:
    """A number of at most five digits, or one with a unit: "12", "3.2ms"; a longer one may be a password."""
    return bool(_NUMBER.fullmatch(value)) and not (value.isdigit() and len(value) >= _LONG_NUMBER)


def is_empty(value: str) -> bool:
    """Nothing, a word that says so, the name of a variable, or hidden already."""
    value = value.strip("\"'\\")
    return (
        not value
        or value.startswith(HIDDEN)
        or value.lower() in secret_words("no_value")
        or bool(_VARIABLE.fullmatch(value))
    )


def is_secret(name: str, value: str, *, argument: bool = False) -> bool:
    """Whether the value behind the name is a secret. argument: an option or a setting of a program, not a word of a log's text."""
    kind = kind_of(name)
    value = value.strip("\"'\\")
    if (
        kind is None or is_empty(value) or name.upper().endswith("NOPASSWD")
    ):  # a tag of sudoers, which says that none is asked for
        return False
    if kind == "secret":
        return True
    if kind == "perhaps":
        return argument and looks_random(value)
    if is_number(value) or _PLACE.fullmatch(value):
        return False
    if kind == "key" or argument:
        return True
    if kind == "pass":
        return _known_pass(name)
    stem = re.sub(r"(?i)[_.-]?token\d*\Z", "", name)
    if any(stem.lower().endswith(word) for word in secret_words("before_token")):
        return True
    return "<" not in value and (looks_random(value) or (len(value) >= _LONG and value.isascii() and value.isalnum()))
