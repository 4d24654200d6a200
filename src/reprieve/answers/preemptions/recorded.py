"""One preemption: its story from its record, and its decision made again from the stored input."""

from __future__ import annotations

from typing import Final

import msgspec

import reprieve
from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.api.reprieve import Action, Preemption, PreemptionSpec
from reprieve.engine.plan import Plan, Plane
from reprieve.planes.common.plugins import installed, load, load_scorers
from reprieve.records.beside import beside_of
from reprieve.records.idle.replay import (
    InputOmitted,
    Replay,
    SpoiltInput,
    decide_again,
    unpacked,
)
from reprieve.records.idle.story import answer_text, answers_named, story
from reprieve.records.plans.intent_specs import intent_spec
from reprieve.records.quota.record import QuotaInput
from reprieve.records.quota.replay import QuotaReplay, decide_quota_again
from reprieve.records.quota.story import quota_answer_text, quota_story, workloads_named
from reprieve.records.scheduling.record import SchedulingInput
from reprieve.records.scheduling.replay import (
    PluginMissing,
    SchedulingReplay,
    decide_scheduling_again,
)
from reprieve.records.scheduling.story import pod_answer_text, pod_story, pods_named
from reprieve.units.counts import counted
from reprieve.units.errors import ReprieveError

__all__ = ["Replays", "answers", "differences", "judged", "reported"]

Replays = Replay | SchedulingReplay | QuotaReplay
_KEPT: Final = "those that are waiting for GPUs, idle or on their way out"


def reported(record: Preemption, replay: Replays | None, *, everything: bool) -> list[str]:
    """Return the lines of the story; `replay` None shows what stands in the record itself."""
    if isinstance(replay, SchedulingReplay):
        return pod_story(record, replay, everything=everything)
    if isinstance(replay, QuotaReplay):
        return quota_story(record, replay, everything=everything)
    if replay is None and record.spec.plane == Plane.QUOTA:
        return quota_story(record, None, everything=everything)
    if replay is None and record.spec.plane == Plane.SCHEDULING:
        return pod_story(record, None, everything=everything)
    return story(record, replay, everything=everything)


def answers(replay: Replays, namespace: str, name: str) -> list[str]:
    """Return what became of one object in a decision, a line for each of that name.

    Raises:
        ReprieveError: it was not looked at.
    """
    if isinstance(replay, QuotaReplay):
        workloads = workloads_named(replay, namespace, name)
        if not workloads:
            raise ReprieveError(
                f"{namespace}/{name} is no Workload that held quota in the cohorts of this or was "
                "at the head of a queue of them"
            )
        return [quota_answer_text(each) for each in workloads]
    if isinstance(replay, SchedulingReplay):
        pods = pods_named(replay, namespace, name)
        if not pods:
            raise ReprieveError(
                f"{namespace}/{name} is no pod that was waiting for this or had a node then, nor "
                "a group of such pods"
            )
        return [pod_answer_text(each, replay) for each in pods]
    found = answers_named(replay, namespace, name)
    if not found:
        raise ReprieveError(
            f"{namespace}/{name} is not among the workloads that were looked at, {_KEPT}: "
            "it was something else then, or not tracked"
        )
    return [answer_text(each, replay.decided_on.now) for each in found]


def judged(record: Preemption) -> tuple[Replays | None, str, bool]:
    """Return the decision made again, what is to be stated of it, and whether all is well."""
    spec = record.spec
    if spec.input is None:
        if spec.revision == 0 and spec.plane == Plane.IDLE:
            return None, "Nothing was decided: it was found in Preempting, and finished", True
        return None, "Cannot be decided again: the record has no input", False
    replay: Replays
    try:
        if spec.plane == Plane.SCHEDULING:
            policy, offered = unpacked(spec.input, SchedulingInput).policy, installed()
            plugins, scorers = load(offered, policy), load_scorers(offered, policy)
            replay = decide_scheduling_again(spec.input, plugins, scorers)
        elif spec.plane == Plane.QUOTA:
            replay = decide_quota_again(spec.input)
        else:
            replay = decide_again(spec.input)
    except (InputOmitted, SpoiltInput, PluginMissing) as failure:
        return None, f"Cannot be decided again: {failure}", False
    lead = f"Decided again from its stored input ({_size(replay)}): "
    other_than = differences(spec, replay)
    if not other_than:
        return replay, f"{lead}the same plan", True
    program = replay.decided_on.program
    other = ""
    if program != reprieve.__version__:
        other = f"; it was recorded by reprieve {program}, this is {reprieve.__version__}"
    return replay, f"{lead}NOT the recorded plan, {other_than}{other}", False


def _size(replay: Replays) -> str:
    decided_on = replay.decided_on
    if isinstance(decided_on, QuotaInput):
        queues = counted(len(decided_on.cluster_queues), "ClusterQueue")
        holders = counted(len(decided_on.holders), "workload")
        nodes = f", {counted(len(decided_on.nodes), 'node')}" if decided_on.nodes else ""
        return f"{queues}, {holders} with quota, {len(decided_on.heads)} at the head{nodes}"
    if isinstance(decided_on, SchedulingInput):
        pods = counted(len(decided_on.pods.uids), "placed pod")
        return f"{counted(len(decided_on.nodes), 'node')}, {pods}"
    return counted(len(decided_on.snapshot.workloads), "workload")


def differences(spec: PreemptionSpec, replay: Replays) -> str:
    """Return in what the decision made again is another one, empty where it is the same."""
    if isinstance(replay, SchedulingReplay | QuotaReplay):
        plan = replay.plan(spec.revision) if isinstance(replay, QuotaReplay) else replay.plan
        plans, now = [] if plan is None else [plan], Nanos(0)
    else:
        plan, now = replay.plan(spec.plan_id), replay.decided_on.now
        plans = list(replay.evaluation.plans)
    if plan is None or plan.id != spec.plan_id:
        return f"but {', '.join(each.id for each in plans) or 'none at all'}"
    again = _spec_again(spec, plan, now)
    written = instant_or_none(spec.decided_at)
    soon = written is not None and -SECOND < written - now < MINUTE
    if soon or not isinstance(replay, Replay):
        # It is written after it was decided, in the idle plane soon after.
        again = msgspec.structs.replace(again, decided_at=spec.decided_at)
    names = zip(spec.__struct_fields__, spec.__struct_encode_fields__, strict=True)
    other = [name for field, name in names if getattr(spec, field) != getattr(again, field)]
    return f"other: {', '.join(other)}" if other else ""


def _spec_again(spec: PreemptionSpec, plan: Plan, now: Nanos) -> PreemptionSpec:
    # What to do to a root is its owner's word, not part of the decision.
    actions = {victim.root.uid: victim.action for victim in spec.victims}
    again = intent_spec(
        plan,
        spec.attempt,
        now,
        actions=[actions.get(victim.root.uid, Action.DELETE) for victim in plan.victims],
        dry_run=spec.dry_run,
        decision_input=spec.input,
        beside=beside_of(spec.input),
    )
    # Nor does it have costs, lineages and notices, which are added when the plan is written.
    added = {
        each.root.uid: (each.lineage, each.lost_device_seconds, each.notice)
        for each in spec.victims
    }
    victims = []
    for each in again.victims:
        lineage, lost, notice = added.get(each.root.uid, ("", 0, None))
        said = {"lineage": lineage, "lost_device_seconds": lost, "notice": notice}
        victims.append(msgspec.structs.replace(each, **said))
    return msgspec.structs.replace(again, victims=victims, preemptor_lineage=spec.preemptor_lineage)
