"""The command line. Starts fast: nothing heavy is imported before a command needs it."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from gpuclinic import __version__
from gpuclinic.cli._commands import BY_NAME, add_commands, parted

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_DONE, EXIT_CRITICAL, EXIT_UNKNOWN, EXIT_USAGE, EXIT_OURS, EXIT_INTERRUPTED = 0, 2, 3, 64, 70, 130
REPORT_TO = "https://github.com/gpuclinic/gpuclinic/issues"

WHY_EXAMPLES = """\
examples:
  gpuclinic why train.log                        one log
  gpuclinic why train.log dmesg.txt              what belongs together, together
  gpuclinic why logs/                            a folder of rank logs
  gpuclinic why nvidia-bug-report.log.gz         or any .gz .bz2 .xz .zst .tar.* .zip
  dmesg -T | gpuclinic why -                     standard input
  gpuclinic why --lang zh --oneline train.log    one sentence to paste into a chat, in Chinese
  gpuclinic why --json bundle.tar.gz             for programs
  gpuclinic why                                  on a terminal: this user's latest death, from what this machine recorded
  gpuclinic why --pid 41822                      a process that died, or that still runs and hangs
  gpuclinic why --job 771204                     a Slurm job; also a systemd unit, a container, "pod ml/train-0"
  gpuclinic why --since 2h                       everything of the last two hours; --until ends it ("2026-03-02 04:00", yesterday)
  gpuclinic why --pid 41822 train.log            both: the files and what this machine recorded
  gpuclinic why --host node17/ --pid 41822       the same question to a snapshot

exit status: 0 answered (whatever the answer), 3 nothing given could be read, 64 wrong command line, 70 a fault of gpuclinic
"""
CHECK_EXAMPLES = """\
examples:
  gpuclinic check                                is this server fit for work (two seconds)
  gpuclinic check --deep --seconds 30            looks harder: samples, counters twice, sensors, every boot, all mounts
  gpuclinic check --expect-gpus 8 --json         for programs: one JSON object as docs/contract.md says
  gpuclinic check --only gpu.ecc,pcie            some checks; --skip leaves some out, --list shows all
  gpuclinic check --host node17.tar.gz           a snapshot of another server

exit status: 0 fit, 1 a warning, 2 critical: put no work on it, 3 a required look was not possible, 64 wrong command line
"""
CAPTURE_EXAMPLES = """\
examples:
  gpuclinic capture                              a file gpuclinic-HOST-TIME.tar.gz here
  gpuclinic capture -o /tmp/node17.tar.gz --since 6h
  gpuclinic capture --deep --seconds 30          with samples, counters twice, sensors, every boot, all mounts
  gpuclinic capture --anonymise --mapping names.json    hosts, users, addresses, serials replaced; the key stays with you
  ssh node17 gpuclinic capture -o - > node17.tar.gz

then, on any machine:  gpuclinic check --host node17.tar.gz   and   gpuclinic why node17.tar.gz
exit status: 0 captured (whatever the verdict), 3 nothing could be read, 64 wrong command line
"""
COMPAT_EXAMPLES = """\
examples:
  gpuclinic compat --gpu "RTX 5090" --driver 570.133.07 --python 3.12 --want torch==2.6.0+cu124
  gpuclinic compat --gpu 8xH100 --driver 535.161.08 --want vllm==0.8.5 flash-attn==2.7.4.post1
  gpuclinic compat --gpu T4 --python 3.8 --cuda 11.2 --cudnn 8.1 --want tensorflow==2.6.0
  gpuclinic compat --gpu V100 --driver 470.182.03 --container-cuda 12.2 --want torch==2.1.0+cu121
  gpuclinic compat --gpu sm_90 --driver 550.54.15 --want @requirements.txt      also a lock file, pip freeze, conda list
  pip freeze | gpuclinic compat --gpu A100 --driver 450.80.02 --want -
  gpuclinic compat --gpu "RTX 5090" --driver 580.95.05      will what is installed here run on that (with --host SNAPSHOT: there)
  gpuclinic compat --knowledge                   how old the tables are, and from where (-v)

exit status: 0 works, 2 fails, 3 unknown (a rule or a row is missing), 64 wrong command line
"""
EXPLAIN_EXAMPLES = """\
examples:
  gpuclinic explain xid 79
  gpuclinic explain sxid 20034
  gpuclinic explain exit 137
  gpuclinic explain SIGKILL
  gpuclinic explain ncclSystemError
  gpuclinic explain CUDA_ERROR_INVALID_DEVICE
  gpuclinic explain hw.gpu.fallen_off_bus
  gpuclinic explain 'NVRM: Xid (PCI:0000:9a:00): 79, GPU has fallen off the bus.'
"""


class Parser(argparse.ArgumentParser):
    """argparse with the contract's exit code and one-line errors."""

    def error(self, message: str) -> NoReturn:
        """One line and exit 64."""
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def build_parser(wanted: str | None = None) -> argparse.ArgumentParser:
    """The whole command line. wanted: the command at hand, so that the options of some others need not be built."""
    parser = Parser(
        prog="gpuclinic",
        description="Finds out why processes on GPU servers die, hang or crawl: root cause, how sure, evidence, what to do now.",
        epilog="Start with:  gpuclinic why FILE-OR-FOLDER     and:  gpuclinic why --help",
    )
    parser.add_argument("--version", action="version", version=f"gpuclinic {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    raw = argparse.RawDescriptionHelpFormatter
    for name, (words, add) in _FIRST.items():
        if wanted in (None, name):
            add(commands, raw)
        else:
            commands.add_parser(name, help=words, add_help=False)
    add_commands(commands, raw, wanted)
    completion = commands.add_parser("completion", help="print the completion script of a shell")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    return parser


def _why_parser(commands: argparse._SubParsersAction[Parser], raw: type[argparse.HelpFormatter]) -> None:
    why = commands.add_parser(
        "why", help=_FIRST["why"][0], formatter_class=raw, epilog=WHY_EXAMPLES,
        description="Names the root cause from whatever files you have, or from what this machine recorded, "
        "with the lines that prove it and the one thing to do now.",
    )  # fmt: skip
    why.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="file, folder, archive, snapshot, or - for standard input; none: this machine",
    )
    why.add_argument(
        "--host", type=given, metavar="SNAPSHOT", help="a folder, an archive or a mounted disk's root to examine"
    )
    whom = why.add_mutually_exclusive_group()
    whom.add_argument("--pid", type=_pid, metavar="N", help="a process of this machine, dead or still there")
    whom.add_argument(
        "--job",
        type=given,
        metavar="ID",
        help="a Slurm id, a systemd unit, a container's id or name, or 'pod NAMESPACE/NAME'",
    )
    why.add_argument("--live", action="store_true", help="what this machine itself recorded, beside the files given")
    why.add_argument(
        "--since",
        type=given,
        metavar="WHEN",
        help="only from then on: 2h, 30m, today, yesterday, 04:00, '2026-03-02 04:00' (default: 24h)",
    )
    why.add_argument("--until", type=given, metavar="WHEN", help="only up to then")
    form = why.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object as docs/contract.md says")
    form.add_argument("--markdown", action="store_true", help="Markdown to paste into a ticket")
    form.add_argument("--oneline", action="store_true", help="one sentence to paste into a chat")
    _common(why)
    why.add_argument("-v", "--verbose", action="store_true", help="also the timeline and all that was read or not read")


def _check_parser(commands: argparse._SubParsersAction[Parser], raw: type[argparse.HelpFormatter]) -> None:
    check = commands.add_parser(
        "check", help=_FIRST["check"][0], formatter_class=raw, epilog=CHECK_EXAMPLES,
        description="Examines this server, or a snapshot of one, and says whether it is fit for work, what is wrong, and what to do.",
    )  # fmt: skip
    _how_hard(check, "look harder: sampling, sensors, every boot, all mounts")
    check.add_argument(
        "--only", action="append", type=_names, metavar="ID", help="only these checks (an id or its beginning; commas)"
    )
    check.add_argument("--skip", action="append", type=_names, metavar="ID", help="leave these out")
    check.add_argument(
        "--require",
        action="append",
        type=_names,
        metavar="ID",
        help="unknown, exit 3, where one of these cannot be looked at",
    )
    check.add_argument("--list", action="store_true", help="list all checks")
    _what_to_expect(check)
    check.add_argument(
        "--host", type=given, metavar="SNAPSHOT", help="a folder, an archive or a mounted disk's root to examine"
    )
    check.add_argument("--json", action="store_true", help="one JSON object as docs/contract.md says")
    _common(check)
    check.add_argument(
        "-v", "--verbose", action="store_true", help="also all that was looked at, and everything of each finding"
    )


def _how_hard(parser: argparse.ArgumentParser, deep: str) -> None:
    parser.add_argument("--deep", action="store_true", help=deep)
    parser.add_argument("--seconds", type=_seconds, metavar="N", help="sample for so long (default: 0, with --deep 10)")


def _what_to_expect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--expect-gpus", type=_count, metavar="N", help="how many GPUs there should be")
    parser.add_argument(
        "--psu-watts", type=_seconds, metavar="W", help="what the power supplies can give together, in watts"
    )


def _capture_parser(commands: argparse._SubParsersAction[Parser], raw: type[argparse.HelpFormatter]) -> None:
    capture = commands.add_parser(
        "capture", help=_FIRST["capture"][0], formatter_class=raw,
        epilog=CAPTURE_EXAMPLES,
        description="Examines this server as `check` does and packs every answer and the logs into one archive, secrets masked.",
    )  # fmt: skip
    capture.add_argument(
        "-o",
        "--output",
        type=given,
        metavar="FILE",
        help="archive (.tar.gz .tar.xz .tar), a folder (made if need be), or -",
    )
    capture.add_argument("--force", action="store_true", help="replace files that exist already")
    capture.add_argument(
        "--since",
        type=given,
        metavar="TIME",
        help="logs from then on: 2h, 30m, today, 04:00 (default: a day, as why looks back)",
    )
    _how_hard(capture, "look harder, as check --deep does")
    _what_to_expect(capture)
    capture.add_argument("--max-size", type=given, default="50M", metavar="SIZE", help="of the archive (default: 50M)")
    capture.add_argument(
        "--max-time",
        type=_seconds,
        default=180.0,
        metavar="N",
        help="seconds of asking besides --seconds (default: 180)",
    )
    capture.add_argument(
        "--anonymise",
        action="store_true",
        help="replace hosts, users, addresses, serials; the same by the same everywhere",
    )
    capture.add_argument(
        "--mapping", type=given, metavar="FILE", help="with --anonymise: write what was replaced by what, for you alone"
    )
    capture.add_argument("--host", type=given, metavar="SNAPSHOT", help="capture a snapshot again, as to anonymise it")
    _common(capture)
    capture.set_defaults(json=False)


def _compat_parser(commands: argparse._SubParsersAction[Parser], raw: type[argparse.HelpFormatter]) -> None:
    compat = commands.add_parser(
        "compat", help=_FIRST["compat"][0], formatter_class=raw,
        epilog=COMPAT_EXAMPLES,
        description="Judges packages, GPU, driver, Python, kernel and container by NVIDIA's and the frameworks' own rules, offline, for any machine.",
    )  # fmt: skip
    compat.add_argument(
        "--gpu",
        type=given,
        metavar="NAME",
        help='a product name ("8xH100", "RTX 4090"), a PCI id, or a capability (sm_90)',
    )
    compat.add_argument("--driver", type=given, metavar="V", help="the NVIDIA driver's version")
    compat.add_argument("--python", type=given, metavar="V", help="3.11")
    compat.add_argument("--kernel", type=given, metavar="V", help="uname -r")
    compat.add_argument("--glibc", type=given, metavar="V", help="2.31")
    compat.add_argument("--cuda", type=given, metavar="V", help="the system's CUDA toolkit")
    compat.add_argument("--cudnn", type=given, metavar="V", help="the system's cuDNN")
    compat.add_argument("--container-cuda", type=given, metavar="V", help="the CUDA version of the container image")
    compat.add_argument("--machine", type=given, metavar="M", help="x86_64 or aarch64")
    compat.add_argument("--module", type=given, metavar="FLAVOUR", help="the kernel module: open or proprietary")
    compat.add_argument("--env", action="append", type=given, metavar="NAME=VALUE", help="LD_LIBRARY_PATH and the like")
    compat.add_argument(
        "--want",
        action="append",
        nargs="+",
        type=given,
        metavar="REQUIREMENT",
        help="pip requirements, wheel file names, @FILE (requirements, lock, pip freeze, conda list, an image's environment), -",
    )
    compat.add_argument(
        "--host", type=given, metavar="SNAPSHOT", help="a folder, an archive or a mounted disk's root to examine"
    )
    compat.add_argument("--knowledge", action="store_true", help="how old the tables are, and their sources")
    compat.add_argument("--json", action="store_true", help="one JSON object as docs/contract.md says")
    _common(compat)
    compat.add_argument(
        "-v", "--verbose", action="store_true", help="also the sources, and all that could not be judged"
    )


def _explain_parser(commands: argparse._SubParsersAction[Parser], raw: type[argparse.HelpFormatter]) -> None:
    explain = commands.add_parser(
        "explain", help=_FIRST["explain"][0], formatter_class=raw, epilog=EXPLAIN_EXAMPLES,
        description="Explains a code, an error name, a cause id or a pasted log line.",
    )  # fmt: skip
    explain.add_argument("topic", nargs="+", metavar="TOPIC")
    explain.add_argument("--json", action="store_true", help="one JSON object as docs/contract.md says")
    _common(explain)


_FIRST = {
    "why": ("name the root cause from logs, bundles and tool output", _why_parser),
    "check": ("say whether this server is fit for work", _check_parser),
    "capture": ("pack what this server answers, so that someone elsewhere gets the same answer", _capture_parser),
    "compat": ("say whether software runs on a GPU and driver, and what to install instead", _compat_parser),
    "explain": ("what an Xid, an exit code, an error name, a cause or a pasted line means", _explain_parser),
}
"""Commands whose options are made here: what each is for, and who makes them."""


def given(text: str) -> str:
    """The value of an option, which was not left empty: an unset variable of a script must not become another question."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the value is empty")
    return text


def _names(text: str) -> str:
    if not any(name.strip() for name in text.split(",")):
        raise argparse.ArgumentTypeError("names nothing")
    return text


def _pid(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 22:
        raise argparse.ArgumentTypeError(f"not a process number: {text}")
    return int(text)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"not a sensible number: {text}")
    return value


def _count(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 1024:
        raise argparse.ArgumentTypeError(f"not a sensible number of GPUs: {text}")
    return value


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lang", choices=("en", "zh"), help="language of the answer (default: from the locale; English under --json)"
    )
    parser.add_argument("--no-color", action="store_true", help="no colours (also: NO_COLOR in the environment)")


def chosen_language(options: argparse.Namespace) -> str:
    """--lang, else English for programs, else the locale's."""
    if options.lang:
        return str(options.lang)
    if options.json:
        return "en"
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name)
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


def entry(begin: Callable[[], None] | None = None) -> NoReturn:
    """Maps every end to an exit code of the contract. begin: called first; the console script's, which has switched Ctrl-C until then."""
    if sys.stdout is None:  # closed by the caller: the exit code is all that can be told
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - stands in for the stream until the end
    try:
        if begin is not None:
            begin()
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        leads_nowhere()
        code = EXIT_DONE
    except MemoryError:
        complain("out of memory")
        code = EXIT_OURS
    except Exception as problem:  # noqa: BLE001 - the last door: named, reported, exit 70
        code = _failed(problem)
    if begin is not None:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said: no traceback while the interpreter leaves
    sys.exit(code)


def working_folder() -> str:
    """The folder in which we were started; "" where it has been deleted since."""
    try:
        return os.getcwd()  # noqa: PTH109 - pathlib would be imported for this alone
    except OSError:
        return ""


def home_folder() -> str:
    """This user's home; "" for one who has none."""
    home = os.path.expanduser("~")  # noqa: PTH111 - as above
    return home if home.startswith("/") else ""


def leads_nowhere() -> None:
    """Standard output leads nowhere from here on, so that nothing fails at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def told(text: str, code: int) -> int:
    """Writes the answer, all of it, and returns its exit code.

    Where it cannot be written, for want of space or the like, nobody has an answer: unknown, unless it was critical, which is worse.
    A reader who went away is no fault, and the code stays what the answer is.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        leads_nowhere()
    except OSError as problem:
        leads_nowhere()
        complain(f"the answer could not be written: {problem.strerror or problem}")
        return EXIT_CRITICAL if code == EXIT_CRITICAL else EXIT_UNKNOWN
    return code


def complain(text: str) -> None:
    """One line on standard error, where there is one; secrets masked."""
    from gpuclinic.report.masking import mask

    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"gpuclinic: {mask(text)}\n")


def _failed(problem: Exception) -> int:
    """Says what went wrong, in one line; returns the exit code. Under GPUCLINIC_DEBUG the error goes on."""
    from gpuclinic.model import CouldNotError, UserError

    if isinstance(problem, UserError):
        complain(str(problem))
        return EXIT_UNKNOWN if isinstance(problem, CouldNotError) else EXIT_USAGE
    if os.environ.get("GPUCLINIC_DEBUG"):
        raise problem
    where = problem.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    file = where.tb_frame.f_code.co_filename if where else "?"
    if isinstance(problem, OSError) and file.endswith(("cli/main.py", "cli/why.py", "cli/explain.py")):
        leads_nowhere()
        complain(f"the answer could not be written: {problem.strerror or problem}")
        return EXIT_UNKNOWN
    complain(
        f"a fault of gpuclinic itself ({type(problem).__name__} at {file.rsplit('/', 1)[-1]}:{where.tb_lineno if where else 0}: "
        f"{str(problem)[:200]}); please report it at {REPORT_TO} (GPUCLINIC_DEBUG=1 shows more)"
    )
    return EXIT_OURS


def main(arguments: list[str]) -> int:
    """Runs a command; returns the exit code of docs/contract.md."""
    parser = build_parser(next((word for word in arguments if not word.startswith("-")), ""))
    own, rest = parted(arguments)
    try:
        options = parser.parse_args(own)
    except SystemExit as end:
        if rest is not None and end.code == EXIT_USAGE:
            raise SystemExit(BY_NAME[own[0]].failed if own[0] in BY_NAME else EXIT_USAGE) from None
        raise
    options.words = rest
    if options.command is None:
        parser.print_help()
        return EXIT_USAGE
    if options.command == "why":
        from gpuclinic.cli.why import run_why

        return run_why(options)
    if options.command == "check":
        from gpuclinic.cli.check import run_check

        return run_check(options)
    if options.command == "capture":
        from gpuclinic.cli.capture import run_capture

        return run_capture(options)
    if options.command == "compat":
        from gpuclinic.cli.compat import run_compat

        return run_compat(options)
    if options.command == "explain":
        from gpuclinic.cli.explain import run_explain

        return run_explain(options)
    if options.command in BY_NAME:
        return BY_NAME[options.command].run(options)
    from gpuclinic.cli.completion import script

    return told(script(options.shell), EXIT_DONE)
