"""What Workloads would be granted before an eviction, as far as the choice of victims reads it.

With `harmOrder`, and where notice is allowed, the time of a Workload that requests notice counts as
lost only from when that is expected (`engine.notice.expected`). What is expected grows while it
runs, so that it is computed again twice a minute. Source: `docs/notice-decisions.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kubeworld.units.durations import SECOND
from reprieve.api import kueue
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.notice.credit import UNKNOWN
from reprieve.engine.notice.expected import NO_TERMS, Terms
from reprieve.engine.notice.granting import granted
from reprieve.intake.cluster.metadata import notice_in, save_cost_in
from reprieve.planes.quota.context import QuotaContext
from reprieve.planes.quota.deciding.protections import Protections
from reprieve.planes.quota.job_reconciler.lineages import Lineages
from reprieve.records.plans.at_stake import lineage_of

__all__ = ["NoticeFacts", "asked_by"]

_EVERY: Final = 30 * SECOND


def asked_by(workload: kueue.Workload, pods: Iterable[PodRow]) -> tuple[int, int]:
    """Return the notice that a Workload or its pods request, and how long a save lasts: seconds.

    What its pods state counts first.
    """
    rows = [row for row in pods if not row.finished]
    own = workload.metadata.annotations or {}
    asked = max((row.notice for row in rows), default=0)
    asked = asked if asked > 0 else notice_in(own)
    return asked, max((row.save_cost for row in rows), default=0) or save_cost_in(own)


class NoticeFacts:
    """The terms of Workloads that hold quota; `changed` is called with keys that are due again."""

    def __init__(
        self,
        context: QuotaContext,
        protections: Protections,
        lineages: Lineages,
        changed: Callable[[str], None],
    ) -> None:
        self._context = context
        self._protections = protections
        self._lineages = lineages
        self._changed = changed
        self._due: dict[str, int] = {}  # monotonic, by key
        self._asking: set[str] = set()  # whose pods were seen to request notice
        #: Gives the credit of a lineage, in thousandths.
        self.credit: Callable[[str], int] = lambda lineage: UNKNOWN
        #: Gives the pods of a Workload.
        self.pods: Callable[[str], Sequence[PodRow]] = lambda key: ()

    def of(self, key: str, workload: kueue.Workload) -> Terms:
        """Return the terms of a Workload now, none where notice changes no choice."""
        context, options = self._context, self._context.options
        self._due.pop(key, None)
        if not (options.settings.harm_order and options.notice.most):
            return NO_TERMS
        if workload.status.admission is None:
            return NO_TERMS
        asked, save = asked_by(workload, self.pods(key))
        allowed = self._protections.notice_max(workload)
        grant = granted(options.notice, (asked * SECOND,), emergency=False, allowed=allowed)
        if not grant.time:
            return NO_TERMS
        self._due[key] = context.clock.monotonic() + _EVERY
        credit = self.credit(lineage_of(self._lineages.of(workload)))
        return Terms(grant.time, save * SECOND, credit=credit)

    def pod_seen(self, key: str) -> None:
        """Check a Workload again whose first pod that requests notice was seen."""
        if not self._context.options.settings.harm_order:
            return
        rows = self.pods(key)
        if not any(row.notice > 0 for row in rows):
            self._asking.discard(key)
        elif key not in self._asking:
            self._asking.add(key)
            self._changed(key)

    def expire(self) -> None:
        """Check Workloads again whose expected loss has changed by now."""
        now = self._context.clock.monotonic()
        for key in [key for key, due in self._due.items() if due <= now]:
            self._changed(key)
