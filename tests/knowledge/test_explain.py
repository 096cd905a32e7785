"""Explaining codes, names, causes and lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuclinic.clinic.explain import explain, near
from gpuclinic.knowledge import load
from gpuclinic.knowledge.causes import cause_ids
from gpuclinic.knowledge.codes import TOPICS, codes
from gpuclinic.knowledge.xids import catalogue
from gpuclinic.model import ACTIONS, UserError

LINK_DOWN = (
    "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 "
    "(0x020425c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
)


@pytest.mark.parametrize(
    ("topic", "kind", "code"),
    [
        ("xid 79", "xid", 79),
        ("Xid79", "xid", 79),
        ("XID: 79", "xid", 79),
        ("Xid 13 on GPU 3", "xid", 13),
        ("sxid 20034", "sxid", 20034),
        ("SXid-20034", "sxid", 20034),
        ("exit 137", "exit", 137),
        ("exit code -9", "exit", -9),
        ("exitcode: -9", "exit", -9),
        ("exit_code=137", "exit", 137),
        ("exit status: 139", "exit", 139),
        ("return code 1", "exit", 1),
        ("退出码：137", "exit", 137),
        ("exit 0:9", "exit", -9),
        ("exit 150", "exit", 150),
        ("0xC0000005", "exit", 0xC0000005),
        ("signal 9", "signal", 9),
        ("信号 9", "signal", 9),
        ("signal SIGBUS", "signal", 7),
        ("SIGKILL", "signal", 9),
        ("sigkill", "signal", 9),
        ("errno 28", "errno", 28),
        ("ENOSPC", "errno", 28),
        ("errno 28: No space left on device", "errno", 28),
        ("cuda 802", "cuda", 802),
        ("CUDA error 802", "cuda", 802),
        ("CUDA_ERROR_INVALID_DEVICE", "cuda", 101),
        ("cudaErrorIllegalAddress", "cuda", 700),
        ("ncclSystemError", "nccl", 2),
        ("nccl 2", "nccl", 2),
        ("NCCL error 3", "nccl", 3),
        ("CUDNN_STATUS_NOT_SUPPORTED", "cudnn", None),
        ("CUBLAS_STATUS_ALLOC_FAILED", "cublas", 3),
        ("NVML_ERROR_GPU_IS_LOST", "nvml", 15),
        ("nvml 15", "nvml", 15),
        ("slurm NODE_FAIL", "slurm", "NODE_FAIL"),
        ("slurm state NF", "slurm", "NODE_FAIL"),
        ("k8s OOMKilled", "k8s", "OOMKilled"),
        ("kubernetes reason: OOMKilled", "k8s", "OOMKilled"),
        ("OOMKilled", "k8s", "OOMKilled"),
        ("hw.gpu.fallen_off_bus", "cause", "hw.gpu.fallen_off_bus"),
        ("cause app.cuda_oom", "cause", "app.cuda_oom"),
        ("NVRM: Xid (PCI:0000:9a:00): 79, GPU has fallen off the bus.", "xid", 79),
        ("nvidia-nvswitch2: SXid (PCI:0000:c6:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "sxid", 20034),
        (LINK_DOWN, "xid", 149),
    ],
)
def test_topics(topic: str, kind: str, code: int | str | None) -> None:
    found = explain(topic)
    assert found.topic == kind
    if code is not None:
        assert found.code == code
    assert found.name
    assert found.text


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("key", catalogue(), ids=lambda k: f"{k[0]}{k[1]}")
def test_every_xid_is_explained(key: tuple[str, int], lang: str) -> None:
    found = explain(f"{key[0]} {key[1]}", lang)
    assert (found.topic, found.code) == key
    assert found.name
    assert found.action in ACTIONS


def test_every_name_is_found() -> None:
    for topic in TOPICS:
        for row in codes(topic):
            assert explain(f"{topic} {row.name}").topic in {topic, "signal"}, row
            assert explain(f"{topic} {row.code}").code == row.code


def test_every_cause_signature_and_rule_is_explained() -> None:
    for identity in cause_ids():
        if identity != "unknown":
            assert explain(identity).topic == "cause"
    knowledge = load()
    for row in (*knowledge.signatures[::7], *knowledge.rules):
        assert explain(row.id, "zh").code == row.id  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "topic", ["xid 9999", "sxid 1", "cuda 123456", "nccl 77", "exit 300", "signal 99", "errno 4000"]
)
def test_codes_nobody_has_listed(topic: str) -> None:
    found = explain(topic)
    assert found.name is None
    assert found.severity == "warning"
    assert found.action == "collect_evidence"


def test_lines() -> None:
    oom = explain("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.10 GiB.")
    assert (oom.topic, oom.cause) == ("line", "app.cuda_oom")
    decoded = explain(LINK_DOWN).decoded
    assert (decoded["units"], decoded["fatal"], decoded["link"]) == ("NETIR_LINK_EVT", True, 1)
    assert explain("something went wrong: ncclInternalError").code == 3


def test_near_matches() -> None:
    assert "xid 79" in near("79")
    assert "hw.gpu.fallen_off_bus" in near("fallen_off_bus")
    assert "SIGKILL" in near("SIGKIL")
    assert explain("79").suggestions
    assert explain("zzzz qqqq").name is None


@pytest.mark.parametrize("topic", ["", "   ", "\n"])
def test_nothing_to_explain(topic: str) -> None:
    with pytest.raises(UserError):
        explain(topic)


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=1, max_size=60).filter(str.strip))
def test_any_text_has_an_answer(text: str) -> None:
    found = explain(text)
    assert found.severity in {"critical", "warning", "info"}
    assert found.action in ACTIONS
