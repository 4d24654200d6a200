"""The checks of quota: who is admitted, who was preempted and why, which share a queue has."""

from __future__ import annotations

from collections.abc import Mapping

from reprieve.scenarios.observer import CLUSTER_QUEUES, WORKLOADS, Object
from reprieve.scenarios.play import Play, StepFailed
from reprieve.scenarios.steps import WaitAdmitted, WaitPreempted, WaitShare

__all__ = ["wait_admitted", "wait_preempted", "wait_share"]


async def wait_admitted(play: Play, step: WaitAdmitted) -> None:
    """Until that many workloads of the LocalQueue are admitted and not over."""
    observer, admitted = play.stage.observer, 0

    def enough() -> bool | None:
        nonlocal admitted
        admitted = sum(
            said.get("Admitted", "").startswith("True") and "Finished" not in said
            for each in observer.all(WORKLOADS, play.namespace)
            if each["spec"].get("queueName") == step.queue
            for said in [_stated(each)]
        )
        return True if admitted == step.count else None

    if await observer.until(enough, step.timeout) is None:
        raise StepFailed(f"{admitted} instead of {step.count} after {step.timeout:g} s")


async def wait_preempted(play: Play, step: WaitPreempted) -> None:
    """Until the Job's Workload states that it was preempted, and has released its quota."""
    observer = play.stage.observer
    said: Mapping[str, str] = {}

    def preempted() -> bool | None:
        nonlocal said
        for each in observer.all(WORKLOADS, play.namespace):
            if step.job in _owners(each):
                said = _stated(each)
        waits = said.get("QuotaReserved", "").startswith("False")
        return True if waits and said.get("Preempted") == f"True {step.reason}" else None

    if await observer.until(preempted, step.timeout) is None:
        raise StepFailed(f"not seen within {step.timeout:g} s; last seen: {dict(said)}")


async def wait_share(play: Play, step: WaitShare) -> None:
    """Until the status of the ClusterQueue has the share."""
    observer = play.stage.observer
    share: object = None

    def shown() -> bool | None:
        nonlocal share
        queue = observer.get(CLUSTER_QUEUES, "", step.cluster_queue) or {}
        sharing = (queue.get("status") or {}).get("fairSharing") or {}
        share = sharing.get("weightedShare")
        return True if share == step.share else None

    if await observer.until(shown, step.timeout) is None:
        raise StepFailed(f"{share} instead of {step.share} after {step.timeout:g} s")


def _owners(workload: Object) -> set[str]:
    return {each["name"] for each in workload["metadata"].get("ownerReferences") or ()}


def _stated(workload: Object) -> dict[str, str]:
    """Return status and reason of a Workload's conditions by type."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return {each["type"]: f"{each['status']} {each['reason']}" for each in conditions}
