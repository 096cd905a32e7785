"""Pure reasoning: no I/O, no clock, no environment. Signals and facts in, ranked candidates out."""

from gpuclinic.diagnose.diagnosis import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]
