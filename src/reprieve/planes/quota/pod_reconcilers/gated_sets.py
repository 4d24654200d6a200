"""One Deployment, StatefulSet or LeaderWorkerSet at a time: what its gated pods are members of.

A set has one Workload for all its replicas, or one for each of its groups; its pods are stamped
with the group that they belong to, and looked at as groups from then on. Each pod of a Deployment
is a workload of its own, made by the labels that the webhook has given to the template.

0. made while no webhook was called: its pods were not gated, which an event states; they are
   reclaimed
1. a group without a Workload gets one; the queue and the class of a waiting one follow the set
2. scaled to nothing: the quota is free, and the Workload on hold until there are replicas again
3. groups that are no more lose their Workloads
4. replicas with ordinals beyond those that have quota, or that request more than was admitted, stay
   gated, and state why
5. pods are stamped, whatever their revision, and follow the set's queue

Source: specification of the quota plane, sections 10.2 and 10.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubeworld.objects.paths import Json, first
from kubeworld.objects.pods import is_over
from kubeworld.units.untrusted import integer_or_none
from reprieve.intake.quota_workloads import is_condition_true
from reprieve.jobs.model import JobKind, PassesOn
from reprieve.jobs.pod_sets import pod_sets_of
from reprieve.jobs.pods import (
    FAST,
    GROUP_NAME,
    GROUP_TOTAL,
    IS_GROUP,
    MANAGED,
    PARENT,
    PREBUILT,
    ROLE,
    SERVING,
    annotations_of,
    is_gated,
    is_missed,
    ordinal_of,
)
from reprieve.planes.quota.context import QuotaContext
from reprieve.planes.quota.job_reconciler.composing import (
    PRIORITY_CLASS,
    Composer,
    labels_of,
    owner,
)
from reprieve.planes.quota.job_reconciler.exposure import ExposureEvents
from reprieve.planes.quota.job_reconciler.job_lookup import (
    QUEUE_NAME,
    job_key,
    queue_name,
    set_workload_keys,
)
from reprieve.planes.quota.job_reconciler.job_workloads import JobWorkloads
from reprieve.planes.quota.pod_reconcilers.group_workloads import admitted_count
from reprieve.planes.quota.pod_reconcilers.missed_pods import MissedPods
from reprieve.planes.quota.pod_reconcilers.pod_bounds import BEYOND, beyond_admission
from reprieve.planes.quota.pod_reconcilers.pod_lookup import PodLookup
from reprieve.planes.quota.pod_reconcilers.pod_steps import PodSteps
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.workload_status.refusals import Refusals
from reprieve.wording.events import EventText
from reprieve.wording.kueue_jobs import (
    beyond_admission_text,
    set_not_gated,
    surplus_replica,
    surplus_replicas,
)

__all__ = ["SetReconciler"]

_OWNER_KIND: Final = "kueue.x-k8s.io/job-owner-gvk"
_OWNER_NAME: Final = "kueue.x-k8s.io/job-owner-name"
_START: Final = "spec.ordinals.start"


class SetReconciler:
    """Looks at one set at a time."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        pods: PodLookup,
        composer: Composer,
        steps: PodSteps,
        workloads: JobWorkloads,
        exposure: ExposureEvents,
    ) -> None:
        self._missed = MissedPods(context, _names_queue)
        self._state = state
        self._pods = pods
        self._composer = composer
        self._steps = steps
        self._workloads = workloads
        self._exposure = exposure

    async def reconcile(self, kind: JobKind, obj: Json) -> None:
        """Do what the set needs; its caller knows that it is queued.

        Raises:
            Deposed: the fence is closed.
            ApiError: to be tried again.
        """
        passes_on = kind.passes_on
        assert passes_on is not None
        if queue_name(obj) and not _names_queue(kind, obj):
            self._composer.announce(
                kind, obj, EventText("Warning", "NotGated", set_not_gated(kind.kind))
            )
        elif queue_name(obj):
            self._exposure.announce(kind, obj)
        refusals = Refusals()
        await refusals.step(self._reclaim(kind, obj))
        if not passes_on.total:
            refusals.raise_first()
            return
        wanted, surplus = set_workload_keys(kind, obj, self._state.workload)
        total = self._total(passes_on, obj)
        for at in wanted:
            await refusals.step(self._keep(kind, obj, at, total))
        for at in surplus:
            workload = self._state.workload(at)
            if workload is not None and not workload.metadata.deletion_timestamp:
                await self._workloads.delete(kind, obj, at, workload)
        below = self._pods.below(kind, obj["metadata"]["namespace"], obj["metadata"]["name"])
        for pod in below:
            if first(pod, "metadata.deletionTimestamp") or is_over(pod):
                continue
            if not await self._hold(kind, obj, pod, wanted, total):
                await refusals.step(self._stamp(kind, passes_on, obj, pod, wanted, total))
        refusals.raise_first()

    async def _reclaim(self, kind: JobKind, obj: Json) -> None:
        """End pods that run without quota; the webhook gates what the set makes in their place."""
        metadata, pods = obj["metadata"], self._pods.kind
        if pods is None or not queue_name(obj):
            return
        at = job_key(kind, metadata["namespace"], metadata["name"])
        for pod in await self._missed.of(kind, obj, pods.gate):
            await self._steps.reclaim(pods, pod, at)

    @staticmethod
    def _total(passes_on: PassesOn, obj: Json) -> int:
        found = first(obj, passes_on.total)
        return found if isinstance(found, int) else 1

    async def _keep(self, kind: JobKind, obj: Json, at: str, total: int) -> None:
        workload = self._state.workload(at)
        if workload is None:
            if total > 0:
                await self._make(kind, obj, at)
            return
        if workload.metadata.deletion_timestamp or is_condition_true(workload, "Finished"):
            return
        if total == 0:
            hold = f"{kind.kind} scaled to zero; workload on hold"
            await self._workloads.hold(at, workload, hold)
            return
        count = admitted_count(workload)
        waits = workload.status.admission is None
        if waits and not await self._workloads.matches(kind, obj, at, workload):
            # Scaled to nothing and back it may have another number of replicas. It stays on hold
            # until its Workload has, so that it is never admitted for those that it had before.
            await self._workloads.update(kind, obj, at, workload)
            return
        await self._workloads.hold(at, workload, "")
        if not waits and count < total:
            self._composer.announce(
                kind,
                obj,
                EventText("Warning", "SurplusReplicas", surplus_replicas(kind.kind, count, total)),
            )
        await self._workloads.follow_labels(kind, obj, at, workload)

    async def _make(self, kind: JobKind, obj: Json, at: str) -> None:
        metadata = obj["metadata"]
        made = self._composer.workload(
            kind,
            obj,
            at,
            [{**each, "template": _bare(each["template"])} for each in pod_sets_of(kind, obj)],
            [owner(kind, obj, controller=False)],
            {
                IS_GROUP: "true",
                _OWNER_KIND: kind.text,
                _OWNER_NAME: metadata["name"],
            },
        )
        if made is not None:
            await self._workloads.create(kind, obj, made)

    async def _hold(
        self, kind: JobKind, obj: Json, pod: Json, groups: Sequence[str], total: int
    ) -> bool:
        """Leave a replica gated that the set got no quota for; return whether it is one.

        It is no member until the set is queued again, so that it never has the place of one with a
        lower ordinal that is being made again.
        """
        pods, passes_on = self._pods.kind, kind.passes_on
        if pods is None or passes_on is None or not self._is_gated(pod):
            return False
        index = _index(passes_on, pod)
        if index is None or index >= len(groups):
            return False
        workload = self._state.workload(groups[index])
        if workload is None or workload.status.admission is None:
            return False
        name, role = obj["metadata"]["name"], self._role(kind, passes_on, obj, pod)
        asked = next(each for each in pod_sets_of(kind, obj) if each["name"] == role)
        rows = self._state.pod_rows(obj["metadata"]["namespace"])
        resources = beyond_admission(
            {**asked, "template": _bare(asked["template"])}, workload, rows
        )
        if resources is not None:
            again = f"the {kind.kind} is queued again; scale it to 0 and up"
            text = beyond_admission_text(f"{kind.kind} '{name}'", resources, again)
            await self._steps.hold(pods, pod, text, BEYOND)
            return True
        ordinal, count, start = ordinal_of(pod), admitted_count(workload), first(obj, _START)
        if passes_on.groups or len(groups) != 1 or ordinal is None:
            return False
        if ordinal - (start if isinstance(start, int) else 0) < count:
            return False
        await self._steps.hold(pods, pod, surplus_replica(kind.kind, name, count, total))
        return True

    async def _stamp(
        self,
        kind: JobKind,
        passes_on: PassesOn,
        obj: Json,
        pod: Json,
        groups: Sequence[str],
        total: int,
    ) -> None:
        gate = "" if self._pods.kind is None else self._pods.kind.gate
        if is_missed(pod, gate):
            return  # it runs without quota, and is reclaimed
        index = _index(passes_on, pod)
        if index is None or index >= len(groups):
            return
        labels = {MANAGED: "true"}
        if queue_name(obj):
            labels[QUEUE_NAME] = queue_name(obj)
        chosen = labels_of(obj).get(PRIORITY_CLASS)
        if chosen:
            labels[PRIORITY_CLASS] = chosen
        name = groups[index].partition("/")[2]
        said = {
            GROUP_NAME: name,
            PREBUILT: name,
            GROUP_TOTAL: str(total),
            FAST: "true",
            SERVING: "true",
            ROLE: self._role(kind, passes_on, obj, pod),
        }
        have, notes = labels_of(pod), annotations_of(pod)
        if labels.items() <= have.items() and said.items() <= notes.items():
            return
        if notes.get(GROUP_NAME) == name and not self._is_gated(pod):
            return  # a running pod stays as it was released
        await self._steps.writer.stamp(pod, labels, said)

    def _is_gated(self, pod: Json) -> bool:
        return self._pods.kind is not None and is_gated(pod, self._pods.kind.gate)

    @staticmethod
    def _role(kind: JobKind, passes_on: PassesOn, obj: Json, pod: Json) -> str:
        names = [each["name"] for each in pod_sets_of(kind, obj)]
        if len(names) == 1 or not passes_on.follower:
            return str(names[0])
        return str(names[1 if passes_on.follower in annotations_of(pod) else 0])


def _names_queue(kind: JobKind, obj: Json) -> bool:
    """Return whether its templates state who gates its pods; not where no webhook was called."""
    assert kind.passes_on is not None
    templates = [first(obj, path) for path in kind.passes_on.templates]
    return all(
        annotations_of(each).get(PARENT) == kind.framework
        for each in templates
        if isinstance(each, dict)
    )


def _index(passes_on: PassesOn, pod: Json) -> int | None:
    """Return which group of its set a pod is of; None where it does not state it yet."""
    if not passes_on.groups:
        return 0
    labels = labels_of(pod)
    said = labels.get(passes_on.index_label) or labels.get(passes_on.index_else, "")
    index = integer_or_none(said)
    return None if index is None or index < 0 else index


def _bare(template: Json) -> Json:
    return {"spec": template["spec"]}
