"""Parsers of what tells where time goes and where programs stand: names and marks only, so that it starts fast."""

from __future__ import annotations

from gpuclinic.recognise.parsers._entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry("cpu.stat", (r"\bnr_throttled \d+",), "pressure:parse_quota"),
    Entry("pressure", (r"^(?:some|full) avg10=\d",), "pressure:parse_pressure"),
    Entry(
        "stacks",
        (
            r"^(?:\S{0,45}:? ?)?\s*Thread (?:0x[0-9A-Fa-f]+|\d+) \((?:idle|active)",
            r"(?:Current t|T)hread 0x[0-9A-Fa-f]+(?: \[[^\]\n]*\])? \(most recent call first\)",
            r"Traceback for thread \d+ .{0,80}\(most recent call",
            r"^(?:\S{20,45} )?\s*Thread \d+ \(Thread 0x[0-9a-f]+ \(LWP \d+\)",
        ),
        "stacks:parse_stacks",
    ),
    Entry(
        "profile",
        (
            r"^(?:\S{20,45} )?\s*Name\s{2,}.*(?:Self CPU|Self CUDA|CUDA total|time avg)",
            r"^(?:\S{20,45} )?\s*Time ?\(%\)[ ,]+(?:Total Time|Time)",
            r"^\s*(?:GPU activities|API calls):\s+\d",
        ),
        "profiles:parse_profile",
    ),
    Entry(
        "serving throughput",
        (
            r"Avg generation throughput: [\d.]+ tokens/s",
            r"gen throughput \(token/s\): [\d.]+",
        ),
        "serving:parse_throughput",
    ),
    Entry(
        "times by rank",
        (
            r"^\s*(?:\d+: )?\(?(?:min, )?max\)? time across ranks \(ms\):",
            r"times across ranks \(ms\):",
            r"MxRtt/Rnk: ",
            r"Rank=\d+ Node=\S+ Score=",
        ),
        "rank_times:parse_rank_times",
    ),
    Entry(
        "times of peers",
        (
            (
                r"^[ \t|*-]{0,6}(?:node|host|worker|rank|server|trainer)s?[ _#-]?[\w.-]{1,40}(?: ?\([^()\n]{1,60}\))?"
                r"[ \t]{0,4}[:=|][ \t]{0,6}\d+(?:\.\d+)?[ \t]{0,3}(?:ms|s|sec)?[ \t|]{0,4}$"
            ),
        ),
        "peer_times:parse_peer_times",
    ),
)
