"""What the kernel says of its own state: its taints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic.looks._look import Seen, Wanted, first_line
from gpuclinic.recognise.kernel_taints import TAINTS

if TYPE_CHECKING:
    from gpuclinic.model import Scalar
    from gpuclinic.observe.asking import Asked

_PATH = "/proc/sys/kernel/tainted"


def look_at_kernel_state(host: Asked, wanted: Wanted) -> Seen:  # noqa: ARG001 - all looks are called alike
    """Fact kernel_taint."""
    seen = Seen()
    value = first_line(host, _PATH)
    if value and value.isdecimal() and len(value) < 20:
        bits = int(value)
        fields: dict[str, Scalar] = {"value": bits}
        fields.update((name, bool(bits >> bit & 1)) for bit, name in TAINTS.items())
        seen.fact("kernel_taint", "kernel", fields, _PATH)
    return seen
