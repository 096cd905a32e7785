"""The word lists of the audit."""

from __future__ import annotations

import functools

import msgspec

from gpuclinic.knowledge._load import DATA, packed_files, read_toml


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See data/audit/words.toml for what each list is and where it comes from."""

    algorithms: frozenset[str]
    ambiguous: frozenset[str]
    coins: frozenset[str]
    programs: frozenset[str]
    ambiguous_programs: frozenset[str]
    schemes: frozenset[str]
    options: frozenset[str]
    algorithm_options: frozenset[str]
    host_options: frozenset[str]
    user_options: frozenset[str]
    port_options: frozenset[str]
    mentions: frozenset[str]
    honest_hidden: frozenset[str]
    honest_temporary: list[str]
    job_variables: list[str]
    frameworks: list[str]
    honest_preloads: list[str]
    kernel_threads: list[str]
    watched: frozenset[str]


@functools.cache
def words() -> Words:
    """The shipped lists."""

    path = DATA / "audit" / "words.toml"
    return packed_files("audit-words", [path], lambda: msgspec.convert(read_toml(path)["words"], Words), Words)


@functools.cache
def pools() -> frozenset[str]:
    """Registrable domains of pools, in small letters."""
    path = DATA / "audit" / "pools.txt"

    def fresh() -> list[str]:
        lines = path.read_text("ascii").splitlines()
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]

    return frozenset(packed_files("audit-pools", [path], fresh, list[str]))


def is_pool(host: str) -> bool:
    """A host lies in one of the pools' domains, by whole labels.

    >>> is_pool("rvn.2miners.com"), is_pool("zpool.cache"), is_pool("x2miners.com")
    (True, False, False)
    """
    labels = host.lower().rstrip(".").split(".")
    return any(".".join(labels[n:]) in pools() for n in range(len(labels)))
