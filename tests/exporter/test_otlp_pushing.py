"""Pushing to an OpenTelemetry collector that answers as it likes."""

from __future__ import annotations

import gzip
import http.server
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from exported import NOBODY, gpu, shot, until, xid
from test_exported_metrics import alert

from gpuclinic.model import Tick, UserError
from gpuclinic.watch.exporter import pushing as module
from gpuclinic.watch.exporter.pushing import Pushing

if TYPE_CHECKING:
    from collections.abc import Iterator


class Collector:
    """Takes what is posted; statuses: answers to give first."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.statuses: list[int] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = outer.statuses.pop(0) if outer.statuses else 200
                if status == 200:
                    outer.got.append((self.path, json.loads(gzip.decompress(body))))
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def records(self) -> list[dict[str, Any]]:
        return [
            record for path, body in self.got if path.endswith("/v1/logs")
            for record in body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
        ]  # fmt: skip


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.02)
    made = Collector()
    yield made
    made.server.shutdown()
    made.server.server_close()


def begun(url: str, said: list[str]) -> Pushing:
    now = shot(gpu())
    return Pushing(url, 0.05, lambda: (now, NOBODY), said.append, "boot")


def tick(*events: Any) -> Tick:
    return Tick(time.time(), time.monotonic(), [], list(events))


def test_metrics_events_and_findings_arrive(collector: Collector) -> None:
    pushing = begun(collector.url, [])
    one = alert()
    pushing.take(tick(xid(79)), [one])
    pushing.take(tick(), [one])
    one.severity = "warning"
    pushing.take(tick(), [one])
    pushing.take(tick(), [])
    assert until(lambda: len(collector.records()) >= 4)
    assert [record["eventName"] for record in collector.records()] == ["gpuclinic.xid", *["gpuclinic.finding"] * 3]
    what = [
        [a["value"]["stringValue"] for a in r["attributes"] if a["key"] == "gpuclinic.what"]
        for r in collector.records()
    ]
    assert what == [[], ["fired"], ["changed"], ["resolved"]]
    metrics = next(body for path, body in collector.got if path == "/v1/metrics")
    names = {metric["name"] for metric in metrics["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]}
    assert {"hw.gpu.utilization", "gpuclinic_gpu_up"} <= names
    pushing.close()


def test_what_was_not_taken_is_sent_again_in_order_and_said_once(collector: Collector) -> None:
    collector.statuses = [503, 429, 200, 502, 200]
    said: list[str] = []
    pushing = begun(collector.url, said)
    pushing.take(tick(xid(13), xid(79)), [])
    assert until(lambda: len(collector.records()) == 2)
    assert [record["body"]["stringValue"] for record in collector.records()] == ["Xid 13", "Xid 79"]
    assert until(lambda: any("again" in text for text in said))
    assert sum("HTTP 503" in text for text in said) == 1
    pushing.close()


def test_what_the_collector_does_not_want_is_not_sent_again(collector: Collector) -> None:
    collector.statuses = [200, 400]
    said: list[str] = []
    pushing = begun(collector.url, said)
    pushing.take(tick(xid(79)), [])
    assert until(lambda: pushing.failed == 1)
    sent = pushing.sent
    assert until(lambda: pushing.sent > sent + 2)
    assert collector.records() == []
    pushing.close()


def test_a_collector_that_is_gone_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "_MOST_RECORDS", 100)
    said: list[str] = []
    pushing = begun("http://127.0.0.1:9/", said)
    for code in range(1, 301):
        pushing.take(tick(xid(code)), [])
    assert until(lambda: pushing.failed >= 3)
    assert len(said) == 1
    pushing.close()


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:99999", "http://user:secret@x:1", "x:4318"])
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(UserError, match=r"exporter\.otlp"):
        Pushing(url, 1.0, lambda: None, print)
