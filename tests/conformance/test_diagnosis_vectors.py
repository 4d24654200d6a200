"""Each published case that waits has exactly one reason, which agrees with what was recorded.

Agreement is judged by the recorded texts alone: each part of one allows some reasons, and the
diagnosis has to be one that the whole text allows.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from reprieve.engine.diagnosis.reasons import REASONS, Reason
from reprieve.engine.diagnosis.scheduling import of_attempt
from reprieve.engine.diagnosis.untried import of_barring
from reprieve.engine.placement.reasons import Code
from reprieve.engine.plan import Plane
from reprieve.engine.scheduling.gangs.gate import basic_barrier
from reprieve.engine.scheduling.gangs.job import JobReason
from reprieve.engine.scheduling.gangs.job_preemption import preempt_for_job
from reprieve.engine.scheduling.gangs.records import Defaults, Gangs
from reprieve.engine.scheduling.outcome import Attempt, GangCycle, Member, Unit
from tests.conformance.gang_jobs import LITERAL, Played, _pod, _put_group
from tests.conformance.workload_aware_vectors import Json, Vector
from tests.engine.api_objects import cluster_of, policy_of
from tests.engine.scheduling.engine_cycle import attempt_of

GangVector = tuple[str, str, dict[str, Any]]

#: What a pod or its quota says that keeps it from being preempted.
PROTECTING = {
    "quota.scheduling.koordinator.sh/preemptible",
    "scheduling.koordinator.sh/disable-preemptible",
}
#: Whichever resource it is, on its own or last of several.
_INSUFFICIENT = re.compile(r"Insufficient [^\s,]+")
_SUCCESS = JobReason.SUCCESS
_KIND = {Reason.NO_NODE_MATCHES, Reason.SPREAD_OR_AFFINITY_BLOCKS}
#: What a recorded text allows, the first that is in it.
_ALLOWED: tuple[tuple[str, set[Reason]], ...] = (
    ("found a p", {Reason.VICTIMS_LEAVING}),
    ("ongoing preemption", {Reason.VICTIMS_LEAVING}),
    ("terminating pod on the nominated node", {Reason.VICTIMS_LEAVING}),
    ("preempt success", {Reason.VICTIMS_LEAVING}),
    ("preemptionPolicy=Never", {Reason.POLICY_NEVER, *_KIND}),
    ("should have the same", {Reason.NOT_UNIFORM}),
    ("anti-affinity rules", {Reason.SPREAD_OR_AFFINITY_BLOCKS}),
    ("preemption: minCount", {Reason.NO_VICTIMS_SUFFICE, *_KIND}),
    ("first placement status: minCount", {Reason.NO_VICTIMS_SUFFICE, *_KIND}),
    ("Insufficient RESOURCE, ", {Reason.NO_VICTIMS_SUFFICE}),
    ("No preemption victims found", {Reason.FULL}),
    ("Preemption is not helpful", {Reason.NO_NODE_MATCHES, Reason.SPREAD_OR_AFFINITY_BLOCKS}),
    ("no nodes available", {Reason.NO_NODE_MATCHES}),
)


def _allowed(text: str) -> set[Reason]:
    text = _INSUFFICIENT.sub("Insufficient RESOURCE", text)
    found = next((reasons for part, reasons in _ALLOWED if part in text), None)
    assert found is not None, f"nobody has judged this text: {text}"
    return found


def _recorded(expect: Json) -> str:
    status = expect.get("status")
    if status is not None:
        return str(status["message"])
    conditions = expect.get("podConditions") or {}
    return next((str(each["message"]) for each in conditions.values()), "")


def test_a_case_that_waits_has_the_reason_that_was_recorded(cycled_vector: Vector) -> None:
    if cycled_vector.skip:
        pytest.skip(cycled_vector.skip)
    case = cycled_vector.case
    attempt = attempt_of(case, cluster_of(case).snapshot(), policy_of(case))
    expect = cycled_vector.expect
    if attempt is None:
        assert not expect["preemptionAttempted"], "it was tried, and here is gated"
        return
    found = of_attempt(attempt)
    if expect.get("scheduledWithoutPreemption"):
        left = [member for member in attempt.members if not member.bind]
        assert (found is None) == (not left)
        return
    assert found is not None
    assert found.reason in REASONS[Plane.SCHEDULING]
    assert found.reason not in found.others
    assert found.reason in _allowed(_recorded(expect))


def test_a_job_that_waits_has_the_reason_that_was_recorded(gang_vector: GangVector) -> None:
    _, kind, case = gang_vector
    if kind != "JobPreemption":
        return
    recorded = str(case["expect"]["reason"])
    if recorded == "no pending pods" or recorded.startswith("preemption already attempted"):
        return  # nothing was looked for in this attempt, and the earlier one told the reason
    played = Played(case)
    job = played.found
    members = tuple(Member(each.row.uid) for each in played.job.pending)
    trigger = played.job.trigger.row.uid
    members = members or (Member(trigger),)
    cycle = GangCycle(played.job.key, trigger, job)
    unit = Unit(tuple(member.uid for member in members))
    found = of_attempt(Attempt(unit, Code.UNSCHEDULABLE, members, gang=cycle))
    assert found is not None
    if not recorded.startswith("preemption not helpful"):
        assert found.reason in _allowed(recorded)
        return
    assert found.reason is _without_protection(case)
    # What is asked for in detail makes no difference to the reason.
    unexplained = preempt_for_job(played.simulation, played.job, LITERAL)
    plain = Attempt(unit, Code.UNSCHEDULABLE, members, gang=replace(cycle, job=unexplained))
    again = of_attempt(plain)
    assert again is not None
    assert again.reason is found.reason


def _without_protection(case: dict[str, Any]) -> Reason:
    """Return why preemption does not help, by what the case recorded and what it ends in else."""
    if case.get("quotas") or any(map(_is_protected, case["pods"])):
        bare = {**case, "pods": [_bare(each) for each in case["pods"]]}
        if Played(bare, replace(LITERAL, protected_quotas=frozenset())).found.reason is _SUCCESS:
            return Reason.VICTIMS_PROTECTED
    return Reason.NO_VICTIMS_SUFFICE if case["expect"].get("possibleVictims") else Reason.FULL


def _bare(pod: dict[str, Any]) -> dict[str, Any]:
    labels = pod["metadata"].get("labels") or {}
    kept = {name: text for name, text in labels.items() if name not in PROTECTING}
    return {**pod, "metadata": {**pod["metadata"], "labels": kept}}


def _is_protected(pod: dict[str, Any]) -> bool:
    return not PROTECTING.isdisjoint(pod["metadata"].get("labels") or {})


def test_a_member_that_is_not_enqueued_has_the_reason_recorded(gang_vector: GangVector) -> None:
    _, kind, case = gang_vector
    if kind != "PreEnqueue":
        return
    defaults, gangs = Defaults(600 * SECOND), Gangs()
    for group in case["podGroups"]:
        _put_group(gangs, group, defaults)
    for pod in case["pods"]:
        other = _pod(pod, defaults)
        if other is not None:
            gangs.apply_pod(other)
    member = _pod(case["pod"], defaults)
    if member is None:
        return
    gang = gangs.apply_pod(member)
    if case["gangOnceSatisfied"]:
        gangs.satisfy(gang)
    barring = basic_barrier(gangs, member)
    recorded = str(case["expect"]["error"])
    if barring is None:
        assert recorded == "" or recorded.startswith("representative pod")
        return
    found = of_barring(barring, len(gang.children), gang.minimum)
    if "has not init" in recorded:
        assert found.reason is Reason.GROUP_MISSING
    else:
        assert "not collect enough" in recorded
        assert found.reason is Reason.GROUP_INCOMPLETE
        assert found.values == {
            "present": str(len(gang.children)),
            "minimum": str(gang.minimum),
        }
