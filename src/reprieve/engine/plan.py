"""What a decision is: a plan with its proof, its victims and the guards that must still hold.

Every plane returns these values; `execution` carries them out and `telemetry` explains them. A plan
is a value: it names objects by uid and states nothing about how they are evicted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from reprieve.units.ids import PlanId, Uid
from reprieve.units.references import Reference

__all__ = ["Guard", "Plan", "Plane", "Proof", "ProofLevel", "Victim", "plan_id"]


class Plane(StrEnum):
    """Which question the plan answers."""

    IDLE = "idle"
    QUOTA = "quota"
    SCHEDULING = "scheduling"


class ProofLevel(StrEnum):
    """To what extent the plan is proven to fit its preemptor."""

    SUM = "Sum"  # the freed amounts, over all nodes, reach the need for every resource name
    PLACEMENT = "Placement"  # every pod of the need has a node
    QUOTA = "Quota"  # the need fits the quota
    EXEMPT = "Exempt"  # there is no preemptor (policy Always)


@dataclass(frozen=True, slots=True)
class Proof:
    """Why the preemptor fits afterwards: need <= free + in_flight + freed for every resource name.

    Amounts are counts per resource name. `free`: what of the need is met by unused capacity;
    empty where free capacity is not looked at. `compatible` states that the victim order of the
    compatible system may have chosen more than an irreducible set would need. `profile`: how the
    victims were chosen, a `VictimChoice`; empty where there is no choice (policy Always). `gap`:
    per cent by which they may exceed the least possible, None where no bound is known.
    """

    level: ProofLevel
    need: Mapping[str, int] = field(default_factory=dict)
    in_flight: Mapping[str, int] = field(default_factory=dict)
    freed: Mapping[str, int] = field(default_factory=dict)
    compatible: bool = False
    free: Mapping[str, int] = field(default_factory=dict)
    profile: str = ""
    gap: int | None = None


@dataclass(frozen=True, slots=True)
class Victim:
    """One unit that is preempted.

    `subject` is the object that carries the mark (a GpuWorkload), `root` the one that is evicted.
    `rule` names why this one was chosen; `reason` is the text for the compatible status field.
    Victims of the same `unit` are evicted together or not at all; empty for one evicted alone.
    """

    subject: Reference
    root: Reference
    amounts: Mapping[str, int]
    rule: str
    reason: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Guard:
    """What must still hold when the plan is committed: the object is in one of these phases."""

    subject: Reference
    phases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision to evict. Victims are in the order in which they were chosen."""

    id: PlanId
    plane: Plane
    revision: int
    proof: Proof
    preemptor: Reference | None
    victims: tuple[Victim, ...]
    placement: tuple[tuple[Uid, str], ...] = ()
    reprieved: Mapping[str, int] = field(default_factory=dict)
    guards: tuple[Guard, ...] = ()


def plan_id(plane: Plane, preemptor: Uid | None, victims: Iterable[Uid], policy: str) -> PlanId:
    """Return the identity of a plan: the same plan has the same id after a restart.

    `policy` is any text that changes whenever the policy does; the order of victims plays no role.
    """
    parts = (plane, preemptor or "", *sorted(victims), policy)
    return PlanId(hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16])
