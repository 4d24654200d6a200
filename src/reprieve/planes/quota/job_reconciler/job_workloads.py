"""The Workload of one job: made, kept equal to what the job requests, observed, finished.

Source: specification of the quota plane, sections 10.1 to 10.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kubeworld.objects.paths import Json
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.api.kueue import Workload
from reprieve.intake.quota_workloads import (
    ADMISSION_GATED_BY,
    ON_HOLD,
    condition_of,
    is_condition_true,
)
from reprieve.jobs.model import JobKind
from reprieve.jobs.pod_sets import pod_sets_of
from reprieve.jobs.pods import annotations_of, group_of
from reprieve.jobs.reading import digest, is_ready, is_suspended, reclaimable
from reprieve.jobs.writing import is_injected
from reprieve.kube.errors import AlreadyExists, ApiError, Forbidden, Invalid, NotFound
from reprieve.planes.quota.context import QuotaContext, log, reference_of
from reprieve.planes.quota.job_reconciler.composing import (
    PRIORITY_CLASS,
    Composer,
    labels_of,
    most_seconds,
    owner,
    typed,
)
from reprieve.planes.quota.job_reconciler.deletion_pace import DeletionPace
from reprieve.planes.quota.job_reconciler.job_lookup import job_key, queue_name, workload_key
from reprieve.planes.quota.job_reconciler.lost_workloads import LostWorkloads
from reprieve.planes.quota.pod_reconcilers.pod_lookup import group_key
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import WORKLOADS
from reprieve.planes.quota.workload_status.transitions import (
    finished,
    pods_ready,
    reclaimed,
    with_condition,
)
from reprieve.planes.quota.workload_status.writing import WorkloadStatuses
from reprieve.wording.events import EventText

__all__ = ["JobWorkloads"]

_NORMAL: Final = "Normal"
_COMPOSE: Final = "ErrWorkloadCompose"
_ORPHAN: Final = ("OwnerNotFound", "The workload's owner no longer exists")
_CLASS: Final = "WorkloadPriorityClass"
#: How the pods are numbered; a Workload of an earlier version may not state it.
_NUMBERING: Final = ("podIndexLabel", "subGroupIndexLabel", "subGroupCount")
_NO_RESERVATION: Final = ("NoReservation", "The workload has no reservation")


class JobWorkloads:
    """Writes the Workloads of jobs; `again` requests another look at a job at a wall instant."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        writer: WorkloadStatuses,
        composer: Composer,
        pace: DeletionPace,
        again: Callable[[str, Nanos], None],
    ) -> None:
        self._pace = pace
        self._again = again
        self._context = context
        self._state = state
        self._writer = writer
        self._composer = composer
        self._lost = LostWorkloads(context.client)
        # By key: uid, generation, and digests of the pod sets without tolerations and with.
        self._digests: dict[str, tuple[str, int, tuple[str, str]]] = {}

    async def make(self, kind: JobKind, job: Json) -> None:
        """Make the Workload of a job that has none."""
        obj = self._composed(kind, job)
        if obj is not None:
            await self.create(kind, job, obj)

    async def create(self, kind: JobKind, job: Json, obj: Json) -> None:
        """Write a new Workload for a job."""
        metadata = obj["metadata"]
        at = f"{metadata['namespace']}/{metadata['name']}"
        if await self._lost.in_vain(kind, at, obj):
            return
        try:
            stored: Json = await self._composer.fenced().create(WORKLOADS, obj, dict)
        except AlreadyExists:
            stored = await self.stored(at)
        except Invalid as refusal:
            # It stays so until the job is changed.
            self._report_refused(kind, job, at, refusal)
            return
        except Forbidden as refusal:
            if refusal.rule is None:
                self._report_refused(kind, job, at, refusal)
            raise
        self._lost.made(at)
        self._observe(stored)
        self._measure(kind, job, stored)
        log.info("%s/%s: created Workload %s", kind.kind, job["metadata"]["name"], metadata["name"])
        self._composer.announce(
            kind, job, EventText(_NORMAL, "CreatedWorkload", f"Created Workload: {at}")
        )

    def _measure(self, kind: JobKind, job: Json, stored: Json) -> None:
        """Count how long a job had no Workload; one that was changed since counts for nothing."""
        made = [each["metadata"].get("creationTimestamp") for each in (job, stored)]
        if job["metadata"].get("generation", 1) == 1 and all(made):
            seconds = (parse_instant(made[1]) - parse_instant(made[0])) / SECOND
            self._context.quota_metrics.made(kind.kind, seconds)

    async def stored(self, at: str) -> Json:
        """Return a Workload as the API server has it, whole."""
        namespace, _, name = at.partition("/")
        found: Json = await self._context.client.get(WORKLOADS, namespace, name, dict)
        return found

    async def matches(self, kind: JobKind, job: Json, at: str, workload: Workload) -> bool:
        """Return whether the Workload is still that of the job, or what it is of is not known."""
        wanted = pod_sets_of(kind, job)
        if not wanted:
            return True
        if workload.status.admission is not None and kind.min_count:
            # A partly admitted job runs with a lower count than it requests.
            full = {each.name: each for each in workload.spec.pod_sets}
            for pod_set in wanted:
                known = full.get(pod_set["name"])
                if known is not None and known.min_count is not None:
                    pod_set["count"], pod_set["minCount"] = known.count, known.min_count
        if workload.spec.maximum_execution_time_seconds != most_seconds(job):
            return False
        if workload.status.admission is None and _asked(wanted) != _asked(
            msgspec.to_builtins(workload.spec.pod_sets)
        ):
            return False
        made, tolerated = await self._digest(at, workload)
        if digest(wanted) != made:
            return False
        # Admission adds tolerations.
        injected = is_condition_true(workload, "Admitted") or is_injected(kind, job)
        return injected or digest(wanted, tolerations=True) == tolerated

    async def update(self, kind: JobKind, job: Json, at: str, workload: Workload) -> None:
        """Have a Workload without quota follow a job that was changed."""
        obj = self._composed(kind, job)
        if obj is None:
            return
        try:
            await self._patch(at, workload, obj["spec"])
        except Invalid as refusal:
            self._report_refused(kind, job, at, refusal)
            return
        text = f"Updated not matching Workload for suspended job: {at}"
        self._composer.announce(kind, job, EventText(_NORMAL, "UpdatedWorkload", text))

    async def delete(self, kind: JobKind, job: Json, at: str, workload: Workload) -> None:
        """Delete a Workload that holds quota for what its job no longer is, at a growing pause."""
        namespace, _, name = at.partition("/")
        due = self._pace.count(f"Workload {at}", workload.metadata.creation_timestamp or "")
        if due is not None:
            group = group_of(job) if kind.gate else ""
            job_name = job["metadata"]["name"]
            key = group_key(namespace, group) if group else job_key(kind, namespace, job_name)
            self._again(key, due)
            return
        try:
            await self._composer.fenced().delete(
                WORKLOADS, namespace, name, uid=workload.metadata.uid
            )
        except NotFound:
            self._state.gone(at)
        text = f"Deleted not matching Workload: {at}"
        self._composer.announce(kind, job, EventText(_NORMAL, "DeletedWorkload", text))

    async def follow_labels(
        self, kind: JobKind, job: Json, at: str, workload: Workload, *, queue: bool = True
    ) -> None:
        """Have the Workload follow a changed class, gates and, while it waits, queue name."""
        change: Json = {}
        waits = workload.status.admission is None
        if queue and waits and workload.spec.queue_name != queue_name(job):
            change["queueName"] = queue_name(job)
        reference = workload.spec.priority_class_ref
        name = labels_of(job).get(PRIORITY_CLASS, "")
        if reference is None:
            follows = waits and bool(name)
        else:
            follows = reference.kind == _CLASS and name not in ("", reference.name)
        if follows:
            change.update(self._composer.priority(kind, job, []) or {})
        if change:
            await self._patch(at, workload, change)
        gates = annotations_of(job).get(ADMISSION_GATED_BY)
        if gates != (workload.metadata.annotations or {}).get(ADMISSION_GATED_BY):
            await self._patch(at, workload, {}, {ADMISSION_GATED_BY: gates})

    async def finish(
        self, kind: JobKind, job: Json, at: str, workload: Workload, reason: str, message: str
    ) -> None:
        """Declare a Workload finished."""
        now = self._context.clock.wall()

        def change(current: Workload) -> Workload | None:
            if is_condition_true(current, "Finished"):
                return None
            return finished(current, reason, message, now)

        stored = await self._writer.change(at, workload.metadata.uid, change)
        if stored is None:
            return
        log.info("Workload %s is finished: %s", at, reason)
        text = f"Workload '{at}' is declared finished"
        self._composer.announce(kind, job, EventText(_NORMAL, "FinishedWorkload", text))

    async def finish_orphan(self, at: str, workload: Workload) -> bool:
        """Declare a Workload finished whose job is deleted; return whether it ends only now."""
        if is_condition_true(workload, "Finished"):
            return False
        if workload.metadata.deletion_timestamp:
            return True  # the garbage collector was faster
        now = self._context.clock.wall()

        def change(current: Workload) -> Workload | None:
            if is_condition_true(current, "Finished"):
                return None
            return finished(current, *_ORPHAN, now)

        stored = await self._writer.change(at, workload.metadata.uid, change)
        if stored is not None:
            log.info("Workload %s is finished: its job was deleted", at)
        return stored is not None

    async def hold(self, at: str, workload: Workload, why: str) -> None:
        """Set a Workload on hold, without quota; or have it wait again where `why` is empty."""
        now = self._context.clock.wall()

        def change(current: Workload) -> Workload | None:
            if is_condition_true(current, "Finished") or not current.spec.active:
                return None
            condition = condition_of(current.status.conditions, "QuotaReserved")
            held = condition is not None and condition.reason == ON_HOLD
            if held == bool(why):
                return current
            if not why:
                again = "Workload no longer on hold; waiting for quota reservation"
                return with_condition(
                    current, "QuotaReserved", False, "PendingEvaluation", again, now
                )
            changed = with_condition(current, "QuotaReserved", False, ON_HOLD, why, now)
            changed = with_condition(changed, "Admitted", False, *_NO_RESERVATION, now)
            return replace(changed, status=replace(changed.status, admission=None))

        if change(workload) is not workload:
            await self._writer.change(at, workload.metadata.uid, change)

    async def own(self, at: str, workload: Workload, owners: Sequence[Json]) -> None:
        """Set all of these as owners of a Workload."""
        known = {each.uid for each in workload.metadata.owner_references or ()}
        if known.issuperset(each["uid"] for each in owners):
            return
        namespace, _, name = at.partition("/")

        def change(current: Json) -> Json | None:
            metadata = current["metadata"]
            if metadata["uid"] != workload.metadata.uid:
                return None
            have = metadata.get("ownerReferences") or []
            uids = {each["uid"] for each in have}
            more = [each for each in owners if each["uid"] not in uids]
            metadata["ownerReferences"] = [*have, *more]
            return current if more else None

        stored = await self._composer.fenced().modify(WORKLOADS, namespace, name, change)
        if stored is not None:
            self._observe(stored)
            added = len(stored["metadata"]["ownerReferences"]) - len(known)
            event = EventText(_NORMAL, "OwnerReferencesAdded", f"Added {added} owner reference(s)")
            self._context.announce(reference_of(workload), event)

    async def observe(self, kind: JobKind, job: Json, at: str, workload: Workload) -> None:
        """Show in the Workload whether the pods are ready, and which are not needed any more."""
        admitted = is_condition_true(workload, "Admitted")
        ready = admitted and not is_suspended(kind, job) and is_ready(kind, job)
        counts = {each.name: each.count for each in workload.spec.pod_sets}
        surplus = reclaimable(kind, job, counts)
        reclaims = bool(kind.min_count) or kind.progress is not None
        now = self._context.clock.wall()
        unasked = self._context.options.pods_ready is None

        def is_meant(current: Workload) -> bool:
            over = is_condition_true(current, "Finished")
            return not over and is_condition_true(current, "Admitted") == admitted

        # Where nothing waits for pods, they are not reported.
        shown: list[Callable[[Workload], Workload]] = []
        if not unasked:
            shown.append(lambda current: pods_ready(current, ready, now))
        if reclaims:
            shown.append(lambda current: reclaimed(current, surplus))
        await self._writer.show(at, workload, shown, is_meant)

    def forget(self, at: str, *, lost: bool) -> None:
        """Forget a deleted Workload; `lost`: its job is there, as far as is known."""
        self._digests.pop(at, None)
        if lost:
            self._lost.record(at)

    def _report_refused(self, kind: JobKind, job: Json, at: str, refusal: ApiError) -> None:
        """Report to the job's user what the API server answered about its Workload."""
        log.warning("%s/%s: Workload %s is refused", kind.kind, job["metadata"]["name"], at)
        text = f"its Workload {at} is refused: {refusal.message}"
        self._composer.announce(kind, job, EventText("Warning", _COMPOSE, text))

    def _composed(self, kind: JobKind, job: Json) -> Json | None:
        return self._composer.workload(
            kind, job, workload_key(kind, job), pod_sets_of(kind, job), [owner(kind, job)]
        )

    async def _patch(
        self,
        at: str,
        workload: Workload,
        spec: Json,
        annotations: Mapping[str, str | None] | None = None,
    ) -> None:
        namespace, _, name = at.partition("/")
        metadata: Json = {"uid": workload.metadata.uid}
        if annotations:
            metadata["annotations"] = dict(annotations)
        patch = {"metadata": metadata, "spec": spec}
        self._observe(await self._composer.fenced().patch(WORKLOADS, namespace, name, patch, dict))

    async def _digest(self, at: str, workload: Workload) -> tuple[str, str]:
        metadata = workload.metadata
        known = self._digests.get(at)
        if known is None or known[:2] != (metadata.uid, metadata.generation):
            self._observe(await self.stored(at))
            known = self._digests.get(at)
        return known[2] if known is not None else ("", "")

    def _observe(self, stored: Json) -> None:
        """Adopt a Workload as it is stored."""
        metadata = stored["metadata"]
        pod_sets = stored["spec"]["podSets"]
        made = digest(pod_sets), digest(pod_sets, tolerations=True)
        at = f"{metadata['namespace']}/{metadata['name']}"
        self._digests[at] = (metadata["uid"], metadata.get("generation", 0), made)
        self._state.wrote(typed(stored))


def _asked(pod_sets: Sequence[Json]) -> list[Json]:
    """Return what each pod set requests of topologies, without how its pods are numbered."""
    asked = (each.get("topologyRequest") or {} for each in pod_sets)
    return [{k: v for k, v in each.items() if k not in _NUMBERING} for each in asked]
