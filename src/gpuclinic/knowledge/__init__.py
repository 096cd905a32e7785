"""What we know, as data: signatures, rules, causes, codes, versions. No logic beyond reading it."""

from gpuclinic.knowledge._checks import Check, CheckTables, LogFinding, Watched, load_checks, watched_rows
from gpuclinic.knowledge._load import DATA, Knowledge, load, parse_files, read_toml
from gpuclinic.knowledge._records import CauseInfo, Rule, Signature, Step

__all__ = [
    "DATA", "CauseInfo", "Check", "CheckTables", "Knowledge", "LogFinding", "Rule", "Signature", "Step", "Watched", "load", "load_checks",
    "parse_files", "read_toml", "watched_rows",
]  # fmt: skip
