"""A host that notes every question and its answer, so that a snapshot can answer the same elsewhere.

What is noted becomes `answers.jsonl` of a snapshot (docs/contract.md); `observe/replay.py` reads it back.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from gpuclinic.observe.asking import MOST_BYTES, Answer, slug

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuclinic.observe.asking import Asked

FORMAT = 1
MOST_KEPT = 512 << 20
"""Bytes of answers held while recording; what comes after that is noted as left out."""
OVER = "the time for the capture was over"
_LONGEST_NAME, _LONGEST_PATH = 200, 900
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 !#$&'()+,-.:;=@[]^_`{}~/")
_ENDINGS = {"-x": ".xml", "--xml": ".xml", "-J": ".json", "--json": ".json"}


@runtime_checkable
class Texts(Protocol):
    """A host that holds texts nobody asks for by name."""

    def texts(self) -> Iterable[tuple[str, Answer]]:
        """Each as it is shown and its content."""


class Noted(msgspec.Struct):
    """One question with its answer. ask, path, argv: what was asked; more: what else belongs to the question (most, end, deep).

    of: for a pattern, the answers by path. value: short answers that need no file of their own. left_out: why the data were not kept.
    """

    ask: str
    path: str
    answer: Answer
    argv: tuple[str, ...] = ()
    more: dict[str, Any] = {}
    of: dict[str, Answer] | None = None
    links: dict[str, str] | None = None
    left_out: str | None = None


class RecordingHost:
    """Asks another host and notes what it is asked and what it gets; answers are passed on as they came."""

    def __init__(self, inner: Asked, most: int = MOST_KEPT, longest_s: float | None = None) -> None:
        """longest_s: seconds after which nothing more is asked, so that a sick machine cannot hold the capture for ever."""
        self.label = inner.label
        self.live = inner.live
        self.damage: str | None = getattr(inner, "damage", None)
        self.noted: list[Noted] = []
        self._inner = inner
        self._left = most
        self._ends = None if longest_s is None else time.monotonic() + longest_s

    def mark(self, name: str) -> None:
        """Notes that from here on another question of the person is answered ("why"), so that a replay can begin there."""
        self.noted.append(Noted("mark", name, Answer("mark", at=self._inner.clock())))

    def _over(self, question: str) -> Answer | None:
        if self._ends is None or time.monotonic() < self._ends:
            return None
        return Answer(question, why=OVER, at=self._inner.clock())

    def _keep(self, noted: Noted) -> None:
        size = len(noted.answer.data) + sum(len(one.data) for one in (noted.of or {}).values())
        if size > self._left:
            noted.left_out = "over the size cap"
            noted.answer = msgspec.structs.replace(noted.answer, data=b"")
            noted.of = {path: msgspec.structs.replace(one, data=b"") for path, one in (noted.of or {}).items()} or None
        else:
            self._left -= size
        self.noted.append(noted)

    def _one(self, ask: str, path: str, answer: Answer, **more: Any) -> Answer:
        self._keep(Noted(ask, path, answer, more=more))
        return answer

    def file(self, path: str, most: int = MOST_BYTES, *, end: bool = False) -> Answer:
        """The beginning of a file, or its end."""
        return self._one(
            "file", path, self._over(f"file {path}") or self._inner.file(path, most, end=end), most=most, end=end
        )

    def files(self, pattern: str, most: int = 1 << 16) -> dict[str, Answer]:
        """All files that a pattern names."""
        asked = self._inner.clock()
        over = self._over(f"files {pattern}")
        found = {pattern: over} if over is not None else self._inner.files(pattern, most)
        seconds = max((one.seconds for one in found.values()), default=0.0)
        at = next((one.at for one in found.values()), asked)
        answer = Answer(f"files {pattern}", at=at, seconds=seconds)
        self._keep(Noted("files", pattern, answer, more={"most": most}, of=found))
        return found

    def listing(self, path: str) -> Answer:
        """The names in a folder."""
        return self._one("listing", path, self._over(f"listing {path}") or self._inner.listing(path))

    def link(self, path: str) -> Answer:
        """Where a link leads."""
        return self._one("link", path, self._over(f"link {path}") or self._inner.link(path))

    def links(self, pattern: str) -> dict[str, str]:
        """Where all links lead that a pattern names."""
        at = self._inner.clock()
        found = self._inner.links(pattern) if self._over("links") is None else {}
        self._keep(Noted("links", pattern, Answer(f"links {pattern}", at=at), links=found))
        return found

    def find(self, start: str, names: list[str], *, depth: int = 4, most: int = 5000, seconds: float = 0.3) -> Answer:
        """Searches below a folder."""
        over = self._over(f"find {start}")
        found = over or self._inner.find(start, names, depth=depth, most=most, seconds=seconds)
        return self._one("find", start, found, names=names, depth=depth)

    def untrusted(self, paths: list[str], most: int = 1 << 16) -> dict[str, Answer]:
        """Files that others may have put there; noted as other files are."""
        over = self._over("untrusted")
        found = self._inner.untrusted(paths, most) if over is None else dict.fromkeys(paths, over)
        for path, answer in found.items():
            self._one("file", path, answer, most=most, end=False)
        return found

    def stat(self, path: str) -> Answer:
        """Kind, rights, owner of a path."""
        return self._one("stat", path, self._over(f"stat {path}") or self._inner.stat(path))

    def space(self, path: str) -> Answer:
        """Sizes of a file system."""
        return self._one("space", path, self._over(f"space {path}") or self._inner.space(path))

    def command(self, *argv: str, deadline: float = 2.0, most: int = MOST_BYTES) -> Answer:
        """What a program prints."""
        over = self._over("command " + " ".join(argv))
        answer = over or self._inner.command(*argv, deadline=deadline, most=most)
        self._keep(Noted("command", "", answer, argv=argv, more={"most": most}))
        return answer

    def expect(self, commands: list[tuple[str, ...]]) -> None:
        """Passed on; no question yet."""
        self._inner.expect(commands)

    def begin_nvml(self, *, deep: bool = False) -> None:
        """Passed on; no question yet."""
        self._inner.begin_nvml(deep=deep)

    def nvml(self, *, deep: bool = False, sample: int = 0) -> Answer:
        """NVML's view of all GPUs."""
        answer = self._over("nvml") or self._inner.nvml(deep=deep, sample=sample)
        self._keep(Noted("nvml", "", answer, more={"deep": deep, "sample": sample}))
        return answer

    def texts(self) -> Iterator[tuple[str, Answer]]:
        """What a snapshot made by hand holds besides, where one is recorded again."""
        for name, answer in self._inner.texts() if isinstance(self._inner, Texts) else ():
            self._keep(Noted("text", name, answer))
            yield name, answer

    def clock(self) -> float:
        """Now, on the examined machine."""
        now = self._inner.clock()
        self.noted.append(Noted("clock", "", Answer("clock", at=now)))
        return now

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        self.noted.append(Noted("wait", "", Answer("wait", at=self._inner.clock(), seconds=seconds)))
        if self._over("wait") is None:
            self._inner.wait(seconds)

    def close(self) -> None:
        """Gives up what still runs."""
        self._inner.close()


class Written(msgspec.Struct):
    """A recording as files of a snapshot: name -> bytes, the lines of answers.jsonl not yet among them; and what was left out."""

    files: dict[str, bytes]
    lines: list[dict[str, Any]]
    left_out: list[dict[str, str]]


def written(
    host: RecordingHost, scrub: Callable[[str, bytes], bytes], words: Callable[[str], str], most: int = 16 << 20
) -> Written:
    """The recording as files. scrub(what it is, data): data fit to leave the machine; words(text): the same for short texts.

    most: bytes of one answer; a longer one loses its beginning where its end was asked for, else its end.
    """
    store = _Store(scrub, words, most)
    lines = [store.line(one) for one in host.noted]
    return Written(store.placed(), lines, store.left_out)


class _Store:
    """Gives each different answer a place; an answer that begins another one lies in it."""

    def __init__(self, scrub: Callable[[str, bytes], bytes], words: Callable[[str], str], most: int) -> None:
        self._scrub = scrub
        self._words = words
        self._most = most
        self._contents: dict[str, list[bytes]] = {}
        self._waiting: list[tuple[dict[str, Any], str, bytes]] = []
        self._scrubbed: dict[tuple[str, bytes], bytes] = {}
        self.left_out: list[dict[str, str]] = []

    def line(self, noted: Noted) -> dict[str, Any]:
        """The line of answers.jsonl; where its data lie is filled in by `placed`."""
        line: dict[str, Any] = {"ask": noted.ask}
        if noted.argv:
            line["argv"] = [self._words(word) for word in noted.argv]
        elif noted.path:
            line["path"] = self._words(noted.path)
        line |= {name: value for name, value in noted.more.items() if value is not False}
        line["at"] = noted.answer.at
        if noted.answer.seconds:
            line["seconds"] = noted.answer.seconds
        self._result(line, noted.answer)
        if noted.left_out:
            line["left_out"] = noted.left_out
            what = " ".join(noted.argv) or noted.path or "nvml"
            self.left_out.append({"what": self._words(what), "why": noted.left_out})
        elif noted.of is not None:
            line["of"] = [self._file_of(path, one) for path, one in noted.of.items()]
        elif noted.links is not None:
            line["links"] = {self._words(path): self._words(to) for path, to in noted.links.items()}
        elif noted.ask in ("listing", "link", "stat", "space", "find"):
            if noted.answer.ok:
                line["text"] = self._words(noted.answer.data.decode("utf-8", "surrogateescape"))
        elif noted.answer.data:
            self._put(line, _named(noted), noted.answer.data, end=bool(noted.more.get("end")))
        return line

    def _file_of(self, path: str, one: Answer) -> dict[str, Any]:
        line: dict[str, Any] = {"path": self._words(path)}
        self._result(line, one)
        if one.data:
            self._put(line, f"root{path}", one.data)
        return line

    def _result(self, line: dict[str, Any], answer: Answer) -> None:
        if answer.sample:
            line["sample"] = answer.sample
        if answer.code is not None:
            line["code"] = answer.code
        if answer.why is not None:
            line["why"] = self._words(answer.why)
        if answer.cut:
            line["cut"] = True

    def _put(self, line: dict[str, Any], name: str, data: bytes, *, end: bool = False) -> None:
        if len(data) > self._most:
            why = f"{len(data)} bytes, of which the {'last' if end else 'first'} {self._most} were kept"
            self.left_out.append({"what": self._words(name), "why": why})
            data = data[-self._most :] if end else data[: self._most]
            line["cut"] = True
        key = (name, data)
        clean = self._scrubbed.get(key)
        if clean is None:
            clean = self._scrubbed[key] = self._scrub(name, data)
        place = _encoded(self._words(name))
        contents = self._contents.setdefault(place, [])
        if clean not in contents:
            contents.append(clean)
        self._waiting.append((line, place, clean))

    def placed(self) -> dict[str, bytes]:
        """Name -> bytes of all files; completes the lines."""
        files: dict[str, bytes] = {}
        folders: set[str] = set()
        place_of: dict[tuple[str, bytes], str] = {}
        for name, contents in self._contents.items():
            chosen: list[tuple[str, bytes]] = []
            longest = max(contents, key=len)
            for content in [longest, *(c for c in contents if c is not longest)]:
                inside = next((place for place, kept in chosen if kept.startswith(content)), None)
                if inside is None:
                    inside = _free(name if not chosen else f"samples/{len(chosen)}/{name}", files, folders)
                    files[inside] = content
                    chosen.append((inside, content))
                place_of[name, content] = inside
        for line, name, content in self._waiting:
            place = place_of[name, content]
            line["in"] = place
            if len(files[place]) != len(content):
                line["size"] = len(content)
        self._waiting.clear()
        return files


def _named(noted: Noted) -> str:
    """Where the data of an answer should lie."""
    if noted.ask == "nvml":
        sample = noted.more.get("sample", 0)
        return f"nvml-{sample}.json" if sample else "nvml.json"
    if noted.ask == "command":
        ending = next((_ENDINGS[word] for word in noted.argv if word in _ENDINGS), ".txt")
        return f"commands/{slug(noted.argv)}{ending}"
    return noted.path if noted.ask == "text" else f"root{noted.path}"


def _encoded(name: str) -> str:
    """The name in characters that every archive and file system keeps; too long ones are cut in their middle."""
    import hashlib

    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    out = "/".join("".join(c if c in _PLAIN else _escaped(c) for c in part)[:4000] for part in parts)
    if len(out) > _LONGEST_PATH or any(len(part) > _LONGEST_NAME for part in out.split("/")):
        digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
        return f"other/{digest}"
    return out


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))


def _free(name: str, files: dict[str, bytes], folders: set[str]) -> str:
    """A name that is neither taken nor has a file where it needs a folder, nor the other way round."""
    for number in range(1_000_000):
        candidate = name if not number else f"other/{number}/{name.replace('/', '_')[:180]}"
        above = ["/".join(candidate.split("/")[:n]) for n in range(1, candidate.count("/") + 1)]
        if candidate not in files and candidate not in folders and not any(place in files for place in above):
            folders.update(above)
            return candidate
    raise ValueError(f"no free name for {name}")  # a million answers of one name


def answer_lines(lines: list[dict[str, Any]], version: str, *, live: bool = False) -> bytes:
    """answers.jsonl as bytes. live: a running server answered, so that what is missing was missing there."""
    head = {"gpuclinic_answers": FORMAT, "version": version, "live": live}
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in (head, *lines))
