"""Lets the planes decide on an overlay, in virtual time, until nothing moves any more.

    deciders = Deciders.of(options)                       # as `reprieve run` is told
    snapshot = await gather(client, deciders.kinds(), clock)
    run = await decided(client, snapshot, deciders, submitted)

The planes are those of `reprieve run`, made by the same table; the lease is always held, decisions
are made in the loop itself, and stand-ins do what other controllers would do. First the cluster as
it is comes to rest, then what is submitted is created (`Run.submitted_at` parts the history), and
it comes to rest again. With nothing submitted the run says what happens to what is there.

Source: the design's "Processes and time"; specification 2, and of the quota plane, section 9.
"""

from __future__ import annotations

import asyncio
import copy
import importlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from reprieve.execution.fence import Fence
from reprieve.execution.jobs import resource_of
from reprieve.jobs.table import job_kinds
from reprieve.kube.bodies import Json
from reprieve.kube.client import Client
from reprieve.kube.events import EventRecorder
from reprieve.kube.reader import Reader
from reprieve.kube.resource import (
    GPU_WORKLOADS,
    KAIWO_CONFIGS,
    NAMESPACES,
    NODES,
    PODS,
    PREEMPTION_PARTS,
    PREEMPTIONS,
    Resource,
)
from reprieve.kube.transport import Transport
from reprieve.operator.collector import without_collections
from reprieve.operator.process import PLANES
from reprieve.planes.common.assembly import Assembled, Plane, Surroundings
from reprieve.planes.common.mirror import Mirror
from reprieve.planes.common.process_settings import (
    IDLE,
    QUOTA,
    SCHEDULING,
    OperatorOptions,
    OperatorSettings,
    operator_settings,
)
from reprieve.planes.common.solve import DecisionLimit
from reprieve.planes.quota.plane import QuotaPlane
from reprieve.telemetry.metrics import Metrics
from reprieve.units.durations import HOUR, MINUTE, SECOND
from reprieve.units.errors import UsageError
from reprieve.units.instants import Nanos
from reprieve.whatif.admission import admit_by
from reprieve.whatif.differences import Changes, changed
from reprieve.whatif.lists import read_single
from reprieve.whatif.measured import LastMeasured, measured_last
from reprieve.whatif.overlay import Change, Overlay
from reprieve.whatif.pod_templates import admitted_group, admitted_pod
from reprieve.whatif.rest import Quiet, Rest, Undecided
from reprieve.whatif.snapshot import Snapshot
from reprieve.whatif.sparing import preempting_nobody, stop_preempting
from reprieve.whatif.stand_ins import StandIns
from reprieve.whatif.submission import Submitted
from reprieve.whatif.virtual_loop import LoopClock, run_virtually
from reprieve.whatif.wire import OverlayWire

__all__ = ["AtRest", "Deciders", "Question", "Run", "Undecided", "decided", "settled"]

_PACE: Final = SECOND // 100  # between two objects that are submitted
_STAND_INS: Final = "stand-ins"
_MOST_ROUNDS: Final = 4
_EPOCH: Final = 2**31
#: What the idle plane reads beside Preemptions and the kinds of the table of jobs.
_OF_IDLE: Final = (
    PODS,
    NODES,
    NAMESPACES,
    GPU_WORKLOADS,
    KAIWO_CONFIGS,
    Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload"),
    Resource("kueue.x-k8s.io", "v1beta1", "workloads", "Workload"),
    Resource("apps", "v1", "replicasets", "ReplicaSet"),
)


@dataclass(frozen=True, slots=True)
class Deciders:
    """The planes that decide, and how they are set."""

    options: OperatorOptions
    settings: OperatorSettings

    @classmethod
    def of(cls, options: OperatorOptions) -> Deciders:
        """Return the planes that an operator with these options would run.

        Raises:
            UsageError: a setting is not accepted.
        """
        options = measured_last(options)
        return cls(options, operator_settings(options))

    def without_idle(self) -> Deciders:
        """Return the same planes but the idle one."""
        rest = tuple(each for each in self.options.controllers if each != IDLE)
        return replace(self, options=replace(self.options, controllers=rest))

    @property
    def scheduler_names(self) -> frozenset[str]:
        """Whose pods are placed."""
        if self.settings.scheduling is None:
            return frozenset()
        profiles = self.settings.scheduling.policy.profiles
        return frozenset(profile.scheduler_name for profile in profiles)

    def kinds(self) -> tuple[Resource, ...]:
        """Return the kinds that an answer depends on, as the planes and the stand-ins read them."""
        found: dict[Resource, None] = dict.fromkeys((PREEMPTIONS, PREEMPTION_PARTS))
        if SCHEDULING in self.options.controllers and self.settings.scheduling is not None:
            from reprieve.planes.scheduling.kinds import kinds
            from reprieve.planes.scheduling.served import GROUP_VERSIONS

            watched = kinds(self.settings.scheduling.policy)
            found |= dict.fromkeys(each.resource for each in watched)
            for version in GROUP_VERSIONS:
                group, _, number = version.partition("/")
                found[Resource(group, number, "podgroups", "PodGroup")] = None
        if IDLE in self.options.controllers:
            found |= dict.fromkeys(_OF_IDLE)
            found |= dict.fromkeys(resource_of(kind) for kind in job_kinds())
        if QUOTA in self.options.controllers:
            from reprieve.planes.quota.watches import Watches

            nowhere = _Nowhere()
            every = Watches(
                Mirror(Reader(None), nowhere),  # type: ignore[arg-type]
                nowhere,
                job_kinds(),
                report=lambda trouble: None,
                restarted=lambda kind, why: None,
            )
            found |= dict.fromkeys(each.reflector.resource for each in every)
        return (*found, *(each for each in StandIns.KINDS if each not in found))


class _Nowhere:
    """A clock that nobody looks at."""

    def wall(self) -> Nanos:
        return Nanos(0)

    def monotonic(self) -> Nanos:
        return Nanos(0)

    async def sleep(self, nanoseconds: int) -> None:
        raise AssertionError("nobody sleeps")


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
        planes: as they were at the end; ask them, they do nothing any more.
        scheduler_names: whose pods are placed.
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


@dataclass(frozen=True, slots=True)
class _AlwaysHeld:
    """A lease that is always held, under an epoch that no record has."""

    clock: LoopClock
    identity: str = "what-if"
    epoch: int = _EPOCH

    @property
    def held_until(self) -> Nanos | None:
        return Nanos(self.clock.monotonic() + HOUR)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a cluster that has come to rest.

    Attributes:
        submitted: what is created.
        victims: whether it may take anybody.
        idle: whether the idle plane decides, too, where it has until then.
        changes: what the cluster holds otherwise before it is created: an object before and after,
            by kind, namespace and name; None after: it is gone.
    """

    submitted: tuple[Submitted, ...] = ()
    victims: bool = True
    idle: bool = True
    changes: Changes = field(default_factory=dict)


#: Told of a cluster that has come to rest, before the question is put to it, with what puts another
#: question to it; that is to be called in a copy of this process.
AtRest = Callable[[Callable[[Question], Awaitable[Run]]], Awaitable[None]]


async def decided(
    client: Reader | None,
    snapshot: Snapshot,
    deciders: Deciders,
    submitted: Sequence[Submitted] = (),
    *,
    victims: bool = True,
    at_rest: AtRest | None = None,
) -> Run:
    """Return what would happen; objects that the planes ask for one by one are read first.

    Without a client, of a stored snapshot, they are taken not to be there. Without `victims` what
    is submitted may take nobody.

    Raises:
        Undecided: the planes did not get ready.
        UsageError: what is stored of their settings is not accepted, or more pods would be made
            than may be.
    """
    if client is None:
        return settled(snapshot, deciders, submitted, victims=victims, at_rest=at_rest)
    for _ in range(_MOST_ROUNDS):
        overlays: list[Overlay] = []
        try:
            run = settled(
                snapshot, deciders, submitted, made=overlays, victims=victims, at_rest=at_rest
            )
        except UsageError:
            if not overlays or not overlays[0].asked:
                raise
        else:
            if not run.overlay.asked:
                return run
        snapshot = snapshot.knowing(await read_single(client, overlays[0].asked))
    return run


def settled(
    snapshot: Snapshot,
    deciders: Deciders,
    submitted: Sequence[Submitted] = (),
    *,
    made: list[Overlay] | None = None,
    victims: bool = True,
    at_rest: AtRest | None = None,
) -> Run:
    """Run the planes on the snapshot until nothing moves, then again with what is submitted.

    `made` takes the overlay as soon as there is one. Paths in its `asked` were not known: what they
    hold may change the answer (`decided` reads them and runs again). Without `victims` what is
    submitted may take nobody.

    Raises:
        Undecided: the planes did not get ready.
    """

    async def main() -> Run:
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop, snapshot.at)
        overlay = Overlay(snapshot, clock)
        if made is not None:
            made.append(overlay)
        stage = await _Stage.over(overlay, clock, deciders)
        try:
            with without_collections():
                await stage.come_to_rest()
            if at_rest is not None:
                await at_rest(stage.asked)
            return await stage.asked(Question(tuple(submitted), victims))
        finally:
            await stage.end()

    with Quiet() as said:
        run = run_virtually(main)
    return replace(run, log=tuple(said.lines))


@dataclass(slots=True)
class _Stage:
    """Planes and stand-ins over an overlay, at work."""

    deciders: Deciders
    overlay: Overlay
    clock: LoopClock
    stand_ins: StandIns
    planes: dict[str, Plane]
    rest: Rest

    @classmethod
    async def over(cls, overlay: Overlay, clock: LoopClock, deciders: Deciders) -> _Stage:
        """Set them to work."""
        assembled = await _assembled(overlay, clock, deciders)
        stand_ins = StandIns(overlay, clock)
        planes = {name: each.plane for name, each in assembled.items()}
        tasks = {_STAND_INS: asyncio.create_task(stand_ins.run())}
        tasks |= {name: asyncio.create_task(plane.run()) for name, plane in planes.items()}
        rest = Rest(overlay, clock, stand_ins, tasks)
        return cls(deciders, overlay, clock, stand_ins, planes, rest)

    async def come_to_rest(self) -> None:
        """Wait until the cluster as it is has come to rest.

        Raises:
            Undecided: the planes did not get ready.
        """
        await self.rest.ready(list(self.planes.values()))
        await self.rest.come()

    async def asked(self, question: Question) -> Run:
        """Submit what is asked about, and return what happened once nothing moves any more."""
        if not question.idle:
            await self._without(IDLE)
        if question.changes:
            changed(self.overlay, question.changes)
            await self.rest.come()
        if not question.victims:
            stop_preempting(self.overlay)
            await self.rest.come()
        quota = self.planes.get(QUOTA)
        if isinstance(quota, QuotaPlane) and self.deciders.settings.quota is not None:
            await admit_by(self.overlay, quota, self.deciders.settings.quota, question.submitted)
        start, at = len(self.overlay.history), self.clock.wall()
        created = [await self._create(each, question) for each in question.submitted]
        came = await self.rest.come()
        return Run(
            self.overlay,
            tuple(created),
            tuple(self.overlay.history[start:]),
            at,
            self.clock.wall(),
            came,
            troubles=tuple(t for plane in self.planes.values() for t in plane.troubles()),
            planes=tuple(self.planes.values()),
            scheduler_names=self.deciders.scheduler_names,
        )

    async def end(self) -> None:
        """Let nobody work any more."""
        await _ended(self.rest.tasks.values())

    async def _create(self, submitted: Submitted, question: Question) -> Json:
        obj = submitted.object
        if submitted.resource == PODS:
            obj = admitted_pod(self.overlay, copy.deepcopy(obj))
        elif submitted.resource.kind == "PodGroup":
            obj = admitted_group(self.overlay, copy.deepcopy(obj))
        if not question.victims:
            obj = preempting_nobody(obj)
        created = self.overlay.create(submitted.resource, obj)
        # Before what stands in for controllers has its turn.
        self.stand_ins.made_pods.submitted(created, submitted.place)
        # As a client sends one after the other; a gang may be decided about before it is whole.
        await self.clock.sleep(_PACE)
        return created

    async def _without(self, name: str) -> None:
        """Have one plane, if it is there, decide no more."""
        self.planes.pop(name, None)
        task = self.rest.tasks.pop(name, None)
        if task is not None:
            await _ended([task])


async def _ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    found = list(tasks)
    for task in found:
        task.cancel()
    await asyncio.gather(*found, return_exceptions=True)


async def _assembled(
    overlay: Overlay, clock: LoopClock, deciders: Deciders
) -> dict[str, Assembled]:
    """Return the planes as the operator makes them, over the overlay."""
    held = _AlwaysHeld(clock)
    client = Client(Transport(OverlayWire(overlay), clock))
    given = Surroundings(
        options=deciders.options,
        settings=deciders.settings,
        client=client,
        mirror=Mirror(client, clock),
        clock=clock,
        metrics=Metrics(),
        # It never runs: what would be told stays unsaid.
        events=EventRecorder(client, clock, instance=held.identity),
        fence=Fence(held, clock, MINUTE),
        identity=held.identity,
        decision_limit=DecisionLimit(inline=True),
        lagging=lambda: False,
        stop=asyncio.Event(),
        wait_leading=None,
        measured=LastMeasured(overlay.snapshot, deciders.settings.start.policy),
    )
    made: dict[str, Assembled] = {}
    for name, module in PLANES.items():
        if name in deciders.options.controllers:
            made[name] = await importlib.import_module(module).assemble(given)
            given = replace(given, view=made[name].view or given.view)
    return made
