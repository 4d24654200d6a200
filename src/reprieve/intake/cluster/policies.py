"""Objects that select pods, namespaces and priorities: budgets, Services, owners of replicas.

Source: specification 7.6 (budgets), 21.6 (default spreading) and 21.7 (labels of namespaces).
"""

from __future__ import annotations

from reprieve.api.core import Namespace
from reprieve.api.scheduling import (
    LabelSelectorOwner,
    PodDisruptionBudget,
    PriorityClass,
    SelectorOwner,
)
from reprieve.engine.cluster.rows import (
    BudgetRow,
    Entry,
    Kind,
    NamespaceRow,
    PriorityClassRow,
    SelectorRow,
)
from reprieve.intake.cluster.metadata import min_runtime_of, notice_max_in, uid_of, version_of
from reprieve.intake.cluster.selectors import equal_labels, label_selector
from reprieve.intake.preemption_delay import stated_delay

__all__ = ["budget_row", "namespace_entry", "priority_class_entry", "selector_row"]


def budget_row(budget: PodDisruptionBudget) -> BudgetRow:
    """Return the row of a PodDisruptionBudget; an empty selector counts no pod."""
    metadata, status = budget.metadata, budget.status
    return BudgetRow(
        uid=uid_of(metadata),
        namespace=metadata.namespace,
        name=metadata.name,
        version=version_of(metadata),
        selector=label_selector(budget.spec.selector) or None,
        allowed=status.disruptions_allowed,
        disrupted=frozenset(status.disrupted_pods or ()),
    )


def priority_class_entry(found: PriorityClass) -> Entry:
    """Return the entry of a PriorityClass."""
    metadata = found.metadata
    notes = metadata.annotations or {}
    row = PriorityClassRow(
        found.value, min_runtime_of(metadata), stated_delay(notes), notice_max_in(notes)
    )
    version = version_of(metadata)
    return Entry(Kind.PRIORITY_CLASS, uid_of(metadata), "", metadata.name, version, row)


def namespace_entry(namespace: Namespace) -> Entry:
    """Return the entry of a namespace."""
    metadata = namespace.metadata
    row = NamespaceRow(dict(metadata.labels or {}), min_runtime_of(metadata))
    return Entry(Kind.NAMESPACE, uid_of(metadata), "", metadata.name, version_of(metadata), row)


def selector_row(owner: SelectorOwner | LabelSelectorOwner, kind: Kind) -> SelectorRow:
    """Return the row of a Service, ReplicaSet, StatefulSet or ReplicationController."""
    metadata, selector = owner.metadata, owner.spec.selector
    if isinstance(selector, dict):
        found = equal_labels(selector) or None
    else:
        found = label_selector(selector)
    return SelectorRow(
        uid=uid_of(metadata),
        kind=kind,
        namespace=metadata.namespace,
        name=metadata.name,
        version=version_of(metadata),
        selector=found,
    )
