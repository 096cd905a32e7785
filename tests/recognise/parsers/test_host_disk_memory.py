from __future__ import annotations

import pytest
from host_tools import of, one, read, shared


def test_df_human_with_device_of_two_words_and_root() -> None:
    rows = of(
        "$ df -h\nFilesystem      Size  Used Avail Use% Mounted on\noverlay         1.8T  611G  1.1T  36% /\n"
        "shm              64M   64M     0 100% /dev/shm\n10.1.2.3:/home   40T   22T   19T  54% /home dir\n",
        "fs",
    )
    assert [row["mount"] for row in rows] == ["/", "/dev/shm", "/home dir"]
    assert rows[1]["size_mib"] == 64
    assert rows[1]["use_pct"] == 100
    assert rows[2]["network"] is True


@pytest.mark.parametrize(
    "text",
    [
        "文件系统        容量  已用  可用 已用% 挂载点\ntmpfs            64M   12M   52M   19% /dev/shm\n",
        "Dateisystem    Größe Benutzt Verf. Verw% Eingehängt auf\ntmpfs            64M     12M   52M   19% /dev/shm\n",
        "Filesystem           1K-blocks      Used Available Use% Mounted on\nshm                      65536     12288     53248  19% /dev/shm\n",
        "Filesystem     Type  Size  Used Avail Use% Mounted on\nshm            tmpfs  64M   12M   52M  19% /dev/shm\n",
        "文件系统          1K-块     已用     可用 已用% 挂载点\nshm               65536    12288    53248  19% /dev/shm\n",
        "Filesystem     1M-blocks  Used Available Use% Mounted on\nshm                   64    12        52  19% /dev/shm\n",
    ],
)
def test_df_in_every_unit_and_language(text: str) -> None:
    row = one(text, "fs")
    assert row["mount"] == "/dev/shm"
    assert row["size_mib"] == 64
    assert row["use_pct"] == 19


def test_df_inodes_and_wrapped_device() -> None:
    text = "$ df -i /data\nFilesystem        Inodes   IUsed IFree IUse% Mounted on\n/dev/sdb1      61054976 61054976     0  100% /data\n"
    row = one(text, "fs")
    assert row["inode_use_pct"] == 100
    assert "use_pct" not in row
    wrapped = "Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/mapper/a-very-long-name\n   1048576 1048576 0 100% /scratch\n"
    assert one(wrapped, "fs")["device"] == "/dev/mapper/a-very-long-name"


def test_listing_and_devices() -> None:
    rows = of(
        "total 9\n-rw-r--r-- 1 ml ml 2415919104 Mar  2 12:40 ckpt_1.pt\n-rw-r--r-- 1 ml ml 1.2G 2024-03-02 12:40 ckpt_2.pt\n"
        "crw-rw-rw- 1 root root 195,   0 Oct 21 14:02 /dev/nvidia0\nlrwxrwxrwx 1 a a 9 3月  3 02:14 latest -> ckpt_2.pt\n"
        "drwxr-xr-x. 2 a a 4096 Mar  3  2023 step_10\n",
        "file",
    )
    assert rows[0]["size"] == 2415919104
    assert rows[1]["size"] == round(1.2 * 1024**3)
    assert rows[0]["checkpoint"] is True
    assert rows[2]["device"] is True
    assert "size" not in rows[2]
    assert rows[3]["target"] == "ckpt_2.pt"
    assert rows[4]["directory"] is True


def test_device_listing_is_no_lsof() -> None:
    assert not of("crw-rw-rw- 1 root root 195,   0 Oct 21 14:02 /dev/nvidia0\n", "device_user")


def test_mounts() -> None:
    rows = of(
        "filer:/vol on /mnt/data type nfs4 (rw,relatime,vers=4.1,hard,timeo=600,retrans=2)\n"
        "tmpfs /dev/shm tmpfs rw,nosuid,nodev,size=65536k 0 0\n/dev/sdb1 /data ext4 ro,relatime,errors=remount-ro 0 0\n",
        "mount",
    )
    assert rows[0]["network"] is True
    assert rows[0]["hard"] is True
    assert rows[0]["timeo"] == 600
    assert rows[1]["size_mib"] == 64
    assert rows[2]["read_only"] is True


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("              total        used        free      shared  buff/cache   available\nMem:            251         246           2           0           2           1\n", "free-g.txt"),
        ("$ free -g\n              total        used        free      shared  buff/cache   available\nMem:            251         246           2           0           2           1\n", "a.txt"),
        ("               总计         已用        空闲        共享    缓冲/缓存    可用\n内存：          251Gi       246Gi       2.0Gi       1.0Gi       2.0Gi       1.0Gi\n交换：          7.0Gi       7.0Gi          0B\n", "a.txt"),
        ("              total        used        free      shared  buff/cache   available\nMem:      263192576   257949696     2097152           0     2097152     1048576\n", "a.txt"),
        ("              total        used        free      shared  buff/cache   available\nMem:         257024      251904        2048           0        2048        1024\n", "a.txt"),
        ("             total       used       free     shared    buffers     cached\nMem:        257024     256000       1000          0          4         20\n-/+ buffers/cache:     256000       1024\nSwap:         7168       7168          0\n", "a.txt"),
    ],
)  # fmt: skip
def test_free_in_every_form(text: str, source: str) -> None:
    row = one(text, "memory", source)
    assert round(float(str(row["total_mib"]))) in (257024, 251 * 1024)
    assert round(float(str(row["available_mib"]))) == 1024


def test_free_swap_line_and_evidence() -> None:
    text = "               total        used        free      shared  buff/cache   available\nMem:           503Gi        61Gi       390Gi       1.1Gi        51Gi       438Gi\nSwap:          8.0Gi          0B       8.0Gi\n"
    (fact,) = [f for f in read(text) if f.kind == "memory"]
    assert fact.fields["swap_total_mib"] == 8192
    assert fact.where().line == 2
    assert "Mem:" in fact.where().text


def test_meminfo_and_top_memory() -> None:
    row = one(
        "MemTotal:       527825040 kB\nMemFree:         1000000 kB\nMemAvailable:    2097152 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
        "memory",
    )
    assert row["available_mib"] == 2048
    assert row["swap_used_mib"] == 0
    row = one("top - 10:00:00 up 5 days,  2:01,  1 user,  load average: 99.10, 80.20, 70.30\n%Cpu(s): 12.1 us,  1.5 sy,  0.0 ni, 50.0 id, 36.0 wa,  0.0 hi,  0.1 si,  0.3 st\nMiB Mem : 515000.0 total,   1000.0 free, 510000.0 used,   4000.0 buff/cache\n", "memory")  # fmt: skip
    assert row["available_mib"] == 5000


def test_cgroup_files() -> None:
    text = "$ cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.current\nmax\n"
    assert of(text, "cgroup") in (
        [],
        [{"path": "/sys/fs/cgroup/", "current_mib": -1.0}],
        [{"path": "/sys/fs/cgroup/", "limit_mib": -1.0}],
    )
    row = one(
        "/sys/fs/cgroup/a/memory.max:34359738368\n/sys/fs/cgroup/a/memory.current:34359000000\n/sys/fs/cgroup/a/memory.events:oom_kill 3\n",
        "cgroup",
    )
    assert row["limit_mib"] == 32768
    assert row["oom_kill_count"] == 3
    row = one("==> memory.events <==\nlow 0\nhigh 0\nmax 812\noom 4\noom_kill 2\n", "cgroup")
    assert row["oom_kill_count"] == 2
    assert row["max_count"] == 812
    row = one(
        "# cat /sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes\n34359738368\n# cat /sys/fs/cgroup/memory/docker/ab/memory.failcnt\n71\n",
        "cgroup",
    )
    assert row["limit_mib"] == 32768
    assert row["fail_count"] == 71


def test_real_df_and_free() -> None:
    rows = of(shared("cases", "app-040-nccl-shm-64m-docker-tp", "input", "df-in-container.txt"), "fs")
    assert len(rows) == 5
    row = one(
        shared("cases", "app-050-torchrun-exit-9-host-ram", "input", "free-g-at-15-41.txt"),
        "memory",
        "free-g-at-15-41.txt",
    )
    assert row["swap_used_mib"] == 7168
