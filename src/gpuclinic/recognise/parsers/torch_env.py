"""What PyTorch says of its surroundings: `python -m torch.utils.collect_env`, and prints of torch.version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_tables import compute_capability
from gpuclinic.recognise.parsers.gpu_text import Draft, Scalar, is_missing, yes
from gpuclinic.recognise.parsers.pyenv import package, torch_fields

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_START = re.compile(r"^\s*PyTorch version: (?P<version>\S+)")
_PAIRS = {
    "Is debug build": "is_debug",
    "CUDA used to build PyTorch": "cuda_build",
    "ROCM used to build PyTorch": "rocm_build",
    "OS": "os",
    "GCC version": "gcc",
    "Libc version": "libc",
    "Python version": "python",
    "Is CUDA available": "cuda_available",
    "CUDA runtime version": "cuda_runtime",
    "CUDA_MODULE_LOADING set to": "module_loading",
    "Nvidia driver version": "driver",
    "cuDNN version": "cudnn",
    "Is XPU available": "xpu_available",
}
_PAIR = re.compile(r"^\s*(?P<key>[A-Z][\w ]{1,40}): ?(?P<value>.*)$")
_GPU = re.compile(r"^\s*(?:GPU models and configuration: ?)?GPU (?P<index>\d{1,4}): (?P<name>.{2,60}?)\s*$")
_LIBRARY = re.compile(
    r"^\s*\[(?P<manager>pip3?|conda)\] (?P<name>[\w.-]+?)(?:==|\s+)(?P<version>\d\S*)(?:\s+(?P<build>\S+))?"
)


def parse_collect_env(document: Document) -> list[Fact]:
    """Facts torch_env, package, gpu and driver of collect_env's report."""
    facts: list[Fact] = []
    env: Draft | None = None
    names: list[str] = []
    for index, line in enumerate(document.lines()):
        if len(line) > 1000:
            continue
        start = _START.match(line)
        if start:
            facts += _close(env, names)
            env, names = Draft(document, "torch_env", f"torch {start['version']}", index, line), []
            env.put("version", start["version"], index, line)
            continue
        if env is None:
            continue
        gpu = _GPU.match(line)
        if gpu:
            names.append(gpu["name"])
            facts.append(_gpu(document, gpu, index, line))
            env.put("gpus", ", ".join(names)[:500], index, line)
            continue
        library = _LIBRARY.match(line)
        if library:
            facts.append(
                package(
                    document,
                    library["manager"],
                    library["name"],
                    library["version"],
                    index,
                    line,
                    library["build"] or "",
                )
            )
            continue
        pair = _PAIR.match(line)
        field = _PAIRS.get(pair["key"]) if pair else None
        if pair and field:
            _pair(env, field, pair["value"].strip(), index, line)
    return facts + _close(env, names)


def _gpu(document: Document, found: re.Match[str], index: int, line: str) -> Fact:
    draft = Draft(document, "gpu", found["index"], index, line)
    draft.put("tool", "collect_env")
    draft.put("index", int(found["index"]))
    draft.put("name", found["name"], index, line)
    capability = compute_capability(found["name"])
    if capability:
        draft.put("compute_capability", capability)
        draft.put("compute_family", f"sm_{capability.split('.')[0]}x")
    return draft.fact()


def _pair(env: Draft, field: str, value: str, index: int, line: str) -> None:
    if field in ("is_debug", "cuda_available", "xpu_available"):
        env.put(field, yes(value), index, line)
    elif field == "cuda_build" and value in ("None", "Could not collect", "N/A", "cpu"):
        env.put("cpu_build", True, index, line)
    elif not is_missing(value) and value != "Could not collect":
        if field == "driver":
            value = value.split("\\n")[0].strip()
        env.put(field, value[:200], index, line)


def _close(env: Draft | None, names: list[str]) -> list[Fact]:
    if env is None:
        return []
    version, cuda = str(env.fields["version"]), env.fields.get("cuda_build")
    without = env.fields.get("cpu_build") is True or env.fields.get("rocm_build") is not None
    torch_fields(env.fields, version, cuda if isinstance(cuda, str) else None, without)
    env.fields["gpu_count"] = len(names)
    facts = [env.fact()]
    driver = env.fields.get("driver")
    if isinstance(driver, str) and re.match(r"\d{3}\.", driver):
        found = Draft(env.document, "driver", "collect_env")
        found.lines[""] = env.lines["driver"]
        found.lines["version"] = env.lines["driver"]
        found.fields.update(version=driver, tool="collect_env")
        facts.append(found.fact())
    return facts


_COMMAND = re.compile(r"python[\d.]*\s+-c\s+['\"](?P<code>.{5,300})['\"]\s*$")
_ASKS = (
    ("torch.cuda.is_available()", "cuda_available"),
    ("torch.version.cuda", "cuda_build"),
    ("torch.__version__", "version"),
    ("torch.cuda.device_count()", "device_count"),
    ("torch.cuda.get_arch_list()", "arch_list"),
    ("torch.backends.cudnn.version()", "cudnn"),
    ("torch.cuda.get_device_capability()", "capability"),
    ("torch.cuda.nccl.version()", "nccl"),
)
_CALL = re.compile(r"print\((.*)\)\s*$")


def parse_prints(document: Document) -> list[Fact]:
    """Facts torch_env of `python -c 'import torch; print(...)'` and the line it printed."""
    facts: list[Fact] = []
    lines = document.lines()
    for index, line in enumerate(lines):
        command = _COMMAND.search(line) if "torch" in line and "-c" in line else None
        if not command or index + 1 >= len(lines):
            continue
        asked = sorted((at, field) for words, field in _ASKS if (at := command["code"].find(words)) >= 0)
        answer = lines[index + 1].strip()
        values = answer.split() if len(asked) > 1 else [answer]
        if not asked or len(values) != len(asked) or "Traceback" in answer or "Error" in answer:
            continue
        fields: dict[str, Scalar] = {}
        for (_, field), value in zip(asked, values, strict=True):
            if field == "cuda_available":
                fields[field] = yes(value)
            elif field == "cuda_build" and value == "None":
                fields["cpu_build"] = True
            elif field == "device_count":
                fields[field] = int(value) if value.isdecimal() and len(value) < 5 else None
            else:
                fields[field] = value[:200]
        version, cuda = fields.get("version"), fields.get("cuda_build")
        if isinstance(version, str):
            tag = version.split("+", 1)[1] if "+" in version else ""
            if tag.startswith("cpu"):
                fields["cpu_build"] = True
            torch_fields(fields, version, cuda if isinstance(cuda, str) else None, fields.get("cpu_build") is True)
        draft = Draft(document, "torch_env", "print", index + 1, lines[index + 1])
        draft.fields.update(fields)
        for name in fields:
            draft.lines[name] = document.at(index + 1, lines[index + 1])
        facts.append(draft.fact())
    return facts
