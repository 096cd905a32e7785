"""CUDA toolkits, cuDNN, NCCL and forward-compatibility libraries on the system; what processes really mapped, and what shadows what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuclinic.clinic.environment_places import LOOK, shown
from gpuclinic.knowledge.software import glibc_of_release
from gpuclinic.model import Gap, digits
from gpuclinic.recognise import cuda_libraries as libraries

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.clinic.environments import Environment
    from gpuclinic.clinic.looks._look import Seen
    from gpuclinic.model import Scalar
    from gpuclinic.observe.asking import Asked
    from gpuclinic.recognise.python_env import Package

_MOST_MAPS = 8 << 20
_MOST_PROCESSES = 64
_MOST_FOLDERS = 24
_SYSTEM = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
_HEADERS = ("/usr/include/cudnn_version.h", "/usr/include/*/cudnn_version*.h", "/usr/local/cuda*/include/cudnn_version*.h",
            "/usr/include/nccl.h", "/usr/local/cuda*/include/nccl.h")  # fmt: skip


def toolkits(host: Asked, seen: Seen) -> None:
    """Facts `toolkit`: CUDA toolkits with the one /usr/local/cuda leads to, headers of cuDNN and NCCL, forward-compatibility libraries."""
    links = host.links("/usr/local/cuda*")
    chosen = _final("/usr/local/cuda", {**links, **host.links("/etc/alternatives/cuda*")})
    found: dict[str, str] = {}
    for pattern in ("/usr/local/cuda*/version.json", "/usr/local/cuda*/version.txt"):
        for path, answer in host.files(pattern, 1 << 16).items():
            folder = path.rpartition("/")[0]
            version = libraries.parse_toolkit(path, answer.text) if answer.ok else None
            if folder in links or folder in found:
                continue
            if not answer.ok and answer.code not in (2, 20):
                seen.gaps.append(Gap(LOOK, f"{shown(path)}: {answer.why}"))
            found[folder] = version or ""
            fields: dict[str, Scalar] = {
                "what": "cuda",
                "path": shown(folder),
                "version": version,
                "chosen": folder == chosen,
            }
            seen.fact("toolkit", shown(folder), fields, shown(path))
    for pattern in _HEADERS:
        for path, answer in host.files(pattern, 1 << 16).items():
            version = libraries.parse_header(answer.text) if answer.ok else None
            folder = path.rpartition("/include/")[0]
            if version is not None and folder not in links:
                what = "nccl" if path.endswith("nccl.h") else "cudnn"
                if not any(f.key == f"{what} {folder}" for f in seen.facts):
                    seen.fact(
                        "toolkit",
                        f"{what} {folder}",
                        {"what": what, "path": shown(path), "version": version},
                        shown(path),
                    )
    _libraries_without_headers(host, seen)
    _compat(host, seen, chosen)


def _libraries_without_headers(host: Asked, seen: Seen) -> None:
    """cuDNN and NCCL whose packages brought no header, as those of RPM distributions: the links of the libraries tell the version."""
    for what in ("cudnn", "nccl"):
        if any(f.fields.get("what") == what for f in seen.facts):
            continue
        for folder in _SYSTEM:
            for path, target in host.links(f"{folder}/lib{what}.so.*").items():
                library = libraries.library_of(target)
                if library is not None and library[1] and "." in library[1]:
                    key = f"{what} {shown(folder)} {library[1]}"
                    if not any(f.key == key for f in seen.facts):
                        seen.fact(
                            "toolkit", key, {"what": what, "path": shown(path), "version": library[1]}, shown(path)
                        )


def packages(host: Asked, seen: Seen) -> None:
    """Facts `toolkit` of the distribution's packages of CUDA, cuDNN, NCCL and forward compatibility: dpkg's, else what `rpm -qa` says."""
    status, source = host.file("/var/lib/dpkg/status", 16 << 20), "/var/lib/dpkg/status"
    found = libraries.parse_installed(status.text) if status.ok else []
    if not status.ok and (host.stat("/var/lib/rpm").ok or host.stat("/usr/lib/sysimage/rpm").ok):
        answer, source = host.command("rpm", "-qa", deadline=5.0), "rpm -qa"
        found = libraries.parse_rpms(answer.text) if answer.ok else []
        if not answer.ok:
            seen.gaps.append(Gap(LOOK, f"rpm -qa: {answer.why}"))
    for name, version in found:
        seen.fact("toolkit", name, {"what": "package", "path": name, "version": version}, source)


def _final(path: str, links: dict[str, str]) -> str:
    """Where links lead in the end."""
    for _ in range(8):
        if path not in links:
            break
        target = links[path]
        path = target if target.startswith("/") else f"{path.rpartition('/')[0]}/{target}"
        path = path.rstrip("/")
    return path


def _compat(host: Asked, seen: Seen, chosen: str) -> None:
    """Forward-compatibility libraries of cuda-compat packages: a libcuda of a newer driver."""
    for path, target in host.links("/usr/local/cuda*/compat/libcuda.so.1").items():
        folder = path.rpartition("/")[0]
        library = libraries.library_of(target)
        if any(f.fields.get("path") == shown(folder) for f in seen.facts) or (
            folder.startswith("/usr/local/cuda/") and chosen != "/usr/local/cuda"
        ):
            continue
        version = library[1] if library is not None else None
        seen.fact("toolkit", shown(folder), {"what": "compat", "path": shown(folder), "version": version}, shown(path))


def system_search(host: Asked, seen: Seen, driver: str | None) -> None:
    """Facts `shadowed_library` of the machine's own search path: folders of ld.so.conf whose libcuda is not the driver's."""
    conf = {path: answer.text for path, answer in host.files("/etc/ld.so.conf.d/*.conf", 1 << 16).items() if answer.ok}
    main = host.file("/etc/ld.so.conf", 1 << 16)
    if main.ok:
        conf["/etc/ld.so.conf"] = main.text
    for folder, path in libraries.library_folders(conf)[:_MOST_FOLDERS]:
        if folder not in _SYSTEM and folder not in ("/lib64", "/lib"):
            _other_libcuda(host, seen, folder, path, driver)


def _other_libcuda(host: Asked, seen: Seen, folder: str, by: str, driver: str | None) -> None:
    link = host.link(f"{folder}/libcuda.so.1")
    there = link.ok or host.stat(f"{folder}/libcuda.so.1").ok
    if not there:
        return
    library = libraries.library_of(link.text) if link.ok else None
    stub = folder.endswith("/stubs")
    version = library[1] if library is not None else None
    if not stub and (version is None or version in (driver, "1")):
        return
    fields: dict[str, Scalar] = {
        "name": "libcuda", "path": shown(f"{folder}/libcuda.so.1"), "version": version, "by": shown(by), "stub": stub,
        "compat": folder.endswith("/compat"), "driver": driver, "older": _older(version, driver), "process": False,
    }  # fmt: skip
    seen.fact("shadowed_library", f"{shown(folder)}/libcuda.so.1", fields, shown(by))


def _older(version: str | None, than: str | None) -> bool | None:
    if not version or not than:
        return None
    parts = [[n for p in text.split(".") if (n := digits(p)) is not None] for text in (version, than)]
    return parts[0] < parts[1]


def processes(host: Asked, seen: Seen, pids: list[int], environments: Iterable[Environment]) -> None:
    """Facts `mapped_library` of GPU processes, and `shadowed_library` where one comes from elsewhere than the environment's own."""
    by_pid = {pid: environment for environment in environments for pid in environment.pids}
    refused: list[int] = []
    for pid in pids[:_MOST_PROCESSES]:
        maps = host.file(f"/proc/{pid}/maps", _MOST_MAPS)
        if not maps.ok:
            refused += [pid] if maps.code in (1, 13) else []
            continue
        every = libraries.parse_maps(maps.text)
        gone = sorted({shown(one.path.rpartition("/")[2]) for one in every if one.deleted})
        if gone:
            told = ", ".join(gone[:6])
            about: dict[str, Scalar] = {"pid": pid, "count": len(gone), "names": told}
            seen.fact("replaced_library", str(pid), about, f"/proc/{pid}/maps", names=f"{told} (deleted)")
        for mapped in every:
            environment = by_pid.get(pid)
            fields: dict[str, Any] = {
                "pid": pid, "name": mapped.name, "path": shown(mapped.path), "version": mapped.version, "deleted": mapped.deleted,
                "environment": environment.path if environment is not None else None, "compat": "/compat/" in mapped.path,
            }  # fmt: skip
            source = f"/proc/{pid}/maps"
            seen.fact(
                "mapped_library",
                f"{pid}/{shown(mapped.path)}",
                fields,
                source,
                deleted=f"{shown(mapped.path)}{' (deleted)' if mapped.deleted else ''}",
            )
            _foreign(seen, environment, mapped, pid)
    if refused:
        told = ", ".join(map(str, refused[:5]))
        seen.gaps.append(
            Gap(
                LOOK,
                f"/proc/PID/maps of {len(refused)} GPU processes ({told}): not permitted; as root they can be read",
            )
        )


def _foreign(seen: Seen, environment: Environment | None, mapped: libraries.Mapped, pid: int) -> None:
    """A library that the process took from elsewhere though its environment brings its own."""
    if environment is None or mapped.name not in ("libcudnn", "libnccl") or mapped.deleted:
        return
    if any(
        mapped.path.startswith(f"{site}/") or f"{environment.prefix}{mapped.path}".startswith(f"{site}/")
        for site in environment.sites
    ):
        return
    if mapped.path.startswith(f"{environment.path}/"):
        return
    own = own_library(environment, mapped.name)
    if own is None:
        return
    fields: dict[str, Scalar] = {
        "name": mapped.name, "path": shown(mapped.path), "version": mapped.version, "by": f"pid {pid}", "process": True, "pid": pid,
        "environment": environment.path, "own": f"{own.name} {own.version}", "own_version": own.version,
        "older": _older(mapped.version, own.version) if mapped.version and "." in mapped.version else _older_major(mapped.version, own.version),
    }  # fmt: skip
    seen.fact(
        "shadowed_library", f"{environment.path}/{mapped.name}", fields, f"/proc/{pid}/maps", path=shown(mapped.path)
    )


def _older_major(version: str | None, than: str) -> bool | None:
    """By the major alone, which is all that a file name such as libcudnn.so.8 tells; None where that is the same."""
    first, second = digits(version), digits(than.partition(".")[0])
    return first < second if first is not None and second is not None and first != second else None


def search_path(
    host: Asked, seen: Seen, driver: str | None, place: str, by: str, environment: Environment | None
) -> None:
    """Facts `shadowed_library` of the folders in LD_LIBRARY_PATH: libcuda that is not the driver's, cuDNN or NCCL before the environment's own.

    place: /proc/PID or /proc/self. environment: whose packages bring libraries of their own.
    """
    answer = host.file(f"{place}/environ", 1 << 17)
    told = next((p for p in answer.data.split(b"\0") if p.startswith(b"LD_LIBRARY_PATH=")), b"") if answer.ok else b""
    folders = told.partition(b"=")[2].decode("utf-8", "surrogateescape")[:4000].split(":")
    for folder in dict.fromkeys(f.rstrip("/") for f in folders if f.startswith("/") and len(f) > 1):
        if folder in _SYSTEM:
            continue
        _other_libcuda(host, seen, folder, by, driver)
        if environment is None or folder.startswith(f"{environment.path}/"):
            continue
        for name in ("libcudnn", "libnccl"):
            _before_own(host, seen, f"{folder}/{name}.so.*", by, environment)


def _before_own(host: Asked, seen: Seen, pattern: str, by: str, environment: Environment) -> None:
    """cuDNN or NCCL in a folder that is searched before the environment's own."""
    found = {path: library for path in host.links(pattern) if (library := libraries.library_of(path)) is not None}
    for path, (name, version) in found.items():
        target = libraries.library_of(host.link(path).text)
        version = (target[1] if target is not None else None) or version
        own = own_library(environment, name)
        if own is None or version is None:
            continue
        older = _older(version, own.version) if "." in version else _older_major(version, own.version)
        fields: dict[str, Scalar] = {
            "name": name, "path": shown(path), "version": version, "by": by, "process": False, "environment": environment.path,
            "own": f"{own.name} {own.version}", "own_version": own.version, "older": older,
        }  # fmt: skip
        seen.fact("shadowed_library", f"{environment.path}/{name}/{by}", fields, by, path=shown(path))


def own_library(environment: Environment, name: str) -> Package | None:
    """The package of an environment that brings a library (nvidia-cudnn-cu12 brings libcudnn)."""
    short = name.removeprefix("lib")
    return next((p for p in environment.packages if p.name == short or p.name.startswith(f"nvidia-{short}-cu")), None)


def base_of(host: Asked, prefix: str = "") -> dict[str, str | None]:
    """The C library's release, by its file's name or the distribution's release, and the machine's architecture, by its loader."""
    loaders = (("x86_64", "/lib64/ld-linux-x86-64.so.2"), ("aarch64", "/lib/ld-linux-aarch64.so.1"))
    machine = next((name for name, path in loaders if host.stat(f"{prefix}{path}").ok), None)
    for folder in ("/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64"):
        link = host.link(f"{prefix}{folder}/libc.so.6")
        version = libraries.glibc_of_name(link.text) if link.ok else None
        if version is not None:
            return {"glibc": version, "machine": machine}
    release = host.file(f"{prefix}/etc/os-release", 1 << 14)
    if not release.ok:
        release = host.file(f"{prefix}/usr/lib/os-release", 1 << 14)
    told = libraries.parse_os_release(release.text) if release.ok else {}
    return {"glibc": glibc_of_release(told.get("ID", ""), told.get("VERSION_ID", "")), "machine": machine}
