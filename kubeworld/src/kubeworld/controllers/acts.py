"""What a controller's step returns: the writes that it wants, in their order, and its events.

    acts, again = step(owner, dependants, now, suffix)

A step sees the cluster as it is and changes nothing; its driver carries the acts out one after the
other, stops at the first that is refused, and calls the step again when something changes, or after
`again` nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Act", "Create", "Delete", "Event", "Outcome", "Status", "Suffix", "Update"]

Object = dict[str, Any]

Suffix: TypeAlias = Callable[[str], str]
"""Returns letters that make a name of a stem, other ones at each call."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object. `refused`: how the event of a refusal begins; without it there is none."""

    object: Object
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete exactly this object."""

    object: Object
    propagation: str = "Background"


@dataclass(frozen=True, slots=True)
class Update:
    """Replace an object, but for its status."""

    object: Object


@dataclass(frozen=True, slots=True)
class Status:
    """Give the owner this status."""

    status: Object


@dataclass(frozen=True, slots=True)
class Event:
    """Record an event on the owner."""

    reason: str
    message: str
    warning: bool = False


Act: TypeAlias = Create | Delete | Update | Status | Event


class Outcome(NamedTuple):
    """The acts, and after how many nanoseconds to run again at the latest; None: on changes."""

    acts: list[Act]
    again: int | None = None
