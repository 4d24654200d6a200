"""A change with which work would start, as a sentence.

Of manifests the sentence names their own fields, else the path within the object that was decided
about. Source: `Fix` of the engine's diagnosis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reprieve.engine.diagnosis.model import Change, Fix

__all__ = ["Written", "fix_text"]

_MOST_WRITTEN: Final = 2


@dataclass(frozen=True, slots=True)
class Written:
    """One field of a manifest that a change writes; `before` or `after` is empty for no value."""

    path: str
    before: str
    after: str


def fix_text(fix: Fix, written: Sequence[Written] = ()) -> str:
    """Return a change that was tried and helps, as a sentence; of manifests it names the fields."""
    makes_way = {0: "", 1: "; one other makes way then"}.get(
        fix.victims, f"; {fix.victims} others make way then"
    )
    if fix.change is Change.WAIT:
        until = fix.after or "those who make way have ended"
        return f"Wait until {until}{makes_way}."
    if written:
        return f"{_written_text(written)} it starts{makes_way}."
    if fix.change is Change.WITHOUT_CONSTRAINT:
        if fix.before and fix.after:
            return f"Without {fix.before} and with {fix.after} in {fix.field} it starts{makes_way}."
        if fix.after:
            return f"With {fix.after} in {fix.field} it starts{makes_way}."
        return f"Without {fix.field} ({fix.before}) it starts{makes_way}."
    return f"With {fix.field} {fix.after} instead of {fix.before} it starts{makes_way}."


def _written_text(written: Sequence[Written]) -> str:
    """Return `With spec.parallelism 2 instead of 4`; of many fields the first two are named."""
    told = []
    for each in written[:_MOST_WRITTEN]:
        instead = f" instead of {each.before}" if each.before else ""
        told.append(
            f"with {each.path} {each.after}{instead}"
            if each.after
            else f"without {each.path} ({each.before})"
        )
    more = len(written) - len(told)
    text = " and ".join(told) + (f" and {more} more such fields" if more > 0 else "")
    return text[0].upper() + text[1:]
