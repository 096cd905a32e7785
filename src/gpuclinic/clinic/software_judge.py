"""What this room knows of the judge of software: a question, an answer, and that somebody above hands the judge in.

The rules live in `gpuclinic.compat`, which stands on this room; `cli` joins the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec


class SoftwareQuestion(msgspec.Struct, frozen=True):
    """What is given; None is "not known". The fields are those of gpuclinic.compat.Question.

    cuda, cudnn: the system's. container_cuda: of the image. want: pip requirements. installed: they are of packages that are there.
    of_host: GPU and driver are those of a machine that was looked at: None is "none was found".
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
    installed: bool = True
    of_host: bool = False


class SoftwareProblem(Protocol):
    """One reason why software does not run; id is one of the causes."""

    @property
    def id(self) -> str:
        """Of cause_ids.tsv."""

    @property
    def title(self) -> str:
        """In one line."""

    @property
    def why(self) -> str:
        """The rule with its numbers."""

    @property
    def source(self) -> str:
        """Where the rule is written."""

    @property
    def fix(self) -> str:
        """What to do."""


class SoftwareAnswer(Protocol):
    """works, fails or unknown, and why."""

    @property
    def verdict(self) -> str:
        """Works, fails or unknown."""

    @property
    def problems(self) -> Sequence[SoftwareProblem]:
        """The one that decides first."""

    @property
    def install(self) -> str | None:
        """One command line that would work."""

    @property
    def notes(self) -> Sequence[str]:
        """What is good to know."""

    @property
    def unknown(self) -> Sequence[str]:
        """What could not be judged, and why."""


SoftwareJudge: TypeAlias = Callable[[SoftwareQuestion, str], SoftwareAnswer]
"""(question, language) -> answer."""

_WORD = r"(?:[\w:.@/+,=~-]+|'[\w:.@/+,=~<>!\[\]; -]+'|\"[\w:.@/+,=~<>!\[\]; -]+\")+"
_LINE = re.compile(rf"(?:pip3?|conda|mamba|uv|python3?)(?: {_WORD})+", re.ASCII)


def harmless_line(line: str | None) -> str:
    """A command line to install something, where no word of it is more to a shell than a word; else nothing.

    Names of packages in it come from what was examined, and people paste such lines.
    """
    return line if line and len(line) <= 2000 and _LINE.fullmatch(line) else ""
