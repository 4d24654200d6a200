"""Selectors, terms and tolerations for one pod and one node, as queueing hints need them.

Filters decide the same questions for all nodes at once; a hint decides about a single object.
Source: specification 21.2, 21.3 and 21.7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reprieve.engine.cluster.rows import (
    AffinityTerm,
    Labels,
    NodeRow,
    NodeTerm,
    PodClass,
    PodRow,
    Taint,
    Toleration,
)
from reprieve.engine.selectors import covers, selects

__all__ = [
    "affinity_matches",
    "node_passes",
    "term_matches",
    "tolerated",
]


def term_matches(
    term: AffinityTerm, pod: PodRow, namespace_labels: Callable[[str], Labels]
) -> bool:
    """Return whether an affinity term, wherever its topology is, selects the pod."""
    if pod.namespace not in term.namespaces and not (
        term.namespace_selector is not None
        and selects(term.namespace_selector, dict(namespace_labels(pod.namespace)))
    ):
        return False
    return selects(term.selector, dict(pod.labels))


def affinity_matches(pod: PodRow, other: PodRow, namespace_labels: Callable[[str], Labels]) -> bool:
    """Return whether `other` is what all required affinity terms of `pod` request."""
    terms = pod.pod_class.affinity
    return bool(terms) and all(term_matches(term, other, namespace_labels) for term in terms)


def node_passes(pod_class: PodClass, node: NodeRow) -> bool:
    """Return whether the node satisfies node selector and required node affinity."""
    if any(node.labels.get(key) != value for key, value in pod_class.node_selector):
        return False
    terms = pod_class.node_affinity
    return terms is None or any(_node_term(term, node) for term in terms)


def tolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> bool:
    """Return whether every taint that keeps pods away is covered."""
    return all(
        taint.effect not in ("NoSchedule", "NoExecute")
        or any(covers(each, taint) for each in tolerations)
        for taint in taints
    )


def _node_term(term: NodeTerm, node: NodeRow) -> bool:
    if term.unreadable or not (term.expressions or term.fields):
        return False
    fields = {"metadata.name": node.name}
    return selects(term.expressions, node.labels) and selects(term.fields, fields)
