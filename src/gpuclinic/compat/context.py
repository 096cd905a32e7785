"""What a question tells, read once: GPUs, driver, Python, machine, libraries, variables and the packages that are wanted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.compat.gpus import Card, cards_of
from gpuclinic.compat.listings import Listing, read_listing
from gpuclinic.compat.versions import Numbers, numbers, two
from gpuclinic.compat.wants import NotReadError, Wanted, parse_want
from gpuclinic.knowledge.compat import tables

if TYPE_CHECKING:
    from gpuclinic.compat.question import Question

_MACHINES = {
    "x86_64": "x86_64",
    "amd64": "x86_64",
    "x64": "x86_64",
    "aarch64": "aarch64",
    "arm64": "aarch64",
    "arm64-sbsa": "aarch64",
    "sbsa": "aarch64",
}


class Context(msgspec.Struct):
    """unknown_gpus: parts of the GPU's text that no table knows. index: the tag of a PyTorch index that a listing names.

    python: "3.10", with "t" for a free-threaded one. machine: as it was given or as the GPU implies, else x86_64; machine_given tells.
    """

    cards: list[Card]
    unknown_gpus: list[str]
    driver: Numbers
    driver_text: str
    python: str
    python_full: str
    kernel: str
    glibc: Numbers
    cuda: str
    cudnn: str
    container_cuda: str
    machine: str
    machine_given: bool
    module: str
    variables: dict[str, str]
    wanted: list[Wanted]
    index: str
    installed: bool
    of_host: bool
    not_read: list[str]
    bad: list[str]

    @property
    def gpu_wanted(self) -> bool:
        """Whether anything was said that only matters where a GPU is used."""
        return bool(self.cards or self.unknown_gpus or self.driver)

    @property
    def driver_cuda(self) -> str:
        """The CUDA release that the driver itself brings; "" where not known."""
        return cuda_of_driver(self.driver)


def cuda_of_driver(driver: Numbers) -> str:
    """The CUDA release of a driver: the newest whose toolkit driver it reaches within its branch, by the branch table."""
    if not driver:
        return ""
    best = ""
    for row in tables().branches:
        if numbers(row.branch)[:1] <= driver[:1] and (not best or numbers(row.cuda) > numbers(best)):
            best = row.cuda
    return best


def newest_branch() -> int:
    """The newest driver branch that the tables know."""
    return max(numbers(row.branch)[0] for row in tables().branches)


def context_of(question: Question) -> Context:
    """Reads a question. What cannot be read is in `bad` and `not_read`."""
    bad: list[str] = []
    cards, unknown_gpus = cards_of(question.gpu) if question.gpu and question.gpu.strip() else ([], [])
    machine = _MACHINES.get((question.machine or "").strip().lower(), (question.machine or "").strip().lower())
    if not machine:
        machine = next((card.machine for card in cards if card.machine), "x86_64")
    full = re.sub(r"^\s*(?:python|cpython|cp|py)?\s*", "", (question.python or "").lower())
    python = _python(full)
    if question.python and not python:
        bad.append(f"python {question.python}")
    driver = numbers(question.driver or "")
    if question.driver and not driver:
        bad.append(f"driver {question.driver}")
    surroundings = _surroundings(python, full, machine)
    variables = dict(part.split("=", 1) for part in question.env if "=" in part)
    context = Context(
        cards=cards,
        unknown_gpus=unknown_gpus,
        driver=driver,
        driver_text=(question.driver or "").strip(),
        python=python,
        python_full=full,
        kernel=(question.kernel or "").strip(),
        glibc=numbers(_digits(question.glibc)),
        cuda=two(_digits(question.cuda)),
        cudnn=".".join(map(str, numbers(_digits(question.cudnn)))),
        container_cuda=two(_digits(question.container_cuda)),
        machine=machine,
        machine_given=bool(question.machine) or any(card.machine for card in cards),
        module=(question.module or "").strip().lower(),
        variables=variables,
        wanted=[],
        index="",
        installed=question.installed,
        of_host=question.of_host,
        not_read=[],
        bad=bad,
    )
    for text in question.want:
        _read_want(text, context, surroundings)
    return context


def _digits(text: str | None) -> str:
    return re.sub(r"^\D*", "", text or "")


def _python(text: str) -> str:
    found = re.match(r"(\d)\.(\d{1,2})(?:\.\d+)?\w*?(t)?$", text) or re.match(r"(\d)(\d{1,2})()(t)?$", text)
    return f"{found[1]}.{found[2]}{'t' if text.endswith('t') else ''}" if found else ""


def _surroundings(python: str, full: str, machine: str) -> dict[str, str]:
    """What markers are judged by."""
    plain = python.rstrip("t") or "3.11"
    return {
        "python_version": plain, "python_full_version": full if full.count(".") == 2 else plain + ".9", "platform_machine": machine,
        "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "implementation_name": "cpython",
        "platform_python_implementation": "CPython", "platform_release": "", "platform_version": "", "implementation_version": plain + ".9",
    }  # fmt: skip


def _read_want(text: str, context: Context, surroundings: dict[str, str]) -> None:
    """One value of --want: a requirement, or a whole listing."""
    stripped = text.strip()
    if not stripped:
        return
    if (
        "\n" not in stripped
        and not re.match(r"^(?:-|[A-Z][A-Z0-9_]+=|pip\d? |\{)", stripped)
        and "/" not in stripped.split("@", 1)[0]
    ):
        try:
            wanted = parse_want(stripped, surroundings)
        except NotReadError:
            pass
        else:
            if wanted.applies:
                context.wanted.append(wanted)
            return
    _take(read_listing(text, surroundings), context)


def _take(listing: Listing, context: Context) -> None:
    context.wanted += listing.wanted
    context.index = listing.index or context.index
    context.not_read += listing.not_read
    context.installed = context.installed or listing.frozen
    for name, value in listing.variables.items():
        context.variables.setdefault(name, value)
    if listing.container_cuda and not context.container_cuda:
        context.container_cuda = listing.container_cuda
