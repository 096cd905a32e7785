"""What a single line cannot know: runs that ended well, facts against guesses, which kind of out-of-memory it was."""

from __future__ import annotations

from gpuclinic.diagnose.candidates import Candidate, Pool
from gpuclinic.diagnose.evidence import Reading


def refine(candidates: list[Candidate], pool: Pool, reading: Reading) -> list[Candidate]:
    """Candidates after all refinements, strongest first."""
    for candidate in candidates:
        if candidate.cause in pool.dropped and candidate.strength < 0.95:
            candidate.strength *= 0.3
    candidates.sort(key=lambda c: (-c.strength, c.order))
    return candidates
