"""The same thing gets the same other name everywhere; what a diagnosis needs stays."""

from __future__ import annotations

import json
import re

import pytest

from gpuclinic.recognise.anonymising import Anonymiser


def anonymiser(key: bytes = b"a key") -> Anonymiser:
    made = Anonymiser(key)
    for name, data in [
        ("root/proc/sys/kernel/hostname", b"dgx-h100-03\n"),
        ("root/etc/hosts", b"127.0.0.1 localhost\n10.1.2.3 dgx-h100-03.corp.acme.com dgx-h100-03 # me\n10.1.2.4 dgx-h100-04\n"),
        ("root/etc/passwd", b"root:x:0:0::/root:/bin/sh\nalice:x:1004:1004:Alice:/home/alice:/bin/bash\nsshd:x:110:65534::/run/sshd:/bin/false\n"),
        ("nvml.json", b'{"serial": "1654922006123", "board_serial": "SN-12AB34"}'),
        ("root/sys/class/dmi/id/product_serial", b"J1234567\n"),
        ("commands/x.txt", b'UserId=bobby(1005)\npod="ml/train-llm-7f9c4"\nid 1234567890ab' + b"c" * 52),
    ]:  # fmt: skip
        made.learn(name, data.decode())
    return made


@pytest.mark.parametrize(
    "text",
    [
        "0000:9a:00.0 00000000:9A:00.0 PCI:0000:9a:00", "04:11:09 2026-03-02T04:11:09.120000+00:00 [Mon Mar  2 04:11:09 2026]",
        "NVIDIA H100 80GB HBM3 550.54.15 CUDA 12.4", "pid=41822 exit 137 Xid 79", "127.0.0.1 localhost 0.0.0.0 255.255.255.0 ::1 ::",
        "nvidia-cublas-cu12==12.1.3.1", "nvidia-cublas-cu12            12.1.3.1", "VBIOS 96.00.74.00.01 version: 96.0.74.0",
        "std::bad_alloc a::b 0xffff888103a4c000", "00:00:00:00:00:00 ff:ff:ff:ff:ff:ff", "user@1000.service getty@tty1.service",
        "/usr/lib/python3.10/site-packages/torch/cuda/__init__.py", "root daemon sshd ubuntu", "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
        "00000000-0000-0000-0000-000000000000", "serial8250: Serial: 8250/16550 driver", "169.254.169.254",
    ],
)  # fmt: skip
def test_what_is_kept(text: str) -> None:
    assert anonymiser().text(text) == text


@pytest.mark.parametrize(
    "secret",
    [
        "dgx-h100-03", "DGX-H100-03", "dgx-h100-03.corp.acme.com", "corp.acme.com", "dgx-h100-04", "alice", "bobby", "10.1.2.3", "8.8.8.8",
        "192.168.7.9", "1654922006123", "SN-12AB34", "J1234567", "train-llm-7f9c4", "1234567890ab", "carol@acme.com", "00:1a:2b:3c:4d:5e",
        "fe80::506b:4bff:fea1:b2c4", "2001:db8:1::17", "506b:4b03:00a1:b2c4", "5a6b1c2d-1234-5678-9abc-def012345678", "acme-llm",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "around", ["{}", "at {} now", '{{"x": "{}"}}', '{{"log": "a line\\n{}\\n"}}', "({}):", "/srv/{}/x", "x={},"]
)
def test_what_is_replaced(secret: str, around: str) -> None:
    secret = f"/home/alice/{secret}/train.py" if secret == "acme-llm" else secret
    hidden = "acme-llm" if "acme-llm" in secret else secret
    text = around.format(secret)
    assert hidden.lower() not in anonymiser().text(text).lower()


@pytest.mark.parametrize(
    ("learnt", "told"),
    [
        ("\tNode GUID: 0x946dae03005e1a2c\n\tSystem image GUID: 0x946dae03005e1a2c\n\t\tPort GUID: 0x946dae03005e1a2c\n", ["946dae03005e1a2c", "946DAE03005E1A2C"]),
        ("mlx5_core 0000:12:00.0: GUID 0xb8cef6030012a4bc\n", ["b8cef6030012a4bc", "0xb8cef6030012a4bc", "b8ce:f603:0012:a4bc"]),
        ("switchguid=0x7cfe9003009ce5b0(7cfe9003009ce5b0)\n", ['"S-7cfe9003009ce5b0"', "7CFE:9003:009C:E5B0"]),
        ("eui64   : 0025385191b00a12\n", ["nvme-eui.0025385191b00a12", "eui.0025385191b00a12", "00 25 38 51 91 b0 0a 12"]),
        ("nguid   : 36344630524019370025385300000001\n", ["36344630524019370025385300000001", "36344630-5240-1937-0025-385300000001"]),
        ("wwn-0x5000c500a1b2c3d4 -> ../../sda\n", ["0x5000c500a1b2c3d4", "WWN: 5000c500a1b2c3d4", "LU WWN Device Id: 5 000c50 0a1b2c3d4"]),
        ("scsi-naa.6000c29a1b2c3d4e5f60718293a4b5c6\n", ["naa.6000c29a1b2c3d4e5f60718293a4b5c6"]),
        ("", ["00:1a:2b:ff:fe:3c:4d:5e", "ClusterUUID : 5a6b1c2d-1234-5678-9abc-def012345678"]),
    ],
)  # fmt: skip
def test_identifiers_of_ports_and_disks(learnt: str, told: list[str]) -> None:
    made = Anonymiser(b"a key")
    made.learn("commands/x.txt", learnt)
    news = set()
    for text in [learnt, *told]:
        new = made.text(text)
        digits = re.sub(r"[\W_]", "", text.lower().rpartition("wwn")[2])[-16:]
        assert not digits or digits not in re.sub(r"[\W_]", "", new.lower())
        news.add(re.sub(r"[\W_]", "", new.lower())[-16:])
    if learnt.startswith(("mlx5", "eui", "nguid")):
        assert len(news) == 1  # the same everywhere


@pytest.mark.parametrize("text", ["0xffff888103a4c000 R09: 0x0000000000000000", "Capability mask: 0xa651e848", "Code: 83 7d e8 00 74 2f 48 8b 55 e8", "GUID: 0x0000000000000000", "uid 1004 gid=1004(users)", "grid 0x946dae03005e1a2c"])  # fmt: skip
def test_numbers_that_identify_nothing_stay(text: str) -> None:
    made = Anonymiser(b"a key")
    made.learn("commands/dmesg.txt", text)
    assert made.text(text) == text


def test_the_same_is_replaced_by_the_same_and_another_key_by_another() -> None:
    first, again, other = anonymiser(), anonymiser(), anonymiser(b"another")
    text = "dgx-h100-03:4123:4200 [3] NCCL INFO dgx-h100-03-ib0 /home/alice/x alice 10.1.2.3 10.1.2.4"
    assert first.text(text) == again.text(text) != other.text(text)
    host = first.text("dgx-h100-03")
    assert first.text(text).startswith(f"{host}:4123:4200 [3] NCCL INFO {host}-ib0 /home/")
    assert first.text("dgx-h100-03.corp.acme.com").startswith(host + ".")
    assert first.text("1234567890abcccc" + "c" * 48)[:12] == first.text("1234567890ab")
    assert first.text("5a6b1c2d-1234-5678-9abc-def012345678").replace("-", "") == first.text(
        "5a6b1c2d123456789abcdef012345678"
    )


def test_neighbours_stay_neighbours() -> None:
    made = anonymiser()
    one, two, far = made.text("10.1.2.3"), made.text("10.1.2.4"), made.text("10.9.2.3")
    assert one.rpartition(".")[0] == two.rpartition(".")[0]
    assert one != two
    assert far.split(".")[:2] != one.split(".")[:2]
    assert one.startswith("10.")
    assert len({made.text(f"10.1.2.{n}") for n in range(1, 255)}) == 254


def test_json_stays_json() -> None:
    text = json.dumps({"host": "dgx-h100-03", "log": 'a "quoted"\n\tdgx-h100-03 alice\\', "ip": ["10.1.2.3"]})
    made = json.loads(anonymiser().text(text))
    assert made["host"] in made["log"]
    assert "alice" not in made["log"]


def test_a_host_called_as_a_word_is_replaced_where_hosts_stand() -> None:
    made = Anonymiser(b"k")
    made.learn("root/proc/sys/kernel/hostname", "gpu\n")
    text = made.text("Mar  2 04:11:09 gpu kernel: the gpu fell off\nLinux gpu 6.1.0 #1\n")
    assert re.match(r"Mar  2 04:11:09 node\d+ kernel: the gpu fell off\nLinux node\d+ 6", text)
    made = Anonymiser(b"k")
    made.learn("root/proc/sys/kernel/hostname", "gpu10\n")
    assert made.text("GPU10 NV18") == "GPU10 NV18"
    assert made.text("gpu10 kernel").startswith("node")


@pytest.mark.parametrize("host", ["vm", "gpu", "db1"])
@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1 localhost\n127.0.1.1 {}\n", "127.0.0.1 {} # me\n", "fe80::1 a {}\n", "postgres://u:***@{}:5432/x", "http://{}/x", "ssh a@{} ls", "alice@{}:~$ ls",
        "{}:4123:4200 [3] NCCL INFO x", "{}:/export /mnt nfs rw\n", "[  1.0] systemd[1]: Hostname set to <{}>.", '{{"hostname":"{}"}}', "NodeName={} Gres=gpu:8", "SLURMD_NODENAME={}",
        "Mar  2 04:11:09 {} kernel: x", "2026-03-02T04:11:09.120000+00:00 {} sshd[1]: x", "Linux {} 6.1.0 #1", "{}\n", "{}.corp.acme.com is up", "MASTER_ADDR={}",
    ],
)  # fmt: skip
def test_a_short_host_is_replaced_in_every_place_of_a_host(text: str, host: str) -> None:
    made = Anonymiser(b"k")
    made.learn("root/proc/sys/kernel/hostname", host + "\n")
    made.learn("root/etc/resolv.conf", "search corp.acme.com\n")
    shown = made.text(text.format(host))
    assert not re.search(rf"(?<![\w/]){host}(?![\w:]*gpu|:\d)\b", shown.replace("Gres=gpu:8", "")), shown
    assert "acme" not in shown
    assert (
        made.text(f"the {host} fell off, /{host}/x {host}=1") == f"the {host} fell off, /{host}/x {host}=1"
        or host == "db1"
    )


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ("--dsn postgres://alice9:***@db.corp.example:5432/x", ["corp.example", "alice9", "//db."]), ("http_proxy=http://proxy.corp:3128", ["proxy.corp"]),
        ("redis://:***@cache:6379/0", ["cache"]), ("tcp://trainer-0:29500", ["trainer-0"]), ("https://gitlab.acme.io/x/y.git", ["acme"]), ("http://10.1.2.3:80", ["10.1.2.3"]),
        ('{"mirrors": ["https://u:***@mirror.acme.lan"]}', ["acme"]), ("amqp://bob77:a@b@mq.acme.lan/x", ["acme", "bob77"]),
    ],
)  # fmt: skip
def test_hosts_and_users_of_urls(text: str, secrets: list[str]) -> None:
    made = Anonymiser(b"k")
    made.learn("root/proc/77/cmdline", text)
    shown = made.text(text)
    for secret in secrets:
        assert secret not in shown


def test_host_lists_of_slurm_are_written_out() -> None:
    made = Anonymiser(b"k")
    conf = "NodeName=dgx-h100-[01-03,7],n[1-2].acme.com Gres=gpu:8\nSlurmctldHost=headacme(10.1.2.3)\nAccountingStorageHost=dbacme\nPartitionName=x Nodes=dgx-h100-[01-03] State=UP\n"
    made.learn("root/etc/slurm/slurm.conf", conf)
    made.learn("root/proc/sys/kernel/hostname", "dgx-h100-02\n")
    shown = made.text(conf)
    assert "dgx" not in shown
    assert "acme" not in shown
    host = made.text("dgx-h100-02")
    nodes = shown.split("NodeName=")[1].split()[0].split(",")
    assert nodes[1] == host
    assert len(nodes) == 6
    assert shown.split(" Nodes=")[1].split()[0].split(",") == nodes[:3]
    assert made.text("42|FAILED|dgx-h100-[02-03]|") == f"42|FAILED|{','.join(nodes[1:3])}|"
    assert (
        made.text("Name=gpu File=/dev/nvidia[0-7] GPU[0-3] layer[1-4]")
        == "Name=gpu File=/dev/nvidia[0-7] GPU[0-3] layer[1-4]"
    )


def test_public_sites_and_words_stay() -> None:
    made = Anonymiser(b"k")
    text = "https://huggingface.co/x https://cdn-lfs.huggingface.co/y https://pypi.org/simple http://localhost:8000 file:///a/b docker://nvcr.io/x unix:///run/x.sock"
    made.learn("x", text + " redis://cache:6379 http://server:80")
    assert made.text(text) == text
    assert made.text("the page cache of the server") == "the page cache of the server"


def test_binary_records_keep_their_places() -> None:
    record = b"\x07\0\0\0alice\0\0\0\0\0\0dgx-h100-03\0\0\0\0\0end"
    made = anonymiser().binary(record)
    assert len(made) == len(record)
    assert b"alice" not in made
    assert made.endswith(b"end")
    assert made.index(b"node") == record.index(b"dgx")


def test_long_and_hostile_texts_do_not_take_long() -> None:
    made = anonymiser()
    for text in ("a-" * 200_000, ":" * 200_000, "1." * 200_000, "0123:" * 100_000, "/home/" + "a/" * 100_000, "@" * 100_000, "x@" * 100_000,
                 "a" * 400_000, "aa:" * 100_000, "\\n" * 100_000, "Mar  2 " * 50_000, "serial" + " " * 200_000):  # fmt: skip
        made.learn("x", text)
        assert isinstance(made.text(text), str)
