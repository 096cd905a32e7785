"""What is said where our own code stumbles over an answer that no sound machine gives, so that it costs one look and is never passed over."""

from __future__ import annotations

import os


def stumbled(problem: Exception) -> str:
    """The reason of a gap. Under GPUCLINIC_DEBUG the error goes on, for whoever mends it."""
    if os.environ.get("GPUCLINIC_DEBUG"):
        raise problem
    where = problem.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = f"{os.path.basename(where.tb_frame.f_code.co_filename)}:{where.tb_lineno}" if where is not None else "?"  # noqa: PTH119
    return (
        f"stumbled over what was answered ({type(problem).__name__} at {place}: {str(problem)[:120]}); please report it"
    )
