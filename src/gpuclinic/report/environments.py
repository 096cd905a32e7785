"""How the list of a host's environments looks, on a terminal and as JSON (docs/contract.md, compat)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuclinic.clinic.software_judge import harmless_line
from gpuclinic.knowledge.gap_words import gap_words
from gpuclinic.report._page import Page
from gpuclinic.report.masking import clean

if TYPE_CHECKING:
    from gpuclinic.clinic.environment_list import EnvironmentList
    from gpuclinic.clinic.environment_verdicts import EnvironmentVerdict

_BOLD, _DIM, _RED, _GREEN, _YELLOW = "1", "2", "31", "32", "33"
_COLOUR = {"works": _GREEN, "fails": _RED, "unknown": _YELLOW, "": _DIM}
_WORDS = {
    "en": {
        "colon": ": ", "between": "; ", "works": "WORKS", "fails": "FAILS", "unknown": "UNKNOWN", "": "NOTHING FOR GPUS",
        "head": "{total} Python environments, {judged} with something for GPUs: {works} work, {fails} do not, {unknown} cannot be judged.",
        "machine": "Judged against: {gpus}; driver {driver}; kernel {kernel}", "no_gpu": "no GPU", "none": "unknown", "said": "{v} (as asked)",
        "alone": "This machine with that GPU and driver, whatever runs on it:",
        "as_above": "fails by what is said of the machine above; nothing else",
        "python": "Python {v}", "owner": "of {v}", "container": "in container {v}", "in_use": "a process in it holds a GPU now (pid {v})",
        "install": "INSTALL", "not_on": "not on {v}", "unsure": "cannot be judged: {v}",
        "plain": "Without anything for GPUs: {v}", "gaps": "Not looked at",
        "used_all_the_same": "the rules say it cannot run, yet a process in it holds a GPU: please report that",
        "no_environment": "No Python environment was found.",
        "not_searched": "When this was captured, no Python environments were looked for (`gpuclinic capture --deep` always does).",
    },
    "zh": {
        "colon": "：", "between": "；", "works": "可用", "fails": "不可用", "unknown": "无法判断", "": "与 GPU 无关",
        "head": "共 {total} 个 Python 环境，其中 {judged} 个装有 GPU 软件：{works} 个可用，{fails} 个不可用，{unknown} 个无法判断。",
        "machine": "判断依据：{gpus}；驱动 {driver}；内核 {kernel}", "no_gpu": "没有 GPU", "none": "未知", "said": "{v}（按您所给）",
        "alone": "这台机器配该 GPU 和驱动时，与运行什么软件无关：", "as_above": "不可用的原因即上面机器本身的问题，别无其他",
        "python": "Python {v}", "owner": "属主 {v}", "container": "位于容器 {v}", "in_use": "其中的进程正在使用 GPU（pid {v}）",
        "install": "安装", "not_on": "不能用于 {v}", "unsure": "无法判断：{v}", "plain": "不含 GPU 软件的环境：{v}", "gaps": "未能查看",
        "used_all_the_same": "按规则不能运行，但其中的进程正占用 GPU：请反馈此情况",
        "no_environment": "没有找到 Python 环境。",
        "not_searched": "抓取时没有查找 Python 环境（`gpuclinic capture --deep` 总会查找）。",
    },
}  # fmt: skip
_PROBLEMS_SHOWN = 3
_PLAIN_SHOWN = 12


def environments_text(answer: EnvironmentList, *, colour: bool = False, width: int = 100, verbose: bool = False) -> str:
    """The list: those that fail first."""
    page = Page(answer.lang, width, colour=colour)
    w = _WORDS["zh" if answer.lang == "zh" else "en"]
    counts = {name: sum(one.verdict == name for one in answer.environments) for name in ("works", "fails", "unknown")}
    judged = sum(counts.values())
    if not answer.environments:
        page.put(w["no_environment" if answer.searched else "not_searched"], "", "", _BOLD)
    else:
        page.put(w["head"].format(total=len(answer.environments), judged=judged, **counts), "", "", _BOLD)
    page.put(clean(_machine(answer, w)), "", "", _DIM)
    if answer.alone is not None and answer.alone.verdict != "works":
        page.blank()
        page.put(
            w["alone"], page.paint(w[answer.alone.verdict], _BOLD, _COLOUR[answer.alone.verdict]) + "  ", "  ", _BOLD
        )
        for problem in answer.alone.problems:
            page.item(clean(f"{problem.title} [{problem.id}] {problem.why} {problem.fix} ({problem.source})"))
        if answer.alone.verdict == "unknown":
            page.item(clean(w["unsure"].format(v=w["between"].join(answer.alone.unknown))))
    for note in answer.alone.notes if answer.alone is not None else []:
        page.put(clean(note), "", "", _DIM)
    told = {(p.id, p.title) for p in answer.alone.problems} if answer.alone is not None else set()
    order = {"fails": 0, "unknown": 1, "works": 2}
    for one in sorted(answer.environments, key=lambda e: order.get(e.verdict, 3)):
        if one.verdict or verbose:
            _environment(page, one, w, told, verbose=verbose, another=answer.alone is not None)
    plain = [str(one.environment.fields.get("path")) for one in answer.environments if not one.verdict]
    if plain and not verbose:
        page.blank()
        more = f", … ({len(plain)})" if len(plain) > _PLAIN_SHOWN else ""
        page.put(clean(w["plain"].format(v=", ".join(plain[:_PLAIN_SHOWN]) + more)), "", "", _DIM)
    if answer.gaps:
        page.section(w["gaps"])
        for gap in answer.gaps:
            page.item(clean(f"{gap.check}{w['colon']}{gap_words(gap.why, answer.lang)}"))
    return page.text()


def _machine(answer: EnvironmentList, w: dict[str, str]) -> str:
    machine = answer.machine
    shown = {
        "gpus": ", ".join(machine.gpus) or w["no_gpu"],
        "driver": machine.driver or w["none"],
        "kernel": machine.kernel or w["none"],
    }
    return w["machine"].format(
        **{name: w["said"].format(v=v) if name in machine.said else v for name, v in shown.items()}
    )


def _environment(
    page: Page, one: EnvironmentVerdict, w: dict[str, str], told: set[tuple[str, str]], *, verbose: bool, another: bool
) -> None:
    """One environment. told: problems that were said of the machine. another: judged against another machine than the one it runs on."""
    fields = one.environment.fields
    page.blank()
    head = w[one.verdict]
    page.put(clean(str(fields.get("path"))), page.paint(head, _BOLD, _COLOUR[one.verdict]) + "  ", "  ", _BOLD)
    about = [str(fields.get("kind"))]
    for name, field in (("python", "python"), ("owner", "owner"), ("container", "container"), ("in_use", "pids")):
        if fields.get(field):
            about.append(w[name].format(v=fields[field]))
    page.put(clean(" · ".join(about)), "  ", "  ", _DIM)
    if fields.get("gpu_packages"):
        page.put(clean(str(fields["gpu_packages"])), "  ", "  ")
    if one.answer is not None:
        own = [problem for problem in one.answer.problems if (problem.id, problem.title) not in told]
        for problem in own if verbose else own[:_PROBLEMS_SHOWN]:
            page.item(clean(f"{problem.title} [{problem.id}] {problem.why} ({problem.source})"))
        if one.answer.problems and not own:
            page.item(w["as_above"])
        if one.verdict == "fails" and fields.get("in_use") and not another:
            page.item(w["used_all_the_same"])
        if one.verdict == "unknown" and one.answer.unknown:
            page.item(clean(w["unsure"].format(v=w["between"].join(one.answer.unknown))))
        if one.verdict == "fails" and harmless_line(one.answer.install):
            page.put("", "  " + page.paint(w["install"], _BOLD, _GREEN))
            page.command(harmless_line(one.answer.install), "    ")
    if one.verdict == "works" and one.not_on:
        page.item(clean(w["not_on"].format(v=", ".join(one.not_on))))
    if fields.get("problems"):
        shown = (
            one.environment.where("problems").text
            if verbose
            else str(fields.get(f"problem_{page.lang}") or fields.get("problem_en"))
        )
        if one.answer is None or shown not in one.answer.unknown:
            page.item(clean(shown))


def environments_body(answer: EnvironmentList) -> dict[str, Any]:
    """The fields of the JSON object, without its envelope."""
    problems: dict[str, dict[str, str]] = {}
    for problem in answer.alone.problems if answer.alone is not None else []:
        problems.setdefault(problem.id, _problem(problem))
    for one in answer.environments:
        if one.verdict == "fails" and one.answer is not None:
            for problem in one.answer.problems:
                problems.setdefault(problem.id, _problem(problem))
    return {
        "verdict": answer.verdict,
        "problems": list(problems.values()),
        "install": None,
        "machine": {
            "gpus": answer.machine.gpus, "driver": answer.machine.driver, "kernel": answer.machine.kernel, "module": answer.machine.module,
            "said": sorted(answer.machine.said), "verdict": answer.alone.verdict if answer.alone is not None else None,
            "unknown": list(answer.alone.unknown) if answer.alone is not None else [],
            "notes": list(answer.alone.notes) if answer.alone is not None else [],
        },
        "environments": [_environment_body(one, answer.lang) for one in answer.environments],
        "not_looked_at": [{"check": gap.check, "required": gap.required, "why": gap.why} for gap in answer.gaps],
    }  # fmt: skip


def _problem(problem: Any) -> dict[str, str]:
    return {name: getattr(problem, name) for name in ("id", "title", "why", "source", "fix")}


def _environment_body(one: EnvironmentVerdict, lang: str) -> dict[str, Any]:
    fields = one.environment.fields
    names = (
        "path",
        "kind",
        "python",
        "owner",
        "container",
        "in_use",
        "torch",
        "torch_cuda",
        "packages_count",
        "unreadable",
    )
    out: dict[str, Any] = {name: fields.get(name) for name in names}
    out["packages"] = {str(f.fields.get("name")): f.fields.get("version") for f in one.packages}
    out["verdict"] = one.verdict or None
    out["gpu"] = one.gpu
    out["not_on"] = one.not_on
    out["problems"] = [_problem(problem) for problem in one.answer.problems] if one.answer is not None else []
    out["install"] = (harmless_line(one.answer.install) or None) if one.answer is not None else None
    out["unknown"] = list(one.answer.unknown) if one.answer is not None else []
    out["broken"] = fields.get(f"problem_{'zh' if lang == 'zh' else 'en'}")
    return out


__all__ = ["environments_body", "environments_text"]
