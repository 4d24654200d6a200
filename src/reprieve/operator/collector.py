"""Python's cyclic garbage collector, set for a process that holds many records without cycles.

With the interpreter's defaults the collector walks over all records again and again while the first
lists come in: at 50,000 pods that is half of the CPU time of their discovery. Source: the design's
"Processes and time"; figures in the benchmarks' documentation.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = [
    "await_records",
    "collect_start",
    "freeze_records",
    "relax_collector",
    "without_collections",
]

# Objects made, young collections and middle ones before the next older generation is walked. Young
# ones find what decisions leave: the more seldom they come, the more memory rises and falls.
_THRESHOLDS: Final = (5_000, 10, 800)
# Until the first lists are in: a page of five hundred pods alone is worth a collection otherwise,
# and what it is read from is freed by its count of references. What is left after a young
# collection are records, which none of the older ones would find anything among.
_FIRST_LISTS: Final = (200_000, 1_000_000, 1_000_000)


def relax_collector() -> None:
    """Collect less often; for the start of the process."""
    gc.set_threshold(*_THRESHOLDS)


def collect_start() -> None:
    """Collect what the start of the process left; due before there are records."""
    gc.collect()


def await_records() -> None:
    """Collect less often still, until `freeze_records`; for a process that reads first lists."""
    gc.set_threshold(*_FIRST_LISTS)


def freeze_records() -> None:
    """Hide what exists now from the collector: it stays for the life of the process.

    Only the youngest of it are collected: to walk over all records of a large cluster once more
    costs as much time as to receive a third of them, and finds nothing.
    """
    gc.collect(0)
    gc.freeze()
    relax_collector()


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect nothing for a while that makes many records and little garbage.

    What was made until the end counts as old afterwards, so that it is not walked over at once.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()
        gc.enable()
