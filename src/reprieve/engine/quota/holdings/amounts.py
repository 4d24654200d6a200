"""Amounts of resources: saturating int64 with "unlimited", and their canonical text.

`cpu` counts milli units, every other resource whole units. The largest int64 means unlimited:
`unlimited + x = unlimited`, `unlimited - bounded = unlimited`, `unlimited - unlimited = 0`,
`bounded - unlimited` = the smallest int64. These rules hold where quotas are combined (`plus`,
`minus`). Sums with usage run on plain integers, where an unlimited quota stands as `WIDE`, which no
usage can reach; `clamp` brings such a result back.

Source: specification of the quota plane, section 2.
"""

from __future__ import annotations

from typing import Final

from kubeworld.units.quantities import quantity_text as text

__all__ = ["UNLIMITED", "WIDE", "capacity_text", "clamp", "minus", "plus", "text", "widened"]

UNLIMITED: Final = 2**63 - 1
SMALLEST: Final = -(2**63)
WIDE: Final = 2**80


def clamp(amount: int) -> int:
    """Return `amount` within int64."""
    return max(SMALLEST, min(UNLIMITED, amount))


def widened(amount: int) -> int:
    """Return the quota in the form that plain integer sums need."""
    return WIDE if amount >= UNLIMITED else amount


def plus(left: int, right: int) -> int:
    """Return the saturating sum."""
    if UNLIMITED in (left, right):
        return UNLIMITED
    return clamp(left + right)


def minus(left: int, right: int) -> int:
    """Return the saturating difference."""
    if right >= UNLIMITED:
        return 0 if left >= UNLIMITED else SMALLEST
    return UNLIMITED if left >= UNLIMITED else clamp(left - right)


def capacity_text(resource: str, amount: int) -> str:
    """Return the quantity of a quota, which may be unlimited."""
    return "<unlimited>" if amount >= UNLIMITED else text(resource, amount)
