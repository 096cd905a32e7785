"""A real agent on a fake server, scraped by a real Prometheus, whose alerts arrive at a real Alertmanager; node_exporter reads the textfile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from exported import tool, until

from fakes.library import NoCompilerError
from fakes.server import Server, build_server
from gpuclinic.knowledge.dashboards import dashboards

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def asked(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.loads(answer.read())
    except (OSError, ValueError):
        return None


class Hook:
    """Takes what Alertmanager sends on."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.got += json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"


class Site(NamedTuple):
    """Everything that runs. prometheus, agent: their addresses."""

    server: Server
    prometheus: str
    agent: str
    hook: Hook
    textfile: Path

    def query(self, expr: str) -> list[dict[str, Any]]:
        found = asked(f"{self.prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expr})}")
        assert found is not None, expr
        assert found["status"] == "success", (expr, found)
        return list(found["data"]["result"])


PROMETHEUS = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ['{rules}/*.rules.yml']
alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{alertmanager}']}}]}}]}}
scrape_configs:
- job_name: gpuclinic
  static_configs: [{{targets: ['{agent}']}}]
"""
ALERTMANAGER = """\
route: {{receiver: hook, group_by: [instance, alertname], group_wait: 1s, group_interval: 1s}}
receivers: [{{name: hook, webhook_configs: [{{url: '{hook}'}}]}}]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    prometheus, alertmanager = (
        tool("prometheus", "prometheus"),
        tool("prometheus-alertmanager", "prometheus-alertmanager"),
    )
    folder = tmp_path_factory.mktemp("site")
    try:
        server = build_server(folder / "server", "h100-sxm", 2)
    except NoCompilerError as problem:
        pytest.skip(str(problem))
    ports = [free_port() for _ in range(3)]
    agent, prom, manager = (f"127.0.0.1:{port}" for port in ports)
    hook = Hook()
    env = {
        **os.environ,
        **server.env,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "STATE_DIRECTORY": str(folder / "state"),
        "RUNTIME_DIRECTORY": str(folder / "run"),
    }
    textfile = folder / "text" / "gpuclinic.prom"
    textfile.parent.mkdir()
    (folder / "agent.toml").write_text(
        f'[sampling]\nexits = false\n[exporter]\nlisten = "{agent}"\ndcgm_names = true\ntextfile = "{textfile}"\n'
    )
    (folder / "alertmanager.yml").write_text(ALERTMANAGER.format(hook=hook.url))
    subprocess.run(
        [sys.executable, "-m", "gpuclinic", "export", "all", "--into", str(folder / "rules")],
        check=True,
        capture_output=True,
        env=env,
    )
    for path in (folder / "rules").glob("*.rules.yml"):  # nobody waits minutes in a test
        path.write_text(
            "".join(line for line in path.read_text().splitlines(keepends=True) if "    for: " not in line).replace(
                "interval: 30s", "interval: 1s"
            )
        )
    (folder / "prometheus.yml").write_text(PROMETHEUS.format(rules=folder / "rules", alertmanager=manager, agent=agent))
    commands = (
        [sys.executable, "-m", "gpuclinic", "agent", "--config", str(folder / "agent.toml")],
        [alertmanager, f"--config.file={folder}/alertmanager.yml", f"--storage.path={folder}/am", f"--web.listen-address={manager}", "--cluster.listen-address="],
        [prometheus, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address={prom}"],
    )  # fmt: skip
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            with (folder / f"log{number}").open("wb") as log:
                running.append(subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True))
        made = Site(server, f"http://{prom}", agent, hook, textfile)
        until(lambda: asked(f"{made.prometheus}/api/v1/query?query=count(gpuclinic_gpu_up)==2"), 60)
        until(lambda: made.query("gpuclinic_samples_total > 12"), 60)
        yield made
    finally:
        for one in running:
            with contextlib.suppress(ProcessLookupError):
                one.send_signal(signal.SIGTERM)
        for one in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(15)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
        hook.server.shutdown()
        hook.server.server_close()


def test_every_panel_of_every_dashboard_has_data(site: Site) -> None:
    until(lambda: site.query("instance:gpuclinic_xids:increase1h"))
    empty = []
    for board in dashboards():
        for panel in board.panel:
            for query in panel.queries:
                expr = query.promql().replace("$instance", ".*").replace("$gpu", ".*")
                if not site.query(expr):
                    empty.append((board.name, panel.en, expr))
    assert empty == []


def test_what_prometheus_read_is_what_was_written(site: Site) -> None:
    (target,) = asked(f"{site.prometheus}/api/v1/targets")["data"]["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    types = {name: entry[0]["type"] for name, entry in asked(f"{site.prometheus}/api/v1/metadata")["data"].items()}
    assert (
        types["gpuclinic_gpu_energy_joules"] == "counter"
    )  # read as OpenMetrics, where the ending is no part of the name
    assert types["gpuclinic_gpu_power_watts"] == "gauge"
    for name in ("GPU_TEMP", "POWER_USAGE", "SM_CLOCK", "GPU_UTIL", "FB_USED"):  # dashboard 12239
        assert len(site.query(f"DCGM_FI_DEV_{name}")) == 2
    assert site.query('avg(DCGM_FI_DEV_GPU_TEMP{instance=~".*", gpu=~"0"})')


def test_no_rule_fails(site: Site) -> None:
    groups = asked(f"{site.prometheus}/api/v1/rules")["data"]["groups"]
    found = [rule for group in groups for rule in group["rules"]]
    assert len(found) > 100
    until(
        lambda: all(
            rule["health"] != "unknown"
            for group in asked(f"{site.prometheus}/api/v1/rules")["data"]["groups"]
            for rule in group["rules"]
        )
    )
    groups = asked(f"{site.prometheus}/api/v1/rules")["data"]["groups"]
    assert [
        (rule["name"], rule.get("lastError")) for group in groups for rule in group["rules"] if rule["health"] != "ok"
    ] == []
    texts = [
        text
        for group in groups
        for rule in group["rules"]
        for alert in rule.get("alerts", [])
        for text in alert["annotations"].values()
    ]
    assert [text for text in texts if "error expanding" in text.lower() or "<no value>" in text] == []


def test_node_exporter_reads_the_textfile(site: Site, tmp_path: Path) -> None:
    node = tool("prometheus-node-exporter", "prometheus-node-exporter")
    until(site.textfile.exists)
    port = free_port()
    command = [
        node,
        f"--web.listen-address=127.0.0.1:{port}",
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={site.textfile.parent}",
    ]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as running:
        try:
            page = until(lambda: _page(f"http://127.0.0.1:{port}/metrics"))
        finally:
            running.terminate()
    assert "node_textfile_scrape_error 0" in page
    assert 'gpuclinic_gpu_up{gpu="0"' in page


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def test_a_fault_arrives_at_alertmanager_and_a_scrape_answers_beside_a_gpu_that_hangs(site: Site) -> None:
    site.server.set({"0.ecc.ue.vol": 2, "0.ecc.ue.agg": 2, "1.hang.any": "inf"})
    until(lambda: site.query('gpuclinic_gpu_up{gpu="1"} == 0'), 60)
    assert site.query('up{job="gpuclinic"} == 1')
    assert site.query('gpuclinic_gpu_power_watts{gpu="0"}')
    assert not site.query(
        'gpuclinic_gpu_power_watts{gpu="1"} and on () (time() - timestamp(gpuclinic_gpu_up{gpu="1"}) < 5)'
    )
    arrived = until(
        lambda: {
            a["labels"]["alertname"]: a
            for a in site.hook.got
            if a["labels"]["alertname"] in ("GpuclinicGpuEccUncorrectable", "GpuclinicGpuDoesNotAnswer")
        },
        60,
    )
    until(
        lambda: (
            {"GpuclinicGpuEccUncorrectable", "GpuclinicGpuDoesNotAnswer"}
            <= {a["labels"]["alertname"] for a in site.hook.got}
        ),
        90,
    )
    arrived = {a["labels"]["alertname"]: a for a in site.hook.got}
    ecc = arrived["GpuclinicGpuEccUncorrectable"]
    assert (ecc["labels"]["gpu"], ecc["labels"]["severity"], ecc["labels"]["rule"]) == (
        "0",
        "critical",
        "gpu.ecc.uncorrectable",
    )
    assert " 2 uncorrectable memory errors" in ecc["annotations"]["summary"]
    until(
        lambda: any(
            a["labels"]["alertname"] == "GpuclinicFinding" and a["labels"]["rule"] == "gpu.ecc.uncorrectable"
            for a in site.hook.got
        ),
        90,
    )
