"""What the quota plane answers to the idle plane of its process, and when it waits for it.

1. Preemption by quota is *delayed* for a head for which idle work may be evicted: until the idle
   plane has answered, a few seconds at most, and for as long as idle work is evicted for it, or an
   open record of a plane of another process serves it.
2. Which idle work holds what a pending Workload lacks is worked out on the holdings and queues of
   now (`engine.quota.release`), with nodes where the scheduling plane of this process places pods.

Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.plan import Plane
from reprieve.engine.quota.assigning.assignment import Assignment
from reprieve.engine.quota.entries import Entry, NodeCheck
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.made_places import ByRules
from reprieve.engine.quota.model import ResourceFlavor
from reprieve.engine.quota.release import IdleUnit, Promise, Release, Standing, release
from reprieve.engine.topology.places import NodeUse
from reprieve.execution.not_evictable import NotEvictable
from reprieve.planes.common.joint import STARTING_FOR, Verdict
from reprieve.planes.common.solve import Solver
from reprieve.planes.quota.context import QuotaContext
from reprieve.planes.quota.deciding.node_view import NodeView
from reprieve.planes.quota.state import QuotaState
from reprieve.units.ids import Uid

__all__ = ["IdleFirst", "PuttingOff", "QuotaJoint"]

_UNDECIDED_FOR: Final = 5 * SECOND
_OPEN: Final = (Verdict.STARTING, Verdict.UNDECIDED)
_REMEMBERED: Final = 20_000
_LOOKED_FOR: Final = "Idle workloads are considered first"
_SERVED: Final = "Idle workloads are preempted for it"
_ELSEWHERE: Final = "The {} plane of another process evicts for it"
_NOBODY: Final[Mapping[str, Plane]] = MappingProxyType({})


class PuttingOff:
    """Checks before a head preempts; `inner` is checked after it. Made for one run.

    `verdicts`: what the idle plane states of those that were delayed before, by key; None where
    none runs here. `elsewhere`: which planes of other processes evict, by names of the demands.
    `asked`: those about which the idle plane has to be queried after the run; `deferred`:
    ClusterQueues of those that wait on.
    """

    def __init__(
        self,
        inner: NodeCheck | None,
        verdicts: Mapping[str, Verdict] | None,
        elsewhere: Mapping[str, Plane] = _NOBODY,
    ) -> None:
        self._inner = inner
        self._verdicts = verdicts
        self._elsewhere = elsewhere
        self.asked: set[str] = set()
        self.deferred: set[str] = set()

    def delays(self, entry: Entry) -> str:
        """Return why an entry does not preempt yet; empty if it may."""
        key = entry.workload.key
        serves = self._served_elsewhere(entry)
        if serves is not None:
            self.deferred.add(entry.cluster_queue)
            return _ELSEWHERE.format(serves)
        if self._verdicts is None:
            return ""
        verdict = self._verdicts.get(key)
        if verdict is None:
            self.asked.add(key)
            return _LOOKED_FOR
        if verdict is Verdict.SERVED or verdict in _OPEN:
            self.deferred.add(entry.cluster_queue)
            return _SERVED if verdict is Verdict.SERVED else _LOOKED_FOR
        return ""

    def _served_elsewhere(self, entry: Entry) -> Plane | None:
        workload = entry.workload
        lineage = "" if workload.participant is None else workload.participant.lineage
        return self._elsewhere.get(workload.uid) or self._elsewhere.get(lineage)

    def refusal(
        self, entry: Entry, holders: Iterable[Holder], flavors: Mapping[str, ResourceFlavor]
    ) -> str:
        """Return why an entry's targets are not preempted; empty if they may be."""
        return "" if self._inner is None else self._inner.refusal(entry, holders, flavors)

    def flavor_for(
        self,
        entry: Entry,
        others: Iterable[tuple[str, Assignment]],
        holders: Iterable[Holder],
        flavors: Mapping[str, ResourceFlavor],
    ) -> tuple[str, Assignment] | None:
        """Return which of other assignments an entry gets instead, by the nodes."""
        inner = self._inner
        return None if inner is None else inner.flavor_for(entry, others, holders, flavors)

    def room_made(
        self,
        entry: Entry,
        snapshot: Snapshot,
        holders: Iterable[Holder],
        flavors: Mapping[str, ResourceFlavor],
        by_rules: ByRules | None,
    ) -> tuple[NodeUse, ...]:
        """Return what other planes evict so that an entry gets places; nothing: they do not."""
        inner = self._inner
        return () if inner is None else inner.room_made(entry, snapshot, holders, flavors, by_rules)

    def claim(self, entry: Entry, flavors: Mapping[str, ResourceFlavor]) -> None:
        """Keep capacity for an entry that needs no eviction."""
        if self._inner is not None:
            self._inner.claim(entry, flavors)


class IdleFirst:
    """Who has been delayed, and since when. `retry_at`: try a ClusterQueue again at an instant."""

    def __init__(
        self, context: QuotaContext, state: QuotaState, retry_at: Callable[[str, Nanos], None]
    ) -> None:
        self._context = context
        self._state = state
        self._retry_at = retry_at
        self._since: dict[str, int] = {}  # monotonic, by key of the Workload; oldest first
        self._begun: dict[str, int] = {}  # when the idle plane was seen starting for the last time

    def check(self, inner: NodeCheck | None) -> NodeCheck | None:
        """Return what a run checks before it preempts; `inner` where no idle plane runs."""
        joint = self._context.joint
        elsewhere = _NOBODY if joint.elsewhere is None else joint.elsewhere.served
        if joint.idle is None:
            return PuttingOff(inner, None, elsewhere) if elsewhere else inner
        for key in [key for key in self._since if self._state.queues.home(key) is None]:
            del self._since[key]
            self._begun.pop(key, None)
        return PuttingOff(inner, self._verdicts(list(self._since)), elsewhere)

    def ran(self, check: NodeCheck | None) -> None:
        """Query the idle plane about those that a run has delayed, and have them tried again."""
        if not isinstance(check, PuttingOff):
            return
        now, wall = self._context.clock.monotonic(), self._context.clock.wall()
        for waits in sorted(check.deferred):
            # It may have started meanwhile, or what it began may have come to nothing.
            self._retry_at(waits, Nanos(wall + _UNDECIDED_FOR))
        asked = sorted(check.asked)
        for key in asked:
            self._since[key] = now
        while len(self._since) > _REMEMBERED:
            oldest = next(iter(self._since))
            del self._since[oldest]
            self._begun.pop(oldest, None)
        verdicts = self._verdicts(asked)
        for key in asked:
            home = self._state.queues.home(key)
            if home is not None:
                decided = verdicts[key] in (Verdict.DECLINED, Verdict.NOT_ASKED)
                self._retry_at(home, Nanos(wall if decided else wall + _UNDECIDED_FOR))

    def wake(self, keys: Collection[str]) -> None:
        """Try those of these again that were delayed: the idle plane has decided."""
        wall = self._context.clock.wall()
        for key in keys:
            home = self._state.queues.home(key) if key in self._since else None
            if home is not None:
                self._retry_at(home, wall)

    def _verdicts(self, keys: Sequence[str]) -> dict[str, Verdict]:
        idle = self._context.joint.idle
        if idle is None or not keys:
            return {}
        now = self._context.clock.monotonic()
        found = [self._state.workload(key) for key in keys]
        uids = [Uid("" if each is None else each.metadata.uid) for each in found]
        said = dict(zip(keys, idle.queued_verdicts(uids), strict=True))
        for key, verdict in said.items():
            since = self._since[key]
            if verdict is Verdict.STARTING and now - since < STARTING_FOR:
                # The time that it may need to decide counts from when it has started.
                self._begun[key] = now
            elif verdict in _OPEN and now - self._begun.get(key, since) >= _UNDECIDED_FOR:
                said[key] = Verdict.DECLINED
        return said


class QuotaJoint:
    """The quota plane, as the idle plane sees it."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        nodes: NodeView,
        solver: Solver,
        idle_first: IdleFirst,
        not_evictable: NotEvictable,
        decides: Callable[[], bool],
        ready: Callable[[], bool],
    ) -> None:
        self._context = context
        self._state = state
        self._nodes = nodes
        self._solver = solver
        self._idle_first = idle_first
        self._not_evictable = not_evictable
        self._decides = decides
        self._ready = ready

    def decides(self) -> bool:
        """Whether it decides about Workloads: no Kueue does."""
        return self._decides()

    def wake(self, workloads: Collection[str]) -> None:
        """Try these Workloads again, by `namespace/name`: what was stated of them has changed."""
        self._idle_first.wake(workloads)

    def workload_of(self, pod: str) -> str:
        """Return the uid of the Workload that pods without an owner own as a group; or nothing."""
        row = self._nodes.row(Uid(pod))
        found = None if row is None else self._state.workload(row.workload)
        owners = () if found is None else found.metadata.owner_references or ()
        if found is None or not owners or any(owner.kind != "Pod" for owner in owners):
            return ""
        return found.metadata.uid

    async def release(
        self, workload: str, units: Sequence[IdleUnit], promised: Sequence[Promise]
    ) -> Release:
        """Return which units of idle work, oldest first, to evict for a pending Workload."""
        if not self._ready():
            return Release(why="the quota plane decides nothing now", waits=True)
        state = self._state
        async with state.engine:
            state.settle()
            now = self._context.clock.wall()
            idle = [uid for unit in units for uid in unit.pods]
            proof = self._nodes.joint_proof(now, idle)
            check = self._nodes.proof(now)
            standing = Standing(
                state.holdings,
                state.queues,
                proof,
                promised,
                check,
                refused=frozenset(self._not_evictable.held(now)),
                now=now,
            )
            return await self._solver.run(release, standing, workload, units)
