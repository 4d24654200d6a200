"""What happened in a run, for those who report it: they need none of the planes that decided.

Source: the design's "Processes and time".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubeworld.units.instants import Nanos
from reprieve.kube.bodies import Json
from reprieve.units.errors import ReprieveError
from reprieve.whatif.copy.overlay import Change, Overlay

if TYPE_CHECKING:
    # A module that only reports what happened need not wait seconds for the import of the planes.
    from reprieve.planes.common.assembly import Plane
    from reprieve.planes.common.joint import Joint

__all__ = ["Run", "Undecided"]


class Undecided(ReprieveError):
    """No answer was found."""


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """What happened.

    Attributes:
        overlay: as it was at the end.
        submitted: the objects as they were created, in the order given.
        history: what changed since they were.
        submitted_at: when that was, and `ended_at` when it was over, in virtual wall time.
        rest: whether it came to rest; else the limit was reached first.
        log: warnings of the planes.
        troubles: why a plane decided nothing.
        planes: as they were at the end; they can be queried, and do nothing any more.
        scheduler_names: whose pods are placed.
        frameworks: of the kinds that are queued; None where the quota plane did not decide.
        joint: where the planes registered, and queried each other.
        delay: the longest time that a preemptor may have to wait, in nanoseconds.
    """

    overlay: Overlay
    submitted: tuple[Json, ...]
    history: tuple[Change, ...]
    submitted_at: Nanos
    ended_at: Nanos
    rest: bool
    log: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()
    planes: tuple[Plane, ...] = ()
    scheduler_names: frozenset[str] = frozenset()
    frameworks: frozenset[str] | None = None
    joint: Joint | None = None
    delay: int = 0
