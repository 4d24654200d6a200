"""A recorded input decided by the engine: the plan for the record's own preemptor, or why none.

What any victim would have lost is computed from the input: the device-seconds since
its last checkpoint, or since it began (`engine.lost_work`). Inputs of the quota plane know when
quota was reserved, those of the idle plane no checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kubeworld.units.durations import SECOND
from reprieve.api.reprieve import PreemptionSpec
from reprieve.engine.idle.model import Workload
from reprieve.engine.idle.outcome import Evaluation
from reprieve.engine.lost_work import devices_of, lost_device_seconds
from reprieve.engine.placement.filtering import PlacementScorer
from reprieve.engine.placement.profile import Policy
from reprieve.engine.plan import Plan
from reprieve.engine.quota.entries import Outcome
from reprieve.engine.scheduling.plugins import PostFilter
from reprieve.engine.scheduling.victims.harm import claimed_by
from reprieve.records.idle.record import DecisionInput
from reprieve.records.idle.replay import decide_input
from reprieve.records.quota.record import QuotaInput
from reprieve.records.quota.replay import decide_quota_input
from reprieve.records.scheduling.record import SchedulingInput
from reprieve.records.scheduling.replay import decide_scheduling_input
from reprieve.units.ids import Uid

__all__ = ["Again", "Lost", "Plugins", "idle_again", "quota_again", "scheduling_again"]

#: Returns the plugins that profiles of a policy enable.
Plugins = Callable[[Policy], tuple[Mapping[str, PostFilter], Mapping[str, PlacementScorer]]]
#: Returns what an object loses, by its uid.
Lost = Callable[[str], int]

_FITS: Final = "it fits without preemption"


@dataclass(frozen=True, slots=True)
class Again:
    """A decision made again: its plan, what victims lose, and why there is no plan."""

    plan: Plan | None
    lost: Lost
    why: str = ""


def quota_again(spec: PreemptionSpec, decided_on: QuotaInput) -> Again:
    """Return what the cycle decides about the record's preemptor."""
    replay = decide_quota_input(decided_on)
    columns = replay.snapshot.tree.flavor_resources
    now = decided_on.now // SECOND
    holders = {holder.workload.uid: holder for holder in replay.holders}

    def lost(uid: str) -> int:
        holder = holders.get(uid)
        if holder is None or holder.workload.reserved_at is None:
            return 0
        held = ((columns[column].resource, amount) for column, amount in holder.held)
        start, saved = holder.workload.reserved_at // SECOND, holder.workload.checkpoint or 0
        return lost_device_seconds(start, saved // SECOND, devices_of(held), now)

    entry = replay.entry
    why = _FITS if entry.outcome is Outcome.ADMITTED else entry.message
    return Again(replay.plan(spec.revision), lost, why)


def scheduling_again(decided_on: SchedulingInput, at: int, plugins: Plugins) -> Again:
    """Return what the attempt ends in; `at`: Unix seconds, for what is lost.

    Raises:
        PluginMissing: a plugin of a profile is not installed.
    """
    replay = decide_scheduling_input(decided_on, *plugins(decided_on.policy))
    pods = decided_on.pods
    places = {uid: place for place, uid in enumerate(pods.uids)}
    groups = [0 if row is None else row.checkpoint for row in replay.snapshot.group_rows]
    said = dict(zip(replay.snapshot.group_keys, groups, strict=True))
    claimed = claimed_by(replay.snapshot)

    def lost(uid: str) -> int:
        place = places.get(uid)
        if place is None:
            return 0
        group = pods.groups[place]
        checkpoint = max(
            pods.checkpoints[place] if pods.checkpoints else 0,
            said.get(decided_on.groups[group], 0) if group >= 0 else 0,
        )
        devices = devices_of(decided_on.classes[pods.classes[place]].requests)
        devices += claimed.get(Uid(uid), 0)
        return lost_device_seconds(pods.starts[place], checkpoint, devices, decided_on.now or at)

    placed = any(member.bind for member in replay.attempt.members)
    return Again(replay.plan, lost, _FITS if placed else "no candidate frees capacity for it")


def idle_again(spec: PreemptionSpec, decided_on: DecisionInput) -> Again:
    """Return the plan for the record's demand: a run may decide for several, on one input."""
    replay = decide_input(decided_on)
    rows = {str(workload.ref.uid): workload for workload in decided_on.snapshot.workloads}
    now = decided_on.now // SECOND

    def lost(uid: str) -> int:
        return 0 if uid not in rows else sum(_lost_of_pods(rows[uid], now))

    plan, why = _plan_for(spec, replay.evaluation)
    return Again(plan, lost, why)


def _plan_for(spec: PreemptionSpec, evaluation: Evaluation) -> tuple[Plan | None, str]:
    if spec.preemptor is None:  # policy Always: they are evicted for no work
        recorded = {victim.subject.uid for victim in spec.victims}
        for plan in evaluation.plans:
            taken = {str(victim.subject.uid) for victim in plan.victims}
            if plan.preemptor is None and taken & recorded:
                return plan, ""
        return None, "no work is evicted without a demand"
    for plan in evaluation.plans:
        if plan.preemptor is not None and plan.preemptor.uid == spec.preemptor.uid:
            return plan, ""
    for declined in evaluation.declined:
        if declined.subject.uid == spec.preemptor.uid:
            return None, f"declined: {declined.reason}"
    return None, "it requests nothing"


def _lost_of_pods(row: Workload, now: int) -> Iterator[int]:
    for pod in row.pods:
        if pod.started is not None:
            devices = sum(pod.gpus.values())
            yield lost_device_seconds(pod.started // SECOND, 0, devices, now)
