"""Little servers for the audit: a healthy one, and what is put on top of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_793_440_800
PASSWD = (
    "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\nsshd:x:107:65534::/run/sshd:/usr/sbin/nologin\n"
    "www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\nann:x:1000:1000:Ann:/home/ann:/bin/bash\nbob:x:1001:1001:Bob:/home/bob:/bin/zsh\n"
)  # fmt: skip
BASE: dict[str, str] = {
    "/etc/passwd": PASSWD,
    "/etc/hostname": "gpu07\n",
    "/etc/os-release": 'ID=ubuntu\nVERSION_ID="22.04"\n',
    "/etc/crontab": "SHELL=/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\n17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly\n",
    "/etc/ssh/sshd_config": "Include /etc/ssh/sshd_config.d/*.conf\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM yes\nX11Forwarding no\n",
    "/etc/sudoers": "Defaults env_reset\nroot ALL=(ALL:ALL) ALL\n%sudo ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n",
    "/etc/pam.d/sshd": "@include common-auth\naccount required pam_nologin.so\n@include common-session\n",
    "/root/.bashrc": "alias ls='ls --color=auto'\nalias ll='ls -l'\nalias grep='grep --color=auto'\nalias rm='rm -i'\n",
    "/root/.profile": 'if [ "$BASH" ]; then . ~/.bashrc; fi\nmesg n 2> /dev/null || true\n',
    "/home/ann/.bashrc": 'export PATH="$HOME/.local/bin:$PATH"\neval "$(/home/ann/miniconda3/bin/conda shell.bash hook)"\n[ -s "$NVM_DIR/nvm.sh" ] && \\. "$NVM_DIR/nvm.sh"\n. "$HOME/.cargo/env"\n',
    "/proc/modules": "nvidia_uvm 1540096 0 - Live 0x0 (POE)\nnvidia 56815616 0 - Live 0x0 (POE)\nib_core 446464 0 - Live 0x0 (OE)\next4 978944 1 - Live 0x0\n",
    "/proc/self/mountinfo": "22 29 0:21 / /proc rw,nosuid - proc proc rw\n29 1 253:1 / / rw,relatime - ext4 /dev/vda1 rw\n",
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n",
    "/proc/net/tcp": "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41001 1 0 20 4 30 10 -1\n",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": "libnvidia-ml.so.535.183.01",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.183.01": "ELF in spirit\n",
    "/var/lib/dpkg/info/libnvidia-compute-535.list": "/.\n/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.183.01\n/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1\n",
    "/var/lib/dpkg/info/openssh-server.list": "/.\n/usr/sbin/sshd\n/etc/ssh\n",
    "/var/lib/dpkg/info/cron.list": "/.\n/usr/sbin/cron\n/etc/crontab\n",
    "/var/lib/dpkg/info/systemd.list": "/.\n/usr/lib/systemd/systemd\n/usr/bin/python3.10\n/usr/bin/bash\n",
}
THREAD, PLAIN = 0x208040, 0x400000


def process(
    pid: int, argv: list[str], *, exe: str = "", ppid: int = 1, uid: int = 0, flags: int = PLAIN, cwd: str = "/", cgroup: str = "0::/system.slice/x.service",
    env: dict[str, str] | None = None, maps: list[str] | None = None, fds: list[str] | None = None, comm: str = "",
) -> dict[str, str]:  # fmt: skip
    """The files of one process. exe, cwd and fd hold the target of their link as text."""
    comm = comm or (argv[0].rpartition("/")[2] if argv else "x")[:15]
    stat = f"{pid} ({comm}) S {ppid} {pid} {pid} 0 -1 {flags} 0 0 0 0 63 7 0 0 20 0 1 0 191520 419430400 20480 18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    at = f"/proc/{pid}"
    mapped = "".join(
        f"7f0000{n:06x}-7f0000{n + 1:06x} r-xp 00000000 fd:01 {n}    {path}\n"
        for n, path in enumerate(maps or ([exe] if exe else []))
    )
    out = {
        f"{at}/stat": stat, f"{at}/comm": comm + "\n", f"{at}/cmdline": "\0".join(argv) + ("\0" if argv else ""), f"{at}/cgroup": cgroup + "\n", f"{at}/maps": mapped,
        f"{at}/status": f"Name:\t{comm}\nState:\tS (sleeping)\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t{ppid}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nThreads:\t1\n",
        f"{at}/environ": "".join(f"{k}={v}\0" for k, v in (env or {}).items()),
    }  # fmt: skip
    if exe:
        out |= {f"{at}/exe": exe, f"{at}/cwd": cwd}
    out |= {f"{at}/fd/{n}": target for n, target in enumerate(["/dev/null", "/dev/null", "/dev/null", *(fds or [])])}
    return out


SYSTEM = {
    **process(1, ["/sbin/init"], exe="/usr/lib/systemd/systemd", ppid=0, comm="systemd"),
    **process(2, [], ppid=0, flags=THREAD, comm="kthreadd"),
    **process(9, [], ppid=2, flags=THREAD, comm="kworker/0:1-ev"),
    **process(702, ["/usr/sbin/cron", "-f"], exe="/usr/sbin/cron"),
    **process(760, ["sshd: /usr/sbin/sshd -D [listener]"], exe="/usr/sbin/sshd", fds=["socket:[41001]"], comm="sshd"),
}  # fmt: skip
GPU_FILES = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"]


def flat(
    *, util: float = 100, watts: float = 348.0, pcie: float = 30.0, memory: float = 5240.0
) -> list[dict[str, float]]:
    """Sixty samples that hardly move."""
    return [
        {"t": NOW - 300 + 5 * n, "gpu_util": util, "mem_util": 3, "mem_used_mib": memory, "power_w": watts + n % 3 * 0.4, "sm_clock_mhz": 1410, "temp_c": 66, "pcie_rx_kbs": pcie, "pcie_tx_kbs": pcie}
        for n in range(60)
    ]  # fmt: skip


def gpus(pids: list[int], samples: list[dict[str, float]]) -> dict[str, Any]:
    """gpu_processes.json of one GPU."""
    gpu = {
        "index": 0,
        "uuid": "GPU-1",
        "name": "NVIDIA A100-SXM4-80GB",
        "mem_total_mib": 81920,
        "power_limit_w": 400,
        "default_power_limit_w": 400,
        "samples": samples,
    }
    rows = [{"gpu": 0, "pid": pid, "type": "C", "used_mib": 5236, "nvml_name": "x"} for pid in pids]
    return {"source": "nvml", "nvml_pid_namespace": "host", "gpus": [gpu], "processes": rows}


def server(
    folder: Path, files: dict[str, str] | None = None, *, modes: dict[str, dict[str, Any]] | None = None, gpu: dict[str, Any] | None = None,
    alive: list[dict[str, Any]] | None = None, direct: dict[str, Any] | None = None, ss: str = "", without: tuple[str, ...] = (), processes: bool = True,
) -> Path:  # fmt: skip
    """Writes a server: the healthy one with files put on top. modes: rows of stat.json. without: beginnings of paths that are left out."""
    everything = {**BASE, **(SYSTEM if processes else {}), **(files or {})}
    for path, text in everything.items():
        if path.startswith(without) if without else False:
            continue
        place = folder / "root" / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    stats = {
        path: {"mode": "0644", "uid": 0, "gid": 0, "mtime": NOW - 9e6}
        for path in everything
        if not path.startswith("/proc/")
    }
    (folder / "stat.json").write_text(json.dumps({"now": NOW, "files": {**stats, **(modes or {})}}))
    if gpu is not None:
        (folder / "gpu_processes.json").write_text(json.dumps(gpu))
    rows = [
        {"pid": pid, "tgid": pid, "kill0": True, "listed": True, "direct_open": True} for pid in (1, 2, 9, 702, 760)
    ]
    (folder / "pid_probe.json").write_text(
        json.dumps({"as_root": True, "in_initial_pid_ns": True, "alive": rows + (alive or []), "direct": direct or {}})
    )  # fmt: skip
    (folder / "commands").mkdir(exist_ok=True)
    (folder / "commands" / "ss-tanp.txt").write_text(
        "State Recv-Q Send-Q Local Address:Port Peer Address:Port Process\n" + ss
    )
    return folder
