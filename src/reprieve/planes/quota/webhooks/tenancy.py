"""What webhooks of jobs query the running quota plane for: namespaces, queues, classes, owners.

Answers come from the plane's caches, so that a webhook never waits for the API server. What a cache
has not seen yet counts as absent; the plane's reconciler makes up for it. Reviews are judged in
threads: there `TenancyOnTheLoop` passes each query to the event loop, which alone touches caches.

Source: specification of the quota plane, sections 10.1 and 10.7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Final, ParamSpec, TypeVar

from kubeworld.objects.paths import Json, first
from reprieve.engine.quota.model import LabelSelector
from reprieve.intake.quota_workloads import is_condition_true
from reprieve.jobs.model import JobKind
from reprieve.jobs.pods import annotations_of
from reprieve.jobs.writing import WORKLOAD
from reprieve.planes.quota.job_reconciler.exposure import settings_that_hit
from reprieve.planes.quota.job_reconciler.job_lookup import JobLookup, workload_key
from reprieve.planes.quota.pod_reconcilers.pod_bounds import outgrown
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import Watches
from reprieve.planes.quota.webhooks.defaults import Tenancy

__all__ = ["PlaneTenancy", "TenancyOnTheLoop"]

_NAME: Final = "kubernetes.io/metadata.name"
_LONGEST_S: Final = 10.0  # no caller waits longer for an answer to a review

P = ParamSpec("P")
T = TypeVar("T")


class PlaneTenancy:
    """Answers for one plane.

    Args:
        watches: of the plane.
        state: of the plane.
        lookup: of the plane's jobs.
        selector: of namespaces whose jobs are managed.
        external: kinds of others that are queued, as `Kind.version.group`.
        settle: has the state apply what changed, in a process that decides nothing.
    """

    def __init__(
        self,
        watches: Watches,
        state: QuotaState,
        lookup: JobLookup,
        selector: LabelSelector,
        external: Collection[str] = (),
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self._watches = watches
        self._state = state
        self._lookup = lookup
        self._selector = selector
        self._settle = settle
        parts = (each.split(".", 2) for each in external)
        self._external = {(group, kind) for kind, _, group in parts}
        self._owners = self._external | {(kind.group, kind.kind) for kind in lookup.kinds.values()}

    def manages(self, namespace: str) -> bool:
        """Return whether jobs of this namespace are managed."""
        held = self._watches.namespaces.cache.named("", namespace)
        labels = {} if held is None else held.object.metadata.labels or {}
        return self._selector.matches({_NAME: namespace, **labels})

    def gates(self, pod: Json) -> bool:
        """Return whether a pod that names a queue itself is to be gated for it."""
        namespace = pod["metadata"]["namespace"]
        return self.manages(namespace) and not (
            self.has_ancestor(namespace, pod) or self._lookup.set_above(namespace, pod)
        )

    def has_local_queue(self, namespace: str, name: str) -> bool:
        """Return whether there is such a LocalQueue."""
        return self._watches.local_queues.cache.named(namespace, name) is not None

    def has_priority_class(self, name: str) -> bool:
        """Return whether there is such a WorkloadPriorityClass."""
        return self._watches.classes.cache.named("", name) is not None

    def has_managed_owner(self, namespace: str, job: Json) -> bool:
        """Return whether the controller of a job is of an enabled or an external kind."""
        return self._is_owned(job, self._owners)

    def has_ancestor(self, namespace: str, job: Json) -> bool:
        """Return whether a job stands below one that is queued itself.

        So counts what an external kind controls, whose labels are not known here: the plane's
        reconciler suspends it where it has to.
        """
        return self._lookup.ancestor(job) is not None or self._is_owned(job, self._external)

    def set_above(self, namespace: str, pod: Json) -> tuple[JobKind, Json] | None:
        """Return the set with a queue that makes a pod, and its kind; None where there is none."""
        return self._lookup.set_above(namespace, pod) if self.manages(namespace) else None

    def can_be_hit(self, namespace: str, local_queue: str) -> Sequence[str]:
        """Return what can hit workloads of a LocalQueue: a setting and its ClusterQueue, each."""
        self._settle()
        return settings_that_hit(self._watches, self._state, namespace, local_queue)

    def is_leaving(self, workload: str) -> bool:
        """Return whether a Workload `namespace/name` is being deleted."""
        found = self._state.workload(workload)
        return found is not None and bool(found.metadata.deletion_timestamp)

    def outgrown(self, namespace: str, pod: Json, before: Json) -> tuple[str, tuple[str, ...]]:
        """Return the Workload that a pod runs for, and of what it would outgrow its admission.

        Its controller states which Workload it is, and its annotation where that is not known.
        """
        above = self._lookup.ancestor(pod)
        at = f"{namespace}/{annotations_of(pod).get(WORKLOAD, '')}"
        if above is not None and not (above[0].gate or above[0].passes_on):
            at = workload_key(above[0], above[1].object)
        workload = self._state.workload(at)
        if workload is None or not is_condition_true(workload, "Admitted"):
            return "", ()
        return workload.metadata.name, outgrown(self._state, pod, workload, before)

    def resolved(self, kind: JobKind, job: Json) -> Json:
        """Return a job with the runtime that describes its pods, where its kind has one."""
        return self._lookup.resolved(kind, job)

    @staticmethod
    def _is_owned(job: Json, kinds: Collection[tuple[str, str]]) -> bool:
        """Return whether the controller of a job is of one of these kinds, as group and name."""
        return any(
            owner.get("controller")
            and (str(owner.get("apiVersion", "")).rpartition("/")[0], owner.get("kind")) in kinds
            for owner in first(job, "metadata.ownerReferences") or ()
        )


class TenancyOnTheLoop:
    """A tenancy for threads: its queries are answered by another one on the event loop."""

    def __init__(self, tenancy: Tenancy, loop: asyncio.AbstractEventLoop) -> None:
        self._tenancy = tenancy
        self._loop = loop

    def manages(self, namespace: str) -> bool:
        """Return whether jobs of this namespace are managed."""
        return self._ask(self._tenancy.manages, namespace)

    def has_local_queue(self, namespace: str, name: str) -> bool:
        """Return whether there is such a LocalQueue."""
        return self._ask(self._tenancy.has_local_queue, namespace, name)

    def has_priority_class(self, name: str) -> bool:
        """Return whether there is such a WorkloadPriorityClass."""
        return self._ask(self._tenancy.has_priority_class, name)

    def has_managed_owner(self, namespace: str, job: Json) -> bool:
        """Return whether the controller of a job is of an enabled or an external kind."""
        return self._ask(self._tenancy.has_managed_owner, namespace, job)

    def has_ancestor(self, namespace: str, job: Json) -> bool:
        """Return whether a job stands below one that is queued itself."""
        return self._ask(self._tenancy.has_ancestor, namespace, job)

    def set_above(self, namespace: str, pod: Json) -> tuple[JobKind, Json] | None:
        """Return the set with a queue that makes a pod, and its kind; None where there is none."""
        return self._ask(self._tenancy.set_above, namespace, pod)

    def can_be_hit(self, namespace: str, local_queue: str) -> Sequence[str]:
        """Return what can hit workloads of a LocalQueue: a setting and its ClusterQueue, each."""
        return self._ask(self._tenancy.can_be_hit, namespace, local_queue)

    def is_leaving(self, workload: str) -> bool:
        """Return whether a Workload `namespace/name` is being deleted."""
        return self._ask(self._tenancy.is_leaving, workload)

    def outgrown(self, namespace: str, pod: Json, before: Json) -> tuple[str, tuple[str, ...]]:
        """Return the Workload that a pod runs for, and of what it would outgrow its admission.

        `before`: the pod as it is; what it does not request more of is not named.
        """
        return self._ask(self._tenancy.outgrown, namespace, pod, before)

    def resolved(self, kind: JobKind, job: Json) -> Json:
        """Return a job with the runtime that describes its pods, where its kind has one."""
        return self._ask(self._tenancy.resolved, kind, job)

    def _ask(self, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        answer: Future[T] = Future()

        def resolve() -> None:
            try:
                answer.set_result(question(*args, **kwargs))
            except Exception as error:
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(resolve)
        return answer.result(_LONGEST_S)
