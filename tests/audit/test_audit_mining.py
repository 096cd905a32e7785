"""Mining and hiding: other spellings and disguises of the bad, and honest twins of each."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from servers_made import GPU_FILES, flat, gpus, process, server

from gpuclinic.audit.miner_config import miner_config
from gpuclinic.audit.miner_words import ENOUGH, score_arguments
from gpuclinic.audit.places import odd_place
from gpuclinic.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

ETC = "0x00112233445566778899aabbccddeeff00112233"
RVN = "RMadeUpWalletNotRealMadeUpWalletNo"
XMR = "44" + "AbCdEfGh1234567" * 6 + "Abc"
LINE = f"-a kawpow -o stratum+tcp://203.0.113.60:6060 -u {RVN}.rig"

MINERS = [
    f"x --algo kawpow --server rvn.pool.example --port 6060 --user {RVN}.rig",  # GMiner
    f"x --algo ETCHASH --pool etc.pool.example:4444 --user {ETC}.rig",  # lolMiner
    f"x -P ssl://{ETC}.rig@eu1.pool.example:5555",  # ethminer
    f"x -pool ssl://eu1.pool.example:5555 -wal {ETC} -worker rig",  # PhoenixMiner
    f"x --url=ssl://{ETC}.rig@flux.pool.example:2033 --par=125,4 --pers=auto",  # miniZ
    f"x -a rx/0 -o localhost:3333 -u {XMR}",  # a proxy on the same machine
    f"x -arx/0 -o10.0.0.9:3333 -u{XMR} -px",  # values glued to short options
    "x --algorithm octopus --pool 203.0.113.5:4444 --user acc.rig -p x",
    f"x -o pool.example:443 -u {XMR} --tls --coin monero",
    "x --url pool.example:443 --user a --pass x --nicehash",
    f"x -a blake3 -o 203.0.113.7:4444 -u {ETC}",
    f"x --algorithm kheavyhash --pool kas.pool.example --wallet kaspa:{'q' * 61}",
]


@pytest.mark.parametrize("line", MINERS)
def test_spelling_of_a_miner(line: str) -> None:
    assert score_arguments(line.split()).points >= ENOUGH


HONEST = [
    "hashcat -m 1000 -a 0 -o /srv/out.pot h.txt /dev/shm/w.txt --username",
    "python train.py --algo PPO --pool 8 --server 10.0.0.7:8000 --user ann",
    "python sample.py --algo flux --server 10.0.0.1:8000 -o out.png -p x",
    "b3sum --algorithm blake3 --url https://files.example.com:443/x",
    "redis-cli -u redis://ann@cache.example:6379 -a veil -p 6379",
    "mysql --host db.example --port 3306 --user ann -p x",
    "/usr/sbin/chronyd -F 1 stratum 2",
    f"geth --http --http.addr 0.0.0.0 --miner.etherbase {ETC} --bootnodes enode://ab@203.0.113.4:30303",
    f"cast send --rpc-url https://rpc.example.org:443 {ETC} --from {ETC}",
    "zpool import -c /etc/zfs/zpool.cache -o cachefile=none",
    "/opt/fah/FAHClient --user=ann --team=1 --gpu=true --power=full",
    "boinc --attach_project http://einstein.example.org:80/ 0011223344",
    "grep -r stratum+tcp:// /var/log",
    "celery -A app worker --pool solo -l info -P gevent",
    "ray start --address=10.0.0.4:6379 --num-gpus 8",
    "gcc -o pool.o -mport x.c",
    "consul agent -server -retry-join 10.0.0.3:8301 --coin x",
    "docker run -u 1000 -p 3333:3333 -w /app image:1",
]


@pytest.mark.parametrize("line", HONEST)
def test_honest_command_line(line: str) -> None:
    assert score_arguments(line.split()).points < ENOUGH, score_arguments(line.split()).why


CONFIGS = {
    "lolMiner": json.dumps({"DEFAULTS": {"APIPORT": 4444}, "ETC": {"ALGO": "ETCHASH", "POOL": "etc.pool.example:4444", "USER": f"{ETC}.rig"}}),
    "xmrig, little": json.dumps({"pools": [{"url": "203.0.113.8:443", "user": "x"}], "donate-level": 0}),
    "xmrig, remarks": '{\n // made by hand\n "donate-level": 1, /* so */\n "pools": [{"url": "p.example:3333", "user": "' + XMR + '", "algo": "rx/0"}]}',
    "bzminer": json.dumps({"pool_configs": [{"algorithm": "etchash", "wallet": [ETC], "url": ["stratum+tcp://p.example:4444"]}]}),
    "cpuminer": json.dumps({"url": "stratum+tcp://p.example:3333", "user": "a.b", "pass": "x", "algo": "yespower"}),
    "xmr-stak": f'"pool_list" :\n[\n {{"pool_address" : "p.example:3333", "wallet_address" : "{XMR}", "rig_id" : "", "pool_password" : "x", "use_nicehash" : false}},\n],\n"currency" : "monero",\n',
    "nanominer": f"[Etchash]\nwallet = {ETC}\ncoin = ETC\nrigName = r\npool1 = etc-eu1.nanopool.org:19999\n",
    "gminer": f"[common]\nalgo=kawpow\n[server]\nhost=rvn.pool.example\nport=6060\nuser={RVN}.r\n",
    "phoenix": f"-pool ssl://eu1.pool.example:5555\n-wal {ETC}\n-worker r\n",
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_configuration_of_a_miner(name: str) -> None:
    assert miner_config(CONFIGS[name])


NO_CONFIGS = {
    "database": json.dumps({"pool": {"host": "db.example", "user": "app", "keepalive": True}, "cuda": True}),
    "three urls": "url = http://a.example:80/\nurl = http://b.example:80/\nserver = http://c.example:80/\n",
    "block list": json.dumps({"rules": ["stratum+tcp://", "xmr.nanopool.org", "rx/0"], "level": "high"}),
    "web3": json.dumps({"networks": {"main": {"url": "https://rpc.example/v3", "accounts": [ETC], "wallet": ETC}}}),
    "research on wallets": json.dumps({"rows": [{"wallet": ETC, "algo": "ethash"}] * 3}),
    "source of a miner": json.dumps({"donate-level": 1, "pools": [{"url": "donate.v2.xmrig.com:3333", "user": "YOUR_WALLET_ADDRESS", "algo": None}]}),
    "learning": json.dumps({"algo": "ppo", "pool": "8", "server": "10.0.0.1:6379", "user": "ann", "cuda": True}),
    "mail": "[server]\nhost=smtp.example.org\nport=587\nuser=ann@example.org\npass=x\n",
    "deep": "[" * 5000,
}  # fmt: skip


@pytest.mark.parametrize("name", NO_CONFIGS)
def test_configuration_of_something_else(name: str) -> None:
    assert miner_config(NO_CONFIGS[name]) == []


HIDDEN_PLACES = [
    "/home/ann/.cache/.dbus/helper",
    "/home/ann/.local/share/.x/y",
    "/opt/.x/y",
    "/usr/lib/.nv/srv",
    "/tmp/.array/x",
    "/tmp/.conda-x/xmr",
    "/dev/shm/.../x",
    "/var/tmp/.ray/s",
    "/tmp/.X11-unix/x",
]
TEMPORARY_PLACES = ["/tmp/array/x", "/dev/shm/kdev", "/var/tmp/a/b/c", "/tmp/gopip-x/y"]
HONEST_PLACES = [
    "/home/ann/.cache/pypoetry/virtualenvs/a/bin/python", "/home/ann/app/node_modules/.pnpm/esbuild@1/bin/esbuild", "/tmp/_MEIabc/app", "/tmp/.mount_obsXy/obsidian", "/tmp/ray/session_1/x", "/tmp/pip-build-1/x",
    "/tmp/go-build12/b001/exe/main", "/home/ann/.vscode-server/bin/x/node", "/srv/.snapshots/1/snapshot/bin/x", "/var/tmp/slurm-job-1/run", "/tmp/torchinductor_ann/x", "/data/.venv/bin/python", "/home/ann/.conda/envs/x/bin/python",
    "/home/ann/.local/share/uv/python/x/bin/python3", "/home/ann/src/.tox/py311/bin/python", "/home/ann/.nvm/versions/node/v20/bin/node",
]  # fmt: skip


def test_places() -> None:
    assert {path: odd_place(path) for path in HIDDEN_PLACES} == dict.fromkeys(HIDDEN_PLACES, "hidden")
    assert {path: odd_place(path) for path in TEMPORARY_PLACES} == dict.fromkeys(TEMPORARY_PLACES, "temporary")
    assert {path: odd_place(path) for path in HONEST_PLACES} == dict.fromkeys(HONEST_PLACES)


def audited(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main(["audit", "--json", "--host", str(folder)])
    told = json.loads(capsys.readouterr().out)
    assert isinstance(told, dict)
    return told


CODED = base64.b64encode(f"./w {LINE}".encode()).decode()
XMRIG = json.dumps({"autosave": True, "donate-level": 0, "cuda": True, "pools": [{"url": "203.0.113.8:443", "user": XMR, "algo": "rx/0"}]})  # fmt: skip
BAD: dict[str, tuple[dict[str, str], str]] = {
    "base64 in the arguments": (process(5000, ["bash", "-c", f"eval $(echo {CODED} | base64 -d)"], exe="/usr/bin/bash"), "miner_cmdline"),
    "hexadecimal in the arguments": (process(5000, ["python3", "-c", f"import os;os.system(bytes.fromhex('{f'./w {LINE}'.encode().hex()}'))"], exe="/usr/bin/python3.10"), "miner_cmdline"),
    "configuration as an argument": (process(5000, ["/opt/a/w", "--config-json", XMRIG], exe="/opt/a/w"), "miner_cmdline"),
    "configuration in the environment": (process(5000, ["/opt/a/w"], exe="/opt/a/w", env={"POOL_URL": "stratum+tcp://203.0.113.60:6060", "ALGO": "kawpow", "WALLET": RVN}), "miner_process"),
    "shell script that runs": ({**process(5000, ["/bin/bash", "/opt/a/run.sh"], exe="/usr/bin/bash"), "/opt/a/run.sh": f"#!/bin/bash\nwhile true; do\n  ./w {LINE}\n  sleep 5\ndone\n"}, "miner_config"),
    "shell script with variables": ({**process(5000, ["/bin/sh", "/opt/a/run.sh"], exe="/usr/bin/dash"), "/opt/a/run.sh": f"#!/bin/sh\nPOOL=stratum+tcp://203.0.113.60:6060\nWALLET={RVN}\n./w -P $WALLET@$POOL\n"}, "miner_config"),
    "python wrapper": ({**process(5000, ["python3", "svc.py"], exe="/usr/bin/python3.10", cwd="/srv/a"), "/srv/a/svc.py": f"import subprocess\nsubprocess.Popen(['./w', '-a', 'kawpow', '-o', 'stratum+tcp://203.0.113.60:6060', '-u', '{RVN}'])\n"}, "miner_config"),
    "configuration with another name, beside the program": ({**process(5000, ["./w"], exe="/opt/a/w", cwd="/opt/a"), "/opt/a/settings.json": XMRIG}, "miner_config"),
    "in a container": (process(5000, ["/app/w", *LINE.split()], exe="/app/w", cgroup="0::/system.slice/docker-00aa.scope"), "miner_cmdline"),
    "statically linked, as a user, in tmux": (process(5000, ["./w", *LINE.split()], exe="/home/ann/w", uid=1000, ppid=4000), "miner_cmdline"),
    "configuration on the disk only": ({"/usr/lib/.nv/c.json": XMRIG}, "miner_config"),
    "configuration in a home's cache only": ({"/home/ann/.cache/.dbus/dbus.json": XMRIG}, "miner_config"),
    "brackets of no known kernel thread": (process(5000, ["[kcachesd]"], exe="/opt/a/w", comm="w"), "kthread_masquerade"),
    "preloaded by a unit": ({"/etc/systemd/system/x.service": '[Service]\nEnvironment="LD_PRELOAD=/var/tmp/.h/lib.so"\nExecStart=/usr/sbin/cron -f\n'}, "ld_preload"),
    "preloaded by a service": (process(5000, ["/usr/sbin/cron", "-f"], exe="/usr/sbin/cron", env={"LD_PRELOAD": "/usr/lib/libproc-x.so"}, maps=["/usr/sbin/cron", "/usr/lib/libproc-x.so"]), "ld_preload"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, identity = BAD[name]
    told = audited(server(tmp_path, files, gpu=gpus([5000], flat())), capsys)
    assert identity in {f["id"] for f in told["findings"] if f["severity"] != "info"}, told["findings"]
    assert told["compromise"] in ("suspicious", "infected")


def test_past_mining_in_a_history_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = audited(server(tmp_path, {"/home/bob/.bash_history": f"ls\n#1790000000\n./w {LINE}\n"}), capsys)
    assert [(f["id"], f["subject"]) for f in told["findings"]] == [("miner_cmdline", "/home/bob/.bash_history:3")]
    assert told["compromise"] == "none"


CUDA = process(5100, ["./solve", "-n", "4096"], exe="/home/ann/solve", uid=1000, fds=GPU_FILES)
NO_LIST = {k: v for k, v in gpus([], flat(pcie=9e5)).items() if k != "processes"}
GOOD: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "NVML's processes were not asked for": (CUDA, {"gpu": NO_LIST}),
    "NVML of a container": (CUDA, {"gpu": {**gpus([77], flat(pcie=9e5)), "nvml_pid_namespace": "container"}}),
    "a program called watchdog": (process(5100, ["watchdog"], exe="/home/ann/miniconda3/bin/python3.11", uid=1000), {}),
    "a program called migration": (process(5100, ["migration", "--all"], exe="/opt/alembic/bin/migration"), {}),
    "celery's title": (process(5100, ["[celeryd: celery@gpu07:MainProcess]"], exe="/opt/venv/bin/python3.11", comm="celery"), {}),
    "engine explorer": (process(5100, ["python3", "/home/ann/bin/trex", "view", "engine.plan"], exe="/usr/bin/python3.10", uid=1000), {}),
    "compiled anew while it runs": (process(5100, ["/tmp/a.out"], exe="/tmp/a.out (deleted)", uid=1000, ppid=4000, fds=GPU_FILES), {"gpu": gpus([5100], flat(pcie=9e5))}),
    "script that looks for miners": ({**process(5100, ["bash", "/usr/local/sbin/watch.sh"], exe="/usr/bin/bash"), "/usr/local/sbin/watch.sh": "#!/bin/bash\nps aux | grep -E 'stratum+tcp://|xmrig|kawpow'\npkill -f 'stratum+tcp://pool.example:3333 -a kawpow'\n"}, {}),
    "test that holds a miner's line": ({**process(5100, ["python", "/home/ann/t.py"], exe="/usr/bin/python3.10", uid=1000), "/home/ann/t.py": f'CASES = [\n    add("/opt/miner/x {LINE}", 5000),\n]\n'}, {}),
    "history of a reader": ({"/home/ann/.bash_history": "grep -r 'stratum+tcp://x.nanopool.org:3333' .\nman xmrig\nps aux | grep xmrig\n"}, {}),
    "old driver's library stays": ({"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.525.60.13": "ELF\n"}, {}),
    "vGPU of HAMi": (process(5100, ["/usr/bin/python3.10", "t.py"], exe="/usr/bin/python3.10", uid=1000, env={"LD_PRELOAD": "/usr/local/vgpu/libvgpu.so"}), {}),
    "XALT": (process(5100, ["/home/ann/a.out"], exe="/home/ann/a.out", uid=1000, env={"LD_PRELOAD": "/opt/apps/xalt/lib64/libxalt_init.so"}), {}),
    "own allocator of a person": (process(5100, ["/home/ann/a.out"], exe="/home/ann/a.out", uid=1000, env={"LD_PRELOAD": "/home/ann/lib/libmymalloc.so"}), {}),
    "runc from memory": (process(5100, ["runc", "init"], exe="/memfd:runc_cloned:/proc/self/exe (deleted)"), {"gpu": gpus([5100], flat(pcie=9e5))}),
    "DKMS of storage": ({"/proc/modules": "zfs 1 1 - Live 0x0 (POE)\nlustre 1 1 - Live 0x0 (OE)\nmlx5_ib 1 1 - Live 0x0 (OE)\nknem 1 1 - Live 0x0 (OE)\n"}, {}),
    "daemon and monitor hold devices": ({**process(5100, ["/usr/bin/nvidia-persistenced"], exe="/usr/bin/nvidia-persistenced", fds=["/dev/nvidiactl", "/dev/nvidia0"]), **process(5101, ["/usr/bin/nv-hostengine"], exe="/usr/bin/nv-hostengine", fds=GPU_FILES)}, {"gpu": gpus([5102], flat(pcie=9e5))}),
    "triton's compiler": (process(5100, ["/tmp/torchinductor_ann/triton/ptxas", "-o", "x.cubin"], exe="/tmp/torchinductor_ann/triton/ptxas", uid=1000, fds=GPU_FILES), {"gpu": gpus([5100], flat(pcie=9e5))}),
    "database in a configuration": ({**process(5100, ["/opt/app/server"], exe="/opt/app/server"), "/opt/app/config.json": NO_CONFIGS["database"]}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, more = GOOD[name]
    told = audited(server(tmp_path, files, **more), capsys)
    assert [(f["id"], f["subject"]) for f in told["findings"] if f["severity"] != "info"] == []
    assert told["compromise"] == "none"
