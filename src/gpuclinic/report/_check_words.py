"""The words of the check's report, in both languages. A test keeps the two tables in step."""

from __future__ import annotations

import re

EN: dict[str, str] = {
    "verdict.ok": "FIT FOR WORK",
    "verdict.warning": "WARNING",
    "verdict.critical": "CRITICAL",
    "verdict.unknown": "UNKNOWN",
    "text.ok": "Nothing is wrong with what was looked at.",
    "text.ok.limited": "Nothing is wrong with what could be looked at; looks that were not possible: {count} (below).",
    "text.warning": "The server can go on working; have a look at this.",
    "text.critical": "Put no work on this server until this is repaired.",
    "text.unknown": "A look that is required was not possible, so nothing can be promised.",
    "text.no_gpu": "No GPU here: no NVIDIA device stands on the PCI bus, and none was expected (--expect-gpus N says otherwise).",
    "critical": "CRITICAL",
    "warning": "WARNING",
    "info": "INFO",
    "colon": ": ",
    "time_unknown": "time not known",
    "now": "DO NOW",
    "then": "If that is not enough, in this order",
    "expected": "found {observed}, expected {expected}",
    "observed": "found {observed}",
    "implies": "This explains also: {ids}",
    "alike": "Likewise {count} more: {subjects}",
    "driver": "driver",
    "not_looked": "Not looked at",
    "required": "required",
    "looked": "Looked at ({count})",
    "foot": "{host}: {count} checks in {seconds:.1f} s. gpuclinic explain {id} says more; -v shows all that was looked at.",
    "foot.clean": "{host}: {count} checks in {seconds:.1f} s; -v shows all that was looked at; --deep looks harder (sensors, counters).",
    "more": "and {count} more of the evidence (-v)",
    "more.info": "and {count} notes that are no faults (-v)",
    "holders": "Who holds the GPUs ({count} processes)",
    "holders.row": "GPU {gpus}: {mib} MiB, pid {pid}, {user}, {program}",
    "holders.zombie": "zombie",
    "holders.orphan": "its parent is gone",
    "holders.open": "has it open, not named by NVML",
    "list.looks": "What is looked at (for --only, --skip, --require)",
    "list.deep": "only with --deep",
    "list.checks": "What can be found",
}
ZH: dict[str, str] = {
    "verdict.ok": "可以正常使用",
    "verdict.warning": "警告",
    "verdict.critical": "严重",
    "verdict.unknown": "无法判断",
    "text.ok": "已检查的各项均正常。",
    "text.ok.limited": "能检查到的各项均正常；另有 {count} 项未能检查（见下）。",
    "text.warning": "服务器可继续使用，但以下问题需要关注。",
    "text.critical": "修复之前不要再往这台服务器上调度任务。",
    "text.unknown": "有必查项未能检查，无法给出结论。",
    "text.no_gpu": "本机没有 GPU：PCI 总线上没有 NVIDIA 设备，也没有声明应有的数量（可用 --expect-gpus N 指定）。",
    "critical": "严重",
    "warning": "警告",
    "info": "提示",
    "colon": "：",
    "time_unknown": "时间未知",
    "now": "立即处理",
    "then": "若仍未解决，依次执行",
    "expected": "实际 {observed}，应为 {expected}",
    "observed": "实际 {observed}",
    "implies": "同时解释了：{ids}",
    "alike": "另有 {count} 处相同：{subjects}",
    "driver": "驱动",
    "not_looked": "未能检查",
    "required": "必查项",
    "looked": "已检查（{count} 项）",
    "foot": "{host}：{count} 项检查，用时 {seconds:.1f} 秒。gpuclinic explain {id} 查看说明；-v 列出全部检查项。",
    "foot.clean": "{host}：{count} 项检查，用时 {seconds:.1f} 秒；-v 列出全部检查项；--deep 深入检查（传感器、计数器、历次启动）。",
    "more": "另有 {count} 行证据（-v）",
    "more.info": "另有 {count} 条非故障提示（-v）",
    "holders": "占用 GPU 的进程（{count} 个）",
    "holders.row": "GPU {gpus}：{mib} MiB，pid {pid}，{user}，{program}",
    "holders.zombie": "僵尸进程",
    "holders.orphan": "父进程已退出",
    "holders.open": "已打开该卡，但 NVML 未列出",
    "list.looks": "检查对象（可用于 --only、--skip、--require）",
    "list.deep": "仅 --deep 时检查",
    "list.checks": "可能发现的问题",
}


UNITS_ZH: dict[str, str] = {
    "GPUs": "块 GPU", "GPUs expected": "块 GPU（应有）", "GPUs in the inventory": "块 GPU（资产清单）", "MiB since boot": "MiB（开机以来）",
    "NVSwitches": "个 NVSwitch", "PCIe generation": "代 PCIe", "banks without spare rows": "个 bank 无备用行", "bit errors per bit": "（误码率）",
    "bytes": "字节", "clients": "个客户端", "disks": "块盘", "errors": "个错误", "files": "个文件", "instances": "个实例", "jobs": "个作业",
    "libraries": "个库",
    "lanes": "lane", "links": "条链路", "ms since boot": "ms（开机以来）", "packets": "个包", "packets since boot": "个包（开机以来）",
    "pages": "页", "periods": "个周期", "processes": "个进程", "processes and threads": "个进程和线程",
    "processes since boot": "个进程（开机以来）", "processors": "个处理器", "readings": "个读数", "replays": "次重放", "requests": "个请求",
    "requests since mounting": "个请求（挂载以来）", "rows": "行", "s": "秒",
    "s since boot": "秒（开机以来）", "s since it started": "秒（启动以来）",
    "s without an answer": "秒无应答", "segments since boot": "个报文段（开机以来）", "servers": "台服务器", "since boot": "（开机以来）",
    "tasks": "个任务", "times": "次", "times since boot": "次（开机以来）", "zombies": "个僵尸进程",
}  # fmt: skip
"""Units that are words; symbols (MiB, W, °C, Gb/s) stay as they are. A test looks that every row's unit is here or a symbol."""


def unit_words(unit: str, lang: str) -> str:
    """A unit in a language."""
    return UNITS_ZH.get(unit, unit) if lang == "zh" else unit


def plain_title(template: str) -> str:
    """A row's title without its places, for lists and explanations."""
    return (
        " ".join(re.sub(r"\s*[(（]?\{\w+\}[)）]?", " …", template).split())
        .replace(" …：", " …：")
        .replace(" … …", " …")
    )


def check_words(lang: str) -> dict[str, str]:
    """The table of a language."""
    return ZH if lang == "zh" else EN
