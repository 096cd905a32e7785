"""Jupyter: how it is reached and by whom. Tokens are never kept."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.audit.hits import Hit
from gpuclinic.audit.jupyter_config import UNTOLD, Settings, from_arguments, from_json, from_python
from gpuclinic.audit.scene import Process
from gpuclinic.audit.sockets import LISTEN, is_own
from gpuclinic.audit.units import exec_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import FileState, Scene
    from gpuclinic.model import Where

_SYSTEM = (
    "/usr/etc/jupyter",
    "/usr/local/etc/jupyter",
    "/etc/jupyter",
    "/opt/conda/etc/jupyter",
    "/opt/jupyter",
    "/opt/jupyter/etc",
    "/opt/venv/etc/jupyter",
)
_FILES = ("jupyter_config", "jupyter_notebook_config", "jupyter_server_config", "jupyter_lab_config")
"""Weakest first: the general file, then those of the application (jupyter_core, JupyterApp.config_file_paths)."""
_OPEN = frozenset(["", "*", "0.0.0.0", "::", "[::]"])
_SERVERS = frozenset(
    [
        "jupyter-lab",
        "jupyter-labhub",
        "jupyter-notebook",
        "jupyter-server",
        "jupyter-nbclassic",
        "jupyter-retro",
        "jupyterlab",
        "notebook",
        "jupyter_server",
        "nbclassic",
    ]
)
"""Programs and modules that open a port; nbconvert, console and the like use the same files and open none."""
_SUBCOMMANDS = frozenset(["lab", "notebook", "server", "nbclassic"])
_LAUNCHERS = frozenset(
    [
        "env",
        "tini",
        "dumb-init",
        "conda",
        "mamba",
        "micromamba",
        "poetry",
        "uv",
        "pipenv",
        "sudo",
        "nohup",
        "bash",
        "sh",
        "srun",
        "docker-init",
        "catatonit",
    ]
)
_PYTHON = re.compile(r"^(?:python|pypy)[\d.]*$")
_HUB = re.compile(r"jupyterhub|singleuser|batchspawner", re.IGNORECASE)
_OLD = re.compile(
    r"PROTOCOL_(?:SSLv2|SSLv3|TLSv1(?!_2)(?:_1)?)\b|TLSVersion\.(?:SSLv3|TLSv1(?:_1)?)\b|[\"']ssl_version[\"']: [0134]\b|ssl_version=[0134]\b"
)
"""PROTOCOL_SSLv23 is another name of PROTOCOL_TLS and takes the best that both sides have. Numbers: ssl.PROTOCOL_TLSv1 is 3, TLSv1_1 is 4."""
_WEAK = frozenset(
    [
        "RC4",
        "DES",
        "3DES",
        "NULL",
        "ENULL",
        "ANULL",
        "MD5",
        "EXP",
        "EXPORT",
        "EXPORT40",
        "EXPORT56",
        "LOW",
        "ADH",
        "AECDH",
        "SEED",
        "IDEA",
        "RC2",
    ]
)


class Server(msgspec.Struct):
    """A Jupyter server that runs, or would run with these settings."""

    name: str
    settings: Settings
    process: Process | None = None
    running: bool = False
    unit_user: str | None = None


def is_server(argv: list[str]) -> bool:
    """A program that opens a port, started by itself, by an interpreter, or by a shell or launcher before it.

    >>> is_server(["/usr/bin/python3", "/usr/local/bin/jupyter-lab", "--ip=*"]), is_server(["vim", "/etc/jupyter"]), is_server(["jupyter", "nbconvert"])
    (True, False, False)
    """
    words = list(argv[:12])
    for n, word in enumerate(words):
        name = word.rpartition("/")[2]
        first = (
            n == 0
            or _PYTHON.match(words[n - 1].rpartition("/")[2]) is not None
            or words[0].rpartition("/")[2] in _LAUNCHERS
        )
        if word == "-m" and n + 1 < len(words) and _PYTHON.match(words[0].rpartition("/")[2]):
            module = words[n + 1].partition(".")[0]
            return module in _SERVERS or (module == "jupyter" and _sub(words[n + 2 :]))
        if first and (name in _SERVERS - {"notebook"} or name in ("start-notebook.sh", "start-notebook.py")):
            return True
        if first and name == "jupyter":
            return _sub(words[n + 1 :])
    return False


def _sub(rest: list[str]) -> bool:
    """`jupyter` with no word that is not an option starts nothing."""
    return next((word for word in rest if not word.startswith("-")), "") in _SUBCOMMANDS


def servers(scene: Scene) -> list[Server]:
    """Those that run, each with the configuration of its user; else what units and configurations say."""
    shared = _of_folders(scene, list(_SYSTEM))
    out: list[Server] = []
    for process in scene.processes.values():
        line = " ".join(process.argv)
        if not is_server(process.argv) or _HUB.search(line):
            continue
        home = (process.variables or {}).get("HOME") or next(
            (a.home for a in scene.accounts if a.uid == process.uid), ""
        )
        variables = process.variables or {}
        own = _of_folders(scene, [*_prefixes(process), *_of_home(home, variables)])
        named = _named_config(scene, process.argv, process.cwd or "")
        where = process.at("cmdline", re.sub(r"((?:token|password)=)\S+", r"\1(hidden)", line)[:250])
        out.append(
            Server(
                f"pid {process.pid}", {**shared, **own, **named, **from_arguments(process.argv, where)}, process, True
            )
        )
    if out:
        return out
    for folder in ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"):
        for text in scene.texts(f"{folder}/*.service", "audit.units"):
            lines = exec_lines(text)
            user = next((value for _, key, value in lines if key == "User"), "root")
            for index, key, value in lines:
                if key == "ExecStart" and is_server(value.lstrip("@-:+!|").split()) and not _HUB.search(value):
                    home = next((a.home for a in scene.accounts if a.name == user), "/root")
                    own = _of_folders(scene, _of_home(home, {}))
                    named = _named_config(scene, value.split())
                    out.append(
                        Server(
                            text.path.rpartition("/")[2],
                            {**shared, **own, **named, **from_arguments(value.split(), text.at(index))},
                            None,
                            False,
                            user,
                        )
                    )
    if not out:
        for account, home in scene.homes():
            own = _of_folders(scene, [f"{home}/.jupyter"])
            if own:
                out.append(Server(f"{account.name}'s Jupyter", {**shared, **own}, None, False, account.name))
        if not out and shared:
            out.append(Server("Jupyter", shared))
    return out


def _of_home(home: str, variables: dict[str, str]) -> list[str]:
    """A user's folders, the strongest last; JUPYTER_CONFIG_DIR stands for ~/.jupyter."""
    chosen = variables.get("JUPYTER_CONFIG_DIR") or f"{home}/.jupyter"
    more = [path for path in reversed(variables.get("JUPYTER_CONFIG_PATH", "").split(":")[:8]) if path.startswith("/")]
    return [
        folder
        for folder in (f"{home}/.local/etc/jupyter", *more, chosen)
        if folder.startswith("/") and (home or folder == chosen or folder in more)
    ]


def _prefixes(process: Process) -> list[str]:
    """etc/jupyter of the environment that the program lies in (sys.prefix)."""
    ways = [process.exe or "", *process.argv[:2]]
    return list(
        dict.fromkeys(
            f"{way[: way.rindex('/bin/')]}/etc/jupyter"
            for way in ways
            if way.startswith("/") and "/bin/" in way and not way.startswith(("/usr/bin/", "/bin/"))
        )
    )


def _named_config(scene: Scene, argv: list[str], cwd: str = "") -> Settings:
    for n, word in enumerate(argv):
        path = (
            word.partition("=")[2]
            if word.startswith("--config=")
            else argv[n + 1]
            if word == "--config" and n + 1 < len(argv)
            else ""
        )
        path = (
            path if path.startswith("/") or not path or not cwd.startswith("/") else posixpath.normpath(f"{cwd}/{path}")
        )
        if path.startswith("/"):
            text = scene.text(path, "audit.jupyter")
            return (from_json(text) if path.endswith(".json") else from_python(text)) if text else {}
    return {}


def _of_folders(scene: Scene, folders: list[str]) -> Settings:
    out: Settings = {}
    for folder in folders:
        for name in _FILES:
            python = scene.text(f"{folder}/{name}.py", "audit.jupyter")
            plain = scene.text(f"{folder}/{name}.json", "audit.jupyter")
            out |= from_python(python) if python else {}
            for part in scene.texts(f"{folder}/{name}.d/*.json", "audit.jupyter"):
                out |= from_json(part)
            out |= from_json(plain) if plain else {}  # what `jupyter server password` writes stands above the .py
    return out


def settings(scene: Scene) -> list[Hit]:
    """All findings of all servers."""
    out: list[Hit] = []
    for server in servers(scene):
        out += _reach(scene, server) + _tls(scene, server)
        told = server.settings
        process = server.process
        if process is not None and process.uid == 0:
            out.append(
                _hit(
                    "jupyter_as_root",
                    server,
                    [process.at("status", f"pid {process.pid} ({process.comm}) runs as uid 0")],
                )
            )
        elif _is(told, "allow_root", True) and (process is None and (server.unit_user or "root") == "root"):
            out.append(_hit("jupyter_as_root", server, [told["allow_root"].where]))
        if _is(told, "disable_check_xsrf", True):
            out.append(_hit("jupyter_xsrf_disabled", server, [told["disable_check_xsrf"].where]))
        for name, any_ in (("allow_origin", ("*",)), ("allow_origin_pat", (".*", "^.*$", ".+"))):
            if name in told and told[name].value in any_:
                out.append(_hit("jupyter_allow_origin_any", server, [told[name].where]))
    return list({(hit.id, hit.subject): hit for hit in out}.values())


def _is(told: Settings, name: str, value: object) -> bool:
    return name in told and told[name].value is value


def _hit(identity: str, server: Server, evidence: list[Where], severity: str | None = None) -> Hit:
    pid = server.process.pid if server.process else None
    return Hit(
        id=identity,
        subject=f"Jupyter ({server.name})",
        evidence=evidence,
        values={"name": server.name},
        pid=pid,
        severity=severity,
    )


def _public(scene: Scene, server: Server) -> tuple[bool, list[Where]]:
    """It can be reached from elsewhere: by its sockets where these are told, else by its settings."""
    told = server.settings
    pid = server.process.pid if server.process else None
    bound = [s for s in scene.sockets if s.state == LISTEN and pid is not None and s.pid == pid]
    if not bound and pid is not None:  # whose socket it is was not told: then by the port
        port = str(told["port"].value) if "port" in told else "8888"
        bound = [s for s in scene.sockets if s.state == LISTEN and s.pid is None and str(s.local[1]) == port]
    if bound:
        away = [s for s in bound if not is_own(s.local[0])]
        return bool(away), [s.where for s in away[:1]]
    address = told.get("ip")
    if address is None or address.value is UNTOLD:
        return False, []
    value = str(address.value).strip()
    return value in _OPEN or (value not in ("localhost", "") and not is_own(value)), [address.where]


def _reach(scene: Scene, server: Server) -> list[Hit]:
    told = server.settings
    public, shown = _public(scene, server)
    out = []
    token, password = told.get("token"), told.get("hashed_password") or told.get("password")
    free = token is not None and token.value == "" and not (password is not None and password.value)
    if free and token is not None:
        out.append(_hit("jupyter_no_token", server, [token.where, *shown], None if public else "info"))
    elif _is(told, "allow_unauthenticated_access", True) and public and token is not None and token.value == "":
        out.append(_hit("jupyter_no_token", server, [told["allow_unauthenticated_access"].where]))
    certificate = told.get("certfile") or told.get("ssl_options")
    if public and not (certificate is not None and certificate.value):
        out.append(_hit("jupyter_no_tls", server, shown))
    return out


def _tls(scene: Scene, server: Server) -> list[Hit]:
    out = []
    options = server.settings.get("ssl_options")
    if options is not None:
        if _OLD.search(options.text):
            out.append(_hit("jupyter_tls_old", server, [options.where]))
        ciphers = re.search(r"[\"']?ciphers[\"']?\s*[:=]\s*[\"']([^\"']{1,1000})", options.text)
        if ciphers and weak_ciphers(ciphers[1]):
            out.append(
                _hit(
                    "jupyter_weak_ciphers",
                    server,
                    [msgspec.structs.replace(options.where, text=f"ciphers: {ciphers[1][:150]}")],
                )
            )
    inner = re.search(r"[\"']keyfile[\"']\s*:\s*[\"']([^\"']{1,300})", options.text) if options is not None else None
    key = server.settings.get("keyfile")
    path = str(key.value) if key is not None and isinstance(key.value, str) else inner[1] if inner else ""
    state = _behind_links(scene, path) if path.startswith("/") else None
    if state is not None and state.mode is not None and state.mode & 0o004 and not _behind_closed_folder(scene, path):
        lines = [one.where for one in (key, options) if one is not None][:1]
        out.append(_hit("jupyter_key_world_readable", server, [scene.where(path, f"mode {state.mode:04o}"), *lines]))
    return out


def weak_ciphers(names: str) -> bool:
    """An OpenSSL list that offers broken ciphers; what stands behind ! or - is taken out by it.

    >>> [weak_ciphers(n) for n in ("ECDHE+AESGCM:!aNULL:!MD5", "HIGH:RC4-SHA", "ECDHE-RSA-DES-CBC3-SHA", "DEFAULT:@SECLEVEL=0", "DEFAULT:-RC4")]
    [False, True, True, True, False]
    """
    if "@SECLEVEL=0" in names.upper():
        return True
    words = [word for word in re.split(r"[:,\s]+", names) if word]
    kept = [word for word in words if not word.startswith(("!", "-"))]
    return any(part in _WEAK for word in kept for part in re.split(r"[-+_]", word.upper())) or words in (
        ["ALL"],
        ["ALL", "COMPLEMENTOFALL"],
    )


def _behind_links(scene: Scene, path: str) -> FileState | None:
    """The state of what a path leads to; Let's Encrypt keeps links in live/."""
    for _ in range(4):
        state = scene.state(path)
        target = scene.link(path) if state is not None and state.kind == "link" else None
        if target is None:
            return state
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return None


def _behind_closed_folder(scene: Scene, path: str) -> bool:
    """A folder above it lets others not pass, so that they cannot read it whatever its own mode is."""
    folder = posixpath.dirname(path)
    while folder not in ("/", ""):
        state = scene.state(folder)
        if state is not None and state.mode is not None and state.kind == "folder" and not state.mode & 0o001:
            return True
        folder = posixpath.dirname(folder)
    return False


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (("audit.jupyter", settings),)
