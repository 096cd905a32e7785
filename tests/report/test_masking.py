"""What must not leave a report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuclinic.report.masking import clean, cleaned, mask

HEX40 = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzABCDEF", "abcdefghij"),
        ("using token hf_abcdefghijklmnopqrstuvwxyzABCDEF to download", "abcdefghij"),
        (f"export WANDB_API_KEY={HEX40}", HEX40),
        (f"wandb login {HEX40}", HEX40),
        (f'"wandb_api_key": "{HEX40}"', HEX40),
        ("wandb: key wandb_v1_AbCdEf0123456789AbCdEf", "AbCdEf0123456789"),
        ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalr"),
        ("AWS_SESSION_TOKEN=FwoGZXIvYXdzEBYaDH", "FwoGZ"),
        ("Authorization: Bearer abc.def.ghi123456", "abc.def"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("header 'authorization': 'token 0123456789abcdef'", "0123456789abcdef"),
        ("curl -H 'X-Api-Key: 0123456789'", "0123456789"),
        ("curl -u admin:hunter2 https://host/", "hunter2"),
        ("git clone https://ghp_abcdefghijklmnopqrst1234@github.com/x/y", "ghp_abc"),
        ("postgres://user:pa55word@db:5432/x", "pa55word"),
        ("redis://:s3cret99@cache:6379/0", "s3cret99"),
        ("http://node:8888/?token=0123456789abcdef0123456789abcdef", "0123456789abcdef"),
        ("https://bucket/x?X-Amz-Credential=AAAA1111&X-Amz-Signature=abcdef123456", "abcdef123456"),
        ("spring.datasource.pwd=hunter22", "hunter22"),
        ("mysql --password=foo123 --host db", "foo123"),
        ("docker login -u me --password hunter22", "hunter22"),
        ("MYSQL_ROOT_PASSWORD: supersecret", "supersecret"),
        ("passwd='let me in'", "let me in"),
        ("OPENAI_API_KEY=sk-proj-abcdefghijklmnopqrstuvwxyz", "abcdefghij"),
        ("NGC_API_KEY nvapi-abcdefghijklmnopqrstuvwxyz", "abcdefghij"),
        ("Slack https://hooks.slack.com/services/T0000/B0000/XXXXXXXXXXXXXXXX", "XXXXXXXX"),
        ("https://open.feishu.cn/open-apis/bot/v2/hook/12345678-1234-1234-1234-123456789012", "12345678-1234"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-def", "eyJzdWIi"),
        ("-----BEGIN OPENSSH PRIVATE KEY----- b3BlbnNzaC1rZXk", "b3Blbn"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE"),
    ],
)
def test_secrets_are_masked(text: str, secret: str) -> None:
    assert secret in text
    assert secret not in mask(text)
    assert "***" in mask(text)


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=4096 pad_token=<pad> eos_token_id: 151643 tokenizer=LlamaTokenizer",
        "Generated 512 tokens: 33.1 tokens/s",
        "token=12345",
        "NVRM: Xid (PCI:0000:9a:00): 79, pid=41822, name=python3, GPU has fallen off the bus.",
        "KeyError: 'model.layers.0.self_attn.k_proj.weight'",
        "tcp://10.0.0.1:29500",
        "ssh://git@github.com:22/x",
        "sshd[211]: Failed password for root from 192.0.2.4 port 22 ssh2",
        "[rank3]:[E816 01:45:40.183009389 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective timeout",
        "GPU-7ae2b3a0-77d4-3c0e-8d9c-d5d0a0a7c0f3",
        "RuntimeError: The size of tensor a (4096) must match the size of tensor b (4097)",
        "sudo: marta : TTY=pts/4 ; PWD=/home/marta ; USER=root ; COMMAND=/usr/bin/kill -9 41022",
        "/etc/systemd/services/nvidia-fabricmanager-long-name.service",
        "OLDPWD=/work/run",
        "Public key: ssh-ed25519 AAAAC3Nz comment",
    ],
)
def test_the_rest_is_left_alone(text: str) -> None:
    assert mask(text) == text


def test_nothing_that_a_terminal_obeys() -> None:
    evil = "a\x1b[31mred\x1b]0;title\x07b\x9b2Jc\x00d\x7fe\u202ef\rg\nh\ti\u2028j\ud800k"
    shown = clean(evil)
    assert shown.isprintable()
    assert shown.encode("utf-8")
    assert "red" in shown


@given(st.text(max_size=200))
def test_clean_is_printable_and_stable(text: str) -> None:
    shown = clean(text)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in shown)
    assert clean(shown) == shown


def test_nested() -> None:
    assert cleaned({"a": ["x\x1b[0m", {"b": "password=hunter2"}], "n": 3}) == {
        "a": ["x", {"b": "password=***"}],
        "n": 3,
    }
