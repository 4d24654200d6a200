"""Filters that no pod changes: they depend on the nodes and on what the pod's spec states.

NodeName and NodeAffinity's matchFields narrow the nodes before any filter looks at one (PreFilter):
`Narrowing` comes first and gives the nodes left out its own reason. Filters that would refuse no
node are left out, and what was made for a class is kept with the view. Source: specification 16,
21.1 to 21.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import U8, Mask
from reprieve.engine.cluster.rows import NodeTerm, Operator, PodClass, Taint
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Filter, Placed, Reach, Refusal, View
from reprieve.engine.placement.filters.selection import NODE_NAME, selection_of
from reprieve.engine.placement.filters.taints import NO_SCHEDULE, taints_of
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.reasons import Reason, Rejection
from reprieve.engine.selectors import covers

__all__ = [
    "StaticFilter",
    "compile_features",
    "compile_narrowing",
    "compile_node_affinity",
    "compile_taints",
    "compile_unschedulable",
]

_UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)

Compile = Callable[[View, PodClass], Filter | Refusal | None]


class StaticFilter:
    """A filter whose answers never change: a code per node, (nodes,)."""

    def __init__(self, name: FilterName, codes: U8, subject: str = "") -> None:
        """`subject`: what the texts of all its reasons name."""
        codes.flags.writeable = False
        self.name = name
        self._codes = codes
        self._subject = subject

    def codes(self) -> U8:
        return self._codes

    def code_at(self, node: int) -> int:
        return self._codes.item(node)

    def reasons_at(self, node: int) -> tuple[Reason, ...]:
        code = self._codes.item(node)
        return (Reason(Rejection(code), self._subject),) if code else ()

    def add(self, pod: Placed) -> Reach:
        return Reach.NOTHING

    def remove(self, pod: Placed) -> Reach:
        return Reach.NOTHING


def _once_per_class(
    name: FilterName, compile_class: Compile
) -> Callable[[View, Pending], Filter | Refusal | None]:
    """Return the compile function of a filter that depends on the class alone."""

    def compile_pending(view: View, pending: Pending) -> Filter | Refusal | None:
        kept = view.shared.setdefault(f"static:{name}", {})
        assert isinstance(kept, dict)
        if pending.pod_class not in kept:
            entry = view.snapshot.classes[pending.pod_class]
            assert entry is not None
            kept[pending.pod_class] = compile_class(view, entry)
        found: Filter | Refusal | None = kept[pending.pod_class]
        return found

    return compile_pending


def _refusing(name: FilterName, refused: Mask, code: Rejection, subject: str = "") -> Filter | None:
    if not refused.any():
        return None
    return StaticFilter(name, np.where(refused, np.uint8(code), np.uint8(0)), subject)


def _narrowing(view: View, entry: PodClass) -> Filter | Refusal | None:
    index = view.snapshot.node_index
    left = np.ones(len(view.snapshot.nodes), np.bool_)
    plugins = []
    if FilterName.NODE_AFFINITY in view.profile.filters:
        named = _named_nodes(entry.node_affinity)
        if named is not None:
            if not named:
                return Refusal(Reason(Rejection.AFFINITY_CONFLICT))
            plugins.append(FilterName.NODE_AFFINITY)
            here = np.zeros(len(left), np.bool_)
            here[[index[name] for name in named if name in index]] = True
            left &= here
    if entry.node_name and FilterName.NODE_NAME in view.profile.filters:
        plugins.append(FilterName.NODE_NAME)
        here = np.zeros(len(left), np.bool_)
        if entry.node_name in index:
            here[index[entry.node_name]] = True
        left &= here
    return _refusing(FilterName.NODE_AFFINITY, ~left, Rejection.LEFT_OUT, " ".join(plugins))


def _named_nodes(terms: tuple[NodeTerm, ...] | None) -> frozenset[str] | None:
    """Return the names that matchFields leave, None where some term names none.

    Inside a term names are intersected, over the terms they are united.
    """
    if not terms:
        return None
    union: set[str] = set()
    for term in terms:
        names = [
            set(field.values)
            for field in term.fields
            if field.key == NODE_NAME and field.operator is Operator.IN
        ]
        if not names:
            return None
        union |= set.intersection(*names)
    return frozenset(union)


def _unschedulable(view: View, entry: PodClass) -> Filter | None:
    if any(covers(each, _UNSCHEDULABLE) for each in entry.tolerations):
        return None
    refused = view.snapshot.node_facts.unschedulable
    return _refusing(FilterName.NODE_UNSCHEDULABLE, refused, Rejection.UNSCHEDULABLE)


def _taints(view: View, entry: PodClass) -> Filter | None:
    taints = taints_of(view)
    if not taints.any:
        return None
    refused = ~taints.tolerated(entry.tolerations)
    return _refusing(FilterName.TAINT_TOLERATION, refused, Rejection.TAINT)


def _node_affinity(view: View, entry: PodClass) -> Filter | None:
    selection, added = selection_of(view), view.profile.added_affinity
    if added is None and not entry.node_selector and entry.node_affinity is None:
        return None
    codes = np.zeros(len(view.snapshot.nodes), np.uint8)
    codes[~selection.nodes_of_class(entry)] = Rejection.NODE_AFFINITY
    if added is not None:
        codes[~selection.nodes_of_terms(added)] = Rejection.ADDED_AFFINITY
    return StaticFilter(FilterName.NODE_AFFINITY, codes) if codes.any() else None


def _features(view: View, entry: PodClass) -> Filter | None:
    needed = frozenset(entry.features)
    if not needed:
        return None
    nodes = view.snapshot.nodes
    refused = np.fromiter((not needed <= node.features for node in nodes), np.bool_, len(nodes))
    return _refusing(FilterName.NODE_DECLARED_FEATURES, refused, Rejection.FEATURES)


compile_narrowing: Final = _once_per_class(FilterName.NODE_NAME, _narrowing)
compile_unschedulable: Final = _once_per_class(FilterName.NODE_UNSCHEDULABLE, _unschedulable)
compile_taints: Final = _once_per_class(FilterName.TAINT_TOLERATION, _taints)
compile_node_affinity: Final = _once_per_class(FilterName.NODE_AFFINITY, _node_affinity)
compile_features: Final = _once_per_class(FilterName.NODE_DECLARED_FEATURES, _features)
