from __future__ import annotations

import pytest
from host_tools import of, one, shared


def by_pid(text: str) -> dict[object, dict[str, object]]:
    return {row["pid"]: row for row in of(text, "process")}


@pytest.mark.parametrize(
    "text",
    [
        "USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\nkai        18822 96.2 11.0 41200112 14210028 pts/4    D    10:11  61:12 python train_net.py --data /x\n",
        "kai        18822 96.2 11.0 41200112 14210028 pts/4    D    10:11  61:12 python train_net.py --data /x\n",
        "    PID STAT WCHAN                CMD\n  18822 D    rpc_wait_bit_killabl python train_net.py --data /x\n",
        "F S UID          PID    PPID  C PRI  NI ADDR SZ WCHAN  STIME TTY          TIME CMD\n0 D kai        18822       1 96  80   0 - 9999 rpc_wa 10:11 pts/4    01:01:12 python train_net.py --data /x\n",
        "PID PPID STAT STARTED LSTART WCHAN ARGS\n18822 1 D Mon Mar  3 10:11:00 2025 Mon Mar  3 10:11:00 2025 rpc_wait python train_net.py --data /x\n",
        "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n  18822 kai       20   0   39.3g  13.6g 812312 D  96.2  11.0  61:12.33 python train_net.py --data /x\n",
    ],
)  # fmt: skip
def test_ps_forms(text: str) -> None:
    row = by_pid(text)[18822]
    assert row["uninterruptible"] is True
    assert row["command"] == "python train_net.py --data /x"
    assert row["python"] is True


def test_ps_ef_without_header_and_forest() -> None:
    rows = by_pid(
        "kai      18822     1 96 10:11 ?        01:01:12 python train.py\nroot         1     0  0 May02 ?        00:00:11 /sbin/init\n"
    )
    assert rows[18822]["ppid"] == 1
    assert rows[1]["program"] == "init"
    rows = by_pid(
        "  PID  PPID STAT COMMAND\n   10     1 Ss   bash run.sh\n   11    10 Sl    \\_ python train.py\n   12    11 Z         \\_ [python] <defunct>\n"
    )
    assert rows[11]["command"] == "python train.py"
    assert rows[12]["zombie"] is True


def test_etime_wchan_and_rss() -> None:
    rows = by_pid(
        "  PID  PPID USER     STAT     ELAPSED   RSS CMD\n 811220     1 dle      Ssl  11-04:22:09 341120 /opt/dle/bin/dle-manager --config x\n"
    )
    assert rows[811220]["etime_s"] == 11 * 86400 + 4 * 3600 + 22 * 60 + 9
    assert rows[811220]["rss_mib"] == 341120 / 1024


@pytest.mark.parametrize(
    ("command", "least"),
    [
        ("/tmp/.x/xmrig -o stratum+tcp://pool.example.org:3333 -u 48abc", 5),
        ("./a --algo kawpow --server pool.example.org --port 1445 --user RVN", 3),
        ("t-rex -a kawpow -o stratum+ssl://x:1 -u w", 5),
    ],
)
def test_miners(command: str, least: int) -> None:
    row = by_pid(
        f"USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\nroot 9 99.0 0.1 1 1 ? Sl May02 1:00 {command}\n"
    )[9]
    assert int(str(row["miner"])) >= least


@pytest.mark.parametrize(
    "command",
    [
        "python train.py --algo PPO --pool mean",
        "grep xmrig",
        "chronyd -s stratum 3",
        "vim t-rex.py",
        "python mine_hard_negatives.py",
    ],
)
def test_no_miners(command: str) -> None:
    row = by_pid(
        f"USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\nroot 9 99.0 0.1 1 1 ? Sl May02 1:00 {command}\n"
    )[9]
    assert int(str(row["miner"])) < 2


def test_top_cpu_and_load() -> None:
    text = "top - 10:00:00 up 5 days,  2:01,  1 user,  load average: 99.10, 80.20, 70.30\n%Cpu(s): 12.1 us,  1.5 sy,  0.0 ni, 50.0 id, 36.0 wa,  0.0 hi,  0.1 si,  3.3 st\n\n    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n"
    row = one(text, "cpu")
    assert row["iowait_pct"] == 36
    assert row["steal_pct"] == 3.3
    assert one(text, "uptime")["load1"] == 99.1
    assert one(text, "uptime")["up_s"] == 5 * 86400 + 2 * 3600 + 60


def test_pstree_lsof_fuser_stack() -> None:
    rows = by_pid("systemd(1)─┬─python(100)─┬─python(101)\n")
    assert rows[101]["ppid"] == 100
    users = of(
        "COMMAND    PID USER   FD   TYPE  DEVICE SIZE/OFF NODE NAME\npython   45012 lena  mem    CHR 195,255           513 /dev/nvidiactl\npython   45012 lena   40u   CHR   195,0      0t0  512 /dev/nvidia0\n",
        "device_user",
    )
    assert [row["pid"] for row in users] == [45012, 45012]
    assert users[1]["gpu_minor"] == 0
    users = of(
        "                     USER        PID ACCESS COMMAND\n/dev/nvidia0:        root       1602 F.... nv-hostengine\n                     lena      45012 F...m python\n/dev/nvidia-uvm:     lena      45012 F.... python\n",
        "device_user",
    )
    assert {(row["device"], row["pid"]) for row in users} == {
        ("/dev/nvidia0", 1602),
        ("/dev/nvidia0", 45012),
        ("/dev/nvidia-uvm", 45012),
    }
    assert [row["pid"] for row in of("/dev/nvidia0:        12345 12346m\n", "device_user")] == [12345, 12346]
    row = one(
        "$ cat /proc/18822/stack\n[<0>] rpc_wait_bit_killable+0x24/0xb0 [sunrpc]\n[<0>] __rpc_execute+0x11/0x20\n",
        "kernel_stack",
    )
    assert row["pid"] == 18822
    assert row["top"] == "rpc_wait_bit_killable"


@pytest.mark.parametrize(
    "text",
    [
        "open files                          (-n) 1024\nmax locked memory           (kbytes, -l) 64\n",
        "打开文件数                          (-n) 1024\n最大锁定内存量              (千字节，-l) 64\n",
        "-n: file descriptors          1024\n-l: locked-in-memory size (kbytes)  64\n",
        "Max open files            1024                 1048576              files     \nMax locked memory         65536                65536                bytes     \n",
        "$ ulimit -n\n1024\n$ ulimit -l\n64\n",
        "[Service]\nLimitNOFILE=1024\nLimitMEMLOCK=64K\n",
        "* soft nofile 1024\n* soft memlock 64\n",
    ],
)
def test_limits(text: str) -> None:
    rows = {row["name"]: row for row in of(text, "limit")}
    assert rows["open_files"]["soft"] == 1024
    assert rows["max_locked_memory_kib"]["soft"] == 64


def test_unlimited_and_descriptor_count() -> None:
    rows = {
        row["name"]: row
        for row in of(
            "max locked memory           (kbytes, -l) unlimited\n$ ls /proc/30881/fd | wc -l\n1021\n", "limit"
        )
    }
    assert rows["max_locked_memory_kib"]["soft"] == -1
    assert one("$ ls /proc/30881/fd | wc -l\n1021\n", "open_descriptors")["count"] == 1021


def test_real_ps() -> None:
    rows = by_pid(shared("cases", "app-003-orphan-inference-workers-hold-vram", "input", "ps-tree.txt"))
    assert rows[3611979]["ppid"] == 1
    assert rows[3611979]["rss_mib"] == 1709931 / 1024
