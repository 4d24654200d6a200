"""What the planes of one process query each other about a demand, so that one evicts for it.

Each plane that runs registers here when it is assembled; a plane that runs alone finds no other and
decides as it always did.

If our own quota plane keeps a workload pending, the idle plane queries it for the idle work that
holds the lacking quota; until that is answered the quota plane delays its own preemption. For pods
that our own scheduling plane schedules the idle plane searches first: until it has answered, the
scheduling plane delays its own preemption, and what the idle plane found is carried out only where
the scheduling plane has placed all pods of the demand with these victims absent. Where it finds too
little, it queries the scheduling plane for the idle work that would do together with work of lower
priority; it evicts that, and the scheduling plane the rest. Source: the design's "Where the planes
meet".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos
from reprieve.engine.demands import Beside, Rejection
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.lineage import Participant
from reprieve.engine.mixed import IdlePods, Mixture
from reprieve.engine.owners import DemandState, owner_of
from reprieve.engine.plan import Plane
from reprieve.engine.quota.release import IdleUnit, Promise, Release
from reprieve.execution.records.demands import Demands
from reprieve.planes.common.histories import Histories
from reprieve.units.ids import Uid

if TYPE_CHECKING:
    from reprieve.planes.common.other_processes import OtherProcesses

__all__ = [
    "REJECTIONS",
    "STARTING_FOR",
    "IdleSide",
    "Joint",
    "QuotaSide",
    "SchedulingSide",
    "Verdict",
]


#: How long others wait at most for the idle plane to start.
STARTING_FOR: Final = MINUTE


class Verdict(StrEnum):
    """What the idle plane states of the pods of a demand."""

    NOT_ASKED = "NotAsked"  # they have not opted in, or there is no idle work
    STARTING = "Starting"  # it does not know yet who is idle, nor what it evicts already
    UNDECIDED = "Undecided"  # it has not evaluated the demand yet
    SERVED = "Served"  # idle work is being evicted for it
    HELPED = "Helped"  # idle work has been evicted, and work of lower priority has to be as well
    DECLINED = "Declined"  # no idle work helps


#: Why the idle plane evicts no work, by its verdict when another plane decided; not where it does.
REJECTIONS: Final = {
    Verdict.NOT_ASKED: Rejection.NOT_ASKED,
    Verdict.STARTING: Rejection.UNANSWERED,
    Verdict.UNDECIDED: Rejection.UNANSWERED,
    Verdict.SERVED: Rejection.OWNED,
    Verdict.DECLINED: Rejection.DECLINED,
}


class IdleSide(Protocol):
    """The idle plane, as others query it."""

    def queued_verdicts(self, workloads: Sequence[Uid]) -> list[Verdict]:
        """Return for each pending Kueue Workload, by uid, whether idle work is evicted for it."""
        ...

    def has_opted_in(self, workload: Uid) -> bool:
        """Whether idle work may be evicted for a Kueue Workload, as far as is known."""
        ...

    def reclaimable(self) -> frozenset[Uid]:
        """Return the pods of all work that is idle now."""
        ...

    def verdicts(self, demands: Sequence[Sequence[Uid]]) -> list[Verdict]:
        """Return for each of these demands, given by its pods, whether idle work is evicted."""
        ...

    def going_for(self, demand: Sequence[Uid]) -> frozenset[Uid]:
        """Return the pods of idle work that is evicted for a demand, given by its pods."""
        ...


class SchedulingSide(Protocol):
    """The scheduling plane, as others query it."""

    def schedules(self, scheduler_name: str) -> bool:
        """Whether pods of this scheduler name are ours to place."""
        ...

    async def refused_without(
        self, pods: Sequence[Uid], gone: Collection[Uid], idle: Collection[Uid]
    ) -> str:
        """Return why the pods cannot all be placed without others, empty if they can.

        `idle`: the pods of all idle work, some of which may have to be evicted by priority alone.
        """
        ...

    async def mixture(
        self, pods: Sequence[Uid], idle: Sequence[IdlePods], most: int = 0
    ) -> Mixture | None:
        """Return which idle work to evict beside work of lower priority; None where none helps.

        None, too, where priority alone is enough. `idle`: what may be evicted, oldest first.
        `most`: idle work alone is enough, and so many devices or more are no better; 0: it is not
        enough.
        """
        ...

    def waiting_with(self, pods: Sequence[Uid]) -> frozenset[Uid]:
        """Return these pods, and all that wait in the same groups."""
        ...

    def wake(self, pods: Collection[Uid]) -> None:
        """Try these pods again: what was stated of them has changed."""
        ...

    def claim(self, nodes: Mapping[Uid, str]) -> None:
        """Reserve for each of these pods, for a minute, the node that a plan frees for it."""
        ...

    def goes_whole(self, group: str) -> bool:
        """Whether the pods of a group, `namespace/name`, are evicted together or not at all."""
        ...


class QuotaSide(Protocol):
    """The quota plane, as others query it."""

    def decides(self) -> bool:
        """Whether it decides about Workloads: no Kueue does."""
        ...

    async def release(
        self, workload: str, units: Sequence[IdleUnit], promised: Sequence[Promise]
    ) -> Release:
        """Return which units of idle work, oldest first, to evict for a pending Workload.

        `promised`: Workloads for which idle work is being evicted already, in their order.
        """
        ...

    def wake(self, workloads: Collection[str]) -> None:
        """Try these Workloads again, by `namespace/name`: what was stated of them has changed."""
        ...


@dataclass(slots=True)
class Joint:
    """The planes that run in this process, and `demands`: the records of all of them, by demand.

    `elsewhere`: the open records of other processes; None where all planes run in this one.
    `histories`: whether the displacements under former processes are known.
    """

    idle: IdleSide | None = None
    scheduling: SchedulingSide | None = None
    quota: QuotaSide | None = None
    demands: Demands = field(default_factory=Demands)
    elsewhere: OtherProcesses | None = None
    histories: Histories = field(default_factory=Histories)

    @property
    def quota_decides(self) -> bool:
        """Whether our quota plane decides about Workloads."""
        return self.quota is not None and self.quota.decides()

    @property
    def several(self) -> bool:
        """Whether the idle and the scheduling plane run together."""
        return self.idle is not None and self.scheduling is not None

    @property
    def planes(self) -> tuple[Plane, ...]:
        """The planes that decide in this process."""
        decide = {
            Plane.IDLE: self.idle is not None,
            Plane.QUOTA: self.quota_decides,
            Plane.SCHEDULING: self.scheduling is not None,
        }
        return tuple(plane for plane, decides in decide.items() if decides)

    def owner(self, *, awaits_quota: bool, scheduler_names: Collection[str]) -> Plane:
        """Return the plane that evicts for a demand; the names are those of its pending pods."""
        scheduling = self.scheduling
        return owner_of(
            DemandState(
                awaits_quota=awaits_quota,
                quota_is_ours=self.quota_decides,
                scheduler_is_ours=scheduling is not None
                and bool(scheduler_names)
                and all(map(scheduling.schedules, scheduler_names)),
            )
        )

    def beside(
        self,
        governor: Governor | None,
        demand: Participant | None,
        now: Nanos,
        *,
        idle: Rejection | None = None,
        placed: bool = False,
        mixed: bool = False,
        queued: Collection[str] = (),
        priority: int | None = None,
        reclaims_any: bool = False,
    ) -> Beside | None:
        """Return what the record of a plan for a demand states of other planes; None without any.

        The arguments are those of `Beside`; `governor` knows who displaced the demand.
        """
        planes = self.planes
        if len(planes) < 2:
            return None
        chain = governor.displacers(demand, now) if governor and demand else []
        return Beside(
            planes,
            idle,
            placed,
            tuple(sorted(queued)),
            mixed=mixed,
            depth=len(chain) + 1,
            debt_of=chain[0] if chain else "",
            priority=priority,
            reclaims_any=reclaims_any,
        )
