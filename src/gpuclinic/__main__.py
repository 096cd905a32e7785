"""python -m gpuclinic."""

from gpuclinic.cli.start import entry

entry()
