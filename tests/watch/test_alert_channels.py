"""Channels against real servers on the loopback: what arrives, what is refused, what is never told."""

from __future__ import annotations

import json
import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from gpuclinic.model import Finding, Where
from gpuclinic.watch.alerts import Alert, Silence, add_silence
from gpuclinic.watch.channels import ChannelError, deliver, label_of, message_of
from gpuclinic.watch.config import Alerts, Channel
from gpuclinic.watch.sending import Sender
from gpuclinic.watch.trying import test_message as trial

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "s3cr3t-t0ken"


class Web:
    """A server that keeps what it gets and answers as it is told."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], Any]] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.arrived = threading.Event()
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                web.got.append(
                    (self.path, {k.lower(): v for k, v in self.headers.items()}, json.loads(body or b"null"))
                )
                code, headers = web.answers.pop(0) if web.answers else (200, {})
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()
                web.arrived.set()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def web() -> Iterator[Web]:
    one = Web()
    yield one
    one.close()


def secret(tmp_path: Path, text: str = SECRET, mode: int = 0o600) -> str:
    path = tmp_path / "secret"
    path.write_text(text + "\n")
    path.chmod(mode)
    return str(path)


def finding(lang: str = "en", severity: str = "critical") -> Finding:
    title = "GPU 3 掉卡" if lang == "zh" else "GPU 3 is lost"
    step = {"text": "断电重启" if lang == "zh" else "Power-cycle", "command": "ipmitool power cycle", "risk": "node"}
    return Finding(
        "gpu.lost",
        severity,
        "gpu",
        "0000:3b:00.0",
        title,
        "",
        "hw.gpu.fallen_off_bus",
        "reseat_or_power",
        [step],
        None,
        None,
        [Where("nvml", None, "GPU is lost")],
        gpu="0000:3b:00.0",
        gpu_index=3,
    )


def alert(identity: str = "aa11bb22", severity: str = "critical", at: float = 1000.0, **more: Any) -> Alert:
    return Alert(
        identity,
        "gpu.lost",
        "0000:3b:00.0",
        "0000:3b:00.0",
        severity,
        at,
        at,
        finding("en", severity),
        finding("zh", severity),
        **more,
    )


def test_a_webhook_gets_all_of_it(web: Web, tmp_path: Path) -> None:
    channel = Channel("webhook", web.url + "/hook", secret_file=secret(tmp_path), lang="zh")
    deliver(channel, [message_of(alert(), "fired", "zh", "node17", 1000.0)])
    path, headers, body = web.got[0]
    assert path == "/hook"
    assert headers["authorization"] == f"Bearer {SECRET}"
    assert body["rule"] == "gpu.lost"
    assert body["cause"] == "hw.gpu.fallen_off_bus"
    assert body["steps"][0]["command"] == "ipmitool power cycle"
    assert body["evidence"][0]["text"] == "GPU is lost"
    assert "掉卡" in body["title"]
    assert "断电重启" in body["text"]


def test_alertmanager_gets_its_api(web: Web) -> None:
    channel = Channel("alertmanager", web.url + "/")
    over = alert("cc33dd44", resolved_at=2000.0)
    deliver(
        channel,
        [message_of(alert(), "fired", "en", "node17", 1500.0), message_of(over, "resolved", "en", "node17", 2001.0)],
    )
    path, _, body = web.got[0]
    assert path == "/api/v2/alerts"
    assert body[0]["labels"] == {
        "alertname": "gpu.lost", "severity": "critical", "instance": "node17", "subject": "0000:3b:00.0", "component": "gpu",
        "alert_id": "aa11bb22", "gpu": "3", "pci_bus_id": "0000:3b:00.0", "cause": "hw.gpu.fallen_off_bus",
    }  # fmt: skip
    assert body[0]["startsAt"] == "1970-01-01T00:16:40.000Z"
    assert body[0]["endsAt"] == "1970-01-01T00:30:00.000Z"
    assert body[1]["endsAt"] == "1970-01-01T00:33:20.000Z"
    assert body[0]["annotations"]["action"] == "Power-cycle"


@pytest.mark.parametrize(
    ("code", "last"), [(500, False), (503, False), (429, False), (401, False), (404, True), (400, True)]
)
def test_a_refusal_is_one_line_without_the_path(web: Web, code: int, last: bool) -> None:
    web.answers = [(code, {})]
    with pytest.raises(ChannelError) as told:
        deliver(Channel("webhook", f"{web.url}/T00/{SECRET}"), [trial("en")])
    assert str(told.value) == f"127.0.0.1: HTTP {code}"
    assert told.value.last is last


def test_a_redirect_to_another_host_is_not_followed(web: Web, tmp_path: Path) -> None:
    other = Web()
    try:
        web.answers = [(307, {"Location": other.url + "/steal"})]
        with pytest.raises(ChannelError, match="another host"):
            deliver(Channel("webhook", web.url, secret_file=secret(tmp_path)), [trial("en")])
        assert not other.got
    finally:
        other.close()


def test_a_redirect_on_the_same_host_keeps_the_message(web: Web) -> None:
    web.answers = [(308, {"Location": web.url + "/there"})]
    deliver(Channel("webhook", web.url + "/here"), [trial("en")])
    assert [path for path, _, _ in web.got] == ["/here", "/there"]
    assert web.got[1][2]["rule"] == "alert.test"
    web.answers = [(302, {"Location": web.url + "/there"})]
    with pytest.raises(ChannelError):
        deliver(Channel("webhook", web.url + "/here"), [trial("en")])


@pytest.mark.parametrize("url", ["", "ftp://x/y", "file:///etc/passwd", "localhost:9093", "http://"])
def test_only_http(url: str) -> None:
    with pytest.raises(ChannelError, match="http"):
        deliver(Channel("webhook", url), [trial("en")])


def test_nobody_listens() -> None:
    with pytest.raises(ChannelError, match=r"127\.0\.0\.1: "):
        deliver(Channel("webhook", "http://127.0.0.1:9/x"), [trial("en")])


def test_a_secret_that_all_may_read_is_not_used(tmp_path: Path, web: Web) -> None:
    with pytest.raises(ChannelError, match="chmod 600"):
        deliver(Channel("webhook", web.url, secret_file=secret(tmp_path, mode=0o644)), [trial("en")])
    with pytest.raises(ChannelError, match="No such file"):
        deliver(Channel("webhook", web.url, secret_file=str(tmp_path / "none")), [trial("en")])
    assert not web.got


def test_labels_hold_no_secrets() -> None:
    assert (
        label_of(Channel("webhook", f"https://user:{SECRET}@hooks.example.com/{SECRET}")) == "webhook hooks.example.com"
    )
    assert SECRET not in label_of(Channel("apprise", f"slack://{SECRET}"))
    assert SECRET not in label_of(Channel("command", f"/bin/notify --token {SECRET}"))


class Mail(socketserver.StreamRequestHandler):
    """As much SMTP as a message needs."""

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        data = False
        while line := self.rfile.readline():
            if data:
                self.server.lines.append(line.decode())  # type: ignore[attr-defined]
                if line == b".\r\n":
                    data = False
                    self.wfile.write(b"250 kept\r\n")
            elif line[:4].upper() == b"EHLO":
                self.wfile.write(b"250-here\r\n250 8BITMIME\r\n")
            elif line[:4].upper() == b"DATA":
                data = True
                self.wfile.write(b"354 go\r\n")
            elif line[:4].upper() == b"QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            else:
                self.server.lines.append(line.decode())  # type: ignore[attr-defined]
                self.wfile.write(b"250 ok\r\n")


def test_mail_arrives_and_no_password_goes_in_the_clear(tmp_path: Path) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mail) as server:
        server.lines = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        at = f"127.0.0.1:{server.server_address[1]}"
        channel = Channel("email", "ops@example.com, oncall@example.com", sender="gpu@example.com", server=at)
        deliver(channel, [message_of(alert(), "fired", "en", "node17", 1000.0)])
        text = "".join(server.lines)  # type: ignore[attr-defined]
        assert "Subject: [CRITICAL] node17: GPU 3 is lost" in text
        assert text.lower().count("rcpt to:") == 2
        server.lines.clear()  # type: ignore[attr-defined]
        with pytest.raises(ChannelError, match="offers no TLS"):
            deliver(Channel("email", "ops@example.com", server=at, secret_file=secret(tmp_path)), [trial("en")])
        assert SECRET not in "".join(server.lines)  # type: ignore[attr-defined]
        server.shutdown()
    with pytest.raises(ChannelError, match="addresses"):
        deliver(Channel("email", "nobody"), [trial("en")])


def test_a_command_gets_json(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = f"import sys,os; open({str(out)!r},'w').write(sys.stdin.read() + os.environ['GPUCLINIC_SECRET'])"
    script = tmp_path / "notify.py"
    script.write_text(code)
    deliver(
        Channel("command", f"{sys.executable} '{script}'", secret_file=secret(tmp_path)),
        [message_of(alert(), "fired", "en", "n", 1.0)],
    )
    text = out.read_text()
    assert json.loads(text.removesuffix(SECRET))["id"] == "aa11bb22"
    assert text.endswith(SECRET)
    for url, why in (("/nowhere/at/all", "No such file"), ("false", "ended with 1"), ("", "empty"), ("'", "quotes")):
        with pytest.raises(ChannelError, match=why):
            deliver(Channel("command", url), [trial("en")])


def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuclinic.watch.channels._command.DEADLINE_S", 0.2)
    with pytest.raises(ChannelError, match="was ended"):
        deliver(Channel("command", "sleep 60"), [trial("en")])


def test_apprise_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(ChannelError, match=r"gpuclinic\[alerts\]"):
        deliver(Channel("apprise", "ntfy://x"), [trial("en")])


def sender(
    tmp_path: Path | None, channels: list[Channel], *, start: bool = False, **more: Any
) -> tuple[Sender, list[str]]:
    said: list[str] = []
    return Sender(Alerts(channels, **{"wait_s": 5.0, **more}), tmp_path, "node17", said.append, start=start), said


def waiting(one: Sender) -> list[tuple[str, str]]:
    return [(m.what, m.id) for box in one._boxes for m in box.waiting]


HOOK = Channel("webhook", "http://127.0.0.1:9/")


def test_it_is_sent_once_after_a_moment_and_again_when_over() -> None:
    one, _ = sender(None, [HOOK])
    held = alert(at=1000.0)
    one.take([held], [], 1002.0)
    assert not waiting(one)
    for now in (1005.0, 1006.0, 2000.0):
        one.take([held], [], now)
    assert waiting(one) == [("fired", held.id)]
    held.resolved_at = 2100.0
    one.take([], [held], 2100.0)
    one.take([], [held], 2200.0)
    assert waiting(one) == [("fired", held.id), ("resolved", held.id)]


def test_what_is_over_or_explained_within_the_moment_is_not_sent() -> None:
    one, _ = sender(None, [HOOK])
    cause, consequence, short = alert("cause"), alert("conseq", explained_by="cause"), alert("short")
    one.take([cause, consequence, short], [], 1001.0)
    short.resolved_at = 1003.0
    one.take([cause, consequence], [short], 1010.0)
    assert waiting(one) == [("fired", "cause")]
    consequence.explained_by = None  # its cause is over, and it holds still
    cause.resolved_at = 1020.0
    one.take([consequence], [short, cause], 1020.0)
    assert waiting(one)[1:] == [("fired", "conseq"), ("resolved", "cause")]


def test_least_repeat_and_worse() -> None:
    one, _ = sender(None, [HOOK], repeat_s=100.0)
    mild = alert(severity="info")
    one.take([mild], [], 1010.0)
    assert not waiting(one)
    mild.severity = "warning"
    one.take([mild], [], 1020.0)
    mild.severity = "critical"
    one.take([mild], [], 1030.0)
    one.take([mild], [], 1131.0)
    assert [w[0] for w in waiting(one)] == ["fired", "worsened", "repeated"]


def test_a_silence_holds_it_back(tmp_path: Path) -> None:
    one, _ = sender(tmp_path, [HOOK])
    held = alert()
    add_silence(tmp_path, Silence("gpu.*", 2000.0), 1000.0)
    one.take([held], [], 1010.0)
    assert not waiting(one)
    one.take([held], [], 2001.0)
    assert waiting(one) == [("fired", held.id)]


def test_what_waits_survives_a_restart_and_is_not_sent_twice(tmp_path: Path, web: Web) -> None:
    channel = Channel("webhook", web.url)
    first, _ = sender(tmp_path, [channel])
    held = alert()
    first.take([held], [], 1010.0)
    first.close()
    second, _ = sender(tmp_path, [channel], start=True)
    assert web.arrived.wait(20)
    second.take([held], [], 1020.0)
    second.close()
    assert [body["id"] for _, _, body in web.got] == [held.id]
    assert second.waiting() == 0
    third, _ = sender(tmp_path, [channel])
    assert not waiting(third)


def test_it_is_tried_again_and_said_once(tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuclinic.watch.sending._BACK_OFF_S", (0.01,))
    monkeypatch.setattr("gpuclinic.watch.sending.time.time", lambda: 1010.0)
    web.answers = [(503, {}), (503, {}), (503, {})]
    one, said = sender(tmp_path, [Channel("webhook", f"{web.url}/{SECRET}")], start=True)
    one.take([alert()], [], 1010.0)
    for _ in range(400):
        if len(web.got) >= 4 and not one.waiting():
            break
        threading.Event().wait(0.02)
    one.close()
    assert len(web.got) == 4
    assert said == [
        "webhook 127.0.0.1: 127.0.0.1: HTTP 503; tried again later",
        "webhook 127.0.0.1: takes messages again",
    ]


def test_the_box_is_bounded() -> None:
    one, said = sender(None, [HOOK])
    one.take([alert(f"{n:08x}") for n in range(600)], [], 1010.0)
    assert one.waiting() == 500
    assert "dropped" in said[0]


def test_alertmanager_is_told_again_and_of_the_end() -> None:
    one, _ = sender(None, [Channel("alertmanager", "http://127.0.0.1:9")])
    held = alert()
    sent = []
    for now in range(1010, 1200):
        one.take([held], [], float(now))
        if waiting(one):
            sent.append((now, waiting(one)))
            one._boxes[0].waiting.clear()
    assert [now for now, _ in sent] == [1010, 1070, 1130, 1190]
    held.resolved_at = 1200.0
    one.take([], [held], 1200.0)
    assert waiting(one) == [("resolved", held.id)]


def test_take_does_not_wait_for_a_channel_that_hangs(tmp_path: Path) -> None:
    """The command sleeps; taking goes on."""
    one, _ = sender(tmp_path, [Channel("command", "sleep 5")], start=True)
    for n in range(50):
        one.take([alert()], [], 1010.0 + n)
    assert one.waiting() == 1
    one.close(wait_s=0.0)
