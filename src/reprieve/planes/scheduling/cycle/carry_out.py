"""The one place that carries out effects of decisions, in their order.

A dry run writes nothing, holds no work and evicts no work: its plans are recorded as such, and the
rest is done as always. Source: the design's "How data flows".
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, assert_never

from kubeworld.units.durations import MINUTE
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.planes.scheduling.context import SchedulingContext, log
from reprieve.planes.scheduling.cycle.bindings import Bindings
from reprieve.planes.scheduling.cycle.effects import (
    Announce,
    Assume,
    Effect,
    Evict,
    GiveBack,
    Hold,
    Log,
    Nominated,
    Observe,
    Remind,
    Return,
    WriteGroup,
    WritePod,
)
from reprieve.planes.scheduling.cycle.failed_attempts import log_failed
from reprieve.planes.scheduling.cycle.observation import log_refused, observe
from reprieve.planes.scheduling.cycle.preemptions import Preemptions
from reprieve.planes.scheduling.references import pod_reference, reference_of
from reprieve.planes.scheduling.state import ClusterState
from reprieve.planes.scheduling.statuses import Statuses
from reprieve.units.ids import Uid

__all__ = ["CarryOut"]

_NOMINATED_FOR: Final = MINUTE


class CarryOut:
    """Carries out effects on the queue, the overlay of the cluster, and the API server."""

    def __init__(
        self,
        context: SchedulingContext,
        state: ClusterState,
        statuses: Statuses,
        bindings: Bindings,
        preemptions: Preemptions,
    ) -> None:
        self._context = context
        self._state = state
        self._statuses = statuses
        self._bindings = bindings
        self._preemptions = preemptions

    def all(self, effects: Iterable[Effect], snapshot: Snapshot) -> None:
        """Carry out the effects of a decision on this snapshot."""
        for effect in effects:
            self._one(effect, snapshot)

    def _one(self, effect: Effect, snapshot: Snapshot) -> None:
        context, queue, clock = self._context, self._state.queue, self._context.clock
        match effect:
            case Observe(attempt, profile, took):
                observe(context.scheduler_metrics, attempt, profile, took)
                log_refused(attempt, snapshot, context.policy)
                log_failed(attempt, snapshot, context.policy)
            case Log(level, text):
                log.log(level, "%s", text)
            case Return(unit, outcome, placed, rejected_by):
                now = clock.monotonic()
                queue.done(unit, outcome, now, placed=placed, rejected_by=rejected_by)
            case Hold(key):
                if not context.dry_run:
                    queue.hold(key)
            case Remind(unit, at):
                queue.remind(unit, clock.monotonic() + max(0, at - clock.wall()))
            case Assume(unit, placed, annotations):
                self._bindings.assume(unit, placed, annotations)
            case Nominated(uid, node, priority):
                self._nominate(uid, node, priority)
            case GiveBack(claims):
                self._bindings.give_back(claims)
            case WritePod(row, condition, nominated):
                self._statuses.pod(row, condition, nominated)
            case WriteGroup(group, condition):
                self._statuses.group(group, condition)
            case Announce(row, said, scheduler_name, by):
                related = reference_of(by, "") if by is not None else None
                context.announce(pod_reference(row), said, scheduler_name, related)
            case Evict():
                self._evict(effect, snapshot)
            case _:
                assert_never(effect)

    def _evict(self, effect: Evict, snapshot: Snapshot) -> None:
        after = partial(self.all, effect.then, snapshot)
        if self._context.dry_run:
            self._preemptions.record_dry_run(effect.plan, effect.preemptor, effect.record)
            after()
            return
        for each in effect.lower:
            self._nominate(each.uid, "", each.priority)
        self._preemptions.begin(
            effect.plan, effect.preemptor, effect.lower, after, record=effect.record
        )

    def _nominate(self, uid: Uid, node: str, priority: int) -> None:
        deadline = self._context.clock.monotonic() + _NOMINATED_FOR
        self._state.cluster.nominate(uid, node, priority, deadline)
