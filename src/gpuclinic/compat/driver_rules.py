"""Driver against GPU, module flavour and kernel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.compat.context import Context, newest_branch
from gpuclinic.compat.finding import Finding
from gpuclinic.compat.gpus import vendor_of
from gpuclinic.compat.versions import at_least, numbers
from gpuclinic.knowledge.compat import Architecture, KernelRange, tables
from gpuclinic.knowledge.drivers import bad_pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuclinic.compat.gpus import Card


def judge_driver(context: Context) -> Iterator[Finding]:
    """All rules about the driver itself."""
    for name in context.unknown_gpus:
        vendor = vendor_of(name)
        yield Finding("unknown.not_nvidia" if vendor else "unknown.gpu", {"gpu": name, "vendor": vendor}, name)
    if context.driver and context.driver[0] > newest_branch():
        yield Finding("unknown.driver", {"driver": context.driver_text, "newest": str(newest_branch())}, "driver")
    for card in context.cards:
        yield from _drives(card, context)
        yield from _module(card, context)
    if context.kernel:
        yield from _kernel(context)


def architecture_of(card: Card) -> Architecture | None:
    """The row of a card's compute capability."""
    return next((row for row in tables().architectures if numbers(row.capability) == card.capability), None)


def about_card(card: Card) -> Finding | None:
    """What the tables know of a GPU by itself: its drivers, its CUDA toolkits."""
    row = architecture_of(card)
    if row is None:
        return None
    toolkits = sorted(
        (numbers(r.release), r.release)
        for r in tables().cuda
        if any(numbers(a) == card.capability for a in r.archs.split())
    )
    first = card.first_driver or row.first_driver
    values = {
        "gpu": card.label, "cc": card.cc, "architecture": row.name, "first": first or "?", "last": f"R{row.last_branch}" if row.last_branch else "…",
        "cuda_first": toolkits[0][1] if toolkits else "?", "cuda_last": toolkits[-1][1] if toolkits else "?",
    }  # fmt: skip
    return Finding("note.card", values)


def _drives(card: Card, context: Context) -> Iterator[Finding]:
    row = architecture_of(card)
    if not context.driver or row is None or card.kind == "jetson":
        return
    values = {"gpu": card.label, "cc": card.cc, "architecture": row.name, "driver": context.driver_text}
    if row.last_branch and context.driver[0] > int(row.last_branch):
        yield Finding("driver.unsupported_gpu.old_gpu", {**values, "last": row.last_branch}, card.label, row.source)
    elif row.first_driver and at_least(context.driver, numbers(row.first_driver)) is False:
        yield Finding("driver.unsupported_gpu.new_gpu", {**values, "first": row.first_driver}, card.label, row.source)
    elif card.first_driver and context.driver[0] < numbers(card.first_driver)[0]:
        yield Finding("driver.unsupported_gpu.new_gpu", {**values, "first": card.first_driver}, card.label, row.source)
    elif card.first_driver and at_least(context.driver, numbers(card.first_driver)) is False:
        yield Finding("unknown.listed", {**values, "first": card.first_driver}, card.label)


def _module(card: Card, context: Context) -> Iterator[Finding]:
    row = architecture_of(card)
    if row is None or not context.module or not row.module:
        return
    values = {
        "gpu": card.label,
        "architecture": row.name,
        "driver": context.driver_text or "?",
        "module": context.module,
        "first": row.module_from,
    }
    flavour = context.module
    if flavour not in ("open", "proprietary"):
        yield Finding("unknown.module", {"module": flavour}, "module")
    elif flavour == "proprietary" and (
        row.module == "open" or (card.machine == "aarch64" and card.kind == "data_centre")
    ):
        yield Finding("driver.unsupported_gpu.needs_open", values, card.label, row.source)
    elif flavour == "open" and row.module == "proprietary":
        yield Finding("driver.unsupported_gpu.needs_proprietary", values, card.label, row.source)
    elif (
        flavour == "open" and row.module_from and at_least(context.driver or (999,), numbers(row.module_from)) is False
    ):
        yield Finding("driver.unsupported_gpu.no_open_yet", values, card.label, row.source)


def _kernel(context: Context) -> Iterator[Finding]:
    """Against the newest kernel on which a driver is known to build, and the first on which it is known not to."""
    mine = numbers(context.kernel)
    if not mine:
        yield Finding("unknown.kernel", {"kernel": context.kernel, "driver": context.driver_text, "to": "?"}, "kernel")
        return
    if not context.driver or re.search(r"microsoft|wsl", context.kernel, re.IGNORECASE):
        return
    named = next((row for row in tables().distributions if re.fullmatch(row.pattern, context.kernel)), None)
    if named is None and re.search(r"\.el\d", context.kernel):
        return  # backports: the number tells nothing, and NVIDIA tests on these kernels
    mine = numbers(named.as_if) if named is not None else mine
    values = {"kernel": context.kernel, "driver": context.driver_text}
    pair = bad_pair(".".join(map(str, context.driver)), ".".join(map(str, mine)))
    row = kernel_row(context.driver)
    if pair is not None:
        yield Finding(
            "driver.kernel_mismatch.pair",
            {**values, "fixed": pair.fixed_in, "what": pair.what_en, "what_zh": pair.what_zh},
            "kernel",
            pair.source,
        )
    elif row is None:
        yield Finding("unknown.kernel", {**values, "to": "?"}, "kernel")
    elif row.fails_from and mine >= numbers(row.fails_from):
        yield Finding(
            "driver.kernel_mismatch.too_new",
            {**values, "from": row.fails_from, "fixed": row.fixed_in or "?"},
            "kernel",
            row.source,
        )
    elif row.builds_to and mine[:2] > numbers(row.builds_to)[:2]:
        yield Finding("unknown.kernel", {**values, "to": row.builds_to}, "kernel")


def kernel_row(driver: tuple[int, ...]) -> KernelRange | None:
    """The row of a driver."""
    return next(
        (row for row in tables().kernels if numbers(row.driver_from) <= driver < numbers(row.driver_below)), None
    )
