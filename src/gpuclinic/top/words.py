"""Texts of the screen in both languages, and how numbers are written in few columns."""

from __future__ import annotations

WORDS: dict[str, dict[str, str]] = {
    "en": {
        "gpu": "GPU", "name": "NAME", "util": "UTIL", "memory": "MEMORY", "temp": "TEMP", "power": "POWER", "clock": "SM MHz", "limit": "RUNS INTO",
        "pcie": "PCIe rx/tx", "nvlink": "NVLink rx/tx", "mem_temp": "MEM°", "mem_clock": "MEM MHz", "link": "LINK", "ecc": "ECC", "fan": "FAN",
        "pid": "PID", "user": "USER", "where": "JOB/CONTAINER", "vram": "VRAM", "gpu_pct": "GPU%", "cpu_pct": "CPU%", "rss": "RAM", "age": "AGE",
        "visible": "VISIBLE", "command": "COMMAND", "gpus": "GPU",
        "cpu": "CPU", "load": "load", "ram": "RAM", "swap": "swap", "pressure": "pressure cpu/io/mem", "driver": "driver", "cuda": "CUDA",
        "agent_on": "agent runs", "agent_off": "no agent", "lost": "lost", "unread": "unreadable", "hung": "hung",
        "no_gpu": "No GPU can be read.", "waiting": "first sample ...",
        "no_findings": "no findings", "findings": "FINDINGS", "processes": "PROCESSES", "no_processes": "no process on a GPU",
        "all": "all GPUs, mean", "paused": "PAUSED", "filter": "filter", "search": "search", "past": "last", "critical": "critical",
        "warning": "warning", "info": "info", "since": "since", "zombie": "zombie", "hidden": "hidden", "stopped": "stopped",
        "waiting_d": "waits (D)",
        "opens": "opened, not used", "leftover": "leftover worker", "nobody": "memory that no visible process holds", "gap": "not looked at",
        "sort": "sort", "mig": "MIG", "events": "since the start",
        "g_util": "utilization %", "g_memory": "memory %", "g_power": "power W", "g_temp": "temperature °C",
        "cause": "cause", "evidence": "evidence", "do": "do", "explains": "explains", "close": "Esc closes", "no_data": "nothing yet",
        "kill_ask": "Send {signal} to process {pid} of {user}?", "kill_keys": "y yes   n no   other signal: 1 HUP  2 INT  3 QUIT  9 KILL  0 TERM",
        "nice_ask": "Set nice {nice} for process {pid} of {user}?", "nice_keys": "y yes   n no",
        "sort_ask": "Sort processes by", "narrow": "too small: at least 40x10",
        "yes_done": "{signal} sent to {pid}", "nice_done": "nice {nice} set for {pid}",
        "bar": "?help q quit Tab zone Enter more / filter F6 sort t tree k kill g graphs z pause",
    },
    "zh": {
        "gpu": "GPU", "name": "型号", "util": "利用率", "memory": "显存", "temp": "温度", "power": "功率", "clock": "SM MHz", "limit": "当前受限于",
        "pcie": "PCIe 收/发", "nvlink": "NVLink 收/发", "mem_temp": "显存°", "mem_clock": "显存MHz", "link": "链路", "ecc": "ECC", "fan": "风扇",
        "pid": "PID", "user": "用户", "where": "作业/容器", "vram": "显存", "gpu_pct": "GPU%", "cpu_pct": "CPU%", "rss": "内存", "age": "时长",
        "visible": "可见设备", "command": "命令", "gpus": "GPU",
        "cpu": "CPU", "load": "负载", "ram": "内存", "swap": "交换", "pressure": "压力 cpu/io/内存", "driver": "驱动", "cuda": "CUDA",
        "agent_on": "agent 运行中", "agent_off": "无 agent", "lost": "失联", "unread": "无法读取", "hung": "无响应",
        "no_gpu": "没有可读取的 GPU。", "waiting": "正在取第一个样本 ...",
        "no_findings": "没有发现", "findings": "发现", "processes": "进程", "no_processes": "没有进程使用 GPU",
        "all": "全部 GPU 平均", "paused": "已暂停", "filter": "过滤", "search": "查找", "past": "最近", "critical": "严重",
        "warning": "警告", "info": "提示", "since": "始于", "zombie": "僵尸", "hidden": "不可见", "stopped": "已停止", "waiting_d": "等待中 (D)",
        "opens": "已打开未使用", "leftover": "残留工作进程", "nobody": "无可见进程占用的显存", "gap": "未能查看",
        "sort": "排序", "mig": "MIG", "events": "启动以来的事件",
        "g_util": "利用率 %", "g_memory": "显存 %", "g_power": "功率 W", "g_temp": "温度 °C",
        "cause": "原因", "evidence": "证据", "do": "处理", "explains": "同时解释", "close": "Esc 关闭", "no_data": "暂无数据",
        "kill_ask": "向 {user} 的进程 {pid} 发送 {signal}？", "kill_keys": "y 是   n 否   其他信号：1 HUP  2 INT  3 QUIT  9 KILL  0 TERM",
        "nice_ask": "将 {user} 的进程 {pid} 的 nice 设为 {nice}？", "nice_keys": "y 是   n 否",
        "sort_ask": "进程排序依据", "narrow": "窗口太小：至少 40x10",
        "yes_done": "已向 {pid} 发送 {signal}", "nice_done": "已将 {pid} 的 nice 设为 {nice}",
        "bar": "?帮助 q退出 Tab区域 Enter详情 /过滤 F6排序 t树 k结束 g图 z暂停",
    },
}  # fmt: skip

HELP: dict[str, list[tuple[str, str]]] = {
    "en": [
        ("Tab, click", "zone: devices, findings, processes"), ("↑ ↓ PgUp PgDn Home End, wheel", "move in it"),
        ("Enter", "of a finding: cause, evidence, steps; of a GPU: only its processes; of a process: all of it"),
        ("/  F4", "filter processes: words of command, user, job, pid"), ("F3  n", "search; next match"),
        ("F6  P M T G N", "sort; by CPU, VRAM, age, GPU %, pid"), ("I", "turn the order round"), ("t  F5", "tree"),
        ("u", "processes of this user only"), ("a  Esc", "everything again"), ("k  F9", "send a signal (asks first)"),
        ("F7 F8  [ ]", "nicer, less nice (asks first)"), ("g", "graphs on, off"), ("+  -", "graphs: shorter, longer time"),
        ("z  Space", "pause"), ("c", "colours: dark, light, high contrast"), ("l", "English, 中文"),
        ("i", "events, and what could not be looked at"), ("q  F10  Ctrl-C", "quit"),
    ],
    "zh": [
        ("Tab、单击", "切换区域：设备、发现、进程"), ("↑ ↓ PgUp PgDn Home End、滚轮", "在区域内移动"),
        ("Enter", "发现：原因、证据、步骤；GPU：只看它的进程；进程：全部信息"),
        ("/  F4", "过滤进程：命令、用户、作业、pid 中的词"), ("F3  n", "查找；下一个"),
        ("F6  P M T G N", "排序；按 CPU、显存、时长、GPU %、pid"), ("I", "反转顺序"), ("t  F5", "树"),
        ("u", "只看该用户的进程"), ("a  Esc", "恢复全部"), ("k  F9", "发送信号（先确认）"),
        ("F7 F8  [ ]", "提高、降低 nice（先确认）"), ("g", "显示或隐藏图"), ("+  -", "图：更短、更长时间"),
        ("z  空格", "暂停"), ("c", "配色：深色、浅色、高对比度"), ("l", "English、中文"),
        ("i", "事件，以及未能查看的内容"), ("q  F10  Ctrl-C", "退出"),
    ],
}  # fmt: skip


def size_text(mib: float | None) -> str:
    """A size in at most 5 columns: 512M, 59.6G, 1.95T."""
    if mib is None:
        return "-"
    for unit, parts in (("M", 1.0), ("G", 1024.0), ("T", 1024.0 * 1024)):
        value = mib / parts
        if value < 1000 or unit == "T":
            return f"{value:.0f}{unit}" if unit == "M" or value >= 100 else f"{value:.1f}{unit}"
    return "-"


def rate_text(kbs: float | None) -> str:
    """A rate in at most 4 columns: 0, 12M, 1.2G (bytes a second)."""
    if kbs is None:
        return "-"
    if kbs < 1000:
        return f"{kbs:.0f}k" if kbs else "0"
    if kbs < 999_500:
        return f"{kbs / 1e3:.0f}M"
    return f"{kbs / 1e6:.1f}G" if kbs < 9.95e6 else f"{kbs / 1e6:.0f}G"


def age_text(seconds: float | None) -> str:
    """An age in at most 6 columns: 45s, 12m, 3h05m, 2d04h."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    days = whole // 86400
    return f"{days}d{whole % 86400 // 3600:02}h" if days < 100 else f"{days}d"


def whole(value: float | None) -> str:
    """A number without decimals; "-" where there is none."""
    return f"{value:.0f}" if value is not None else "-"
