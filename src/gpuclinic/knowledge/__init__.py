"""What we know, as data: signatures, rules, causes, codes, versions. No logic beyond reading it."""

from gpuclinic.knowledge._load import DATA, Knowledge, load, parse_files, read_toml
from gpuclinic.knowledge._records import CauseInfo, Rule, Signature, Step

__all__ = ["DATA", "CauseInfo", "Knowledge", "Rule", "Signature", "Step", "load", "parse_files", "read_toml"]
