"""Affinity and topology spread constraints of a pod.

Source: specification 21.3 (nodes), 21.6 (spread) and 21.7 (pods). `matchLabelKeys` of spread
constraints are added here; those of affinity terms are in the selectors since the API server
created the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from reprieve.api.core import NodeAffinity
from reprieve.api.scheduling import (
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from reprieve.engine.cluster.rows import AffinityTerm, NodeTerm, SpreadConstraint, Weighted
from reprieve.intake.cluster.selectors import equal_labels, label_selector, node_term, node_terms

__all__ = [
    "preferred_nodes",
    "preferred_pods",
    "required_nodes",
    "required_pods",
    "spread_constraints",
]

_HONOR: Final = "Honor"


def required_nodes(affinity: NodeAffinity | None) -> tuple[NodeTerm, ...] | None:
    """Return the terms of which one has to match; None when none is requested."""
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return None if required is None else node_terms(required.node_selector_terms)


def preferred_nodes(affinity: NodeAffinity | None) -> tuple[Weighted[NodeTerm], ...]:
    """Return the preferred terms, in order."""
    preferred = affinity.preferred_during_scheduling_ignored_during_execution if affinity else None
    return tuple(Weighted(each.weight, node_term(each.preference)) for each in preferred or ())


def required_pods(affinity: PodAffinity | None, namespace: str) -> tuple[AffinityTerm, ...]:
    """Return the terms that all have to hold; `namespace` is the pod's own."""
    terms = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return tuple(_term(each, namespace) for each in terms or ())


def preferred_pods(
    affinity: PodAffinity | None, namespace: str
) -> tuple[Weighted[AffinityTerm], ...]:
    """Return the preferred terms, in order."""
    terms = affinity.preferred_during_scheduling_ignored_during_execution if affinity else None
    return tuple(
        Weighted(each.weight, _term(each.pod_affinity_term, namespace)) for each in terms or ()
    )


def spread_constraints(
    constraints: Iterable[TopologySpreadConstraint] | None, labels: Mapping[str, str]
) -> tuple[SpreadConstraint, ...]:
    """Return the constraints of a pod with these labels."""
    return tuple(_constraint(each, labels) for each in constraints or ())


def _constraint(
    constraint: TopologySpreadConstraint, labels: Mapping[str, str]
) -> SpreadConstraint:
    own = {key: labels[key] for key in constraint.match_label_keys or () if key in labels}
    return SpreadConstraint(
        topology_key=constraint.topology_key,
        max_skew=constraint.max_skew,
        hard=constraint.when_unsatisfiable == "DoNotSchedule",
        selector=label_selector(constraint.label_selector, equal_labels(own)),
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        honor_affinity=constraint.node_affinity_policy in (None, _HONOR),
        honor_taints=constraint.node_taints_policy == _HONOR,
    )


def _term(term: PodAffinityTerm, namespace: str) -> AffinityTerm:
    named = tuple(sorted(set(term.namespaces or ())))
    if not named and term.namespace_selector is None:
        named = (namespace,)
    return AffinityTerm(
        topology_key=term.topology_key,
        selector=label_selector(term.label_selector),
        namespaces=named,
        namespace_selector=label_selector(term.namespace_selector),
    )
