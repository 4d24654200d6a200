"""A displacement: who displaced whom, when, and what that cost.

Source: specification of disruptions, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.lineage import Participant

__all__ = ["Actor", "Displacement", "Exemption", "Identified"]

Identified = tuple[Nanos, int, str, str, str]


class Actor(StrEnum):
    """Who displaced."""

    IDLE = "idle"
    QUOTA = "quota"
    SCHEDULING = "scheduling"
    OTHER = "other"


class Exemption(StrEnum):
    """Why a displacement holds no lineage and protects none."""

    NONE = ""
    NODE_FAILURE = "node failure"
    DRAIN = "drain"
    EMERGENCY = "emergency"


@dataclass(frozen=True, slots=True)
class Displacement:
    """One row.

    `uid`: of the displaced object. `number`: its place among the rows of one instant. `above`: by
    how much the preemptor's priority was higher. `cause`: a text that is another one when the
    priority, weight or quota by which one can displace the other changed; empty where it is not
    known, which is as good as any.
    """

    at: Nanos
    actor: Actor
    preemptor: Participant | None
    victim: Participant
    uid: str = ""
    number: int = 0
    devices: int = 0
    lost_device_seconds: int = 0
    above: int = 0
    cause: str = ""
    exempt: Exemption = Exemption.NONE

    @property
    def identity(self) -> Identified:
        """What two rows do not have in common; also the order of rows."""
        preemptor = "" if self.preemptor is None else self.preemptor.lineage
        return (self.at, self.number, preemptor, self.victim.lineage, self.uid)

    @property
    def counts(self) -> bool:
        """Whether it is held against its preemptor."""
        return (
            self.preemptor is not None
            and self.actor is not Actor.OTHER
            and self.exempt is Exemption.NONE
        )
