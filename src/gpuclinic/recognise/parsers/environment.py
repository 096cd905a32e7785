"""Environment variables: printenv, env, export lines, /proc/PID/environ, assignments before a command, -e of docker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers._host_util import MAX_FACTS, clipped_lines, fact

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact
    from gpuclinic.model._types import Scalar

_LINE = re.compile(
    r"^\s*(?:export\s+|setenv\s+|ENV\s+|declare -x\s+|-\s+|set\s+|env:\s*"
    r")?[\"']?(?P<name>[A-Za-z_][A-Za-z0-9_]{1,80})(?:=|\s+(?=\S+$))[\"']?(?P<value>[^\"'\n]*)[\"']?,?\s*$"
)
_INLINE = re.compile(r"(?:^|\s)(?P<name>[A-Z][A-Z0-9_]{2,60})=(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"']*)")
_PREFIXED = re.compile(
    r"^\s*(?:[$#>]\s+|\S+@\S+\s+)?(?:env\s+)?(?:[A-Z][A-Z0-9_]+=(?:\"[^\"]*\"|'[^']*'|[^\s\"']*)\s+)+[\w./-]+(?:\s|$)"
)
_SEVERAL = re.compile(r"^\s*[A-Z][A-Z0-9_]+=[^\s\"']*\s+[A-Z][A-Z0-9_]+=")
_DOCKER = re.compile(r"(?:\s|^)(?:-e|--env)[ =][\"']?(?P<name>[A-Z][A-Z0-9_]{2,60})=(?P<value>[^\s\"']*)")
_WANTED = re.compile(
    r"^(?:CUDA_|NCCL_|GLOO_|TP_SOCKET|UCX_|FI_|OMPI_|MPI|PMI|TORCH_|PYTORCH_|NVIDIA_|NVTE_|VLLM_|RAY_|SGLANG_|HIP_|"
    r"ROCR_|GPU_|LD_|"
    r"SLURM_|MASTER_|RANK$|LOCAL_RANK$|WORLD_SIZE$|LOCAL_WORLD_SIZE$|NODE_RANK$|GROUP_RANK$|OMP_NUM|MKL_NUM|PATH$|"
    r"TMPDIR$|HF_|XLA_|"
    r"TF_|DS_|DEEPSPEED|PL_|KMP_|IBV_|MLX5_|RDMAV_|OPAL_|PYTHON|CONDA_|VIRTUAL_ENV|HOSTNAME$|TRITON_|TOKENIZERS_|"
    r"ACCELERATE_|NUMBA_|"
    r"RCCL_|HSA_|JAX_|MAX_JOBS|http_proxy$|https_proxy$|no_proxy$|HTTP_PROXY$|HTTPS_PROXY$|NO_PROXY$|ALL_PROXY$|"
    r"SINGULARITY|APPTAINER|ENROOT)"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|CREDENTIAL", re.IGNORECASE)


def env_fact(document: Document, name: str, value: str, index: int, line: str, how: str) -> Fact:
    """One variable as a fact; values that look like secrets are masked."""
    secret = bool(_SECRET.search(name)) and not name.startswith("TOKENIZERS")
    value = "***" if secret and value else value.strip()
    shown = f"{name}=***" if secret else line
    items = [item for item in value.split(",") if item.strip()] if "VISIBLE_DEVICES" in name else []
    fields: dict[str, Scalar] = {"name": name, "value": value[:2000], "how": how}
    if name.endswith("_IFNAME"):
        first = value.strip().lstrip("=^").split(",")[0].split(":")[0].strip()
        fields["first"], fields["excludes"], fields["many"] = first, value.strip().startswith("^"), "," in value
    if "VISIBLE_DEVICES" in name:
        numbers = [int(item) for item in items if re.fullmatch(r"\s*\d{1,4}\s*", item)]
        fields["device_count"] = len(items)
        fields["highest"] = max(numbers) if numbers else None
        fields["uuids"] = any(item.strip().startswith(("GPU-", "MIG-")) for item in items)
        fields["mig_count"] = sum(item.strip().startswith("MIG-") for item in items)
        fields["repeated"] = len({item.strip() for item in items}) < len(items)
    return fact(document, "env", name, fields, index, shown)


def parse_env(document: Document) -> list[Fact]:
    """Every variable that matters to GPUs, communication, loaders or schedulers: "env" with name and value."""
    facts: list[Fact] = []
    seen: set[tuple[str, str]] = set()

    def add(name: str, value: str, index: int, line: str, how: str) -> None:
        if _WANTED.match(name) and (name, value) not in seen and len(facts) < MAX_FACTS:
            seen.add((name, value))
            facts.append(env_fact(document, name, value, index, line, how))

    for index, raw in enumerate(clipped_lines(document)):
        for line in raw.split("\x00") if "\x00" in raw else [raw]:
            if "=" not in line and not line.lstrip().startswith(("setenv ", "ENV ")):
                continue
            short = line[:4000]
            if _PREFIXED.match(short) or _SEVERAL.match(short):
                for match in _INLINE.finditer(short):
                    add(match["name"], match["value"].strip("\"'"), index, line, "set")
                continue
            for match in _DOCKER.finditer(short):
                add(match["name"], match["value"], index, line, "container")
            found = _LINE.match(short)
            if found:
                how = "set" if line.lstrip().startswith(("export", "setenv", "ENV", "declare")) else "shown"
                add(found["name"], found["value"], index, line, how)
            elif "export " in short:
                for match in _INLINE.finditer(short):
                    add(match["name"], match["value"].strip("\"'"), index, line, "set")
    return facts
