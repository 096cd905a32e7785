"""The live picture: what is shown (`view`), how it is painted (`screen`), what keys do (`keys`), and the terminal that shows it (`app`).

Only `app` knows Textual. All else makes lines of text out of ticks, so that `--once` and tests need no terminal.
"""
