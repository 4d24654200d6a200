"""What pods request beside their containers: LimitRanges of the namespace, overhead of the class.

So do templates of claims, where classes of devices are mapped to resources. Rows of pod sets are
kept apart for the namespaces that have a LimitRange or a template; all others share theirs.
A change of any concerns the Workloads that wait: those of the namespace, or those with pods of
the class. Who holds quota holds what its admission states.

Source: specification of the quota plane, section 2 and 8.1; the reference's controller of
Workloads, which counts both when it queues.
"""

from __future__ import annotations

from collections.abc import Callable

from reprieve.api import kueue
from reprieve.api.devices import ResourceClaimTemplate
from reprieve.intake.quota_limits import NO_LIMITS, LimitRange, container_limits
from reprieve.intake.quota_workloads import PodSetRows
from reprieve.planes.quota.context import QuotaContext
from reprieve.planes.quota.watches import Held, RuntimeClass, Watches

__all__ = ["PodFacts"]


class PodFacts:
    """Rows of pod sets. `again` is called with each Workload whose row may have changed."""

    def __init__(
        self, context: QuotaContext, watches: Watches, again: Callable[[kueue.Workload], None]
    ) -> None:
        self._context = context
        self._watches = watches
        self._again = again
        self._rows: dict[str, PodSetRows] = {}

    def follow(self) -> None:
        """Apply what is there, and every change from now on."""
        self._watches.limit_ranges.cache.subscribe(self._limits_changed)
        self._watches.claim_templates.cache.subscribe(self._template_changed)
        self._watches.runtime_classes.cache.subscribe(self._class_changed)

    def reset(self) -> None:
        """Make all rows anew, under the context's options."""
        self._rows.clear()

    def known(self, namespace: str) -> PodSetRows:
        """Return the rows of a namespace if they were made; callable from any thread."""
        return self._rows.get(namespace) or PodSetRows(self._context.options.rules)

    def rows(self, namespace: str) -> PodSetRows:
        """Return the rows for pods of a namespace."""
        found = self._rows.get(namespace)
        if found is None:
            ranges = [
                held.object
                for held in self._watches.limit_ranges.cache
                if held.namespace == namespace
            ]
            templates = self._templates(namespace)
            if ranges or templates or not namespace:
                limits = container_limits(ranges) if ranges else NO_LIMITS
                rules = self._context.options.rules
                found = PodSetRows(rules, limits, self._overheads(), templates)
            else:
                found = self.rows("")
            self._rows[namespace] = found
        return found

    def _templates(self, namespace: str) -> dict[str, ResourceClaimTemplate]:
        """Return the templates of claims that count, by name."""
        if not self._context.options.rules.device_classes:
            return {}
        held = self._watches.claim_templates.cache
        return {each.name: each.object for each in held if each.namespace == namespace}

    def _overheads(self) -> dict[str, kueue.Amounts]:
        return {
            held.name: held.object.overhead.pod_fixed
            for held in self._watches.runtime_classes.cache
            if held.object.overhead is not None and held.object.overhead.pod_fixed
        }

    def _limits_changed(self, old: Held[LimitRange] | None, new: Held[LimitRange] | None) -> None:
        held = new or old
        assert held is not None
        if old is not None and new is not None and old.object.spec == new.object.spec:
            return
        self._rows.pop(held.namespace, None)
        for each in self._watches.workloads.cache:
            if each.namespace == held.namespace:
                self._look_at(each.object)

    def _template_changed(
        self, old: Held[ResourceClaimTemplate] | None, new: Held[ResourceClaimTemplate] | None
    ) -> None:
        held = new or old
        assert held is not None
        if old is not None and new is not None and old.object.spec == new.object.spec:
            return
        self._rows.pop(held.namespace, None)
        for each in self._watches.workloads.cache:
            if each.namespace == held.namespace and any(
                pod_set.template.spec.resource_claims for pod_set in each.object.spec.pod_sets
            ):
                self._look_at(each.object)

    def _class_changed(
        self, old: Held[RuntimeClass] | None, new: Held[RuntimeClass] | None
    ) -> None:
        held = new or old
        assert held is not None
        before, after = (None if each is None else each.object.overhead for each in (old, new))
        if before == after:
            return
        self._rows.clear()
        for each in self._watches.workloads.cache:
            if any(
                pod_set.template.spec.runtime_class_name == held.name
                for pod_set in each.object.spec.pod_sets
            ):
                self._look_at(each.object)

    def _look_at(self, workload: kueue.Workload) -> None:
        if workload.status.admission is None:
            self._again(workload)
