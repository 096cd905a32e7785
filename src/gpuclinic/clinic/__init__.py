"""Joins observe, recognise and diagnose: examine(host, question) gives an answer."""

from gpuclinic.clinic.why import Answer, examine

__all__ = ["Answer", "examine"]
