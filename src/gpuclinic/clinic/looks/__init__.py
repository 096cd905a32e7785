"""The looks of `check`: one explicit list, in the order of the guide: GPUs, logs, driver and versions, resources, the rest."""

from gpuclinic.clinic.looks._look import Look, Seen, Wanted
from gpuclinic.clinic.looks._table import LOOKS

__all__ = ["LOOKS", "Look", "Seen", "Wanted"]
