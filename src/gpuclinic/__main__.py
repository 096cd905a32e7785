"""python -m gpuclinic."""

from gpuclinic.cli.main import entry

entry()
