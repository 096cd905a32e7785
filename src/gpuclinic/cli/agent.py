"""`gpuclinic agent`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gpuclinic.cli.main import EXIT_DONE, chosen_language, given, told
from gpuclinic.model import CouldNotError

if TYPE_CHECKING:
    import argparse

    from gpuclinic.model import Fact, Tick
    from gpuclinic.watch.config import Config
    from gpuclinic.watch.sampling import Sampler

DESCRIPTION = (
    "Samples this server's GPUs, host, kernel log and dying processes, keeps what it sees, judges it and tells. "
    "Runs in the foreground until SIGTERM or Ctrl-C; SIGHUP reads the configuration again."
)
EXAMPLES = """\
examples:
  gpuclinic agent                                runs; a service manager's READY and WATCHDOG are served
  gpuclinic agent --check-config --config F      is the configuration right
  gpuclinic agent --once                         one sample, the GPUs in a few lines; nothing is kept
  gpuclinic agent --once --json                  the whole sample, for programs
  gpuclinic agent install --dry-run              every file and command that would make it a service; without --dry-run it asks first
  gpuclinic agent uninstall                      takes the service away; configuration and history stay

exit status: 0 ended as asked, 3 it runs already or its folder cannot be used, 64 wrong command line or configuration
"""
_SETTLE_S = 20.0
_BETWEEN_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "do", nargs="?", choices=("run", "install", "uninstall"), default="run", metavar="install|uninstall",
        help="make the agent a service of systemd, or take it away; without it the agent runs",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="with install: print every file and command, do nothing")
    parser.add_argument(
        "--prefix", type=given, metavar="FOLDER", help="with install: a folder in place of /; nothing is run"
    )
    parser.add_argument(
        "--program",
        type=given,
        metavar="PATH",
        help="with install: the program that the unit starts (default: this one)",
    )
    parser.add_argument("--yes", action="store_true", help="with install: do not ask")
    parser.add_argument(
        "--config", type=given, metavar="FILE", help="configuration (default: /etc/gpuclinic/agent.toml)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--once", action="store_true", help="take one sample, print it, keep nothing")
    what.add_argument("--check-config", action="store_true", help="read the configuration, say whether it is right")
    parser.add_argument("--json", action="store_true", help="with --once: one JSON object, a Tick of docs/watch.md")
    parser.add_argument("--lang", choices=("en", "zh"), help="language of --once and --check-config")


def run(options: argparse.Namespace) -> int:
    """Runs the agent, or what stands in for it."""
    if options.do != "run":
        return _install(options)
    from gpuclinic.watch.config import load_config

    config, path = load_config(options.config)
    root = os.environ.get("GPUCLINIC_ROOT", "").rstrip("/")
    if options.check_config:
        return told(_checked(str(path) if path is not None else None, chosen_language(options)), EXIT_DONE)
    if options.once:
        from gpuclinic.watch.sampling import Sampler

        sampler = Sampler(config.sampling, root)
        try:
            return told(_once(sampler, options), EXIT_DONE)
        finally:
            sampler.close()
    from gpuclinic.store import runtime_state_folder
    from gpuclinic.watch._service import Signals
    from gpuclinic.watch.agent import Agent, Parts, to_stderr
    from gpuclinic.watch.assembly import Assembly

    def build(config: Config, boot: str) -> Parts:
        return Assembly(config, to_stderr, boot).parts()

    agent = Agent(config, path, runtime_state_folder(), build, root)
    agent.run(Signals())
    return EXIT_DONE


def _install(options: argparse.Namespace) -> int:
    """Shows the plan, asks, does it."""
    from pathlib import Path

    from gpuclinic.watch import installing

    lang = chosen_language(options)
    prefix = str(Path(options.prefix).resolve()) if options.prefix else ""
    steps = (
        installing.install_plan(prefix, options.program)
        if options.do == "install"
        else installing.uninstall_plan(prefix)
    )
    sys.stdout.write(installing.shown(steps, lang))
    if options.dry_run:
        return EXIT_DONE
    if not prefix and not installing.may_install():
        raise CouldNotError(
            "only root may install a service; --dry-run shows what it would do, --prefix writes elsewhere"
        )
    if not options.yes and not _agreed(lang):
        sys.stdout.write("未做任何改动\n" if lang == "zh" else "nothing was done\n")
        return EXIT_DONE
    installing.carry_out(steps)
    sys.stdout.write("完成\n" if lang == "zh" else "done\n")
    return EXIT_DONE


def _agreed(lang: str) -> bool:
    if not sys.stdin.isatty():
        raise CouldNotError("nobody is there to be asked; --yes does it without")
    sys.stdout.write("执行以上操作？[y/N] " if lang == "zh" else "Do this? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes", "是")


def _checked(path: str | None, lang: str) -> str:
    if path is None:
        return "没有配置文件，使用默认值\n" if lang == "zh" else "no configuration file: the defaults hold\n"
    return f"{path}：正确\n" if lang == "zh" else f"{path}: right\n"


def _once(sampler: Sampler, options: argparse.Namespace) -> str:
    """A sample with everything in it: rates need two readings, and looks at the host their time."""
    import time

    import msgspec

    first = sampler.tick()
    sampler.settle(_SETTLE_S)
    time.sleep(max(0.0, first.mono + _BETWEEN_S - time.monotonic()))
    tick = sampler.tick()
    tick.events = [*first.events, *tick.events]
    if options.json:
        return msgspec.json.encode(tick).decode() + "\n"
    return _summary(tick, chosen_language(options))


def _summary(tick: Tick, lang: str) -> str:
    lines = [_gpu_line(fact, lang) for fact in tick.facts if fact.kind == "gpu"]
    if not lines:
        lines = ["没有可读取的 GPU" if lang == "zh" else "no GPU can be read"]
    label = "未能查看" if lang == "zh" else "not looked at"
    lines += [f"{label}: {gap.check}: {gap.why}" for gap in tick.gaps]
    lines += [f"{event.kind}: {event.text}" for event in tick.events]
    return "\n".join(lines) + "\n"


def _gpu_line(fact: Fact, lang: str) -> str:
    from gpuclinic.watch.state import trouble_of

    fields = fact.fields
    name = f"GPU {fields.get('index')} {fact.key} {fields.get('name') or ''}".rstrip()
    trouble = trouble_of(fact)
    if trouble is not None:
        return f"{name}: {trouble}"
    words = ("利用率", "显存", "温度", "功率") if lang == "zh" else ("busy", "memory", "temperature", "power")
    shown = (
        (words[0], "utilization_pct", " %"), (words[1], "memory_used_mib", " MiB"), (words[2], "temperature_c", " °C"),
        (words[3], "power_w", " W"),
    )  # fmt: skip
    parts = [
        f"{word} {fields[field]:g}{unit}" for word, field, unit in shown if isinstance(fields.get(field), int | float)
    ]
    active = fields.get("throttle_active")
    return f"{name}: {', '.join(parts)}" + (f" ({active})" if active and active != "Idle" else "")
