"""What the planes state of a unit that waits: `answers.diagnosing` queries, others pass it on."""

from __future__ import annotations

from dataclasses import dataclass

from kubeworld.units.instants import Nanos
from reprieve.answers.quantities import duration
from reprieve.engine.diagnosis.estimates import Estimate
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.plan import Plane
from reprieve.whatif.questions.idle_reason import IdleReason

__all__ = ["Decided", "start_text"]


@dataclass(frozen=True, slots=True)
class Decided:
    """What the planes state.

    Attributes:
        at: of when the cluster is that they decided on.
        diagnosis: why the unit waits, None where they do not state.
        starts: when it would start if nothing else changed, None where it would not.
        unseen: kinds that could not be read, or not everywhere; `hidden`: how much, in a few words.
        notes: what else has to be known of the answer.
        estimate: when it starts at the latest; `idle`: why no idle work is preempted for it.
        owner: the plane that evicts for it, and `planes` all that decide together; None where one
            decides alone.
    """

    at: Nanos
    diagnosis: Diagnosis | None = None
    starts: Nanos | None = None
    unseen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    hidden: str = ""
    estimate: Estimate | None = None
    idle: IdleReason | None = None
    owner: Plane | None = None
    planes: tuple[Plane, ...] = ()


def start_text(decided: Decided) -> str:
    """Return the text about a unit that would start by itself."""
    assert decided.starts is not None
    wait = duration(decided.starts - decided.at)
    return f"Decided anew it starts within {wait}, if nothing else changes."
