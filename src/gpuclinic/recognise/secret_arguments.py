"""Secrets in the arguments of programs, by option and program (tables/secret_arguments.tsv), wherever command lines stand.

In /proc/PID/cmdline and lists arguments are known each for itself and hidden whole; in a text they are cut as a shell would.
"""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.knowledge import DATA
from gpuclinic.recognise.secret_names import HIDDEN, is_secret, secret_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Words = Callable[[str], str]

_SHORT = len("-p")
_NEAR = 40
_LONGEST = 20_000
_OPTION = re.compile(r"(-{1,2}[A-Za-z][\w.:-]{0,80})(?:(=)(.*))?", re.DOTALL)
_SETTING = re.compile(
    r"((?:\A-{0,2}|(?<=[=,;?&\s:]))[A-Za-z_][\w.-]{0,80})=((?:[^,;&]|[,;&](?![\w.-]{1,80}=))*)", re.DOTALL
)
"""NAME=value, also in name=value,name=value and --option=NAME=value."""
_GLUED_PASSWORD = re.compile(r"-p(?=\S*[a-z])(?=\S*[A-Z])(?=\S*\d)[^\s/=]{6,}")
_SHELL_WORD = re.compile(r"(?:[^\s\"'\\|;&]|\\.|[|;&](?=[^\s|;&])|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')+")
_LIST = re.compile(
    r"\[\s*(?:\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')(?:\s*,\s*(?:\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'))+\s*\]"
)
_ITEM = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'")
_EXECVE = re.compile(r"\btype=EXECVE\b[^\n]*")
_EXECVE_WORD = re.compile(r"(?<=\s)(a\d{1,4})=(?:\"([^\"\n]*)\"|([0-9A-F]{2,}))")
_PROCTITLE = re.compile(r"\bproctitle=((?:[0-9A-F]{2}){2,})\b")
_COMMAND = re.compile(
    r"(?m)(?:\bCOMMAND=|\b[Cc]ommand ?[Ll]ine:\s|\bBOOT_IMAGE=|\bGRUB_CMDLINE\w{0,30}=[\"']?|^\s{0,8}options\s|\bkernelopts=|"
    r"\bExec(?:Start|Stop|Reload)\w{0,8}=)"
)

COMMANDS = (
    "command=",
    "command line:",
    "commandline:",
    "boot_image=",
    "grub_cmdline",
    "kernelopts=",
    "exec",
    "type=execve",
    "proctitle=",
    "options ",
)
"""One of them stands, in small letters, where a text shows a command line of any program."""


class _Row(NamedTuple):
    """Behind which options a program's secret stands.

    within: a word that must come before. glued: only in the same word. place: which word behind the option, that is no option itself; 0: the next.
    after: the sign behind which the secret begins.
    """

    options: tuple[str, ...]
    within: str
    glued: bool
    place: int
    after: str


@functools.cache
def _rows() -> dict[str, list[_Row]]:
    """Program -> what hides behind its options."""
    out: dict[str, list[_Row]] = {}
    for row in (DATA / "tables" / "secret_arguments.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        programs, options, hidden, within, _ = row.split("\t")
        how, _, what = hidden.partition(" ")
        made = _Row(
            tuple(options.split()),
            within,
            how == "glued",
            int(what) if how == "word" else 0,
            what if how == "after" else "",
        )
        for program in programs.split():
            out.setdefault(program, []).append(made)
    return out


@functools.cache
def option_literals() -> tuple[str, ...]:
    """One of them stands, in small letters, where a program of the table takes one of its options."""
    placed = [row for rows in _rows().values() for row in rows if row.place]
    out = {word.lower() for row in placed for word in ((row.within,) if row.within else row.options)}
    plain = {option.lower() for rows in _rows().values() for row in rows for option in row.options if not row.place}
    return tuple(sorted(out | {before + option for option in plain for before in " \t\"'"}))


@functools.lru_cache(maxsize=256)
def _any_of(programs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, programs))})(?=[ \t])")


def lowered(text: str) -> str:
    """In small letters, each at its place: the few that would become two stay."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c if len(c.lower()) > 1 else c.lower() for c in text)


def masked_arguments(words: list[str], other: Words = str) -> list[str]:
    """The words of a command line with those hidden that are secrets. other: masks a word that is no option's value."""
    out = list(words)
    rows: list[_Row] = []
    waiting: dict[int, str] = {}
    for at, word in enumerate(words):
        rule = waiting.pop(at, None)
        if rule is not None and not (rule == "named" and word.startswith("--")):
            out[at] = _hidden(word, rule)
            waiting.update(dict.fromkeys(_rest_of_quoted(words, at), ""))
            continue
        program = _rows().get(word.rpartition("/")[2].rpartition("=")[2])
        if program is not None and (not rows or "/" in word or at == 0):
            rows = [*rows, *(row for row in program if row not in rows)]
        out[at] = _one(words, at, rows, waiting) or other(word)
    return out


def _rest_of_quoted(words: list[str], at: int) -> range:
    """The words up to the closing quote: a title that a program wrote itself was cut at blanks that parted no arguments."""
    quote = words[at][:1]
    if quote not in ("'", '"') or (len(words[at]) > 1 and words[at].endswith(quote)):
        return range(0)
    end = next((n for n in range(at + 1, min(len(words), at + 20)) if words[n].endswith(quote)), at)
    return range(at + 1, end + 1)


def _one(words: list[str], at: int, rows: list[_Row], waiting: dict[int, str]) -> str | None:
    """What stands for the word; None where nothing is to be hidden in it. waiting: what is to be hidden of later words."""
    word = words[at]
    for row in rows:
        new = _by_row(words, at, row, waiting)
        if new is not None:
            return new
    if _GLUED_PASSWORD.fullmatch(word):
        return f"-p{HIDDEN}"
    option = _OPTION.fullmatch(word)
    if option is not None and not option[2]:
        value = words[at + 1] if at + 1 < len(words) else ""
        if is_secret(option[1], value, argument=True):
            waiting.setdefault(at + 1, "named")
    if option is not None and option[2] and is_secret(option[1], option[3], argument=True):
        return f"{option[1]}={HIDDEN}"
    return _settings(word) if "=" in word else None


def _settings(word: str) -> str | None:
    """The word with the values of its settings hidden that are secrets; None where none is."""
    out, at, end = "", 0, 0
    while found := _SETTING.search(word, at):
        if is_secret(found[1], found[2], argument=True):
            out += word[end : found.start(2)] + HIDDEN
            at = end = found.end()
        else:
            at = found.end(1) + 1
    return out + word[end:] if end else None


def _by_row(words: list[str], at: int, row: _Row, waiting: dict[int, str]) -> str | None:
    word = words[at]
    if row.within and not any(row.within in other for other in words[max(0, at - _NEAR) : at]):
        return None
    if row.place:
        if word in row.options:
            places = [n for n in range(at + 1, min(len(words), at + 20)) if not words[n].startswith("-")]
            if len(places) >= row.place and words[places[row.place - 1]].lower() not in secret_words("no_value"):
                waiting[places[row.place - 1]] = ""
        return None
    for option in row.options:
        if word == option:
            if not row.glued:
                waiting[at + 1] = row.after
            return word
        if word.startswith(option + "="):
            return f"{option}={_hidden(word[len(option) + 1 :], row.after)}"
        if (len(option) == _SHORT or row.glued) and word.startswith(option) and not word.startswith("--"):
            return option + _hidden(word[len(option) :], row.after)
    return None


def _hidden(value: str, after: str) -> str:
    """after: the sign behind which the secret begins; nothing: all of it is one."""
    if value.startswith(HIDDEN):
        return value
    name, sign, rest = value.partition(after) if after and after != "named" else ("", "", value)
    if after and after != "named":
        return f"{name}{sign}{HIDDEN}" if rest else value
    return HIDDEN


def masked_command_lines(text: str, other: Words = str) -> str:
    """A text with the secrets hidden in the command lines that stand in it: lists of arguments, audit records, what a shell was given."""
    if "[" in text:
        text = _LIST.sub(lambda found: _in_list(found[0], other), text)
    if "type=EXECVE" in text:
        text = _EXECVE.sub(lambda found: _in_execve(found[0], other), text)
    if "proctitle=" in text:
        text = _PROCTITLE.sub(lambda found: "proctitle=" + _in_proctitle(found[1], other), text)
    low = text.lower()
    starts = [found.end() for found in _COMMAND.finditer(text)] if any(word in low for word in COMMANDS) else []
    programs = tuple(name for name in _rows() if name + " " in text or name + "\t" in text)
    if programs:
        starts += [found.start() for found in _any_of(programs).finditer(text)]
    return _in_text(text, sorted(starts)) if starts else text


def _in_list(text: str, other: Words) -> str:
    items = list(_ITEM.finditer(text))
    words = [_unquoted(item[0]) for item in items]
    pieces: list[str] = []
    end = 0
    for item, old, new in zip(items, words, masked_arguments(words, other), strict=True):
        if new != old:
            quote = item[0][0]
            pieces += [text[end : item.start()], json.dumps(new) if quote == '"' else f"'{new}'"]
            end = item.end()
    return "".join(pieces) + text[end:] if pieces else text


def _unquoted(item: str) -> str:
    if item[0] == '"':
        try:
            return str(json.loads(item))
        except ValueError:
            return item[1:-1]
    return item[1:-1]


def _in_execve(line: str, other: Words) -> str:
    found = list(_EXECVE_WORD.finditer(line))
    words = [one[2] if one[2] is not None else _from_hex(one[3]) for one in found]
    pieces: list[str] = []
    end = 0
    for one, old, new in zip(found, words, masked_arguments(words, other), strict=True):
        if new != old:
            pieces += [line[end : one.start()], f"{one[1]}={_to_hex(new) if one[3] else json.dumps(new)}"]
            end = one.end()
    return "".join(pieces) + line[end:] if pieces else line


def _in_proctitle(digits: str, other: Words) -> str:
    words = _from_hex(digits).split("\0")
    new = masked_arguments(words, other)
    return digits if new == words else _to_hex("\0".join(new))


def _from_hex(digits: str) -> str:
    return bytes.fromhex(digits[: len(digits) // 2 * 2]).decode("utf-8", "surrogateescape")


def _to_hex(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").hex().upper()


def _in_text(text: str, starts: list[int]) -> str:
    pieces: list[str] = []
    end = shown = 0
    for start in starts:
        if start < end:
            continue
        spans = list(_shell_words(text, start))
        words = [_stripped(text[a:b]) for a, b in spans]
        for (a, b), old, new in zip(spans, words, masked_arguments(words, _inside), strict=True):
            if new != old:
                pieces += [text[shown:a], new]
                shown = b
        end = spans[-1][1] if spans else start
    return "".join(pieces) + text[shown:] if pieces else text


def _inside(word: str) -> str:
    """A command inside a word, as sh -c has it."""
    return masked_command_lines(word) if " " in word else word


def _shell_words(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Where the words of a command lie, up to the end of its line, of the string it stands in, or where a shell begins another."""
    stop = text.find("\n", start, start + _LONGEST)
    stop = min(len(text), start + _LONGEST) if stop < 0 else stop
    at = start
    while found := _SHELL_WORD.match(text, at, stop):
        yield found.span()
        at = found.end()
        while at < stop and text[at] in " \t":
            at += 1


def _stripped(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" else word
