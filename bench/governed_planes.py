"""What the governor of disruptions adds to a decision of the scheduling and of the idle plane.

A part of `bench.governed`, whose kinds these are. Scheduling: a gang of 64 pods that waits on 1,000
generated nodes, whose pods are work of their own each. Idle: an evaluation of 1,250 nodes with
10,000 GPUs and five demands, whose samples count as fresh. The planes' own questions are asked
(`holds`), and what they found goes into the decision.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from types import SimpleNamespace
from typing import Any, Final, cast

from bench.disruptions import displacements
from bench.measuring import print_line
from bench.scheduling_input import Scenario, generated, most_free_cpu
from bench.tick import POLICY, idle_workloads
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import Actor, Displacement
from reprieve.engine.disruptions.lineage import Participant
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import IdleSnapshot, Phase
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.session import Session
from reprieve.intake.lineage import pod_participant
from reprieve.planes.idle.evaluating.displacements import IdleDisplacements
from reprieve.planes.idle.evaluating.lineages import RootLineages, participant_of_root
from reprieve.planes.scheduling.cycle.displacements import SchedulingDisplacements

__all__ = ["measure", "run_planes", "with_owners"]

_ROWS: Final = 5_000
_TEMPLATES: Final = 400
_DISPLACED: Final = 200
#: Nobody is held by it: each was displaced once, in a day of what others did.
_KINDS: Final = ("quiet", "lately", "in-vain")


def run_planes(pairs: int, *, quick: bool) -> None:
    """Measure and print both planes.

    Raises:
        AssertionError: the governor changed a decision.
    """
    gang = with_owners(generated(40, 8) if quick else generated(1_000, 64))
    for kind in _KINDS:
        _scheduling(gang, kind, pairs, 500 if quick else _ROWS)
    for kind in _KINDS:
        _idle(12 if quick else 1_250, kind, pairs, 500 if quick else _ROWS)


def _governor(
    kind: str, one: Participant, others: list[Participant], rows: int
) -> tuple[Governor, Nanos]:
    """Return a governor that knows a day, and the instant at its end."""
    governor, reported = Governor(), displacements(rows, _TEMPLATES)
    governor.fold(reported)
    end = reported[-1].at
    if kind != "quiet":
        for number, other in enumerate(others[:_DISPLACED]):
            at = Nanos(end - number * SECOND)
            governor.record(Displacement(at, Actor.SCHEDULING, one, other, f"victim-{number}"))
        if kind == "lately":
            governor.admitted(one, end)
    return governor, Nanos(end + SECOND)


def _scheduling(scenario: Scenario, kind: str, pairs: int, rows: int) -> None:
    pods = [row for row in scenario.rows if isinstance(row, PodRow)]
    known = {row.uid: row for row in (*pods, *scenario.waiting)}
    state = SimpleNamespace(
        pod=known.get,
        group=lambda key: SimpleNamespace(priority=scenario.waiting[0].priority),
        observers=[],
    )
    participants = [pod_participant(row) for row in pods]
    governor, now = _governor(kind, pod_participant(scenario.waiting[0]), participants, rows)
    clock = SimpleNamespace(wall=lambda: now)
    plane = SchedulingDisplacements(governor, cast("Any", state), cast("Any", clock))
    for row in pods:
        for seen in state.observers:
            seen(None, row)
    unit = Unit(tuple(row.uid for row in scenario.waiting), scenario.group)
    cluster = scenario.cluster()
    cluster.snapshot()

    def decide(governed: bool) -> object:
        holds = plane.holds([unit]) if governed else {}
        assert not holds, "somebody is held"
        snapshot, seconds = cluster.snapshot(), int(now // SECOND)
        session = Session(snapshot, Policy(), choose=most_free_cpu, now=seconds, holds=holds)
        attempt = session.attempt(unit)
        assert attempt is not None and attempt.preemption is not None
        return sorted(slot for each in attempt.preemption.victims for slot in each.pods)

    measure("governed", f"scheduling-{kind}", decide, pairs)


def with_owners(scenario: Scenario) -> Scenario:
    """Return it with a controller for each pod, and one for those that wait."""

    def owned(row: Any) -> Any:
        return replace(row, controller=f"owner-{row.uid}") if isinstance(row, PodRow) else row

    waiting = tuple(replace(row, controller="owner") for row in scenario.waiting)
    return replace(scenario, rows=tuple(map(owned, scenario.rows)), waiting=waiting)


def _idle(nodes: int, kind: str, pairs: int, rows: int) -> None:
    start = Nanos(2_000_000 * SECOND)
    workloads = idle_workloads(nodes, start)
    (one, *_) = [w for w in workloads if w.status.phase is Phase.PENDING_GPU]
    participants = [participant_of_root(w.root) for w in workloads if w.status.phase is Phase.IDLE]
    governor, at = _governor(kind, participant_of_root(one.root), participants, rows)
    policy = replace(POLICY, literal=replace(POLICY.literal, missing_metrics_are_zero=True))
    tracked: dict[Any, Any] = {}
    clock: Any = SimpleNamespace(wall=lambda: at)
    lineages = RootLineages(governor, lambda root: ())
    plane = IdleDisplacements(governor, cast("Any", tracked), clock, lambda root: 0, lineages)

    def decide(governed: bool) -> object:
        holds = plane.holds(workloads) if governed else {}
        assert not holds, "somebody is held"
        evaluation = evaluate(IdleSnapshot(1, workloads, holds=holds), policy, start)
        return [[victim.subject for victim in plan.victims] for plan in evaluation.plans]

    measure("governed", f"idle-{kind}", decide, pairs)


def measure(bench: str, case: str, decide: Callable[[bool], object], pairs: int) -> None:
    """Measure decisions without and with what is measured, in turn, and print both."""
    found = decide(False)
    assert found and decide(True) == found, "another decision"
    gc.collect()
    gc.freeze()
    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(pairs):
        for governed in (False, True) if number % 2 else (True, False):
            started = time.process_time()
            decide(governed)
            times[governed].append(time.process_time() - started)
    ratios = [after / before for before, after in zip(times[False], times[True], strict=True)]
    print_line(
        bench,
        case,
        plain_ms=round(median(times[False]) * 1e3, 3),
        governed_ms=round(median(times[True]) * 1e3, 3),
        more_percent=round((median(ratios) - 1) * 100, 2),
        pairs=pairs,
    )
