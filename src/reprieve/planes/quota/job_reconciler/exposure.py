"""Events about jobs that cannot be suspended, in queues that can be hit by preemption.

Source: specification of the quota plane, section 10.7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubeworld.objects.paths import Json
from reprieve.engine.quota.holdings.exposure import exposures
from reprieve.jobs.model import JobKind
from reprieve.planes.quota.job_reconciler.composing import Composer
from reprieve.planes.quota.job_reconciler.job_lookup import queue_name
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.watches import Watches
from reprieve.wording.events import EventText
from reprieve.wording.kueue_jobs import NON_SUSPENDABLE, exposed

__all__ = ["ExposureEvents", "settings_that_hit"]

_KEPT: Final = 4_096


def settings_that_hit(
    watches: Watches, state: QuotaState, namespace: str, local_queue: str
) -> Sequence[str]:
    """Return what can hit workloads of a LocalQueue: a setting and its ClusterQueue, each."""
    held = watches.local_queues.cache.named(namespace, local_queue)
    if held is None:
        return ()
    return tuple(
        f"{each.setting} of ClusterQueue {each.cluster_queue}"
        for each in exposures(state.holdings, held.object.spec.cluster_queue)
    )


class ExposureEvents:
    """Reports to each job once each set of settings."""

    def __init__(self, watches: Watches, state: QuotaState, composer: Composer) -> None:
        self._watches = watches
        self._state = state
        self._composer = composer
        # By uid, oldest first.
        self._reported: dict[str, Sequence[str]] = {}

    def announce(self, kind: JobKind, job: Json) -> None:
        """Warn a job that cannot be suspended of what can affect its queue."""
        metadata, queue = job["metadata"], queue_name(job)
        found = settings_that_hit(self._watches, self._state, metadata["namespace"], queue)
        if not found or self._reported.get(metadata["uid"]) == found:
            return
        self._reported[metadata["uid"]] = found
        if len(self._reported) > _KEPT:
            del self._reported[next(iter(self._reported))]
        text = exposed(kind.kind, metadata["namespace"], queue, found)
        self._composer.announce(kind, job, EventText("Warning", NON_SUSPENDABLE, text))
