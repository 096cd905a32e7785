"""What `capture` says at its end: the verdict in a line, where the archive lies, and what is not in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.knowledge.gap_words import gap_words
from gpuclinic.report._check_words import check_words
from gpuclinic.report.masking import clean

if TYPE_CHECKING:
    from gpuclinic.clinic.checking import CheckAnswer

_WORDS = {
    "en": {
        "between": "; ", "colon": ": ", "found": ": {titles}", "more": " and {count} more", "written": "{path} ({size})",
        "stdout": "written to standard output",
        "left_out": "Not in it:", "more_left": "and {count} more (snapshot.json in the archive lists all)",
        "next": "Look into it anywhere: gpuclinic check --host {path}   or   gpuclinic why {path}",
    },
    "zh": {
        "between": "；", "colon": "：", "found": "：{titles}", "more": " 等，另有 {count} 项", "written": "{path}（{size}）",
        "stdout": "已写到标准输出",
        "left_out": "未收入：", "more_left": "另有 {count} 项（完整列表见归档中的 snapshot.json）",
        "next": "可在任意机器上查看：gpuclinic check --host {path}   或   gpuclinic why {path}",
    },
}  # fmt: skip
_TITLES = 3


def captured_text(
    answer: CheckAnswer, path: str, size: int | None, left_out: list[dict[str, str]], count: int, lang: str
) -> str:
    """The whole text. size: bytes of the archive, None where it went to standard output. count: of all that was left out."""
    words = _WORDS["zh" if lang == "zh" else "en"]
    titles = [finding.title for finding in answer.findings if finding.severity != "info"]
    line = check_words(answer.lang)[f"verdict.{answer.verdict}"]
    if titles:
        line += words["found"].format(titles=words["between"].join(titles[:_TITLES]))
        line += words["more"].format(count=len(titles) - _TITLES) if len(titles) > _TITLES else ""
    if answer.verdict == "unknown" and not titles:
        required = [gap_words(gap.why, lang) for gap in answer.not_looked_at if gap.required]
        line += words["found"].format(titles=words["between"].join(required[:_TITLES])) if required else ""
    out = [clean(line)]
    out.append(clean(words["written"].format(path=path, size=_size(size)) if size is not None else words["stdout"]))
    if left_out:
        out.append(words["left_out"])
        out += [clean(f"- {one['what'][:120]}{words['colon']}{gap_words(one['why'], lang)}") for one in left_out]
        if count > len(left_out):
            out.append("- " + words["more_left"].format(count=count - len(left_out)))
    if size is not None:
        out.append(clean(words["next"].format(path=path)))
    return "\n".join(out) + "\n"


def _size(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB" if size >= 1 << 20 else f"{size / 1024:.0f} KiB"
