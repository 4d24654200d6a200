"""Planes and stand-ins at work over an overlay: made, brought to rest, queried, and ended.

The planes are made by the operator's own table; the lease is always held, and decisions are made in
the loop itself. First the cluster as it is comes to rest, then what is submitted is created
(`Run.submitted_at` parts the history), and it comes to rest again.

Source: the design's "Processes and time"; specification 2, and of the quota plane, section 9.
"""

from __future__ import annotations

import asyncio
import copy
import importlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kubeworld.time import LoopClock
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from kubeworld.writes.refusals import Refused
from reprieve.engine.disruptions.governor import Governor
from reprieve.execution.accounts.harm_ledger import HarmLedger
from reprieve.execution.accounts.harm_store import HarmSite
from reprieve.execution.fence import Fence
from reprieve.kube.bodies import Json
from reprieve.kube.client import Client
from reprieve.kube.recording.events import EventRecorder
from reprieve.kube.resource import HARM_BUDGETS, PODS
from reprieve.kube.transport import Transport
from reprieve.operator.planes import PLANES
from reprieve.planes.common.assembly import Assembled, Plane, Surroundings
from reprieve.planes.common.disruptions.harm_budgets import HarmBudgets
from reprieve.planes.common.disruptions.loop_notices import LoopNotices
from reprieve.planes.common.joint import Joint
from reprieve.planes.common.mirrors.mirror import Mirror
from reprieve.planes.common.process_settings import IDLE, QUOTA
from reprieve.planes.common.solve import DecisionLimit
from reprieve.planes.quota.plane import QuotaPlane
from reprieve.telemetry.metrics import Metrics
from reprieve.whatif.controllers.pod_templates import admitted_group, admitted_pod
from reprieve.whatif.controllers.stand_ins import StandIns
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.copy.sparing import preempting_nobody, stop_preempting
from reprieve.whatif.copy.wire import OverlayWire
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.happened import Run
from reprieve.whatif.measured import LastMeasured
from reprieve.whatif.rest import Rest
from reprieve.whatif.snapshots.differences import Changes, changed
from reprieve.whatif.submitting.submission import Submitted, refused_as_it_stands
from reprieve.whatif.submitting.webhooks import admit_by
from reprieve.whatif.waited import Saving, longest_delay

__all__ = ["Question", "Stage"]

_PACE: Final = SECOND // 100  # between two objects that are submitted
_STAND_INS: Final = "stand-ins"
_BUDGETS: Final = "harm budgets"
_EPOCH: Final = 2**31


@dataclass(frozen=True, slots=True)
class Question:
    """What is queried of a cluster that has come to rest.

    Attributes:
        submitted: what is created.
        victims: whether it may preempt any work.
        idle: whether the idle plane decides, too, where it has until then.
        changes: what the cluster holds otherwise before it is created: an object before and after,
            by kind, namespace and name; None after: it was deleted.
    """

    submitted: tuple[Submitted, ...] = ()
    victims: bool = True
    idle: bool = True
    changes: Changes = field(default_factory=dict)


@dataclass(slots=True)
class Stage:
    """Planes and stand-ins over an overlay, at work."""

    deciders: Deciders
    overlay: Overlay
    clock: LoopClock
    stand_ins: StandIns
    planes: dict[str, Plane]
    rest: Rest
    joint: Joint = field(default_factory=Joint)

    @classmethod
    async def over(cls, overlay: Overlay, clock: LoopClock, deciders: Deciders) -> Stage:
        """Set them to work."""
        joint = Joint()
        given = _surroundings(overlay, clock, deciders, joint)
        assembled = await _assembled(given, deciders)
        stand_ins = StandIns(overlay, clock)
        planes = {name: each.plane for name, each in assembled.items()}
        tasks = {_STAND_INS: asyncio.create_task(stand_ins.run())}
        if overlay.all(HARM_BUDGETS):
            given.governor.harm.known = lambda: False
            tasks[_BUDGETS] = asyncio.create_task(_follow_budgets(given))
        tasks |= {name: asyncio.create_task(plane.run()) for name, plane in planes.items()}
        delay = longest_delay(deciders.settings, overlay)
        rest = Rest(overlay, clock, stand_ins, tasks, Saving(overlay), delay)
        return cls(deciders, overlay, clock, stand_ins, planes, rest, joint)

    async def come_to_rest(self) -> None:
        """Wait until the cluster as it is has come to rest.

        Raises:
            Undecided: the planes did not get ready.
        """
        await self.rest.ready(list(self.planes.values()))
        await self.rest.come()

    async def asked(self, question: Question) -> Run:
        """Submit the queried work, and return what happened once nothing moves any more."""
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
        frameworks = None
        if isinstance(quota, QuotaPlane):
            frameworks = frozenset(kind.framework for kind in quota.context.options.kinds)
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
            frameworks=frameworks,
            joint=self.joint,
            delay=self.rest.delay,
        )

    async def end(self) -> None:
        """Stop all that works."""
        await _ended(self.rest.tasks.values())

    async def _create(self, submitted: Submitted, question: Question) -> Json:
        obj = submitted.object
        if submitted.resource == PODS:
            obj = admitted_pod(self.overlay, copy.deepcopy(obj))
        elif submitted.resource.kind == "PodGroup":
            obj = admitted_group(self.overlay, copy.deepcopy(obj))
        if not question.victims:
            obj = preempting_nobody(obj)
        try:
            created = self.overlay.create(submitted.resource, obj)
        except Refused as refusal:
            raise refused_as_it_stands(submitted, refusal.reason, refusal.message) from None
        # Before what stands in for controllers has its turn.
        self.stand_ins.made_pods.submitted(created, submitted.place)
        # As a client sends one after the other; a gang may be decided about before it is whole.
        await self.clock.sleep(_PACE)
        return created

    async def _without(self, name: str) -> None:
        """Have one plane, if it is there, decide no more."""
        self.planes.pop(name, None)
        if name == IDLE:
            self.joint.idle = None
        task = self.rest.tasks.pop(name, None)
        if task is not None:
            await _ended([task])


@dataclass(frozen=True, slots=True)
class _AlwaysHeld:
    """A lease that is always held, under an epoch that no record has."""

    clock: LoopClock
    identity: str = "what-if"
    epoch: int = _EPOCH

    @property
    def held_until(self) -> Nanos | None:
        return Nanos(self.clock.monotonic() + HOUR)


async def _ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    found = list(tasks)
    for task in found:
        task.cancel()
    await asyncio.gather(*found, return_exceptions=True)


async def _follow_budgets(given: Surroundings) -> None:
    """Have the planes hold what harm budgets do not allow, on top of what is stored."""
    governor, namespace = given.governor, given.settings.start.operator_namespace
    followed = HarmBudgets(governor, given.client, given.mirror, given.clock)
    # What happens here is not stored.
    ledger = HarmLedger(HarmSite(given.client, namespace, given.fence, given.clock, governor))
    governor.harm.known = lambda: followed.known and ledger.loaded
    await ledger.load()
    await followed.run()


def _surroundings(
    overlay: Overlay, clock: LoopClock, deciders: Deciders, joint: Joint
) -> Surroundings:
    """Return what the planes have of an operator, over the overlay."""
    held = _AlwaysHeld(clock)
    client = Client(Transport(OverlayWire(overlay), clock))
    governor, metrics = Governor(deciders.settings.governor), Metrics()
    return Surroundings(
        options=deciders.options,
        settings=deciders.settings,
        client=client,
        mirror=Mirror(client, clock),
        clock=clock,
        metrics=metrics,
        governor=governor,
        loops=LoopNotices(governor, metrics),
        # It never runs: no event is emitted.
        events=EventRecorder(client, clock, instance=held.identity),
        fence=Fence(held, clock, MINUTE),
        identity=held.identity,
        decision_limit=DecisionLimit(inline=True),
        lagging=lambda: False,
        stop=asyncio.Event(),
        wait_leading=None,
        joint=joint,
        measured=LastMeasured(overlay.snapshot, deciders.settings.start.policy),
    )


async def _assembled(given: Surroundings, deciders: Deciders) -> dict[str, Assembled]:
    """Return the planes as the operator makes them."""
    made: dict[str, Assembled] = {}
    for name, module in PLANES.items():
        if name in deciders.options.controllers:
            made[name] = await importlib.import_module(module).assemble(given)
            given = replace(given, view=made[name].view or given.view)
    return made
