"""The agent's configuration: one TOML file, every key with a default, every mistake named by file and key."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from gpuclinic.model import UserError
from gpuclinic.store import toml_loads

SYSTEM_FILE = Path("/etc/gpuclinic/agent.toml")
_LARGEST = 1 << 20


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """interval_s: between samples, 0.2-60. gpus: look at GPUs at all. exits: note which processes end, and how.

    trace_signals: also record who sends deadly signals (root, tracefs); off, since it costs every signal on the machine a microsecond.
    expect_gpus: how many there should be; none: what the inventory or the past says.
    """

    interval_s: float = 1.0
    gpus: bool = True
    exits: bool = True
    trace_signals: bool = False
    expect_gpus: int | None = None


class Storing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """folder: of the history ("": the usual one). raw_days: samples as they were taken. days: hourly figures. most_mib: on disk."""

    folder: str = ""
    raw_days: float = 30.0
    days: float = 400.0
    most_mib: int = 2048


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """off: rows left out, by id or its beginning. for_s: other durations, by row. file: more rows, in the format of the shipped ones.

    every_s: how often what hardly changes is judged.
    """

    off: list[str] = []
    for_s: dict[str, float] = {}
    file: str = ""
    every_s: float = 60.0


class Channel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way out. kind: alertmanager, webhook, email, command, apprise. url: where to (an address list for e-mail).

    least: mildest severity that goes there. lang: of the text. secret_file: a file with a password or token, never in this one.
    sender, server: of e-mail.
    """

    kind: str
    url: str = ""
    least: str = "warning"
    lang: str = "en"
    secret_file: str = ""
    sender: str = ""
    server: str = "localhost:25"


class Alerts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """channels: where alerts go. repeat_s: an alert that still holds is sent again after so long (0: never). wait_s: collected for so long."""

    channels: list[Channel] = []
    repeat_s: float = 14400.0
    wait_s: float = 5.0


class Exporting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """listen: address:port ("": none). token_file: a bearer token is asked for. cert_file, key_file: TLS; client_ca_file: mutual TLS.

    dcgm_names: also the names that dcgm-exporter gives. hostname_label: "hostname" or the older "Hostname". textfile: a .prom file to
    keep written. otlp: URL of an OpenTelemetry collector; otlp_every_s: how often. job_mapping_dir: DCGM_HPC_JOB_MAPPING_DIR.
    pod_resources: the kubelet's socket.
    """

    listen: str = "127.0.0.1:9410"
    token_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    dcgm_names: bool = False
    hostname_label: str = "hostname"
    textfile: str = ""
    otlp: str = ""
    otlp_every_s: float = 15.0
    job_mapping_dir: str = ""
    pod_resources: str = "/var/lib/kubelet/pod-resources/kubelet.sock"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything the agent can be told."""

    sampling: Sampling = Sampling()
    store: Storing = Storing()
    rules: Rules = Rules()
    alerts: Alerts = Alerts()
    exporter: Exporting = Exporting()


def load_config(given: str | None = None) -> tuple[Config, Path | None]:
    """The configuration and the file that it came from (none: the defaults).

    given: a file; else GPUCLINIC_AGENT_CONFIG, XDG_CONFIG_HOME/gpuclinic/agent.toml for an ordinary user, /etc/gpuclinic/agent.toml.
    Raises UserError with file and key for whatever is wrong in it.
    """
    path = Path(given or os.environ.get("GPUCLINIC_AGENT_CONFIG") or _usual())
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        if given:
            raise UserError(f"{path}: no such file") from None
        return Config(), None
    except OSError as problem:
        raise UserError(f"{path}: {problem.strerror or problem}") from problem
    if len(data) > _LARGEST:
        raise UserError(f"{path}: larger than 1 MiB, which no configuration is")
    return _checked(_parsed(data, path), path), path


def _usual() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    own = Path(base if base.startswith("/") else os.path.expanduser("~/.config")) / "gpuclinic" / "agent.toml"  # noqa: PTH111 - Path's raises without a home
    return own if os.geteuid() != 0 and own.is_file() else SYSTEM_FILE


def _parsed(data: bytes, path: Path) -> Config:
    try:
        raw = toml_loads(data.decode("utf-8"))
    except ValueError as problem:
        raise UserError(f"{path}: not TOML: {problem}") from problem
    try:
        return msgspec.convert(raw, Config)
    except msgspec.ValidationError as problem:
        raise UserError(f"{path}: {problem}") from problem


def _checked(config: Config, path: Path) -> Config:
    for key, value, low, high in (
        ("sampling.interval_s", config.sampling.interval_s, 0.2, 60.0),
        ("store.raw_days", config.store.raw_days, 0.1, 3650.0),
        ("store.days", config.store.days, 1.0, 3650.0),
        ("store.most_mib", config.store.most_mib, 16, 1 << 20),
        ("rules.every_s", config.rules.every_s, 1.0, 3600.0),
        ("exporter.otlp_every_s", config.exporter.otlp_every_s, 1.0, 3600.0),
    ):
        if not low <= value <= high:
            raise UserError(f"{path}: {key} = {value:g} is not between {low:g} and {high:g}")
    for number, channel in enumerate(config.alerts.channels, 1):
        if channel.kind not in ("alertmanager", "webhook", "email", "command", "apprise"):
            raise UserError(f"{path}: alerts.channels {number}: unknown kind {channel.kind!r}")
        if channel.least not in ("info", "warning", "critical") or channel.lang not in ("en", "zh"):
            raise UserError(f"{path}: alerts.channels {number}: least is info, warning or critical; lang is en or zh")
    return config
