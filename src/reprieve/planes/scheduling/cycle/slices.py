"""One slice of the scheduling cycle: as many units as fit into its time, one after the other.

Each decision assumes those before it. At the turn of a unit that does not fit, a unit of another
namespace that fits without victims is placed before victims are looked for. Runs in the solver
thread. Source: the design's "How data flows" and "Processes and time".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import MILLISECOND, SECOND
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.disruptions.questions import Hold
from reprieve.engine.placement.filtering import PlacementScorer
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.plan_faults import PlanFault, PlanRefused
from reprieve.engine.scheduling.gangs.cycle import GangGroup
from reprieve.engine.scheduling.gangs.job import NO_JOBS, JobOptions
from reprieve.engine.scheduling.needless import needed_victims
from reprieve.engine.scheduling.nodes.leaving import NONE_DEFERRED, Delayed, left_out
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.plugins import PostFilter
from reprieve.engine.scheduling.pod import PodPostFilter
from reprieve.engine.scheduling.pod_preemption import preempt_for_pod
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS, Session
from reprieve.planes.common.solve import at_work_on
from reprieve.planes.scheduling.cycle.effects import Record
from reprieve.records.scheduling.record import encode_scheduling
from reprieve.units.ids import Uid

__all__ = ["Decided", "decide"]

_SLICE: Final = 20 * MILLISECOND
_NO_GANGS: Final[Mapping[str, GangGroup]] = MappingProxyType({})
_NOBODY_HELD: Final[Mapping[Unit, Mapping[Uid, Hold]]] = MappingProxyType({})
_NO_SCORERS: Final[Mapping[str, PlacementScorer]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Decided:
    """One attempt, and its nanoseconds. `failure`: a fault of ours or a plugin's.

    `record` makes the input of an attempt with a plan, as it is stored; this is slow. `sample` is
    the input of one without, where that is wanted.
    """

    unit: Unit
    attempt: Attempt | None
    took: int
    failure: Exception | None = None
    record: Record | None = None
    sample: dict[str, Any] | None = None


def decide(
    snapshot: Snapshot,
    policy: Policy,
    units: list[Unit],
    clock: Clock,
    overdue: frozenset[Uid] = frozenset(),
    plugins: Mapping[str, PostFilter] = GROUP_POST_FILTERS,
    gangs: Mapping[str, GangGroup] = _NO_GANGS,
    jobs: JobOptions = NO_JOBS,
    scorers: Mapping[str, PlacementScorer] = _NO_SCORERS,
    preempt_pod: PodPostFilter = preempt_for_pod,
    holds: Mapping[Unit, Mapping[Uid, Hold]] = _NOBODY_HELD,
    sampled: Callable[[], bool] = lambda: False,
    waits: Delayed = NONE_DEFERRED,
    glances: Sequence[Unit] = (),
) -> tuple[list[Decided], list[Unit]]:
    """Decide units in order for the time of a slice; return the decisions and who is left.

    A plan without a proof is a failure of its unit. `sampled`: whether a refusal's input is wanted.
    `glances`: those of the units that are placed first, as far as they fit, if the first does not.
    """
    wall = clock.wall() // SECOND if policy.timed else 0
    begin = partial(
        Session,
        snapshot,
        policy,
        plugins=plugins,
        overdue=overdue,
        gangs=gangs,
        jobs=jobs,
        now=wall,
        scorers=scorers,
        preempt_pod=preempt_pod,
        holds=holds,
    )
    session = begin(waits=waits)
    decided, left = _glance(session, units, glances, clock)
    if decided:
        return decided, left
    question = _Question(snapshot, policy, clock, overdue, wall, jobs, holds, sampled)
    decided, left = _in_order(session, units, question, waits)
    attempts = [each.attempt for each in decided if each.attempt is not None]
    if len(attempts) == len(decided):
        among = needed_victims(snapshot, attempts, lambda given: begin(waits=given), waits)
        if among:
            fewer = replace(waits, among={**waits.among, **among})
            decided, others = _in_order(
                begin(waits=fewer), [each.unit for each in decided], question, fewer
            )
            left = [*others, *left]
    return decided, left


@dataclass(frozen=True, slots=True)
class _Question:
    """What a slice is decided on; `wall`: Unix seconds, for a policy that is timed."""

    snapshot: Snapshot
    policy: Policy
    clock: Clock
    overdue: frozenset[Uid]
    wall: int
    jobs: JobOptions
    holds: Mapping[Unit, Mapping[Uid, Hold]]
    sampled: Callable[[], bool]


def _in_order(
    session: Session, units: list[Unit], question: _Question, waits: Delayed
) -> tuple[list[Decided], list[Unit]]:
    """Decide units one after the other for the time of a slice; return who is left."""
    snapshot, policy, clock = question.snapshot, question.policy, question.clock
    overdue, wall, jobs = question.overdue, question.wall, question.jobs
    decided: list[Decided] = []
    before = start = clock.monotonic()
    for number, unit in enumerate(units):
        if number and before - start >= _SLICE:
            return decided, units[number:]
        at_work_on(unit.name)
        held = question.holds.get(unit, {})
        try:
            attempt = session.attempt(unit)
            faults = _faults(session, policy, attempt, wall, jobs, held, overdue, waits)
        except Exception as failure:
            # Nothing is known of the session's state any more: the others get a new one.
            decided.append(Decided(unit, None, clock.monotonic() - before, failure))
            return decided, units[number + 1 :]
        if attempt is None:
            return decided, units[number:]
        took = clock.monotonic() - before
        if faults:
            return [*decided, Decided(unit, None, took, PlanRefused(faults))], units[number + 1 :]
        made = partial(_input, snapshot, policy, unit, tuple(decided), overdue, wall, held, waits)
        decided.append(_decided(unit, attempt, took, made, question.sampled))
        before = clock.monotonic()
    return decided, []


def _faults(
    session: Session,
    policy: Policy,
    attempt: Attempt | None,
    wall: int,
    jobs: JobOptions,
    held: Mapping[Uid, Hold],
    overdue: frozenset[Uid],
    waits: Delayed,
) -> tuple[PlanFault, ...]:
    """Return what is wrong with the plan of an attempt, nothing where it has none."""
    if attempt is None or attempt.plan is None:
        return ()
    known, whole, of_jobs = session.nominations, jobs.policy.victim_gangs, jobs.policy
    snapshot = left_out(session.snapshot, waits.without.get(attempt.unit, ()))
    return faults_of(snapshot, policy, attempt, wall, known, whole, held, overdue, of_jobs)


def _glance(
    session: Session, units: list[Unit], glances: Sequence[Unit], clock: Clock
) -> tuple[list[Decided], list[Unit]]:
    """Place what fits as it is, unless the first unit does; return who is left."""
    decided: list[Decided] = []
    if not glances:
        return decided, units
    start = before = clock.monotonic()
    for unit in (units[0], *glances):
        at_work_on(unit.name)
        try:
            attempt = session.placed(unit)
        except Exception as failure:
            decided.append(Decided(unit, None, clock.monotonic() - before, failure))
            break
        if attempt is not None:
            decided.append(Decided(unit, attempt, clock.monotonic() - before))
        before = clock.monotonic()
        if before - start >= _SLICE or (unit is units[0] and attempt is not None):
            break
    known = {each.unit for each in decided}
    return decided, [unit for unit in units if unit not in known]


def _decided(
    unit: Unit, attempt: Attempt, took: int, made: Record, sampled: Callable[[], bool]
) -> Decided:
    """Return the decision with its input, which cycles of gangs have none of."""
    if attempt.gang is not None:
        return Decided(unit, attempt, took)
    if attempt.plan is not None:
        return Decided(unit, attempt, took, record=made)
    wanted = attempt.code is not Code.SUCCESS and sampled()
    return Decided(unit, attempt, took, sample=made() if wanted else None)


def _input(
    snapshot: Snapshot,
    policy: Policy,
    unit: Unit,
    decided: Sequence[Decided],
    overdue: frozenset[Uid],
    wall: int,
    held: Mapping[Uid, Hold],
    waits: Delayed,
) -> dict[str, Any]:
    among = waits.among.get(unit, ())
    snapshot = left_out(snapshot, waits.without.get(unit, ()))
    earlier = [each.attempt for each in decided if each.attempt is not None]
    return encode_scheduling(snapshot, policy, unit, earlier, overdue, wall, held, among)
