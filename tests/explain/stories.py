"""What people ask about, and what the cluster has; the answers stand in `told/NAME.txt`.

`python -m tests.explain.stories` writes the answers anew; read what has changed before you commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from reprieve.answers.asking import answer
from reprieve.answers.document import Answer
from reprieve.answers.kinds import asked_of
from reprieve.answers.layout import Style, lines_of
from reprieve.answers.sources import MemorySource
from reprieve.kube.errors import Call, Forbidden
from reprieve.kube.resource import Resource
from tests.explain.objects import (
    NOW,
    Json,
    admission,
    at,
    condition,
    disruption,
    gpu_workload,
    group,
    job,
    members,
    obj,
    pod,
    preemption_notice,
    record,
    template,
    unscheduled,
    workload,
)

TOLD: Final = Path(__file__).parent / "told"
_NO_QUOTA: Final = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in "
    "flavor h100, 6 more needed"
)
_FULL: Final = (
    "0/12 nodes are available: 3 node(s) had untolerated taint(s), 9 Insufficient nvidia.com/gpu. "
    "preemption: 0/12 nodes are available: 3 Preemption is not helpful for scheduling, 9 No "
    "preemption victims found for incoming pod."
)
_RECLAIMED: Final = "InCohortReclamation"


@dataclass(frozen=True, slots=True)
class Story:
    """One question and what there is; `refused` are qualified kinds that may not be read."""

    asked: str
    objects: Sequence[Json]
    refused: frozenset[str] = field(default_factory=frozenset)
    history: bool = False


STORIES: Final[dict[str, Story]] = {}


def story(make: Callable[[], Story]) -> None:
    """Take a story in under the name of the function that makes it."""
    STORIES[make.__name__.replace("_", "-")] = make()


def _waiting_job() -> tuple[Json, Json]:
    mine = job(suspend=True)
    return mine, workload(mine, condition("QuotaReserved", False, _NO_QUOTA, "Pending"))


@story
def job_runs() -> Story:
    mine = job()
    queued = workload(mine, condition("Admitted", True), status=admission())
    pods = [pod(f"train-{n}-b4c5d", f"gpu-{n}", owner=mine) for n in range(2)]
    return Story("job/train", [mine, queued, *pods])


@story
def job_waits_for_quota() -> Story:
    return Story("job/train", _waiting_job())


@story
def job_never_fits() -> Story:
    mine = job(suspend=True)
    told = (
        "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor "
        "h100, previously considered podsets requests (0) + current podset request (16) > maximum "
        "capacity (8)"
    )
    return Story("job/train", [mine, workload(mine, condition("QuotaReserved", False, told))])


@story
def job_of_a_stopped_queue() -> Story:
    mine = job(suspend=True)
    told = "LocalQueue gpus is stopped"
    return Story("job/train", [mine, workload(mine, condition("QuotaReserved", False, told))])


@story
def job_of_a_queue_that_is_not_there() -> Story:
    mine = job(suspend=True)
    told = "LocalQueue gpus doesn't exist"
    return Story("job/train", [mine, workload(mine, condition("QuotaReserved", False, told))])


@story
def job_for_which_victims_leave() -> Story:
    mine, other = job(suspend=True), job("sweep-17")
    told = f"{_NO_QUOTA}. Pending the preemption of 1 workload(s)"
    queued = workload(mine, condition("QuotaReserved", False, told))
    theirs = workload(other, condition("Evicted", True))
    leaving = record("quota", queued, [theirs], rule=_RECLAIMED, minutes=1, phase="Planned")
    return Story("job/train", [mine, other, queued, theirs, leaving])


@story
def job_that_waits_for_a_save() -> Story:
    mine = job(suspend=True)
    told = (
        f"{_NO_QUOTA}. Preempts 2 workload(s) once their work is saved, which is expected by "
        f"{at(-4)}"
    )
    return Story("job/train", [mine, workload(mine, condition("QuotaReserved", False, told))])


@story
def job_in_backoff() -> Story:
    mine = job(suspend=True)
    queued = workload(
        mine,
        condition("QuotaReserved", False, "The workload backoff was finished"),
        condition("Evicted", True, minutes=3),
        status={"requeueState": {"count": 2, "requeueAt": at(-2)}},
    )
    return Story("job/train", [mine, queued])


@story
def job_waits_for_checks() -> Story:
    mine = job(suspend=True)
    checks = [{"name": "budget", "state": "Pending"}, {"name": "security", "state": "Ready"}]
    queued = workload(
        mine, condition("QuotaReserved", True), status={**admission(), "admissionChecks": checks}
    )
    return Story("job/train", [mine, queued])


@story
def job_that_nobody_has_looked_at() -> Story:
    mine = job(suspend=True)
    return Story("job/train", [mine, workload(mine)])


@story
def job_behind_the_head_of_its_queue() -> Story:
    mine = job(suspend=True)
    waits = workload(mine)
    involved = {"kind": "Workload", "uid": waits["metadata"]["uid"]}
    texts = {9: "PodsNotReady: Another workload starts", 1: "BehindHead: The head is team/first"}
    events = [
        {
            **obj("v1", "Event", f"waiting-{minutes}"),
            "involvedObject": involved,
            "reason": "Waiting",
            "message": text,
            "lastTimestamp": at(minutes),
        }
        for minutes, text in texts.items()
    ]
    return Story("job/train", [mine, waits, *events])


@story
def job_that_is_suspended_without_a_queue() -> Story:
    return Story("job/train", [job(suspend=True)])


@story
def job_whose_workload_is_deactivated() -> Story:
    mine = job(suspend=True)
    return Story("job/train", [mine, workload(mine, active=False)])


@story
def job_whose_workload_was_deactivated_for_its_retries() -> Story:
    mine = job(suspend=True)
    message = "Exceeded the maximum number of re-queuing retries"
    reason = "DeactivatedDueToRequeuingLimitExceeded"
    evicted = condition("Evicted", True, message, reason, 5)
    return Story("job/train", [mine, workload(mine, evicted, active=False)])


def _refusal(about: Json, message: str, minutes: int) -> Json:
    """Return the event of a controller whose pod was refused so many minutes ago."""
    involved = {"kind": about["kind"], "uid": about["metadata"]["uid"]}
    event = obj("v1", "Event", f"refused-{minutes}")
    told = {"reason": "FailedCreate", "message": message, "lastTimestamp": at(minutes)}
    return {**event, "involvedObject": involved, **told}


@story
def job_whose_pods_are_refused() -> Story:
    mine = job()
    said = 'Error creating: pods "train-{}" is forbidden: exceeded quota: gpus, requested: pods=1'
    return Story(
        "job/train",
        [mine, _refusal(mine, said.format("older"), 9), _refusal(mine, said.format("x7vqt"), 1)],
    )


@story
def job_of_which_its_queue_makes_no_workload() -> Story:
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    mine = job(suspend=True, labels=labels)
    said = 'WorkloadPriorityClass "urgentt" not found'
    warning = {"reason": "WorkloadPriorityClassNotFound", "type": "Warning"}
    return Story("job/train", [mine, {**_refusal(mine, said, 1), **warning}])


@story
def pod_of_a_scheduler_that_has_not_looked_at_it() -> Story:
    return Story("pod/train", [pod("train", spec={"schedulerName": "volcano"})])


def _made(about: Json, minutes: int) -> Json:
    """Return the event of a controller whose pod was made so many minutes ago."""
    return {**_refusal(about, "Created pod", minutes), "reason": "SuccessfulCreate"}


_OVER_QUOTA = (
    'Error creating: pods "train-x7vqt" is forbidden: exceeded quota: few, requested: pods=1, '
    "used: pods=2, limited: pods=2"
)


@story
def job_of_whose_pods_some_are_refused() -> Story:
    mine = job(pods=4)
    pods = [pod(f"train-{n}-b4c5d", f"gpu-{n}", owner=mine) for n in range(2)]
    return Story("job/train", [mine, *pods, _made(mine, 12), _refusal(mine, _OVER_QUOTA, 1)])


@story
def job_whose_refused_pods_were_made_since() -> Story:
    mine = job(pods=4)
    pods = [pod(f"train-{n}-b4c5d", f"gpu-{n}", owner=mine) for n in range(3)]
    return Story("job/train", [mine, *pods, _refusal(mine, _OVER_QUOTA, 12), _made(mine, 1)])


@story
def deployment_that_waits_with_some_pods_refused() -> Story:
    spec = {"replicas": 3, "template": {"spec": template()}}
    serve = obj("apps/v1", "Deployment", "serve", spec=spec)
    replicas = obj("apps/v1", "ReplicaSet", "serve-5d9f", owner=serve, spec=spec)
    pods = [pod("serve-5d9f-a", "gpu-0", owner=replicas), pod("serve-5d9f-b", owner=replicas)]
    return Story("deployment/serve", [serve, replicas, *pods, _refusal(replicas, _OVER_QUOTA, 1)])


@story
def job_has_finished() -> Story:
    done = condition("Complete", True, "Reached expected number of succeeded pods", minutes=45)
    return Story("job/train", [job(status={"conditions": [done]})])


@story
def job_has_failed() -> Story:
    done = condition("Failed", True, "Job has reached the specified backoff limit", minutes=45)
    return Story("job/train", [job(status={"conditions": [done]})])


@story
def job_made_way_and_waits_again() -> Story:
    mine, other = job(suspend=True), job("urgent")
    queued = workload(
        mine,
        condition("QuotaReserved", False, _NO_QUOTA),
        condition("Evicted", True, minutes=20),
    )
    theirs = workload(other, condition("Admitted", True))
    taken = record("quota", theirs, [queued], rule=_RECLAIMED, gpus=16)
    return Story("job/train", [mine, other, queued, theirs, taken])


@story
def job_made_way_and_runs_again() -> Story:
    mine, other = job(), job("urgent")
    queued = workload(mine, condition("Admitted", True), status=admission())
    theirs = workload(other, condition("Admitted", True))
    pods = [pod(f"train-{n}-b4c5d", f"gpu-{n}", owner=mine) for n in range(2)]
    taken = record("quota", theirs, [queued], rule=_RECLAIMED, gpus=16)
    return Story("job/train", [mine, other, queued, theirs, taken, *pods])


def _displaced_often() -> list[Json]:
    mine, other = job(suspend=True), job("urgent")
    queued = workload(mine, condition("QuotaReserved", False, _NO_QUOTA))
    theirs = workload(other, condition("Admitted", True))
    times = [
        record("quota", theirs, [queued], rule=_RECLAIMED, minutes=20 * n, number=n)
        for n in range(1, 6)
    ]
    return [mine, other, queued, theirs, *times]


@story
def job_made_way_often() -> Story:
    return Story("job/train", _displaced_often())


@story
def job_with_its_history() -> Story:
    return Story("job/train", _displaced_often(), history=True)


@story
def job_for_which_others_made_way() -> Story:
    mine = job()
    queued = workload(mine, condition("Admitted", True), status=admission())
    pods = [pod(f"train-{n}-b4c5d", f"gpu-{n}", owner=mine) for n in range(2)]
    others = [job(f"sweep-{n}", namespace="lab") for n in range(4)]
    theirs = [workload(each, condition("Evicted", True)) for each in others]
    taken = record("quota", queued, theirs, rule=_RECLAIMED, gpus=4)
    return Story("job/train", [mine, queued, *others, *theirs, *pods, taken])


@story
def pod_waits_as_nodes_are_full() -> Story:
    return Story("pod/train-3", [pod("train-3", conditions=[unscheduled(_FULL)])])


@story
def pod_that_no_node_matches() -> Story:
    told = (
        "0/12 nodes are available: 4 node(s) had untolerated taint(s), 8 node(s) didn't match "
        "Pod's node affinity/selector."
    )
    return Story("pod/train-3", [pod("train-3", conditions=[unscheduled(told)])])


@story
def pod_kept_away_by_spread() -> Story:
    told = (
        "0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 3 node(s) didn't match pod "
        "topology spread constraints."
    )
    return Story("pod/train-3", [pod("train-3", conditions=[unscheduled(told)])])


@story
def pod_that_may_not_preempt() -> Story:
    told = (
        "0/4 nodes are available: 4 Insufficient nvidia.com/gpu. preemption: not eligible due to "
        "preemptionPolicy=Never."
    )
    return Story("pod/train-3", [pod("train-3", conditions=[unscheduled(told)])])


@story
def pod_with_a_nominated_node() -> Story:
    waiting = pod("urgent", conditions=[unscheduled(_FULL)], nominated="gpu-7", gpus=4)
    other = pod("sweep", "gpu-7", conditions=[condition("DisruptionTarget", True)])
    taken = record("scheduling", waiting, [other], rule="lower priority", minutes=1)
    return Story("pod/urgent", [waiting, other, taken])


@story
def pod_with_a_nominated_node_that_is_cordoned() -> Story:
    waiting = pod("urgent", conditions=[unscheduled(_FULL)], nominated="gpu-7", gpus=4)
    other = pod("sweep", "gpu-7", conditions=[condition("DisruptionTarget", True)])
    node = obj("v1", "Node", "gpu-7", "", spec={"unschedulable": True})
    return Story("pod/urgent", [waiting, other, node])


@story
def pod_with_a_nominated_node_that_was_deleted() -> Story:
    waiting = pod("urgent", conditions=[unscheduled(_FULL)], nominated="gpu-7", gpus=4)
    other = pod("sweep", "gpu-7", conditions=[condition("DisruptionTarget", True)])
    return Story("pod/urgent", [waiting, other, obj("v1", "Node", "gpu-8", "", spec={})])


@story
def pod_leaves() -> Story:
    preemptor = pod("urgent", nominated="gpu-7")
    mark = condition("DisruptionTarget", True, "preempted", "PreemptionByScheduler", 0.5)
    mine = pod("sweep", "gpu-7", conditions=[mark], deletionTimestamp=at(0))
    taken = record("scheduling", preemptor, [mine], rule="lower priority", minutes=0.6)
    return Story("pod/sweep", [preemptor, mine, taken])


@story
def pod_is_gone() -> Story:
    preemptor, mine = pod("urgent", "gpu-7"), pod("sweep", "gpu-7")
    taken = record("scheduling", preemptor, [mine], rule="least lost work")
    return Story("pod/sweep", [preemptor, taken])


@story
def pod_of_a_job_that_came_back_under_another_name() -> Story:
    mine = job()
    back = pod("train-1-x7k2p", "gpu-2", owner=mine, started=5)
    former = pod("train-1-b4c5d", "gpu-1", owner=mine)
    other = pod("train-big-1-b4c5d", "gpu-3")
    taken = record("scheduling", pod("urgent", "gpu-1"), [former, other], rule="lower priority")
    return Story("job/train", [mine, back, taken])


@story
def pod_held_by_a_gate() -> Story:
    gates = [{"name": "example.com/data-is-there"}]
    return Story("pod/train-3", [pod("train-3", spec={**template(), "schedulingGates": gates})])


@story
def pod_pulls_its_image() -> Story:
    return Story("pod/train-3", [pod("train-3", "gpu-1", phase="Pending")])


@story
def gang_lacks_members() -> Story:
    return Story("podgroup/train", [group(minimum=8), *members(3)])


@story
def gang_whose_group_is_missing() -> Story:
    return Story("pod/train-1", members(3))


@story
def gang_waits_for_room() -> Story:
    said = [unscheduled(_FULL)]
    return Story("pod/train-1", [group(minimum=4), *members(4, conditions=said)])


@story
def gang_that_runs_in_part() -> Story:
    said = [unscheduled(_FULL)]
    pods = members(6, nodes=["gpu-0", "gpu-1", "gpu-1", "gpu-2"], conditions=said)
    return Story("podgroup/train", [group(minimum=4), *pods])


@story
def member_with_a_node_of_a_gang_that_runs_in_part() -> Story:
    pods = members(3, nodes=["gpu-0", "gpu-1"], conditions=[unscheduled(_FULL)])
    return Story("pod/train-0", [group(minimum=2), *pods])


@story
def gang_that_went_as_a_whole() -> Story:
    mine, other = members(4), group("urgent")
    taken = record("scheduling", other, mine, rule="lower priority, whole group", unit="team/train")
    return Story("podgroup/train", [group(minimum=4), other, taken])


@story
def idle_job_runs() -> Story:
    mine = job()
    pods = [pod(f"train-{n}-b4c5d", f"gpu-{n}", owner=mine) for n in range(2)]
    gpus = gpu_workload(mine, "Idle", aggregatedUtilization=1.5, idleSince=at(25))
    return Story("job/train", [mine, gpus, *pods])


@story
def idle_job_waits_for_gpus() -> Story:
    mine = job()
    pods = [pod(f"train-{n}-b4c5d", owner=mine, conditions=[unscheduled(_FULL)]) for n in range(2)]
    return Story("job/train", [mine, gpu_workload(mine, "PendingGpu"), *pods])


@story
def idle_job_made_way() -> Story:
    mine, other = job("notebook"), job("urgent")
    taken = record(
        "idle",
        gpu_workload(other, "Active"),
        [gpu_workload(mine, "Preempted", finishedAt=at(19))],
        rule="OldestIdle",
    )
    theirs = gpu_workload(other, "Active")
    return Story("job/notebook", [other, theirs, taken])


@story
def deployment_scaled_to_zero() -> Story:
    spec = {"replicas": 0, "template": {"spec": template()}}
    return Story("deployment/web", [obj("apps/v1", "Deployment", "web", spec=spec, status={})])


@story
def tenant_sees_only_what_is_his() -> Story:
    """The Workload's messages name others by uid, and his rights end at his namespace."""
    mine = job(suspend=True)
    told = (
        "Preempted to accommodate a workload (UID: 5f2c7c1e-0d0b-4b52-9d3a-6a1d1f0f5e11, JobUID: "
        "0b1c2d3e-4f50-4617-8293-a4b5c6d7e8f9) due to reclamation within the cohort"
    )
    queued = workload(mine, condition("QuotaReserved", False, told))
    other = job("secret-project", namespace="rivals")
    theirs = workload(other, condition("Admitted", True))
    taken = record("quota", theirs, [queued], rule=_RECLAIMED)
    return Story(
        "job/train",
        [mine, queued, other, theirs, taken],
        frozenset({"preemptions.reprieve.dev", "podgroups.scheduling.k8s.io"}),
    )


@story
def tenant_may_save_before_it_goes() -> Story:
    mine = pod("train-0", "gpu-0")
    told = preemption_notice(mine, plan="plan-1", saved=0, asked=1)
    return Story("pod/train-0", [mine, told], frozenset({"preemptions.reprieve.dev"}))


@story
def it_waits_for_who_may_save() -> Story:
    mine = pod("train-0", conditions=[unscheduled(_FULL)])
    victim = pod("old-0", "gpu-0")
    plan = record("scheduling", mine, [victim], rule="LowerPriority", minutes=5, phase="Noticed")
    (told,) = plan["spec"]["victims"]
    told["notice"] = {"deadline": at(-5), "extendUntil": at(-5)}
    plan["status"]["victims"] = []
    return Story("pod/train-0", [mine, victim, plan])


@story
def tenant_is_told_by_a_disruption() -> Story:
    """His job came back under another uid: the lineage is the same."""
    mine = job(suspend=True)
    queued = workload(mine, condition("QuotaReserved", False, _NO_QUOTA))
    told = [
        disruption(f"train-{n}", f"owner/{mine['metadata']['uid']}", minutes=20 * n, times=4 - n)
        for n in range(1, 4)
    ]
    elsewhere = disruption("other", "owner/another", minutes=1, times=9)
    return Story(
        "job/train",
        [mine, queued, *told, elsewhere],
        frozenset({"preemptions.reprieve.dev"}),
    )


@story
def record_and_disruption_of_one_plan_are_told_once() -> Story:
    mine, other = job(suspend=True), job("urgent")
    queued = workload(mine, condition("QuotaReserved", False, _NO_QUOTA))
    theirs = workload(other, condition("Admitted", True))
    taken = record("quota", theirs, [queued], rule=_RECLAIMED, gpus=16)
    line = f"owner/{mine['metadata']['uid']}"
    told = disruption("train-1", line, minutes=20, times=1, plan=taken["spec"]["planId"])
    return Story("job/train", [mine, other, queued, theirs, taken, told])


class Refusing(MemorySource):
    """Objects in memory of which some kinds may not be read."""

    def __init__(self, objects: Sequence[Json], refused: frozenset[str]) -> None:
        super().__init__(objects, NOW)
        self._refused = refused

    async def get(self, resource: Resource, namespace: str, name: str) -> Json | None:
        self._check("get", resource, namespace)
        return await super().get(resource, namespace, name)

    async def list(self, resource: Resource, namespace: str) -> list[Json] | None:
        self._check("list", resource, namespace)
        return await super().list(resource, namespace)

    def _check(self, verb: str, resource: Resource, namespace: str) -> None:
        if resource.qualified in self._refused:
            raise Forbidden("", call=Call.on(verb, resource, namespace))


def answered(told: Story) -> Answer:
    """Return the answer to a story's question."""
    source = Refusing(told.objects, told.refused)
    asked = asked_of(told.asked)
    return asyncio.run(
        answer(source, asked, "team", operator_namespace="kaiwo-system", history=told.history)
    )


def text_of(told: Story) -> str:
    """Return the answer as it is printed."""
    lines = lines_of(answered(told), Style(everything=told.history))
    return f"$ reprieve explain {told.asked} -n team\n" + "\n".join(lines) + "\n"


def _write() -> None:
    for path in TOLD.glob("*.txt"):
        path.unlink()
    for name, told in STORIES.items():
        (TOLD / f"{name}.txt").write_text(text_of(told), encoding="utf-8")


if __name__ == "__main__":
    _write()
