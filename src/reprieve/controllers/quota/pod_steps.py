"""The steps that end and start queued pods, and the events about them.

Source: specification of the quota plane, sections 10.4 and 10.5.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from reprieve.api.kueue import Workload
from reprieve.controllers.quota.composing import Composer
from reprieve.controllers.quota.context import QuotaContext, log
from reprieve.controllers.quota.injections import injections
from reprieve.controllers.quota.watches import Watches
from reprieve.execution.pods import PodWriter
from reprieve.intake.quota_workloads import condition_of
from reprieve.jobs.model import JobKind
from reprieve.jobs.paths import Json, first
from reprieve.jobs.pods import ROLE, annotations_of, is_gated
from reprieve.jobs.reading import is_suspended
from reprieve.units.durations import SECOND
from reprieve.units.instants import parse_instant
from reprieve.wording.kueue import Event
from reprieve.wording.kueue_jobs import NOT_GATED

__all__ = ["PodSteps", "Why"]

_GROUP: Final = "kueue.x-k8s.io/is-group-workload"


class Why(StrEnum):
    """Reasons of the condition TerminationTarget; the last goes before the eviction's own."""

    DELETED = "WorkloadDeleted"
    NOT_ADMITTED = "NotAdmitted"
    NO_WORKLOAD = "NoMatchingWorkload"
    EVICTED = "WorkloadEvictedDueTo"


class PodSteps:
    """Starts and ends pods of one kind row."""

    def __init__(self, context: QuotaContext, watches: Watches, composer: Composer) -> None:
        self._context = context
        self._watches = watches
        self._composer = composer
        self.writer = PodWriter(context.client, context.fence, context.clock)

    async def start(self, kind: JobKind, pod: Json, workload: Workload, pod_set: str) -> None:
        """Let a gated pod of an admitted Workload go.

        Raises:
            Conflicting: an injected value contradicts one that is there.
        """
        admission = workload.status.admission
        told = injections(self._watches, workload).get(pod_set)
        if admission is None or told is None:
            return
        if await self.writer.let_go(pod, kind.gate, told):
            log.info("%s/%s started", kind.kind, pod["metadata"]["name"])
            admitted = condition_of(workload.status.conditions, "Admitted")
            if admitted is not None:
                now, since = self._context.clock.wall(), admitted.last_transition_time
                group = (workload.metadata.annotations or {}).get(_GROUP) == "true"
                seconds = (now - parse_instant(since)) / SECOND
                queue = admission.cluster_queue
                self._context.quota_metrics.ungated(kind.gate, queue, group, seconds)
            text = f"Admitted by clusterQueue {admission.cluster_queue}"
            self._composer.tell(kind, pod, Event("", "Normal", "Started", text))

    async def stop(
        self, kind: JobKind, pod: Json, reason: str, message: str, *, all_pods: bool = False
    ) -> None:
        """End a pod that was started; with `all_pods` also one that was not, or is over."""
        if first(pod, "metadata.deletionTimestamp"):
            return
        if not all_pods and is_suspended(kind, pod):
            return
        if await self.writer.terminate(pod, reason, message):
            log.info("%s/%s ended: %s", kind.kind, pod["metadata"]["name"], message)
            self._composer.tell(kind, pod, Event("", "Normal", "Stopped", message))

    def tell_missed(self, kind: JobKind, pod: Json) -> bool:
        """Tell a pod that runs and was never gated; return whether it is one.

        It is left alone: ended, it would only come again as it is, until webhooks are asked again.
        """
        if is_gated(pod, kind.gate) or ROLE in annotations_of(pod):
            return False
        self._composer.tell(kind, pod, Event("", "Warning", "NotGated", NOT_GATED))
        return True

    async def remove(self, kind: JobKind, pod: Json) -> None:
        """Delete a pod that is one too many in its group."""
        await self.writer.finalize(pod)
        if first(pod, "metadata.deletionTimestamp"):
            return
        if await self.writer.delete(pod):
            log.info("%s/%s is one too many", kind.kind, pod["metadata"]["name"])
            text = "Excess pod deleted"
            self._composer.tell(kind, pod, Event("", "Normal", "ExcessPodDeleted", text))
