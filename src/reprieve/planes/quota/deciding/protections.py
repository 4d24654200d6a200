"""Minimum runtimes: for how long the annotations of queues and classes protect a workload.

They are read from the ClusterQueue that admitted the workload, its LocalQueue and its
WorkloadPriorityClass; of several the longest holds. What cannot be read protects no workload and is
named in a Warning on the object, once for each text.

Likewise for how long a workload waits before it preempts: its class of priorities decides, else its
ClusterQueue, else the section `quota`; emergency priorities do not wait. Source: the quota plane's
own options; the page `docs/preemption-delay.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reprieve.api import kueue
from reprieve.api.scheduling import PriorityClass
from reprieve.intake.preemption_delay import delay_problem, stated_delay
from reprieve.planes.common.mirrors.stated_limits import decided_delay, least_notice
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.planes.quota.watches import Held, HeldWatch, Watches
from reprieve.settings.notice import notice_max
from reprieve.settings.quota import MinRuntimes, min_runtimes
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording.events import EventText

__all__ = ["Protections"]

_KEPT: Final = 10_000
_REASON: Final = "InvalidAnnotation"
_PROTECTING: Final = (kueue.ClusterQueue, kueue.LocalQueue, kueue.WorkloadPriorityClass)
_DELAYING: Final = (kueue.ClusterQueue, kueue.WorkloadPriorityClass, PriorityClass)


class Protections:
    """Reads the annotations in the caches."""

    def __init__(self, context: QuotaContext, watches: Watches) -> None:
        self._context = context
        self._watches = watches
        self._wrong: dict[str, Held[Any]] = {}
        self._reported: set[tuple[str, str]] = set()

    def of(self, workload: kueue.Workload) -> tuple[int, int]:
        """Return for how many seconds an admitted workload is not preempted, nor reclaimed."""
        admission, watches = workload.status.admission, self._watches
        if admission is None:
            return 0, 0
        name, metadata = workload.spec.priority_class_ref, workload.metadata
        found = (
            min_runtimes(_annotations(watches.cluster_queues, "", admission.cluster_queue)),
            min_runtimes(
                _annotations(watches.local_queues, metadata.namespace, workload.spec.queue_name)
            ),
            min_runtimes(None if name is None else _annotations(watches.classes, "", name.name)),
        )
        return max(each.preempt_s for each in found), max(each.reclaim_s for each in found)

    def notice_max(self, workload: kueue.Workload) -> int:
        """Return the longest notice of a workload, by its queues and class: the least holds."""
        admission, watches = workload.status.admission, self._watches
        name, namespace = workload.spec.priority_class_ref, workload.metadata.namespace
        queue = "" if admission is None else admission.cluster_queue
        return least_notice(
            notice_max(_annotations(watches.cluster_queues, "", queue)),
            notice_max(_annotations(watches.local_queues, namespace, workload.spec.queue_name)),
            notice_max(None if name is None else _annotations(watches.classes, "", name.name)),
        )

    def delay(self, workload: kueue.Workload) -> int:
        """Return for how many nanoseconds a workload waits before it preempts."""
        watches, spec, governor = self._watches, workload.spec, self._context.governor
        urgent = None if governor is None else governor.policy.emergency_priority
        if urgent is not None and (spec.priority or 0) >= urgent:
            return 0
        of_class = of_queue = None
        if spec.priority_class_ref is not None:
            of_pods = spec.priority_class_ref.kind == PriorityClass.__name__
            classes: HeldWatch[Any] = watches.priorities if of_pods else watches.classes
            of_class = stated_delay(_annotations(classes, "", spec.priority_class_ref.name))
        local = watches.local_queues.cache.named(workload.metadata.namespace, spec.queue_name)
        if local is not None:
            name = local.object.spec.cluster_queue
            of_queue = stated_delay(_annotations(watches.cluster_queues, "", name))
        return decided_delay(of_class, of_queue, self._context.options.delay)

    def delays_otherwise(self, old: Held[Any] | None, new: Held[Any] | None) -> bool:
        """Return whether a queue or class has its work wait otherwise than before."""
        if new is not None and _delay_problem(new):
            self._wrong[new.uid] = new
        held = new if old is None else old
        if held is not None and isinstance(held.object, kueue.LocalQueue):
            # Until it existed, the ClusterQueue of its work was not known.
            queue = self._watches.cluster_queues.cache.named("", held.object.spec.cluster_queue)
            return (old is None) != (new is None) and _stated_delay(queue) is not None
        return _stated_delay(old) != _stated_delay(new)

    def changed(self, old: Held[Any] | None, new: Held[Any] | None) -> bool:
        """Return whether a queue or class protects otherwise than before."""
        if new is not None and _stated(new).problems:
            self._wrong[new.uid] = new
        before, after = _stated(old), _stated(new)
        return (before.preempt_s, before.reclaim_s) != (after.preempt_s, after.reclaim_s)

    def report(self) -> None:
        """Report what is wrong with annotations; only a process that decides reports it."""
        wrong, self._wrong = self._wrong, {}
        for held in wrong.values():
            for problem in filter(None, (*_stated(held).problems, _delay_problem(held))):
                if (held.uid, problem) in self._reported:
                    continue
                if len(self._reported) >= _KEPT:
                    self._reported.clear()
                self._reported.add((held.uid, problem))
                kind = type(held.object).__name__
                log.warning("%s %s: %s", kind, held.name, problem)
                version = kueue.API_VERSION
                if isinstance(held.object, PriorityClass):
                    version = "scheduling.k8s.io/v1"
                about = Reference(version, kind, held.namespace, held.name, Uid(held.uid))
                self._context.announce(about, EventText("Warning", _REASON, problem))


def _stated(held: Held[Any] | None) -> MinRuntimes:
    if held is None or not isinstance(held.object, _PROTECTING):
        return MinRuntimes()
    return min_runtimes(held.object.metadata.annotations)


def _stated_delay(held: Held[Any] | None) -> int | None:
    if held is None or not isinstance(held.object, _DELAYING):
        return None
    return stated_delay(held.object.metadata.annotations)


def _delay_problem(held: Held[Any]) -> str:
    if not isinstance(held.object, _DELAYING):
        return ""
    return delay_problem(held.object.metadata.annotations)


def _annotations(watch: HeldWatch[Any], namespace: str, name: str) -> Mapping[str, str] | None:
    held = watch.cache.named(namespace, name)
    return None if held is None else held.object.metadata.annotations
