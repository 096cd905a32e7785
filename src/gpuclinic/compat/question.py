"""What is asked and what is answered."""

from __future__ import annotations

import msgspec


class Question(msgspec.Struct, frozen=True):
    """What is given, each as people and programs write it; None is "not given", and then nothing is judged by it.

    gpu: a product name, a PCI id, or a compute capability ("sm_90"). cuda, cudnn: the system's toolkit and cuDNN.
    container_cuda: the CUDA version of the image. module: "open" or "proprietary". env: "NAME=VALUE".
    want: pip requirements, names of wheel files, and whole listings (requirements, lock, freeze, conda list).
    installed: the listing is of packages that are there, not of packages to install.
    of_host: GPU and driver are those of a machine that was looked at: None is "none was found", and nothing for GPUs is then said to work.
    """

    gpu: str | None = None
    driver: str | None = None
    python: str | None = None
    kernel: str | None = None
    glibc: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    container_cuda: str | None = None
    machine: str | None = None
    module: str | None = None
    env: list[str] = []
    want: list[str] = []
    installed: bool = False
    of_host: bool = False


class Problem(msgspec.Struct, frozen=True):
    """One reason why it fails. id: of cause_ids.tsv. subject: the package, driver or library that it is about."""

    id: str
    title: str
    why: str
    source: str
    fix: str
    subject: str = ""


class Answer(msgspec.Struct, frozen=True):
    """verdict: works, fails, unknown. install: one command line that would work, or None.

    unknown: what could not be judged, and why. read: what the wants were understood as. notes: what is good to know and no fault.
    not_given: "gpu", "driver": what would matter to the packages and was not said, so that a verdict "works" leaves it out.
    """

    verdict: str
    problems: list[Problem]
    install: str | None
    unknown: list[str] = []
    read: list[str] = []
    notes: list[str] = []
    not_given: list[str] = []
