"""gpuclinic: why processes on GPU servers die, hang or crawl."""

__version__ = "0.1.0"
