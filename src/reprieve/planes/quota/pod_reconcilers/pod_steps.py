"""The steps that end and start queued pods, and the events about them.

What is deleted for another reason than an eviction, and made again by its controller, is deleted
again only after a growing pause. Source: specification of the quota plane, sections 10.4 and 10.5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kubeworld.objects.paths import Json, first
from kubeworld.objects.pods import is_over
from kubeworld.units.instants import Nanos
from reprieve.api.kueue import Workload
from reprieve.execution.writes.pods import PodWriter
from reprieve.jobs.groups import Excess, excess_of
from reprieve.jobs.model import JobKind
from reprieve.jobs.pods import SURPLUS, group_of, is_missed, is_surplus
from reprieve.jobs.reading import is_suspended
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.planes.quota.job_reconciler.composing import Composer
from reprieve.planes.quota.job_reconciler.deletion_pace import DeletionPace
from reprieve.planes.quota.job_reconciler.injections import injections
from reprieve.planes.quota.job_reconciler.job_lookup import job_key
from reprieve.planes.quota.pod_reconcilers.missed_pods import Graces
from reprieve.planes.quota.pod_reconcilers.pod_lookup import PodLookup, group_key
from reprieve.planes.quota.queue_status.meters import count_ungated
from reprieve.planes.quota.watches import Watches
from reprieve.wording.events import EventText
from reprieve.wording.kueue_jobs import NO_SURPLUS, NOT_GATED, surplus_text

__all__ = ["NEVER_GATED", "Overrun", "PodSteps", "Why"]


class Why(StrEnum):
    """Reasons of the condition TerminationTarget; the last is before the eviction's own."""

    DELETED = "WorkloadDeleted"
    NOT_ADMITTED = "NotAdmitted"
    NO_WORKLOAD = "NoMatchingWorkload"
    NOT_GATED = "NotGated"
    RESIZED = "ExceedsAdmission"
    RELEASED = "ReleasedByJob"
    EVICTED = "WorkloadEvictedDueTo"


@dataclass(frozen=True, slots=True)
class Overrun:
    """Why a pod runs beyond what is admitted, and how its owner is notified of that."""

    why: Why
    text: str


NEVER_GATED: Final = Overrun(Why.NOT_GATED, NOT_GATED)


class PodSteps:
    """Starts and ends pods of one kind row; `again` requests another look at a wall instant."""

    def __init__(
        self,
        context: QuotaContext,
        watches: Watches,
        pods: PodLookup,
        composer: Composer,
        pace: DeletionPace,
        again: Callable[[str, Nanos], None],
    ) -> None:
        self._context = context
        self._pace = pace
        self._graces = Graces()
        self._again = again
        self._watches = watches
        self._pods = pods
        self._composer = composer
        self.writer = PodWriter(context.full_client, context.fence, context.clock)

    async def start(self, kind: JobKind, pod: Json, workload: Workload, pod_set: str) -> None:
        """Release a gated pod of an admitted Workload.

        Raises:
            Conflicting: an injected value contradicts one that is there.
        """
        admission = workload.status.admission
        reported = injections(self._watches, workload).get(pod_set)
        if admission is None or reported is None:
            return
        if await self.writer.let_go(pod, kind.gate, reported):
            log.info("%s/%s started", kind.kind, pod["metadata"]["name"])
            count_ungated(self._context, workload, kind.gate)
            text = f"Admitted by clusterQueue {admission.cluster_queue}"
            self._composer.announce(kind, pod, EventText("Normal", "Started", text))

    async def stop(
        self, kind: JobKind, pod: Json, reason: str, message: str, *, all_pods: bool = False
    ) -> None:
        """End a pod that was started; with `all_pods` also one that was not, or is over."""
        if first(pod, "metadata.deletionTimestamp"):
            return
        if not all_pods and is_suspended(kind, pod):
            return
        if not reason.startswith(Why.EVICTED) and not self._may_delete(kind, pod):
            return
        if await self.writer.terminate(pod, reason, message):
            log.info("pod %s/%s is terminated: %s", kind.kind, pod["metadata"]["name"], message)
            self._composer.announce(kind, pod, EventText("Normal", "Stopped", message))

    async def reclaim_missed(self, kind: JobKind, pod: Json) -> bool:
        """Report and end a pod that runs and was never gated; return whether it is one."""
        if not is_missed(pod, kind.gate):
            return False
        metadata, group = pod["metadata"], group_of(pod)
        namespace, name = metadata["namespace"], metadata["name"]
        await self.reclaim(
            kind, pod, group_key(namespace, group) if group else job_key(kind, namespace, name)
        )
        return True

    async def reclaim(
        self, kind: JobKind, pod: Json, at: str, overrun: Overrun = NEVER_GATED
    ) -> None:
        """End a pod that runs beyond what is admitted, after its grace.

        `at`: what is looked at again then; empty where the caller looks again by itself.
        """
        if first(pod, "metadata.deletionTimestamp") or is_over(pod):
            return
        why, text = overrun.why, overrun.text
        clock, metadata = self._context.clock, pod["metadata"]
        self._composer.announce(kind, pod, EventText("Warning", why, text))
        if why is Why.NOT_GATED and not self._context.gates_pods:
            return
        if metadata["uid"] not in self._graces:
            self._context.metrics.beyond_admission.labels(why).inc()
        left = self._graces.left(metadata["uid"], clock.monotonic())
        if left > 0:
            self._look_again(at, Nanos(clock.wall() + left))
            return
        if not self._may_delete(kind, pod, at, is_seen=not at):
            return
        if await self.writer.terminate(pod, why, text):
            log.info("pod %s/%s is terminated: %s", kind.kind, metadata["name"], text)
            self._composer.announce(kind, pod, EventText("Normal", "Stopped", text))

    def _look_again(self, at: str, due: Nanos) -> None:
        if at:
            self._again(at, due)

    async def turn_away(self, kind: JobKind, pod: Json, group: str, count: int) -> None:
        """Hold back or delete a pod that is one more than the `count` that its group may have."""
        what = excess_of(pod, kind.gate)
        if what is Excess.LEAVE:
            await self.reclaim_missed(kind, pod)
        elif what is Excess.HOLD:
            await self.hold(kind, pod, surplus_text(group, count))
        elif first(pod, "metadata.deletionTimestamp") or self._may_delete(kind, pod):
            await self._remove(kind, pod)

    async def clear_surplus(self, pod: Json) -> None:
        """Have a pod that was one too many, and is not any more, show that."""
        if is_surplus(pod):
            await self.writer.write_condition(pod, SURPLUS, False, "InGroup", NO_SURPLUS)

    async def hold(
        self, kind: JobKind, pod: Json, text: str, reason: str = "GroupIsComplete"
    ) -> None:
        """Have a gated pod that exceeds what is admitted show that."""
        if first(pod, "metadata.deletionTimestamp") or is_surplus(pod, text):
            return
        if await self.writer.write_condition(pod, SURPLUS, True, reason, text):
            log.info(
                "pod %s/%s exceeds what is admitted and stays gated: %s",
                kind.kind,
                pod["metadata"]["name"],
                text,
            )
            self._composer.announce(kind, pod, EventText("Warning", "ExcessPodGated", text))

    def _may_delete(self, kind: JobKind, pod: Json, at: str = "", *, is_seen: bool = False) -> bool:
        """Return whether a pod may be deleted now; otherwise it, or `at`, is looked at again.

        `is_seen`: the caller looks again by itself.
        """
        metadata, group = pod["metadata"], group_of(pod)
        namespace, name = metadata["namespace"], metadata["name"]
        created = str(metadata.get("creationTimestamp") or "")
        due = self._pace.count(self._pods.owner(pod), created, lambda: self._pods.number(pod))
        if due is not None and not is_seen:
            own = group_key(namespace, group) if group else job_key(kind, namespace, name)
            self._again(at or own, due)
        return due is None

    async def _remove(self, kind: JobKind, pod: Json) -> None:
        await self.writer.finalize(pod)
        if first(pod, "metadata.deletionTimestamp"):
            return
        if await self.writer.delete(pod):
            log.info(
                "pod %s/%s exceeds the declared size of its group and is deleted",
                kind.kind,
                pod["metadata"]["name"],
            )
            text = "Excess pod deleted"
            self._composer.announce(kind, pod, EventText("Normal", "ExcessPodDeleted", text))
