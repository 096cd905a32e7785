"""What `gpuclinic run` left of a job (run.json in its bundle): who ended how, and what the recorder saw. Anybody may have made the file."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from gpuclinic.model import Fact, Stamp, Where
from gpuclinic.recognise.one_process import death_fact

if TYPE_CHECKING:
    from gpuclinic.model import Scalar

FORMAT = 1
_MOST, _LONGEST = 500, 500
_SHELL = 128
RECORDER = "gpuclinic run"


def parse_run_record(path: str, data: bytes) -> list[Fact]:
    """Facts run, death, looked, boot and fs (/dev/shm as it was fullest); none where the file is damaged."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return []
    if not isinstance(told, dict):
        return []
    return _Record(path, data.decode("utf-8", "replace"), told).facts()


class _Record:
    def __init__(self, path: str, text: str, told: dict[str, Any]) -> None:
        self._path = path
        self._lines = text.split("\n")
        self._told = told
        self._host = self._text("host") or None

    def _place(self, name: str, text: str = "") -> Where:
        """The line with a key, or all of the file."""
        mark = f'"{name}"'
        number = next((n for n, line in enumerate(self._lines, 1) if mark in line), None)
        shown = text or (self._lines[number - 1].strip() if number else "")
        return Where(self._path, number, shown[:_LONGEST])

    def _number(self, name: str, told: dict[str, Any] | None = None) -> float | None:
        value = (self._told if told is None else told).get(name)
        real = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        return float(value) if real and isinstance(value, (int, float)) and abs(value) < 1e15 else None

    def _whole(self, name: str, told: dict[str, Any] | None = None) -> int | None:
        value = self._number(name, told)
        return int(value) if value is not None else None

    def _text(self, name: str, told: dict[str, Any] | None = None) -> str:
        value = (self._told if told is None else told).get(name)
        return value[:_LONGEST] if isinstance(value, str) else ""

    def _rows(self, name: str) -> list[dict[str, Any]]:
        value = self._told.get(name)
        return [row for row in value[:_MOST] if isinstance(row, dict)] if isinstance(value, list) else []

    def facts(self) -> list[Fact]:
        """All of them; the job's own first."""
        pid = self._whole("pid")
        if pid is None:
            return []
        return [*self._run(pid), *self._deaths(pid), *self._surroundings()]

    def _run(self, pid: int) -> list[Fact]:
        names = ("began_s", "ended_s", "boot_s", "offset_s", "stood_s")
        fields: dict[str, Scalar] = {name: self._number(name) for name in names}
        fields |= {name: self._whole(name) for name in ("exit_code", "signal", "rank", "world")}
        fields |= {
            "pid": pid,
            "command": self._text("command"),
            "hung": bool(self._rows("hangs")),
            "same_pids": self._told.get("same_pids") is not False,
        }
        fields["pids"] = ",".join(str(p) for p in self._list("pids") if isinstance(p, int))[:8000]
        fields["cgroups"] = "\n".join(c for c in self._list("cgroups") if isinstance(c, str))[:4000]
        hangs = self._rows("hangs")
        places = {"": self._place("pid", f"{RECORDER}: {self._text('command')[:200]} (pid {pid})")}
        if hangs:
            stood = self._number("stood_s", hangs[-1])
            fields["stood_s"] = stood if fields["stood_s"] is None else fields["stood_s"]
            places["hung"] = self._place(
                "hangs", f"no output, no GPU progress and no CPU progress for {stood or 0:.0f} s; stacks were taken"
            )
        return [
            Fact(
                "run",
                str(pid),
                {k: v for k, v in fields.items() if v is not None},
                places,
                self._path,
                self._host,
                self._ended(),
            )
        ]

    def _list(self, name: str) -> list[Any]:
        value = self._told.get(name)
        return value[:_MOST] if isinstance(value, list) else []

    def _ended(self) -> Stamp | None:
        ended = self._number("ended_s")
        return Stamp(ended, zoned=True) if ended is not None and ended > 0 else None

    def _deaths(self, pid: int) -> list[Fact]:
        signal, code = self._whole("signal"), self._whole("exit_code")
        ends = self._rows("ends")
        if (
            signal is None
            and code is not None
            and _SHELL < code <= _SHELL + 64
            and not any(self._whole("signal", end) for end in ends)
        ):
            signal, code = code - _SHELL, None  # a shell that tells of its child
        sender = next((row for row in reversed(self._rows("signals")) if self._whole("number", row) == signal), None)
        more: dict[str, Scalar] = {"rank": self._whole("rank")}
        text = f"pid {pid} ({self._text('command')[:80]}) " + (
            f"was ended by signal {signal}" if signal else f"ended with exit code {code}"
        )
        if sender is not None:
            more |= {"sender_pid": self._whole("from", sender), "sender_name": self._text("name", sender)[:40] or "?"}
            text += f"; sent by pid {more['sender_pid']} ({more['sender_name']})"
        out: list[Fact] = []
        if signal or code is not None:
            place = self._place("signal" if self._told.get("signal") is not None else "exit_code", text)
            out.append(
                death_fact(pid, None, RECORDER, place, name=self._text("name"), signal=signal, exit_code=code, **more)
            )
        for end in ends:
            child, number = self._whole("pid", end), self._whole("signal", end)
            if child is not None and child != pid and number:
                line = f"pid {child} ({self._text('name', end)[:40]}), started by the job, was ended by signal {number}"
                fact = death_fact(
                    child,
                    None,
                    RECORDER,
                    self._place("ends", line),
                    name=self._text("name", end)[:40],
                    signal=number,
                    child=True,
                )
                out.append(fact)
        return [Fact(f.kind, f.key, f.fields, f.lines, f.source, self._host, self._ended()) for f in out]

    def _surroundings(self) -> list[Fact]:
        read = self._told.get("kernel_log") is True
        place = self._place("kernel_log", "kernel log: " + ("read" if read else "not read"))
        facts = [Fact("looked", "logs", {"kernel_log": read}, {"": place}, self._path, self._host)]
        boot = self._number("boot_s")
        if boot is not None and boot > 0:
            facts.append(
                Fact(
                    "boot",
                    "this boot",
                    {},
                    {"": self._place("boot_s")},
                    self._path,
                    self._host,
                    Stamp(boot, zoned=True),
                )
            )
        size, used = self._number("shm_mib"), self._number("shm_use_pct")
        if size is not None and used is not None:
            fields: dict[str, Scalar] = {"mount": "/dev/shm", "type": "tmpfs", "size_mib": size, "use_pct": used}  # noqa: S108 - as it is called
            line = self._place("shm_use_pct", f"shared memory: {used:.0f} % of {size:.0f} MiB in /dev/shm when fullest")
            facts.append(Fact("fs", "/dev/shm", fields, {"": line, "use_pct": line}, self._path, self._host))  # noqa: S108
        return facts
