"""Every Python environment of a machine and what is in it, from names and metadata alone: nothing is imported, nothing is run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

import msgspec

from gpuclinic.clinic.environment_places import Search, Timed, decoded, found_environments, shown
from gpuclinic.knowledge.software import gpu_packages
from gpuclinic.model import Gap
from gpuclinic.recognise import python_env as env_files
from gpuclinic.recognise.python_env import Package

if TYPE_CHECKING:
    from gpuclinic.clinic.environment_places import Place
    from gpuclinic.observe.asking import Answer, Asked

__all__ = ["Environment", "Scan", "Search", "scan"]

_HEAD = 2048
"""Bytes of METADATA that are read: name and version come first in it."""
_READ_ROLES = frozenset(["framework", "extension", "compiler", "library", "runtime", "serving", "cuda plugin"])
_PYTHON = re.compile(r"(?:python|pypy)(\d+\.\d+)t?")
_BUILD_INFO = "tensorflow/python/platform/build_info.py"


class Environment(msgspec.Struct):
    """One environment.

    path: its folder; of packages without an environment of their own (system, user) the folder of packages. kind: venv, virtualenv,
    conda, uv, pipx, poetry, pyenv, system, user. python: "3.11.4", or "3.11" where no more is told. packages: those that matter to GPUs.
    count: of all. problems: (code of tables/environment_problems.tsv, what about). pids: GPU processes that run in it. container: the
    root file system it lies in, where that is not the host's; prefix: the path of that. build_told: torch's own files say what it was
    built with. torch_cuda: None where torch is built without CUDA, or is not there. active: of the person who asks.
    """

    path: str
    kind: str
    python: str | None = None
    owner: str | None = None
    uid: int | None = None
    packages: list[Package] = []
    count: int = 0
    problems: list[tuple[str, str]] = []
    editable: list[str] = []
    sites: list[str] = []
    torch: str | None = None
    torch_cuda: str | None = None
    torch_hip: str | None = None
    build_told: bool = False
    tensorflow_cuda: str | None = None
    cuda_majors: list[str] = []
    pids: list[int] = []
    container: str | None = None
    prefix: str = ""
    unreadable: str | None = None
    active: bool = False

    def package(self, *names: str) -> Package | None:
        """The first package of these names."""
        return next((p for name in names for p in self.packages if p.name == name), None)


class Scan(msgspec.Struct):
    """All environments that were found, and what could not be looked at. folders: how many were searched; cut: why not all."""

    environments: list[Environment] = []
    gaps: list[Gap] = []
    folders: int = 0
    cut: list[str] = []


def scan(host: Asked, search: Search) -> Scan:
    """Finds and reads the environments of a host within the limits of the search."""
    timed = Timed(host)
    host = cast("Asked", timed)
    found = found_environments(host, search, timed)
    out = Scan(gaps=found.gaps, folders=found.folders, cut=found.cut)
    for number, place in enumerate(found.places.values()):
        if timed.spent_s > 2 * search.total_s:
            out.cut.append(f"{number} of {len(found.places)} environments read (no time left)")
            break
        environment = _read(host, place, out)
        if environment is not None:
            out.environments.append(environment)
    return out


def _read(host: Asked, place: Place, out: Scan) -> Environment | None:
    """One environment; None where there is nothing of the sort any more."""
    env = Environment(shown(place.path), place.kind, pids=place.pids, container=place.container, prefix=place.prefix)
    env.active = place.active
    _owner(host, place, env)
    if place.kind in ("system", "user", "pyenv") and place.path.endswith("-packages"):
        sites = [place.path]
        env.python = _python_of_path(place.path) or _default_python(host, place.prefix)
    else:
        sites = _sites(host, place, env, out)
    if place.kind == "conda":
        _conda(host, place.path, env, out)
    for site in sites:
        _site(host, site, env, out)
    env.sites = [shown(site) for site in sites]
    if not sites and not env.count and env.unreadable is None and not env.problems:
        return None
    _majors(env)
    return env


def _owner(host: Asked, place: Place, env: Environment) -> None:
    about = host.stat(place.path).json()
    uid = about.get("uid")
    if isinstance(uid, int):
        env.uid = uid
        env.owner = place.users.get(uid, f"uid {uid}")


def _sites(host: Asked, place: Place, env: Environment, out: Scan) -> list[str]:
    """The folders of packages of a venv or conda environment; reads pyvenv.cfg on the way."""
    if place.kind != "conda":
        _settings(host, place.path, env)
    libraries = host.listing(f"{place.path}/lib")
    if not libraries.ok:
        if libraries.code == 13:
            env.unreadable = libraries.why
            out.gaps.append(_refused(f"{env.path}/lib", libraries.why))
        elif env.kind != "conda":
            env.problems.append(("no_packages", f"{env.path}/lib"))
        return []
    pythons = [name for name in decoded(libraries) if _PYTHON.fullmatch(name)]
    if env.python is None and len(pythons) == 1:
        env.python = _python_of_path(pythons[0])
    return [f"{place.path}/lib/{name}/site-packages" for name in pythons]


def _settings(host: Asked, path: str, env: Environment) -> None:
    answer = host.untrusted([f"{path}/pyvenv.cfg"], 4096).get(f"{path}/pyvenv.cfg")
    if answer is None or not answer.ok:
        env.problems.append(("no_settings", str(answer.why if answer is not None else "")))
        return
    settings = env_files.parse_pyvenv(answer.text)
    env.python = env_files.python_of(settings)
    if env.kind == "venv":
        env.kind = "uv" if "uv" in settings else "virtualenv" if "virtualenv" in settings else "venv"
    home, release = settings.get("home", ""), (env.python or "").split(".")
    if not home.startswith("/"):
        env.problems.append(("no_interpreter", f"{env.path}/pyvenv.cfg"))
    elif len(release) > 1 and not any(
        host.stat(f"{env.prefix}{home.rstrip('/')}/python{end}").ok for end in (".".join(release[:2]), "3", "")
    ):
        env.problems.append(("interpreter_gone", f"{home.rstrip('/')}/python{'.'.join(release[:2])}"))


def _conda(host: Asked, path: str, env: Environment, out: Scan) -> None:
    answer = host.listing(f"{path}/conda-meta")
    if not answer.ok:
        env.unreadable = answer.why
        out.gaps.append(_refused(f"{env.path}/conda-meta", answer.why))
        return
    wanted: list[Package] = []
    for name in decoded(answer):
        if not name.endswith(".json"):
            continue
        package = env_files.conda_package(name)
        if package is None:
            env.problems.append(("bad_name", shown(name)))
            continue
        env.count += 1
        if package.name in gpu_packages():
            wanted.append(package)
    told = host.untrusted([f"{path}/conda-meta/{package.entry}" for package in wanted], _HEAD)
    for package in wanted:
        answer = told[f"{path}/conda-meta/{package.entry}"]
        if not answer.ok or not env_files.parse_conda_file(answer.data):
            problem = answer.why or "no JSON of conda"
            package.problems.append(problem)
            env.problems.append(("broken", f"{shown(package.entry)}: {problem}"))
        env.packages.append(package)
    python = next((package for package in env.packages if package.name == "python"), None)
    if python is not None:
        env.python = python.version


def _site(host: Asked, site: str, env: Environment, out: Scan) -> None:
    answer = host.listing(site)
    if not answer.ok:
        if answer.code == 2:
            env.problems.append(("no_packages", shown(site)))
        else:
            env.unreadable = answer.why
            out.gaps.append(_refused(shown(site), answer.why))
        return
    told = env_files.site_of(decoded(answer))
    by_conda = {package.name for package in env.packages if package.manager == "conda"}
    conda_names = {"pytorch": "torch"}
    of_conda = {conda_names.get(name, name) for name in by_conda}
    if told.cut:
        env.problems.append(("cut", f"{shown(site)} ({env_files.MOST_NAMES})"))
    env.count += sum(package.name not in of_conda for package in told.packages)
    env.editable += [package.name for package in told.packages if package.editable]
    env.problems += [("leftover", shown(f"{site}/{name}")) for name in told.leftovers[:5]]
    env.problems += [("bad_name", shown(f"{site}/{name}")) for name in told.unnamed[:5]]
    env.problems += [("twice", f"{name} {', '.join(v)}") for name, v in sorted(told.duplicates.items())[:10]]
    matter = [p for p in told.packages if p.name in gpu_packages() or env_files.cuda_wheel_major(p.name)]
    _details(host, site, matter, told, env)
    _builds(host, site, told, env, matter)
    for package in matter:
        same = next(
            (p for p in env.packages if p.manager == "conda" and conda_names.get(p.name, p.name) == package.name), None
        )
        if same is None:
            env.packages.append(package)
        elif same.version.partition("+")[0] != package.version.partition("+")[0] and package.version:
            env.problems.append(("conda_and_pip", f"{package.name} {same.version} / {package.version}"))
            env.packages.remove(same)  # the files are those of the later installation, which is pip's
            env.packages.append(package)
    _without_metadata(host, site, told, env)


def _details(host: Asked, site: str, matter: list[Package], told: env_files.Site, env: Environment) -> None:
    """Reads the metadata of packages that decide, and says where it is not whole."""
    table = gpu_packages()
    deciding = [
        p for p in matter if p.name in table and table[p.name].role in _READ_ROLES and p.entry.endswith("-info")
    ]
    paths = [
        f"{site}/{p.entry}/{name}" for p in deciding if p.entry.endswith(".dist-info") for name in ("METADATA", "WHEEL")
    ]
    paths += [f"{site}/{p.entry}/direct_url.json" for p in deciding if p.editable]
    answers = host.untrusted(paths, _HEAD)
    for package in deciding:
        place = f"{site}/{package.entry}"
        module = table[package.name].module
        if module and module not in told.modules and not package.editable:
            package.problems.append("module missing")
            env.problems.append(("no_module", shown(place)))
        if f"{place}/METADATA" in answers:
            _metadata(package, place, answers[f"{place}/METADATA"], host, env)
            wheel = answers[f"{place}/WHEEL"]
            package.tags = env_files.parse_wheel_tags(wheel.text) if wheel.ok else []
        direct = answers.get(f"{place}/direct_url.json")
        if direct is not None and direct.ok:
            package.editable = env_files.parse_direct_url(direct.text)[1] or package.editable


def _metadata(package: Package, place: str, answer: Answer, host: Asked, env: Environment) -> None:
    if not answer.ok:
        absent = answer.code == 2
        package.problems.append("METADATA missing" if absent else str(answer.why))
        env.problems.append(("broken", f"{shown(place)}/METADATA: {answer.why}"))
        return
    told = env_files.parse_metadata(answer.data)
    if told.problem is not None:
        package.problems.append(told.problem)
        env.problems.append(("broken", f"{shown(place)}: {told.problem}"))
    elif told.version and told.version != package.version and "-" not in package.version:
        package.version = told.version[:80]
    by_pip = package.manager == "pip" and env.kind not in ("system", "conda")  # distributions leave RECORD away
    if by_pip and "RECORD" not in decoded(host.listing(place)):
        package.problems.append("RECORD missing")
        env.problems.append(("broken", f"{shown(place)}: no RECORD"))


def _builds(host: Asked, site: str, told: env_files.Site, env: Environment, matter: list[Package]) -> None:
    """What torch and TensorFlow were built with, by the files that they carry."""
    paths = [f"{site}/torch/version.py"] if "torch" in told.modules else []
    paths += [f"{site}/{_BUILD_INFO}"] if "tensorflow" in told.modules else []
    answers = host.untrusted(paths, 8192)
    torch = answers.get(f"{site}/torch/version.py")
    if torch is not None and torch.ok:
        build = env_files.parse_build(torch.text)
        env.build_told = "cuda" in build
        env.torch, env.torch_cuda, env.torch_hip = (
            build.get("version") or env.torch,
            build.get("cuda"),
            build.get("hip"),
        )
        listed = next((p for p in matter if p.name == "torch" and not p.editable), None)
        if listed is not None and env.torch and listed.version.partition("+")[0] != env.torch.partition("+")[0]:
            env.problems.append(("disagree", f"torch {listed.version} / {env.torch}"))
    flow = answers.get(f"{site}/{_BUILD_INFO}")
    if flow is not None and flow.ok:
        found = re.search(r"""['"]cuda_version['"]\s*[,:]\s*['"](\d+(?:\.\d+)?)""", flow.text)
        env.tensorflow_cuda = found[1] if found else None
    for package in matter:
        if package.name == "torch":
            package.cuda = package.cuda or env.torch_cuda
            env.torch = env.torch or package.version
    _set_aside(matter, env.torch)


def _set_aside(matter: list[Package], torch: str | None) -> None:
    """Of metadata of one package twice only one can be that of the files: torch's own word, else the newest version."""
    for package in matter:
        rivals = [p for p in matter if p.name == package.name]
        if len(rivals) > 1:
            said = [p for p in rivals if p.name == "torch" and p.version == torch]
            if package is not max(said or rivals, key=lambda p: version_key(p.version)):
                package.problems.append("set aside")


def version_key(version: str) -> list[int]:
    """Numbers of a version, for comparing plain releases."""
    return [int(part) for part in re.findall(r"\d{1,18}", version.partition("+")[0][:400])][:8]


def _without_metadata(host: Asked, site: str, told: env_files.Site, env: Environment) -> None:
    """Packages whose folders lie there though no metadata tells of them: half removed, or copied."""
    names = {package.name for package in told.packages} | {package.name for package in env.packages}
    for module in sorted(
        {p.module for p in gpu_packages().values() if p.role == "framework" and p.module} & told.modules
    ):
        if any(module in name for name in names):
            continue
        inside = decoded(host.listing(f"{site}/{module}"))
        if "__init__.py" in inside:
            env.problems.append(("no_metadata", shown(f"{site}/{module}")))
        elif inside:
            env.problems.append(("remains", shown(f"{site}/{module}")))


def _majors(env: Environment) -> None:
    majors = {env_files.cuda_wheel_major(package.name) for package in env.packages} - {None}
    majors |= {p.version.partition(".")[0] for p in env.packages if p.name in ("nvidia-cuda-runtime", "nvidia-cublas")}
    env.cuda_majors = sorted(str(major) for major in majors)


def _default_python(host: Asked, prefix: str) -> str | None:
    """The release that /usr/bin/python3 leads to, for folders that all releases share (Debian's dist-packages)."""
    link = host.link(f"{prefix}/usr/bin/python3")
    return _python_of_path(link.text) if link.ok else None


def _python_of_path(path: str) -> str | None:
    found = None
    for part in path.split("/"):
        found = _PYTHON.fullmatch(part) or found
    return found[1] if found else None


def _refused(path: str, why: str | None) -> Gap:
    return Gap(
        "software.environments", f"{path}: {why}", fix="as root it can be read" if "denied" in str(why) else None
    )
