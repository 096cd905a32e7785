"""Python environments, CUDA toolkits and libraries: what would run on the GPUs, and what runs there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic import software_libraries as libraries
from gpuclinic.clinic.environment_places import LOOK, Search, shown, thorough
from gpuclinic.clinic.environments import scan
from gpuclinic.clinic.looks._look import Seen, Wanted
from gpuclinic.knowledge.software import environment_problem, gpu_packages
from gpuclinic.model import Gap
from gpuclinic.recognise.process_table import parse_status, uid_of
from gpuclinic.recognise.python_env import is_cpu_build, requirement

if TYPE_CHECKING:
    from gpuclinic.clinic.environments import Environment, Scan
    from gpuclinic.model import Fact, Scalar
    from gpuclinic.observe.asking import Asked
    from gpuclinic.recognise.python_env import Package

_MOST_PIDS = 64
_HOMES = ("/home/", "/root/")
_NOT_WHOLE = ("remains", "no_metadata", "cut")
"""Problems for which nobody can say that nothing for GPUs is there."""


def look_at_environments(host: Asked, wanted: Wanted) -> Seen:
    """Facts `environment`, `env_package`, `toolkit`, `mapped_library`, `shadowed_library`; nothing where there are no GPUs."""
    here = any(f.fields.get("is_gpu") for f in wanted.of("pci_device")) or bool(wanted.of("gpu"))
    if not here and not wanted.deep:
        return Seen()
    pids = gpu_pids(wanted.facts)
    return software_of(host, wanted.facts, thorough(pids) if wanted.deep else Search(pids=pids))


def gpu_pids(facts: list[Fact]) -> list[int]:
    """Processes that hold a GPU, as far as NVML or their open devices tell."""
    found = {f.fields.get("pid") for f in facts if f.kind in ("gpu_process", "gpu_holder")}
    return sorted(pid for pid in found if isinstance(pid, int) and not isinstance(pid, bool))[:_MOST_PIDS]


def driver_of(facts: list[Fact]) -> str | None:
    """The driver's release."""
    states = [f.fields.get("version") for kind in ("driver_state", "driver") for f in facts if f.kind == kind]
    return next((str(version) for version in states if version), None)


def software_of(host: Asked, facts: list[Fact], search: Search) -> Seen:
    """The same for a search of one's own choice. facts: of the looks before it (driver, GPUs, processes)."""
    seen = Seen()
    driver = driver_of(facts)
    found = scan(host, search)
    seen.gaps += found.gaps
    if search.deep and found.cut:
        seen.gaps.append(Gap(LOOK, f"not searched to the end: {', '.join(found.cut[:5])}"))
    about: dict[str, Scalar] = {
        "environments": len(found.environments), "folders": found.folders, "cut": "; ".join(found.cut)[:300] or None, "deep": search.deep,
    }  # fmt: skip
    seen.fact("environment_search", "host", about, "pyvenv.cfg, conda-meta, site-packages")
    _environments(host, found, seen)
    libraries.toolkits(host, seen)
    if search.deep:
        libraries.packages(host, seen)
    libraries.system_search(host, seen, driver)
    libraries.processes(host, seen, search.pids, found.environments)
    _search_paths(host, found, seen, driver, search.pids)
    return seen


def _search_paths(host: Asked, found: Scan, seen: Seen, driver: str | None, pids: list[int]) -> None:
    """LD_LIBRARY_PATH of the person who asks; that of processes only for libcuda, since what they mapped is known."""
    if host.live:
        active = next((e for e in found.environments if e.active), None)
        libraries.search_path(host, seen, driver, "/proc/self", "LD_LIBRARY_PATH", active)
    for pid in pids:
        libraries.search_path(host, seen, driver, f"/proc/{pid}", f"LD_LIBRARY_PATH of pid {pid}", None)


def _environments(host: Asked, found: Scan, seen: Seen) -> None:
    own = host.file("/proc/self/status", 8192) if host.live else None
    asker = uid_of(parse_status(own.text)) if own is not None and own.ok else None
    bases: dict[str, dict[str, str | None]] = {}
    for env in found.environments:
        if env.prefix not in bases:
            bases[env.prefix] = libraries.base_of(host, env.prefix)
        _environment(env, asker, bases[env.prefix], seen)


def whose(env: Environment, asker: int | None) -> str:
    """Yours, shared (everybody's), or other (of one other person); unknown where it is not known who asks."""
    if env.container:
        return "other"  # an image brings what it is meant for, which need not be this machine's GPU
    if env.active or (asker is not None and env.uid == asker):
        return "yours"
    if not env.path.startswith(_HOMES) and env.kind != "user":
        return "shared"
    return "unknown" if asker is None else "other"


def _environment(env: Environment, asker: int | None, base: dict[str, str | None], seen: Seen) -> None:
    table = gpu_packages()
    source = env.sites[0] if env.sites else f"{env.path}/conda-meta"
    named = [p for p in env.packages if p.name in table and table[p.name].role not in ("cuda wheel", "interpreter")]
    decisive = [p for p in named if table[p.name].judged and p.name != "numpy"]
    first = env.problems[0] if env.problems else None
    fields: dict[str, Scalar] = {
        "path": env.path, "kind": env.kind, "python": env.python, "owner": env.owner, "container": env.container, "whose": whose(env, asker),
        "packages_count": env.count, "gpu_packages": ", ".join(f"{p.name} {p.version}" for p in named[:20])[:400] or None,
        "torch": env.torch, "torch_cuda": env.torch_cuda, "torch_hip": env.torch_hip, "tensorflow_cuda": env.tensorflow_cuda,
        "cuda_wheels": ",".join(env.cuda_majors) or None, "for_gpus": bool(decisive),
        "not_whole": any(code in _NOT_WHOLE for code, _ in env.problems) or None, "in_use": bool(env.pids),
        "pids": ",".join(map(str, env.pids[:20])) or None, "active": env.active, "editable": ", ".join(env.editable[:10]) or None,
        "problems": len(env.problems), "problem_en": environment_problem(*first, "en") if first else None,
        "problem_zh": environment_problem(*first, "zh") if first else None, "unreadable": env.unreadable, **base,
    }  # fmt: skip
    shown_by = (
        {"problems": "; ".join(environment_problem(*one, "en") for one in env.problems[:8])[:500]}
        if env.problems
        else {}
    )
    seen.fact("environment", env.path, fields, source, **shown_by)
    for package in env.packages:
        more: dict[str, Scalar] = {
            "env": env.path, "name": package.name, "version": package.version, "manager": package.manager, "build": package.build or None,
            "local": package.local or None, "cuda_build": package.cuda, "cpu_build": is_cpu_build(package), "editable": package.editable,
            "tag": package.tags[0] if package.tags else None, "problem": "; ".join(package.problems) or None,
            "role": table[package.name].role if package.name in table else "cuda wheel", "requirement": _wanted(env, package),
        }  # fmt: skip
        seen.fact("env_package", f"{env.path}/{package.name}", more, source, version=shown(package.entry))


def _wanted(env: Environment, package: Package) -> str | None:
    """The requirement by which the rules judge a package; None where they do not know of it, or it is not whole."""
    known = gpu_packages().get(package.name)
    if known is None or not known.judged or {"module missing", "set aside"} & set(package.problems):
        return None
    return requirement(package, cuda=env.torch_cuda, hip=env.torch_hip, told=env.build_told)
