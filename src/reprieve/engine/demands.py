"""What a plan records of the other planes of its process, and of former records of its demand.

| plane of the plan | stages | quota | placement | victims free |
| --- | --- | --- | --- | --- |
| idle | idle, scheduling if it placed the pods | settled | by level | capacity, quota if queued |
| idle, a mixture | idle, scheduling | settled | proven | capacity, quota if queued |
| idle, for quota | idle, quota, scheduling if it runs | proven | proven if that runs | the same |
| idle, for quota, a mixture | idle, quota, scheduling | proven | not proven | the same |
| quota | quota, scheduling if it runs | proven | by level | quota and capacity |
| scheduling | scheduling | settled | by level | capacity |

Both planes of a mixture participate, so neither is rejected. By `Sum` neither half is proven.
The weaker half is the level of the proof. A former record of the same demand that is open, or that
handed the demand over, stands before with its name: the records of one demand are one line. Pure,
so that a decision that is made again from its stored input states the same.
Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reprieve.engine.plan import Plan, Plane, ProofLevel, Victim

__all__ = [
    "Beside",
    "Half",
    "JointRecord",
    "Rejected",
    "Rejection",
    "Stage",
    "before",
    "joint_record",
]


class Half(StrEnum):
    """How far one half of a proof, quota or placement, is proven."""

    PROVEN = "Proven"
    SETTLED = "Settled"  # it has nothing to prove
    UNPROVEN = "Unproven"


class Rejection(StrEnum):
    """Why another plane evicts no workload for a demand."""

    OWNED = "OwnedByAnother"  # it is not queried: another plane is the owner
    NOT_ASKED = "NotAsked"  # the demand has not opted in, or there is no idle work
    DECLINED = "Declined"  # it found no victim whose eviction helps
    UNANSWERED = "Unanswered"  # it has not answered in time
    FEWER = "FewerByPriority"  # fewer devices are evicted by priority than it would evict
    IDLE_FIRST = "IdleFirst"  # idle work suffices, so no workload is evicted by priority


@dataclass(frozen=True, slots=True)
class Stage:
    """A plane that sees a demand through, and its record; empty for the one that is written."""

    plane: Plane
    record: str = ""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A plane that does not evict for the demand, and why."""

    plane: Plane
    reason: Rejection


@dataclass(frozen=True, slots=True)
class Beside:
    """What a plane knew beside its own input when it decided, where several planes decide.

    `planes`: all that decide in the process. `idle`: what the idle plane stated of the demand.
    `placed`: the scheduling plane placed the demand's pods with the victims evicted. `mixed`: idle
    work and work of lower priority are evicted together. `queued`: roots of victims that hold
    quota, by uid. `former`: stages of former records of the demand. `depth` and `debt_of` of the
    chain of displacements that the preemptor stands in. `priority`: that of the preemptor, where
    work of a lower one could be evicted. `reclaims_any`: by the quota plane so could work of other
    ClusterQueues, whatever its priority.
    """

    planes: tuple[Plane, ...]
    idle: Rejection | None = None
    placed: bool = False
    queued: tuple[str, ...] = ()
    mixed: bool = False
    former: tuple[Stage, ...] = ()
    depth: int = 1
    debt_of: str = ""
    priority: int | None = None
    reclaims_any: bool = False


@dataclass(frozen=True, slots=True)
class JointRecord:
    """What a record has beside the plan. `frees`: quota and capacity, parallel to its victims."""

    stages: tuple[Stage, ...]
    rejected: tuple[Rejected, ...]
    quota: Half
    placement: Half
    frees: tuple[tuple[bool, bool], ...]
    depth: int
    debt_of: str
    priority: int | None
    reclaims_any: bool


_MIXED: Final = (Plane.IDLE, Plane.SCHEDULING)


def joint_record(plan: Plan, beside: Beside) -> JointRecord:
    """Return what the record of a plan states of the other planes."""
    for_quota = _for_quota(plan)
    quota = Half.PROVEN if for_quota or plan.plane is Plane.QUOTA else Half.SETTLED
    placed = plan.proof.level is ProofLevel.PLACEMENT
    placed |= for_quota and Plane.SCHEDULING in beside.planes and not beside.mixed
    placement = Half.PROVEN if placed else Half.UNPROVEN
    if plan.proof.level is ProofLevel.SUM:
        quota = Half.UNPROVEN
    if plan.proof.level is ProofLevel.EXEMPT:
        quota = placement = Half.SETTLED
    return JointRecord(
        (*beside.former, *_stages(plan, beside)),
        tuple(
            Rejected(plane, _rejection(plan, plane, beside))
            for plane in beside.planes
            if plane is not plan.plane and not (beside.mixed and plane in _MIXED)
        ),
        quota,
        placement,
        tuple(_frees(plan, victim, beside) for victim in plan.victims),
        beside.depth,
        beside.debt_of,
        beside.priority,
        beside.reclaims_any,
    )


def before(stages: Sequence[Stage], plane: Plane, record: str) -> tuple[Stage, ...]:
    """Return the stages that a record stands for, in the eyes of the next one of its demand."""
    former = tuple(stage for stage in stages if stage.record)
    return (*former, Stage(plane, record))


def _stages(plan: Plan, beside: Beside) -> tuple[Stage, ...]:
    found = [Stage(plan.plane)]
    if _for_quota(plan):
        found.append(Stage(Plane.QUOTA))
    follows = beside.placed or plan.plane is Plane.QUOTA or _for_quota(plan)
    if follows and plan.plane is not Plane.SCHEDULING and Plane.SCHEDULING in beside.planes:
        found.append(Stage(Plane.SCHEDULING))
    return tuple(found)


def _for_quota(plan: Plan) -> bool:
    """Whether idle work is evicted for the quota that a queued demand lacks."""
    return plan.plane is Plane.IDLE and plan.proof.level is ProofLevel.QUOTA


def _rejection(plan: Plan, plane: Plane, beside: Beside) -> Rejection:
    if plane is Plane.IDLE and beside.idle is not None:
        return beside.idle
    if plane is Plane.SCHEDULING and beside.placed:
        return Rejection.IDLE_FIRST
    if plane is Plane.QUOTA and _for_quota(plan):
        return Rejection.IDLE_FIRST
    return Rejection.OWNED


def _frees(plan: Plan, victim: Victim, beside: Beside) -> tuple[bool, bool]:
    """Return whether a victim frees quota, and capacity on nodes."""
    return plan.plane is Plane.QUOTA or victim.root.uid in beside.queued, True
