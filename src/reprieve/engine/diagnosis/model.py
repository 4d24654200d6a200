"""What is known of a unit that waits: the reason, what is missing, who has it, what would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kubeworld.units.instants import Nanos
from reprieve.engine.diagnosis.causes import Cause, cause_in
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.diagnosis.refusals import NodeRefusal
from reprieve.engine.plan import Plane
from reprieve.units.references import Reference

__all__ = ["Blocker", "Change", "Diagnosis", "Fix", "Gain"]


class Change(StrEnum):
    """What of a unit, or of its user, is changed by a remedy, the smallest change first."""

    WAIT = "wait"
    FEWER_PODS = "fewer pods"
    FEWER_DEVICES = "fewer devices a pod"
    WITHOUT_CONSTRAINT = "one constraint less"
    WIDER_LEVEL = "a wider level"
    OTHER_FLAVOR = "another flavor"
    OTHER_QUEUE = "another queue"
    HIGHER_PRIORITY = "a higher priority class"


class Gain(StrEnum):
    """What the changed unit gets, as far as it was tried."""

    START = "start"
    #: Nodes were not tried.
    QUOTA = "quota"
    #: Its other pods were not tried.
    ONE_POD = "one pod"


@dataclass(frozen=True, slots=True)
class Fix:
    """A change with which the engine, run again, starts the unit.

    `field` is the path within the object that is changed, `before` and `after` are its values as a
    person would write them; for WAIT `after` is an instant in RFC 3339, or what has to have
    happened. `victims` is how many are preempted then. `gain`: less than a start where the plane
    in which the unit waits was tried alone.
    """

    change: Change
    field: str
    before: str
    after: str
    victims: int = 0
    gain: Gain = Gain.START

    @property
    def starts(self) -> bool:
        """Whether it is known that the unit starts with this change."""
        return self.gain is Gain.START


@dataclass(frozen=True, slots=True)
class Blocker:
    """Holders of what the unit lacks, in base units by resource; `rule`: why each stays."""

    holder: Reference
    amounts: Mapping[str, int]
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a unit waits.

    Attributes:
        plane: whose question it is.
        reason: the dominant one.
        values: what its sentence needs, by the names that `wording.diagnosis` uses, and the cause.
        others: further reasons, in their order.
        deficit: what is missing, in base units, by where (a flavor, a domain; empty: anywhere) and
            resource name.
        blockers: who holds it, the largest first.
        refused: how many candidates each rule kept from being preempted.
        filters: how many nodes each filter refused.
        earliest: when it may start at the earliest, where that is known without an estimate.
        fixes: changes that were tried and help, the smallest first.
        nodes: by what nodes refuse its pods, in the scheduling plane.
    """

    plane: Plane
    reason: Reason
    values: Mapping[str, str] = field(default_factory=dict)
    others: tuple[Reason, ...] = ()
    deficit: Mapping[tuple[str, str], int] = field(default_factory=dict)
    blockers: tuple[Blocker, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    filters: Mapping[str, int] = field(default_factory=dict)
    earliest: Nanos | None = None
    fixes: tuple[Fix, ...] = ()
    nodes: tuple[NodeRefusal, ...] = ()

    @property
    def cause(self) -> Cause | None:
        """Return what is behind the reason, None where that is not known or is always the same."""
        return cause_in(self.values)
