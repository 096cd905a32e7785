"""`audit`: takes all checks, weighs what they found, and says how much could be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.audit.checks import all_checks
from gpuclinic.audit.scene import Scene
from gpuclinic.audit.verdict import compromise, grade_of, groups, posture, settled, severity_of
from gpuclinic.knowledge.audit import load_audit
from gpuclinic.model import Finding, Gap, Where

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.hits import Hit
    from gpuclinic.observe.asking import Asked

_MOST_EVIDENCE = 8
_MOST_ALIKE = 3
"""Findings of one id that are told one by one; further ones of the same are told in the last."""


class AuditOptions(msgspec.Struct):
    """only, skip: ids or beginnings of ids of checks and findings. expected: rows of the owner's list (exe, user, reason).

    before, before_name: a baseline to compare with, and its file's name. save: the answer holds a new one.
    """

    deep: bool = False
    only: list[str] = []
    skip: list[str] = []
    lang: str = "en"
    expected: list[dict[str, str]] = []
    before: dict[str, Any] | None = None
    before_name: str = ""
    save: bool = False


class AuditAnswer(msgspec.Struct):
    """compromise: infected, suspicious, none, unknown. posture: weak, sound, unknown. confidence: what the verdict rests on, name and value.

    verdict: ok, warning, critical, unknown, as `check` says it. signs: ids of findings that belong to one intruder, each group a list.
    """

    verdict: str
    compromise: str
    posture: str
    coverage: str
    findings: list[Finding]
    looked_at: list[str]
    not_looked_at: list[Gap]
    lang: str
    confidence: list[tuple[str, str]]
    alike: dict[str, str] = {}
    host: str | None = None
    boot_id: str | None = None
    seconds: float = 0.0
    baseline: bytes = b""


def audit(host: Asked, options: AuditOptions, progress: Callable[[str], None] | None = None) -> AuditAnswer:
    """Looks at everything and weighs it. A check that stumbles over an answer costs only itself."""
    from gpuclinic.clinic.stumbling import stumbled

    started = host.clock()
    scene = Scene(host, deep=options.deep)
    hits: list[Hit] = []
    looked: list[str] = []
    for identity, check in all_checks():
        if not _wanted(identity, options):
            continue
        if progress is not None:
            progress(identity)
        try:
            found = check(scene)
        except Exception as problem:  # noqa: BLE001 - becomes a gap; with GPUCLINIC_DEBUG=1 it is let through
            scene.gap(identity, stumbled(problem), required=True)
            continue
        hits += [hit for hit in found if _wanted_id(hit.id, options)]
        if identity not in looked:
            looked.append(identity)
    hits = settled(
        _expected(list({(hit.id, hit.subject): hit for hit in reversed(hits)}.values())[::-1], scene, options)
    )
    if options.before is not None:
        from gpuclinic.audit.baseline import compared

        hits += compared(scene, options.before, options.before_name)
        looked.append("audit.baseline")
    _unseen(scene)
    answer = _answer(scene, hits, looked, options, started)
    if options.save:
        from gpuclinic.audit.baseline import saved

        answer.baseline = saved(scene)
    return answer


def _wanted(identity: str, options: AuditOptions) -> bool:
    return not any(identity == n or identity.startswith(n.rstrip(".") + ".") for n in options.skip) and (
        not options.only
        or any(identity == n or identity.startswith(n.rstrip(".") + ".") or n in load_audit() for n in options.only)
    )


def _wanted_id(identity: str, options: AuditOptions) -> bool:
    named = [n for n in options.only if n in load_audit()]
    return identity not in options.skip and (not named or identity in named)


def _expected(hits: list[Hit], scene: Scene, options: AuditOptions) -> list[Hit]:
    """What the owner runs on purpose becomes an information, and is still told."""
    names = {account.uid: account.name for account in scene.accounts}
    out = []
    for hit in hits:
        process = scene.processes.get(hit.pid) if hit.pid is not None else None
        allowed = process is not None and any(
            row.get("exe") == process.exe
            and row.get("user", "") in ("", names.get(process.uid if process.uid is not None else -1, ""))
            for row in options.expected
        )
        out.append(msgspec.structs.replace(hit, grade="weak", severity="info") if allowed and grade_of(hit) else hit)
    return out


def _unseen(scene: Scene) -> None:
    """What could not be looked at because it is not there, or not shown."""
    if not scene.processes:
        why = "no process is shown" if scene.host.live else "not in the snapshot (a disk, or a part of one)"
        scene.gap("audit.processes", why, required=scene.host.live, fix="run it on the running server, too")
    elif scene.as_root is False:
        fix = "run it as root: programs, descriptors and environments of others, crontabs, keys and start files of every home"
        scene.gap(
            "audit.processes",
            "not root: other users' programs, sockets and files are not shown",
            required=True,
            fix=fix,
        )
    if not scene.accounts:
        scene.gap("audit.accounts", "/etc/passwd could not be read, so homes were not looked at", required=True)
    if not scene.packages.known:
        scene.gap("audit.packages", "no package database that can be read (dpkg): who owns a file is not known")


def _answer(scene: Scene, hits: list[Hit], looked: list[str], options: AuditOptions, started: float) -> AuditAnswer:
    broken, weak = compromise(hits), posture(hits)
    required = [gap for gap in scene.gaps if gap.required]
    nothing = not scene.processes and not scene.accounts
    if nothing:
        broken = weak = "unknown"
    limited = bool(required) or not scene.processes
    findings = _findings(scene, hits, options.lang)
    worst = max(
        (severity_of(hit) for hit in hits if grade_of(hit) is None),
        key=("info", "warning", "critical").index,
        default="info",
    )
    if broken == "infected" or (worst == "critical" and weak == "weak"):
        verdict = "critical"
    elif broken == "suspicious" or weak == "weak":
        verdict = "warning"
    else:
        verdict = "unknown" if nothing or required else "ok"
    hostname = scene.text("/proc/sys/kernel/hostname") or scene.text("/etc/hostname")
    boot = scene.text("/proc/sys/kernel/random/boot_id")
    rows = load_audit()
    zh = options.lang == "zh"
    return AuditAnswer(
        verdict, broken, weak, "limited" if limited else "full", findings, looked, scene.gaps, options.lang, _confidence(scene, zh),
        alike={f.id: text for f in findings if (text := rows[f.id].alike_zh if zh else rows[f.id].alike_en)},
        host=(hostname.text.strip() if hostname else None) or scene.host.label, boot_id=boot.text.strip() if boot else None,
        seconds=max(0.0, scene.host.clock() - started),
    )  # fmt: skip


_WORDS = {
    "root": ("looked as root", "以 root 身份查看"), "whole": ("all processes of the machine shown", "可见本机全部进程"), "packages": ("package database", "软件包数据库"),
    "nvml": ("NVML's processes", "NVML 进程列表"), "probe": ("hidden pids probed", "已探测隐藏进程"),
}  # fmt: skip
_SAID = {True: ("yes", "是"), False: ("no", "否"), None: ("not told", "未知")}


def _confidence(scene: Scene, zh: bool) -> list[tuple[str, str]]:
    from gpuclinic.audit.processes import probed

    told = {
        "root": scene.as_root, "whole": scene.whole_view if scene.processes else False, "packages": scene.packages.known,
        "nvml": bool(scene.gpus or scene.gpu_processes), "probe": bool(probed(scene).get("alive")),
    }  # fmt: skip
    return [(_WORDS[name][zh], _SAID[value][zh]) for name, value in told.items()]


def _findings(scene: Scene, hits: list[Hit], lang: str) -> list[Finding]:
    """Gravest first, those of one intruder beside one another; more than some of one id are joined."""
    order = {id(hit): number for number, group in enumerate(sorted(groups(hits), key=_weight)) for hit in group}
    ranked = sorted(
        hits,
        key=lambda hit: (
            grade_of(hit) is None,
            order.get(id(hit), 0),
            -("info", "warning", "critical").index(severity_of(hit)),
        ),
    )
    by_id: dict[tuple[str, str], list[Hit]] = {}
    for hit in ranked:
        by_id.setdefault((hit.id, severity_of(hit)), []).append(hit)
    out = []
    for hit in ranked:
        same = by_id[hit.id, severity_of(hit)]
        number = next(n for n, one in enumerate(same) if one is hit)
        if number < _MOST_ALIKE - 1 or len(same) <= _MOST_ALIKE:
            out.append(_finding(scene, hit, [hit], lang))
        elif number == _MOST_ALIKE - 1:
            out.append(_finding(scene, hit, same[number:], lang))
    return out


def _weight(group: list[Hit]) -> int:
    return -sum({"conclusive": 1000, "strong": 100, "medium": 10, "weak": 1}[grade_of(hit) or "weak"] for hit in group)


def _finding(scene: Scene, hit: Hit, all_of: list[Hit], lang: str) -> Finding:
    row = load_audit()[hit.id]
    zh = lang == "zh"
    values: dict[str, Any] = {
        **dict.fromkeys(_PLACES, "?"),
        **{k: "?" if v is None else v for k, v in hit.values.items()},
        "subject": hit.subject,
    }
    if "kind" in hit.values and hit.id.endswith("_since"):
        from gpuclinic.audit.baseline import KINDS

        values["kind"] = KINDS[str(hit.values["kind"])][zh]
    if zh and values["who"] == "everybody":
        values["who"] = "任何人"
    if "what" in hit.values:
        values["what"] = _DEEDS.get(str(hit.values["what"]), (str(hit.values["what"]),) * 2)[zh]
    evidence: list[Where] = list(dict.fromkeys(place for one in all_of for place in one.evidence))
    subject = hit.subject if len(all_of) == 1 else f"{hit.subject} +{len(all_of) - 1}"
    steps = [
        {
            "text": step.zh if zh else step.en,
            **({"command": step.command.format_map(_Gaps(values))} if step.command else {}),
        }
        for step in row.steps
    ]
    gpu = next((g for g in scene.gpus if g.index == hit.gpu_index), None)
    return Finding(
        row.id, severity_of(hit), "security", subject, (row.title_zh if zh else row.title_en).format_map(_Gaps(values)),
        (row.detail_zh if zh else row.detail_en).format_map(_Gaps(values)), None, row.action, steps, None, None, evidence[:_MOST_EVIDENCE],
        gpu=gpu.uuid if gpu and gpu.uuid else None, gpu_index=hit.gpu_index, pid=hit.pid,
    )  # fmt: skip


class _Gaps(dict[str, Any]):
    """Values for places; one that is missing is a question mark, never an error."""

    def __missing__(self, key: str) -> str:
        return "?"


_PLACES = (
    "pid",
    "path",
    "user",
    "why",
    "about",
    "what",
    "name",
    "names",
    "who",
    "value",
    "port",
    "address",
    "mode",
    "remote",
)
_DEEDS = {
    "remote_code": ("runs what it downloads", "下载内容并直接执行"), "decoded_code": ("runs what it decodes", "解码后直接执行"),
    "reverse_shell": ("opens a shell to another machine", "向外部主机打开 shell"), "download_run": ("downloads a program and runs it", "下载程序并运行"),
    "odd_program": ("starts a program from a hidden or temporary place", "从隐藏或临时目录启动程序"), "miner": ("starts a miner", "启动挖矿程序"),
}  # fmt: skip
