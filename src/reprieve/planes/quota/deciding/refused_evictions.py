"""Workloads whose eviction was refused: held from every preemptor for a growing time, and reported.

Two writes evict a Workload: the mark in its status, and the one that stops its job or deletes its
pods. A webhook or a policy of another product may refuse either, and answer 500. If every cycle
tried it again, its preemptor would keep waiting although other victims can be evicted. So a
Workload of which three writes in a row were refused is no candidate for two minutes, also if its
mark is written, and then for twice as long after each further refusal (`execution.not_evictable`).
The reconciler of its job continues trying to stop it. A missing right of our own concerns no single
Workload and holds none.

Failures like those of an API server that is away count where `execution.unanswered` finds that they
are about the Workload. Source: the design's "Intent log and executor".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kubeworld.units.durations import HOUR, MINUTE, SECOND, format_duration
from reprieve.api.kueue import Workload
from reprieve.execution.not_evictable import NotEvictable
from reprieve.execution.pod_victims import DEFAULT_GRACE
from reprieve.intake.quota_workloads import condition_of, is_true
from reprieve.kube.errors import ApiError, Conflict, Forbidden
from reprieve.kube.retry import is_silent
from reprieve.planes.quota.context import QuotaContext, log, reference_of
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import Held
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording import kube_scheduler as wording

__all__ = ["RefusedEvictions"]

_TRIES: Final = 3
_LONGEST: Final = HOUR  # grace periods beyond are waited for where no other work suffices
_OVERDUE: Final = 5 * MINUTE  # after the grace period of a Workload's pods


class RefusedEvictions:
    """Counts refusals by the uid of the Workload.

    `known` returns what is held. `retry` decides again in a ClusterQueue, by name.
    """

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        known: NotEvictable,
        retry: Callable[[str], None],
    ) -> None:
        self._context = context
        self._state = state
        self._known = known
        self._retry = retry
        self._refusals: dict[Uid, int] = {}  # in a row
        # Of plans of this process that are open: for whom each Workload is evicted.
        self._preemptors: dict[Uid, Reference] = {}

    def begins(self, victims: Iterable[str], preemptor: Reference | None) -> None:
        """A plan evicts these Workloads, by uid, for a preemptor."""
        if preemptor is not None:
            self._preemptors.update((Uid(uid), preemptor) for uid in victims)

    def ends(self, victims: Iterable[str]) -> None:
        """A plan that evicts these is over."""
        for uid in victims:
            self._preemptors.pop(Uid(uid), None)

    def refused(self, key: str, failure: ApiError) -> None:
        """Record that a write which evicts the Workload of a key has failed."""
        workload = self._state.workload(key)
        if workload is None:
            return
        uid, now = Uid(workload.metadata.uid), self._context.clock.wall()
        if uid in self._known.held(now):
            return
        self._known.unanswered.failed(uid, failure)
        if self._known.unanswered.is_refused(uid):
            self._hold(workload, failure.message)
            return
        if not _is_refusal(failure):
            return
        refusals = self._refusals[uid] = self._refusals.get(uid, 0) + 1
        if refusals < _TRIES and uid not in self._known:
            return
        self._refusals.pop(uid)
        self._hold(workload, failure.message)

    def stop_refused(self, key: str, failure: ApiError) -> None:
        """Record that a look at the job of a Workload failed; it counts where that leaves."""
        workload = self._state.workload(key)
        if workload is not None and _leaves(workload):
            self.refused(key, failure)

    def too_long(self, key: str) -> str:
        """Return why others are looked for first, empty where the grace period is no reason."""
        workload = self._state.workload(key)
        grace = 0 if workload is None else _grace(workload)
        if workload is None or grace * SECOND <= _LONGEST or workload.metadata.uid in self._known:
            return ""
        why = f"its grace period of {grace} s is longer than {format_duration(_LONGEST)}"
        self._hold(workload, why)
        return why

    def waits(self, key: str, since: int) -> None:
        """Note that an evicted Workload holds its quota still, `since` as a monotonic instant."""
        workload, clock = self._state.workload(key), self._context.clock
        if workload is None or Uid(workload.metadata.uid) in self._known.held(clock.wall()):
            return
        allowed = min(_grace(workload) * SECOND, _LONGEST) + _OVERDUE
        if clock.monotonic() - since > allowed:
            self._hold(workload, f"its pods have not ended within {format_duration(allowed)}")

    def changed(self, old: Held[Workload] | None, new: Held[Workload] | None) -> None:
        """Forget a Workload that has released its quota, or is deleted."""
        if old is None:
            return
        uid = Uid(old.uid)
        held = old.object.status.admission is not None
        gone = new is None or new.uid != old.uid
        watched = held or uid in self._known or uid in self._refusals
        if watched and (gone or (new is not None and new.object.status.admission is None)):
            self._known.forget(uid)
            self._refusals.pop(uid, None)

    def _hold(self, workload: Workload, why: str) -> None:
        context, metadata = self._context, workload.metadata
        until = self._known.refused(metadata.uid, context.clock.wall())
        where = metadata.namespace
        text = wording.eviction_refused(where, metadata.name, why, until, where)
        log.warning("%s", text.message)
        context.announce(reference_of(workload), text)
        preemptor = self._preemptors.get(Uid(metadata.uid))
        if preemptor is not None:
            said = wording.eviction_refused(where, metadata.name, why, until, preemptor.namespace)
            context.announce(preemptor, said)
        self._look_for_others(workload)

    def _look_for_others(self, workload: Workload) -> None:
        """Decide again in the tree of cohorts of a Workload that cannot be evicted."""
        admission, tree = workload.status.admission, self._state.holdings.tree
        if admission is None or admission.cluster_queue not in tree.queues:
            return
        root = tree.root(tree.queues[admission.cluster_queue])
        for name, number in tree.queues.items():
            if tree.root(number) == root:
                self._retry(name)


def _is_refusal(failure: ApiError) -> bool:
    """Whether a failure is about the object that was written, and about no right of ours."""
    lacks_right = isinstance(failure, Forbidden) and bool(failure.rule)
    return not (lacks_right or isinstance(failure, Conflict) or is_silent(failure))


def _grace(workload: Workload) -> int:
    """Return the longest grace period of the pods of a Workload in seconds."""
    said = (each.template.spec.termination_grace_period_seconds for each in workload.spec.pod_sets)
    return max((DEFAULT_GRACE if each is None else each for each in said), default=DEFAULT_GRACE)


def _leaves(workload: Workload) -> bool:
    """Whether a Workload is evicted and holds its quota all the same."""
    evicted = condition_of(workload.status.conditions, "Evicted")
    return is_true(evicted) and workload.status.admission is not None
