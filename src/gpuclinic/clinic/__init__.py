"""Joins observe, recognise and diagnose: examine(host, question) gives an answer."""

from gpuclinic.clinic.answer import Answer
from gpuclinic.clinic.why import examine

__all__ = ["Answer", "examine"]
