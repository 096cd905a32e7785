"""Secrets in command lines, settings and records: none is shown in part, and what is no secret stays."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuclinic.knowledge import DATA
from gpuclinic.recognise.secret_arguments import masked_arguments
from gpuclinic.recognise.secret_names import is_secret
from gpuclinic.recognise.secrets import mask, masked_cmdline

ODD = [
    "Abc&S3KR3Tx",
    "Abc;S3KR3Tx",
    "abc,S3KR3Tx",
    "abc|S3KR3Tx",
    "S3KR3Tx)end",
    "{S3KR3Tx",
    "-S3KR3Tx",
    "x=S3KR3Tx",
    "a b S3KR3Tx",
    "a:S3KR3Tx",
    "a@S3KR3Tx",
    "/S3KR3Tx/x",
]
SECRET = "S3KR3Tx"


def cmdline(*words: str) -> str:
    return masked_cmdline("\0".join((*words, "")).encode()).decode()


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize(
    "option", ["--password", "--db-passwd", "-password", "--hf-token", "--client-secret", "--api-key", "--wandb-key"]
)
def test_an_argument_is_hidden_whole(option: str, value: str) -> None:
    if not (value.startswith("/") and option in ("--hf-token", "--api-key", "--wandb-key")):  # a file that holds one
        assert (
            cmdline("python", "x.py", option, value, "--lr", "3e-4") == f"python\0x.py\0{option}\0***\0--lr\x003e-4\0"
        )
        assert (
            cmdline("python", "x.py", f"{option}={value}", "--lr", "3e-4")
            == f"python\0x.py\0{option}=***\0--lr\x003e-4\0"
        )


@pytest.mark.parametrize("value", [v for v in ODD if " " not in v and "=" not in v and v[0] not in "/-{"])
@pytest.mark.parametrize(
    "text", ["--password {}", "--password={}", "password={}", "StoragePass={}", "api_key: {}", "run --token {} now"]
)
def test_in_a_text_nothing_of_a_value_is_left(text: str, value: str) -> None:
    assert SECRET not in mask(text.format(value))


@pytest.mark.parametrize(
    "words",
    [
        ["mysql", "-u", "root", "-pS3KR3Tx", "db"], ["/usr/bin/mysqldump", "-pS3KR3Tx"], ["mariadb", "-pS3KR3Tx"],
        ["curl", "-u", "bob:S3KR3Tx", "https://h"], ["curl", "-ubob:S3KR3Tx"], ["curl", "--proxy-user", "a:S3KR3Tx"], ["curl", "--user=a:S3KR3Tx"],
        ["curl", "-H", "Authorization: Bearer S3KR3Tx99887766"], ["curl", "-H", "X-Vault-Token: S3KR3Tx99887766"], ["curl", "-b", "sid=S3KR3Tx"],
        ["sshpass", "-p", "S3KR3Tx", "ssh", "h"], ["sshpass", "-pS3KR3Tx", "ssh"], ["redis-cli", "-a", "S3KR3Tx"], ["docker", "login", "-u", "x", "-p", "S3KR3Tx"],
        ["az", "login", "--service-principal", "-u", "x", "-p", "S3KR3Tx"], ["az", "storage", "--account-key", "S3KR3Tx=="], ["az", "x", "--sas-token", "se=S3KR3Tx"],
        ["wandb", "login", "--relogin", "S3KR3Tx"], ["wandb", "login", "S3KR3Tx"], ["hf", "auth", "login", "--token", "S3KR3Tx"], ["huggingface-cli", "login", "--token=S3KR3Tx"],
        ["aws", "configure", "set", "aws_secret_access_key", "S3KR3Tx"], ["gcloud", "sql", "--password", "S3KR3Tx"], ["psql", "postgres://u:S3KR3Tx@h/d"],
        ["psql", "host=h password=S3KR3Tx user=x"], ["ipmitool", "-I", "lanplus", "-U", "a", "-P", "S3KR3Tx", "sel"], ["ldapsearch", "-D", "cn=x", "-w", "S3KR3Tx"],
        ["smbclient", "//h/s", "-U", "a%S3KR3Tx"], ["openssl", "enc", "-k", "S3KR3Tx"], ["openssl", "rsa", "-passin", "pass:S3KR3Tx"], ["mc", "alias", "set", "m", "http://h", "AK", "S3KR3Tx"],
        ["sudo", "mysql", "-pS3KR3Tx"], ["env", "PGPASSWORD=S3KR3Tx", "psql"], ["sh", "-c", "mysql -u root -pS3KR3Tx && ls"], ["bash", "-c", "curl -u 'a:S3KR3Tx' h"],
        ["docker", "run", "-e", "DB_PASSWORD=S3KR3Tx", "x"], ["docker", "run", "--env=API_KEY=S3KR3Tx", "x"], ["srun", "--export=ALL,WANDB_API_KEY=S3KR3Tx,A=1", "x"],
        ["jupyter", "lab", "--NotebookApp.token=S3KR3Tx"], ["ray", "start", "--redis-password=S3KR3Tx"], ["mount", "-t", "cifs", "-o", "username=b,password=S3KR3Tx,uid=0", "//n/s"],
        ["mount", "-t", "ceph", "-o", "name=admin,secret=S3KR3Tx=="], ["python", "--auth", "a1b2c3S3KR3Tx"], ["python", "--key", "a1b2c3S3KR3Tx"], ["x", "-pS3KR3Txy"],
        ["kubectl", "--token", "S3KR3Tx"], ["kubeadm", "join", "--certificate-key", "S3KR3Tx"], ["tailscale", "up", "--authkey", "S3KR3Tx"], ["usermod", "-p", "S3KR3Tx", "u"],
        ["useradd", "-p", "$6$S3KR3Tx$abcdefgh", "u"], ["nmcli", "dev", "wifi", "connect", "x", "password", "S3KR3Tx"], ["helm", "upgrade", "--set", "db.password=S3KR3Tx"],
        ["java", "-Dspring.datasource.password=S3KR3Tx"], ["7z", "x", "-pS3KR3Tx", "a.7z"], ["vault", "login", "S3KR3Tx"], ["xmrig", "-u", "w", "-p", "S3KR3Tx"],
        ["iscsiadm", "-n", "node.session.auth.password", "-v", "S3KR3Tx"], ["git", "clone", "https://u:a/b@S3KR3Tx@h/x"], ["python", "--password", '"two', 'S3KR3Tx"'],
    ],
)  # fmt: skip
def test_programs(words: list[str]) -> None:
    """As arguments, as a line of a shell, as a list in JSON and in Python, as audit records have them."""
    assert SECRET not in cmdline(*words)
    quoted = " ".join(f'"{word}"' if " " in word else word for word in words)
    if '"two' not in words:
        for text in (
            f"sudo: a : TTY=pts/0 ; COMMAND=/usr/bin/{quoted}",
            json.dumps({"Cmd": words}),
            json.dumps([words], indent=4),
            f"ran {words}",
        ):
            assert SECRET not in mask(text), text
        made = json.loads(mask(json.dumps({"Cmd": words, "n": 1})))
        assert len(made["Cmd"]) == len(words)
    records = " ".join(
        f'a{n}="{w}"' if " " not in w else f"a{n}={w.encode().hex().upper()}" for n, w in enumerate(words)
    )
    shown = mask(
        f"type=EXECVE msg=audit(1.2:3): argc={len(words)} {records}\ntype=PROCTITLE proctitle="
        + "\0".join(words).encode().hex().upper()
    )
    assert SECRET not in shown or '"two' in words
    assert SECRET.encode().hex().upper() not in shown


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("StoragePass=SlurmStorPass1", "SlurmStor"), ("AccountingStoragePass=x9", "x9"), ("JobCompPass = abc", "abc"), ("StorageUser=slurm\nStoragePass=a,b&c;d", "b&c"),
        ("BOOT_IMAGE=/vmlinuz ro rd.luks.key=luksKeyTok88 grubpw=grubPw3 quiet", "luksKeyTok88"), ("BOOT_IMAGE=/vmlinuz grubpw=grubPw3", "grubPw3"),
        ("Kernel command line: ro rd.iscsi.password=S3KR3Tx systemd.set_credential=db:S3KR3Tx", SECRET), ("netroot=iscsi:u:S3KR3Tx@10.0.0.1::3260:1:iqn", SECRET),
        ('GRUB_CMDLINE_LINUX="quiet rd.luks.key=S3KR3Tx1 inst.vncpassword=x"', SECRET), ("options root=/dev/sda rd.luks.key=S3KR3Tx1 ro", SECRET), ("kernelopts=ro inst.sshpw=S3KR3Tx", SECRET),
        ("//n/s /m cifs username=bob,password=S3KR3Tx,uid=0 0 0", SECRET), ("mysql://u:p@S3KR3Tx@h/x", SECRET), ("mysql://u:p/S3KR3Tx@h/x", SECRET), ("db://u:p?a=1#S3KR3Tx@h", SECRET),
        ("root:S3KR3Tx@tcp(127.0.0.1:3306)/db", SECRET), ('Acquire::http::Proxy "http://u:S3KR3Tx@p:1";', SECRET), ('{"auths":{"x":{"auth":"QWxhZGRpS3KR3Tx=="}}}', SECRET),
        ('{"identitytoken": "S3KR3Tx"}', SECRET), ('auth = "QWxhZGRpS3KR3Tx=="', SECRET), ('{"log":"{\\"password\\":\\"S3KR3Tx\\"}"}', SECRET), ('{"password": "a\\"S3KR3Tx"}', SECRET),
        ('"name": "DB_PASSWORD", "value": "S3KR3Tx"', SECRET), ('"name": "DB_PASSWORD",\n      "value": "S3KR3Tx"', SECRET), ("- name: API_KEY\n  value: S3KR3Tx\n", SECRET),
        ("args:\n  - --api-key\n  - S3KR3Tx\n", SECRET), ("<Password>S3KR3Tx</Password>", SECRET), ('<ns:auth_token a="1">S3KR3Tx99</ns:auth_token>', SECRET),
        ("requirepass S3KR3Tx", SECRET), ("bindpw S3KR3Tx", SECRET), ("machine h login u password S3KR3Tx", SECRET), ("root:$6$salt$S3KR3Txhash:19000:", SECRET),
        ("Command Line: python train.py --api-key S3KR3Tx", SECRET), ("Commandline: mysql -u x -pS3KR3Tx", SECRET), ("ExecStart=/usr/bin/x --key a1b2S3KR3Tx", SECRET),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nS3KR3Tx\n-----END PGP PRIVATE KEY BLOCK-----", SECRET), ("PresharedKey = S3KR3TxAbcd=", SECRET), ("SharedAccessKey=S3KR3Tx;x=1", SECRET),
        ("SLURM_JWT=S3KR3TxS3KR3TxS3KR3Tx", SECRET), ('password="S3KR3Tx', SECRET), ("client-key-data: S3KR3Tx", SECRET), ("token: " + "S3KR3Tx." + "a1" * 300, "a1a1"),
        ('"secret": "' + "z" * 9000 + '"', "zzz"), ("https://api.telegram.org/bot123456:S3KR3TxS3KR3TxS3KR3Tx/x", SECRET), ("glsa_S3KR3TxAbcdefghijklmnop", SECRET),
    ],
)  # fmt: skip
def test_settings_and_records(text: str, secret: str) -> None:
    assert secret in text
    shown = mask(text)
    assert secret not in shown
    assert mask(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "eos_token: </s> bos_token='<s>' time_to_first_token=0.31 first_token: 12.3ms --pad-token x", "forward pass: 3.2 ms ForwardPass=12 bypass=1 compass: north",
        "BOOT_IMAGE=/vmlinuz root=UUID=5a6b1c2d-1234 ro quiet iommu=pt nvidia-drm.modeset=1 rd.luks.key=/keyfile:UUID=1234", "StoragePass=(null)", "--pass 2 -pix_fmt yuv420p -p 8080:80",
        "ssh -p2222 host", "docker run -p 8080:80 nginx", "mysql -p db", "curl -k https://h", "mkdir -p /data/Run7/Logs1", "pytest -k test_one", "python -u train.py",
        "docker://nvcr.io/nvidia/pytorch:24.01@sha256:0123", "http://host:8080/a@b", "tcp://10.0.0.1:29500", "ssh://git@github.com:22/x", "KeyError: 'a'", "sort_key=name cache_key: abc",
        "token=12345", "--tokenizer-path /x --max-tokens 4096 --num-key-value-heads 8", "type=SERVICE_START msg=audit(1.2:3): pid=1 uid=0 auid=4294967295 ses=4294967295 unit=x",
        '{"Args": ["--lr", "3e-4", "--gpus", "all"], "key": "value"}', "net use http https set add login", "password=${DB_PASSWORD} token: $TOKEN --password $(cat x)",
        "PasswordAuthentication no", "Accepted password for root from 10.0.0.1 port 22 ssh2", "Exec-Shield authentication failure; logname= uid=0", "author=alice authority: x",
        'secret "x" not found', "Secrets: none", "ipmitool sdr elist", "type=PROCTITLE proctitle=6C73002D6C", "<name>NVIDIA H100</name>", "0x10de:0x2330", "serial=SN-p1A2B3",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask(text) == text


def test_command_lines_without_secrets_stay() -> None:
    for words in (["python", "-m", "torch.distributed.run", "--nproc-per-node=8", "train.py", "--lr", "3e-4"], ["/usr/sbin/sshd", "-D"], ["nginx: worker process"],
                  ["vllm", "serve", "m", "--tokenizer", "x", "--max-num-batched-tokens", "8192"], ["Xorg", "-auth", "/run/user/1000/gdm/Xauthority"], ["sort", "--key", "2"]):  # fmt: skip
        assert masked_cmdline("\0".join(words).encode()) == "\0".join(words).encode()


def test_a_title_without_zeros_is_a_line() -> None:
    assert masked_cmdline(b"worker --password hunter2 --lr 3") == b"worker --password *** --lr 3"
    assert masked_cmdline(b"") == b""
    assert masked_cmdline(b"\xff\xfe\0--password\0\xff") == b"\xff\xfe\0--password\0***"


def test_long_texts_are_searched_wherever_the_value_stands() -> None:
    filler = "Mar  2 04:11:09 h kernel: a plain line of a log\n" * 4000
    text = (
        f"{filler}password=S3KR3Tx\n{filler}- name: API_KEY\n  value: S3KR3Tx\n{filler}-----BEGIN PRIVATE KEY-----\n"
        + "QUJD\n" * 60
        + f"-----END PRIVATE KEY-----\n{filler}"
    )
    shown = mask(text)
    assert SECRET not in shown
    assert "QUJD" not in shown
    assert shown.count("a plain line") == text.count("a plain line")
    assert mask(filler) is filler
    assert SECRET not in mask(json.dumps([{"Cmd": ["curl", "-u", "a:S3KR3Tx"], "x": "y" * 90_000}], indent=2))


def test_hostile_texts_do_not_take_long() -> None:
    for piece in ("a-", "--a ", "=", "key=", '["a",', "'", '\\"', "mysql ", "curl -u ", "a:b@", "x://a:", "-pA1b", "$6$", "proctitle=AA", "type=EXECVE a0=", "<a>", "name: A\n", "password ", "BOOT_IMAGE=", "{"):  # fmt: skip
        mask(piece * (60_000 // len(piece)))
        masked_cmdline((piece + "\0").encode() * 5000)


@given(st.lists(st.text(alphabet=string.printable, max_size=30), max_size=12))
def test_masking_twice_changes_nothing_more(words: list[str]) -> None:
    once = masked_arguments(words)
    assert len(once) == len(words)
    assert masked_arguments(once) == once
    shown = masked_cmdline("\0".join(words).encode())
    assert masked_cmdline(shown) == shown


def test_the_tables_are_well_formed() -> None:
    for name, columns in (("secret_arguments", 5), ("secret_words", 3)):
        rows = (DATA / "tables" / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
        assert {row.count("\t") + 1 for row in rows} == {columns}
        assert len(set(rows)) == len(rows)
    assert is_secret("DB_PASSWORD", "x")
    assert not is_secret("DB_PASSWORD", "***")


def test_every_expression_compiles() -> None:
    """They are compiled when they are first used, so that a broken one would show only then."""
    from gpuclinic.recognise import secrets

    for _, pattern, _ in secrets._RULES:
        for one in [pattern] if isinstance(pattern, secrets._Pattern) else [pattern._head, pattern._value]:
            assert one.compiled.pattern
