"""Parsers of what is about a text itself: what it only quotes, and when it was taken."""

from __future__ import annotations

from gpuclinic.recognise.parsers._entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "quotations",
        (
            r"""["'](?:prompt|instruction|question|chosen|rejected|conversations?|query)["'] ?: ?["'\[{]""",
            r"""["']role["'] ?: ?["'](?:user|assistant|system|human)["']""",
            r"Received request \S{1,80}: prompt: |GenerateReqInput\(|<\|im_start\|>",
            r"""(?:[Pp]attern|[Rr]eg[Ee]xp?|match_regex)["']? ?[:=] ?["'r(/\\^.\w]""",
            r"[$#>] +[^\n]*(?:\b(?:strings|objdump|man|pydoc|tldr) \S|--help\b|\bhelp\()",
            r"[$#>] +(?:cat|less|head|bat)\b[^|\n]*\.(?:md|rst|adoc|py|sh|go|c|h)\b",
            r"^\s*-?\s*(?:description|summary|help|expect)\s*: \S",
            r"^@@ -\d+(?:,\d+)? \+\d+",
            r"^\s*[Uu]sage:\s",
            r"^#{1,3} \S",
            r"\.(?:md|rst|adoc|mdx)[:-]\d+[:-]",
            r"\b(?:grep|egrep|zgrep|fgrep|rg|awk|findstr) +\S",
            r"""\braise \w[\w.]*\(["']|re\.compile\(|["'] in \w|\b(?:log|logger|logging|LOG)\.\w+\(["']""",
            r"""printf? ?\(["']""",
            r"^commit [0-9a-f]{40}|git log\b|^\s*--- PASS: |^\[\s+OK \] |^NodeName=",
            r"^\s*(?:[-*+] )?(?:\[[^\]]{1,40}\] )?(?:Fix(?:e[sd])?|Resolve[sd]?|Address(?:es|ed)?) ",
            r"^(?:test |\S+::|\s*\d+/\d+ Test ).{0,200}(?:PASSED|Passed|ok\b)|^\s*(?:修复|解决)",
            r"^\S{0,20} ?Exception ignored (?:in|on|while)|^\s*(?:[Ee]xample|[Ss]ample) ?#?\d+ ?:\s*$|^\s*(?:样本|示例|样例) ?\d",
            r"""["']expr["']\s*:|^\s*-? ?expr:|^\s*(?:Assistant|ASSISTANT|AI|Bot): |^\s*助手""",
            r"^\s*\[ ?(?:OK|ok|PASS|PASSED|GOOD) ?\]|^\s*(?:OK|PASS|PASSED)\s*[:|]|^\s*\[ ?(?:通过|正常)|^\s*(?:✓|✔|✅)",
            r"(?:<!DOCTYPE html|<!doctype html|<html)",
            r"fprintf ?\(|throw new \w|with pytest\.raises\(",
        ),
        "quotations:parse_quotations",
    ),
    Entry(
        "date",
        (
            r"^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?:[A-Z][a-z]{2} +\d{1,2}|\d{1,2} [A-Z][a-z]{2})[ ,]",
            r"^Timestamp\s+: \w{3} \w{3} +\d",
        ),
        "system:parse_date",
    ),
)
