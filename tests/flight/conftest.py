"""Nothing that a test started outlives it, and the runtime folders are the tests' own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from flying import STARTED

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    while STARTED:
        job = STARTED.pop()
        if job.poll() is None:
            job.kill()
        job.wait()
        for pipe in (job.stdout, job.stderr):
            if pipe is not None:
                pipe.close()
