"""Jupyter: how it is reached and by whom. Configurations are read as syntax trees and JSON, never executed; tokens are never kept."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.audit.hits import Hit
from gpuclinic.audit.scene import Process
from gpuclinic.audit.sockets import LISTEN, is_own
from gpuclinic.audit.units import exec_lines
from gpuclinic.model import Where

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Scene, Text

_SYSTEM = (
    "/usr/etc/jupyter",
    "/usr/local/etc/jupyter",
    "/etc/jupyter",
    "/opt/conda/etc/jupyter",
    "/opt/jupyter",
    "/opt/jupyter/etc",
    "/opt/venv/etc/jupyter",
)
_FILES = ("jupyter_server_config", "jupyter_notebook_config", "jupyter_lab_config", "jupyter_config")
_CLASSES = re.compile(
    r"^(?:ServerApp|NotebookApp|LabApp|ExtensionApp|IdentityProvider|PasswordIdentityProvider|JupyterApp|SingleUserNotebookApp|LabServerApp|JupyterNotebookApp)$"
)
_SHORT = {
    "--ip": "ip",
    "--port": "port",
    "--allow-root": "allow_root",
    "--certfile": "certfile",
    "--keyfile": "keyfile",
    "--no-mathjax": "",
    "--ServerApp": "",
}
_OPEN = frozenset(["", "*", "0.0.0.0", "::", "[::]"])
_IS_JUPYTER = re.compile(
    r"(?:^|/)jupyter(?:-lab|-notebook|-server|lab)?(?:$|\s)|-m\s+(?:jupyter\S*|notebook|jupyterlab)|jupyter_server|jupyter-nbclassic",
    re.IGNORECASE,
)
_HUB = re.compile(r"jupyterhub|singleuser|batchspawner", re.IGNORECASE)
_OLD = re.compile(
    r"PROTOCOL_(?:SSLv2|SSLv3|SSLv23|TLSv1(?!_2)(?:_1)?)\b|TLSVersion\.(?:SSLv3|TLSv1(?:_1)?)\b|SECLEVEL=0|\bTLSv1(?:\.[01])?[\"']"
)
_WEAK = re.compile(
    r"(?<![!\w-])(?:RC4|DES-CBC|3DES|DES|NULL|eNULL|aNULL|MD5|EXP(?:ORT)?|LOW|ADH|SEED|IDEA)(?![\w])|SECLEVEL=0|(?<![!\w])ALL(?::|$)",
    re.IGNORECASE,
)
_UNTOLD = object()


class Value(msgspec.Struct, frozen=True):
    """A setting: what it is (a literal, or the text of an expression), and the line."""

    value: Any
    where: Where
    text: str = ""


Settings = dict[str, Value]


def from_python(text: Text) -> Settings:
    """`c.ServerApp.token = ""` and the like; what is computed is kept as its text."""
    try:
        tree = ast.parse(text.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    out: Settings = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if (
                isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Attribute)
                and _CLASSES.match(target.value.attr)
            ):
                shown = ast.get_source_segment(text.text, node.value) or ""
                try:
                    value = ast.literal_eval(node.value)
                except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                    value = _UNTOLD
                out[target.attr] = Value(value, _hushed(text, node.lineno - 1, target.attr), shown[:2000])
    return out


def _hushed(text: Text, index: int, name: str) -> Where:
    """The line; of a token or password only its name and whether it is empty."""
    if name in ("token", "password", "hashed_password"):
        line = text.lines()[index]
        return text.at(
            index, re.sub(r"=.*", lambda m: "= ''" if re.match(r"=\s*u?(''|\"\")", m[0]) else "= (hidden)", line)
        )
    return text.at(index)


def from_json(text: Text) -> Settings:
    """{"ServerApp": {"ip": "*"}}."""
    try:
        told = json.loads(text.text)
    except (ValueError, RecursionError):
        return {}
    out: Settings = {}
    for name, rows in told.items() if isinstance(told, dict) else ():
        if _CLASSES.match(str(name)) and isinstance(rows, dict):
            for key, value in rows.items():
                index = next((n for n, line in enumerate(text.lines()) if f'"{key}"' in line), 0)
                out[str(key)] = Value(
                    value,
                    _hushed(text, index, str(key))
                    if key not in ("token", "password", "hashed_password")
                    else text.at(index, f"{key}: {'(empty)' if value == '' else '(hidden)'}"),
                    str(value)[:2000],
                )
    return out


def from_arguments(words: list[str], where: Where) -> Settings:
    """Options of a command line, traits and their short names."""
    out: Settings = {}
    for n, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not equals and name in ("--ip", "--port", "--certfile", "--keyfile") and n + 1 < len(words):
            equals, value = "=", words[n + 1]
        value = value.strip("\"'")
        trait = re.match(r"^--(\w+)\.(\w+)$", name)
        key = trait[2] if trait and _CLASSES.match(trait[1]) else _SHORT.get(name)
        if not key or (not equals and name != "--allow-root"):
            continue
        told: Any = value if equals else True
        if isinstance(told, str) and told in ("True", "False"):
            told = told == "True"
        out[key] = Value(told, where, value)
    return out


class Server(msgspec.Struct):
    """A Jupyter server that runs, or would run with these settings."""

    name: str
    settings: Settings
    process: Process | None = None
    running: bool = False
    unit_user: str | None = None


def servers(scene: Scene) -> list[Server]:
    """Those that run, each with the configuration of its user; else what units and configurations say."""
    shared = _of_folders(scene, list(_SYSTEM))
    out: list[Server] = []
    for process in scene.processes.values():
        line = " ".join(process.argv)
        if (
            not process.argv
            or not _IS_JUPYTER.search(line)
            or _HUB.search(line)
            or re.search(r"ipykernel|kernel-", line)
        ):
            continue
        home = (process.variables or {}).get("HOME") or next(
            (a.home for a in scene.accounts if a.uid == process.uid), ""
        )
        own = _of_folders(scene, [f"{home}/.jupyter", f"{home}/.local/etc/jupyter"]) if home.startswith("/") else {}
        named = _named_config(scene, process.argv)
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
                if key == "ExecStart" and _IS_JUPYTER.search(value) and not _HUB.search(value):
                    home = next((a.home for a in scene.accounts if a.name == user), "/root")
                    own = _of_folders(scene, [f"{home}/.jupyter"])
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


def _named_config(scene: Scene, argv: list[str]) -> Settings:
    for n, word in enumerate(argv):
        path = (
            word.partition("=")[2]
            if word.startswith("--config=")
            else argv[n + 1]
            if word == "--config" and n + 1 < len(argv)
            else ""
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
    if bound:
        away = [s for s in bound if not is_own(s.local[0])]
        return bool(away), [s.where for s in away[:1]]
    address = told.get("ip")
    if address is None or address.value is _UNTOLD:
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
        out.append(
            _hit("jupyter_no_token", server, [token.where, *shown], None if public or not server.running else "info")
        )
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
        ciphers = re.search(r"[\"']ciphers[\"']\s*:\s*[\"']([^\"']{1,1000})", options.text)
        if ciphers and _WEAK.search(ciphers[1]):
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
    state = scene.state(path) if path.startswith("/") else None
    if state is not None and state.mode is not None and state.mode & 0o004:
        lines = [one.where for one in (key, options) if one is not None][:1]
        out.append(_hit("jupyter_key_world_readable", server, [scene.where(path, f"mode {state.mode:04o}"), *lines]))
    return out


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (("audit.jupyter", settings),)
