"""Will this software run on that GPU and driver, and what to install instead.

`judge` answers from the tables under `knowledge/data/compat` alone: it reads no environment, imports and runs nothing that it judges.
"""

from gpuclinic.compat.judge import judge
from gpuclinic.compat.question import Answer, Problem, Question

__all__ = ["Answer", "Problem", "Question", "judge"]
