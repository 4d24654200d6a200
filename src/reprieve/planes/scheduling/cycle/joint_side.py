"""What the scheduling plane answers to the idle plane of its process, and when it waits for it.

1. Preemption for a unit whose demand the idle plane has not decided about, or evicts for, is
   *delayed*: for a few seconds while nothing is decided, with a second query early on, since the
   root of a new pod is known a moment later and may not have opted in; for a minute at most while
   the idle plane starts, and for as long as an open intent serves it, also one of a plane of
   another process.
2. A unit that has a node once pods that end already have ended is *patient*: no work is evicted for
   it, for a minute at most.
3. What the idle plane found is confirmed: with its victims absent, and with what ends already, all
   pods of the demand are placed by all filters, and not without the victims.
4. Where neither idle work nor priority is enough, but both together are, it states which idle work
   has to be evicted (`engine.scheduling.mixtures`). Once the idle plane evicts that, preemption for
   the unit finds its own victims as if it were absent, once.

Source: the design's "Where the planes meet".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MILLISECOND, MINUTE, SECOND
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.demands import Rejection
from reprieve.engine.disruptions.questions import Hold
from reprieve.engine.mixed import FAR_FEWER, IdlePods, Mixture
from reprieve.engine.placement.filtering import PlacementScorer
from reprieve.engine.placement.profile import Policy
from reprieve.engine.plan import Plane
from reprieve.engine.scheduling.confirming import MOST_AHEAD, refusal
from reprieve.engine.scheduling.demand_devices import priority_of
from reprieve.engine.scheduling.gangs.job import JobOptions
from reprieve.engine.scheduling.mixtures import mixture
from reprieve.engine.scheduling.nodes.leaving import Delayed
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.plugins import PostFilter
from reprieve.engine.scheduling.session import Session
from reprieve.planes.common.joint import REJECTIONS, STARTING_FOR, Joint, Verdict
from reprieve.planes.common.solve import Solver
from reprieve.planes.scheduling.context import SchedulingContext
from reprieve.planes.scheduling.cycle.delays import Delays
from reprieve.planes.scheduling.cycle.open_plans import claim_nodes
from reprieve.planes.scheduling.state import ClusterState
from reprieve.units.ids import Uid

__all__ = ["Deferrals", "SchedulingJoint"]

_UNDECIDED_FOR: Final = 5 * SECOND
_ASKED_AGAIN: Final = 250 * MILLISECOND  # whether the root of a pod is known by now
_PATIENT_FOR: Final = MINUTE
_LOOKED_AGAIN: Final = 2 * SECOND  # whether another process still evicts
_REMEMBERED: Final = 20_000


class Deferrals:
    """How long each unit has been delayed; none is where no other plane evicts for it.

    `names`: by what the demand of a unit is known in records. `owner`: uid of the object that
    creates the pods of a unit one by one; empty without any.
    """

    def __init__(
        self,
        joint: Joint,
        clock: Clock,
        names: Callable[[Unit], Iterable[str]] = lambda unit: unit.pods,
        owner: Callable[[Unit], str] = lambda unit: "",
    ) -> None:
        self._names = names
        self._owner = owner
        self._joint = joint
        self._clock = clock
        # Since when each unit waits, monotonic, by its name; oldest first.
        self._starting: dict[str, int] = {}
        self._undecided: dict[str, int] = {}
        self._patient: dict[str, int] = {}
        # Likewise by their owner, until one of its units is placed or preempts.
        self._gathering: dict[str, int] = {}
        # The only pods that may be victims of a unit, by its name.
        self.among: dict[str, frozenset[Uid]] = {}
        # Units for which idle work stays, since fewer devices are evicted by priority, by name.
        self.by_priority: dict[str, None] = {}
        # What the idle plane stated of the units of the last slice, by name.
        self._said: dict[str, Rejection | None] = {}

    def of(self, units: Sequence[Unit]) -> Delayed:
        """Return who is delayed, and who is patient."""
        idle, elsewhere = self._joint.idle, self._joint.elsewhere
        now = self._clock.monotonic()
        deferred: set[Unit] = set()
        if elsewhere is not None and elsewhere.served:
            deferred.update(unit for unit in units if elsewhere.serve(self._names(unit)))
        until: dict[Unit, int] = dict.fromkeys(deferred, now + _LOOKED_AGAIN)
        if idle is None or not self._joint.several:
            return Delayed(frozenset(deferred), until=until) if deferred else Delayed()
        patient: set[Unit] = set()
        among = {unit: self.among[unit.name] for unit in units if unit.name in self.among}
        without: dict[Unit, frozenset[Uid]] = {}
        verdicts = idle.verdicts([unit.pods for unit in units])
        self._said = {
            unit.name: Rejection.FEWER
            if unit in among or unit.name in self.by_priority
            else REJECTIONS.get(verdict)
            for unit, verdict in zip(units, verdicts, strict=True)
        }
        for unit, verdict in zip(units, verdicts, strict=True):
            gathered = self._gathered(unit, now)
            if unit in deferred:
                continue
            since = self._patient.get(unit.name, now)
            if now - since < _PATIENT_FOR:
                patient.add(unit)
                until[unit] = since + _PATIENT_FOR
            if verdict is Verdict.STARTING:
                self._undecided.pop(unit.name, None)
                if now - _since(self._starting, unit.name, now) < STARTING_FOR:
                    deferred.add(unit)
                    until[unit] = now + _UNDECIDED_FOR
                continue
            self._starting.pop(unit.name, None)
            if verdict is Verdict.UNDECIDED:
                since = _since(self._undecided, unit.name, now)
                if now - since < _UNDECIDED_FOR:
                    deferred.add(unit)
                    again = now - since < _ASKED_AGAIN
                    until[unit] = since + (_ASKED_AGAIN if again else _UNDECIDED_FOR)
                continue
            self._undecided.pop(unit.name, None)
            if verdict is Verdict.HELPED:
                without[unit] = idle.going_for(unit.pods)
            if verdict is Verdict.SERVED or (unit in without and self._has_plan(unit)):
                deferred.add(unit)
            elif unit not in without and gathered > now:
                deferred.add(unit)
                until[unit] = gathered
        return Delayed(frozenset(deferred), frozenset(patient), until, among, without)

    def _gathered(self, unit: Unit, now: int) -> int:
        """Return when all pods that are created with those of a unit are seen; 0: it is alone."""
        owner = self._owner(unit)
        return _since(self._gathering, owner, now) + _ASKED_AGAIN if owner else 0

    def _has_plan(self, unit: Unit) -> bool:
        """Whether the last record of a unit's demand is one of this plane."""
        planes = {self._joint.demands.plane_of(uid) for uid in unit.pods}
        return Plane.SCHEDULING in planes

    def rejection(self, unit: Unit) -> Rejection | None:
        """Return why the idle plane evicts nothing for a unit of the last slice, if queried."""
        return self._said.get(unit.name)

    def is_mixed(self, unit: Unit) -> bool:
        """Whether the idle plane evicts for a unit of the last slice, and leaves it the rest."""
        return unit.name in self._said and self._said[unit.name] is None

    def waits(self, unit: Unit, *, for_room: bool) -> None:
        """Record an attempt: the unit waits for pods that end, or it does not."""
        if for_room:
            _since(self._patient, unit.name, self._clock.monotonic())
        else:
            self._patient.pop(unit.name, None)

    def forget(self, unit: Unit) -> None:
        """A unit was placed, or was decided about without being delayed."""
        self._starting.pop(unit.name, None)
        self._undecided.pop(unit.name, None)
        self._patient.pop(unit.name, None)
        self._gathering.pop(self._owner(unit), None)
        self.among.pop(unit.name, None)
        self.by_priority.pop(unit.name, None)


def _since(known: dict[str, int], name: str, now: int) -> int:
    since = known.setdefault(name, now)
    if len(known) > _REMEMBERED:
        del known[next(iter(known))]
    return since


class SchedulingJoint:
    """The scheduling plane, as the idle plane sees it."""

    def __init__(
        self,
        context: SchedulingContext,
        state: ClusterState,
        solver: Solver,
        deferrals: Deferrals,
        *,
        plugins: Mapping[str, PostFilter],
        jobs: Callable[[], JobOptions],
        holds: Callable[[Iterable[Unit]], Mapping[Unit, Mapping[Uid, Hold]]],
        delays: Delays,
    ) -> None:
        self._delays = delays
        self._plugins = plugins
        self._jobs = jobs
        self._holds = holds
        self._fruitless: OrderedDict[str, tuple[object, ...]] = OrderedDict()
        self._deferrals = deferrals
        self._context = context
        self._state = state
        self._solver = solver

    def schedules(self, scheduler_name: str) -> bool:
        """Whether pods of this scheduler name are ours to place."""
        return scheduler_name in self._context.scheduler_names

    def goes_whole(self, group: str) -> bool:
        """Whether the pods of a group are evicted together or not at all."""
        row = self._state.group(group)
        return (
            self._context.policy.gates.generic_workload
            and row is not None
            and (row.all_or_nothing or row.composite)
        )

    def wake(self, pods: Collection[Uid]) -> None:
        """Try these pods again."""
        rows = [row for uid in pods if (row := self._state.pod(uid)) is not None]
        keys = dict.fromkeys(self._unit_key(row) for row in rows)
        self._state.queue.activate(keys, self._context.clock.monotonic())
        self._state.changed()

    def claim(self, nodes: Mapping[Uid, str]) -> None:
        """Reserve for each of these pods, for a minute, the node that a plan frees for it."""
        claim_nodes(self._state, nodes, self._context.clock.monotonic())

    def waiting_with(self, pods: Sequence[Uid]) -> frozenset[Uid]:
        """Return these pods, and all that wait in the same groups."""
        units = self._units(pods) or ()
        return frozenset(pods).union(*(unit.pods for unit in units))

    async def refused_without(
        self, pods: Sequence[Uid], gone: Collection[Uid], idle: Collection[Uid]
    ) -> str:
        """Return why the pods cannot all be placed without others, empty if they can.

        `idle`: the pods of all idle work, some of which may have to be evicted by priority alone.
        """
        units = self._units(pods)
        if units is None:
            return ""
        if not units:
            return "its pods no longer wait for a node"
        context, snapshot = self._context, self._state.cluster.snapshot()
        free = not self._holds(units) and not self._delays.of(units)
        ahead = self._ahead_of(snapshot, units)
        spared = self._holds(ahead) if ahead else {}
        preempting = [each for each in ahead if each not in spared and not self._delays.of([each])]
        question = partial(
            refusal,
            snapshot,
            context.policy,
            units,
            frozenset(gone),
            frozenset(idle) | frozenset(gone),
            frozenset(self._state.overdue),
            context.clock.wall() // SECOND if context.policy.timed else 0,
            context.scorers,
            ahead,
            preempting=preempting,
        )
        refused, fewer = await self._solver.run(partial(question, by_priority=free))
        if refused == FAR_FEWER and any(map(self._comes_back, fewer)):
            refused, fewer = await self._solver.run(question)
        if refused == FAR_FEWER:
            self._deferrals.by_priority.update(dict.fromkeys(unit.name for unit in units))
            while len(self._deferrals.by_priority) > _REMEMBERED:
                del self._deferrals.by_priority[next(iter(self._deferrals.by_priority))]
        if fewer:
            self._deferrals.among.update((unit.name, fewer) for unit in units)
            while len(self._deferrals.among) > _REMEMBERED:
                del self._deferrals.among[next(iter(self._deferrals.among))]
        return refused

    def _comes_back(self, victim: Uid) -> bool:
        """Whether a pod is made anew, and may then preempt those of a lower priority."""
        row = self._state.pod(victim)
        return row is None or bool(row.controller)

    def _ahead_of(self, snapshot: Snapshot, units: Sequence[Unit]) -> list[Unit]:
        """Return the first units of higher priority that wait as well; older gangs are left out."""
        own = max(priority_of(snapshot, unit) for unit in units)
        higher = [
            each.row
            for each in snapshot.pending.values()
            if each.row.priority > own and not each.row.gang and self._state.ours(each.row)
        ]
        higher.sort(key=lambda row: (-row.priority, row.uid))
        keys = dict.fromkeys(self._unit_key(row) for row in higher)
        first = frozenset(islice(keys, MOST_AHEAD))
        return self._units([row.uid for row in higher if self._unit_key(row) in first]) or []

    async def mixture(
        self, pods: Sequence[Uid], idle: Sequence[IdlePods], most: int = 0
    ) -> Mixture | None:
        """Return which idle work to evict beside work of lower priority; None where none helps.

        None, too, where priority alone may not preempt yet, or evicts no more devices. `idle`: what
        may be evicted, oldest first. `most`: idle work alone is enough, and so many devices or more
        are no better.
        """
        units = self._units(pods)
        if not units or self._delays.of(units):
            return None
        context, holds = self._context, self._holds(units)
        snapshot, overdue = self._state.cluster.snapshot(), frozenset(self._state.overdue)
        progress = self._state.cluster.progress
        asked = (progress.helped, progress.joined, overdue, tuple(idle), tuple(units), most)
        name = units[0].name
        if self._fruitless.get(name) == asked:
            return None
        begin = partial(
            _session,
            snapshot,
            context.policy,
            self._plugins,
            overdue,
            self._jobs(),
            context.clock.wall() // SECOND if context.policy.timed else 0,
            context.scorers,
            holds,
        )
        found = await self._solver.run(mixture, snapshot, units, idle, begin, most)
        if found is None and not holds and not context.policy.timed:
            self._fruitless[name] = asked
            self._fruitless.move_to_end(name)
            while len(self._fruitless) > _REMEMBERED:
                self._fruitless.popitem(last=False)
        return found

    def _units(self, pods: Sequence[Uid]) -> list[Unit] | None:
        """Return the units of waiting pods; None where an older gang is among them."""
        found: dict[str, Unit] = {}
        for uid in pods:
            row = self._state.pod(uid)
            if row is None or not self._state.ours(row):
                continue
            if row.gang:
                return None
            key = self._unit_key(row)
            if key == row.uid:
                found[key] = Unit((row.uid,))
            elif key not in found:
                members = [each for each in self._state.members(key) if self._state.ours(each)]
                members.sort(key=lambda each: (each.name, each.uid))
                found[key] = Unit(tuple(each.uid for each in members), key)
        return list(found.values())

    def _unit_key(self, row: PodRow) -> str:
        if row.group and self._context.policy.gates.generic_workload:
            key = f"{row.namespace}/{row.group}"
            return self._state.root(key)[1] or key
        return row.uid


def _session(
    snapshot: Snapshot,
    policy: Policy,
    plugins: Mapping[str, PostFilter],
    overdue: frozenset[Uid],
    jobs: JobOptions,
    now: int,
    scorers: Mapping[str, PlacementScorer],
    holds: Mapping[Unit, Mapping[Uid, Hold]],
    waits: Delayed,
) -> Session:
    """Return a session as one of the decision loop, for units of no older gang."""
    return Session(
        snapshot,
        policy,
        plugins=plugins,
        overdue=overdue,
        jobs=jobs,
        now=now,
        scorers=scorers,
        holds=holds,
        waits=waits,
    )
