"""Which nodes and which pods a selector means: every selector of a decision is evaluated here.

A requirement is tested once per distinct value of its label and spread over the column. The masks
of whole selectors are kept with the view they were made for. Source: specification 21.3, 21.6 and
21.7; the label selectors of the Kubernetes API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from operator import eq
from typing import Final, TypeAlias

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.facts import Column
from reprieve.engine.cluster.rows import (
    AffinityTerm,
    Labels,
    NodeTerm,
    Operator,
    PodClass,
    Requirement,
    Selector,
)
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.filtering import View
from reprieve.engine.selectors import requirement_holds, selects

__all__ = [
    "NODE_NAME",
    "Selection",
    "selection_of",
    "spread_over",
]

_SHARED: Final = "selection"
NODE_NAME: Final = "metadata.name"  # the only field of a node that terms can name


def spread_over(column: Column, holds: Callable[[str | None], bool]) -> Mask:
    """Return for each thing whether its value (None where missing) satisfies `holds`."""
    found = np.fromiter(map(holds, (*column.values, None)), np.bool_, len(column.values) + 1)
    return found.take(column.numbers, mode="wrap")  # number -1 reads the last entry


def _spread(column: Column, requirement: Requirement) -> Mask:
    """Return which things satisfy a requirement on the label of the column."""
    if requirement.operator is not Operator.IN:
        return spread_over(
            column, partial(requirement_holds, requirement.operator, requirement.values)
        )
    values = column.values
    wanted = [values.index(value) for value in {*requirement.values} if value in values]
    return column.numbers == wanted[0] if len(wanted) == 1 else np.isin(column.numbers, wanted)


_Values: TypeAlias = dict[str, I64]
"""The label sets of a namespace by their value of a label: places among the namespace's sets, in
order. Those without the label are left out, so that labels of few cost little."""


class Selection:
    """The columns of one snapshot, and what selectors mean in it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._everywhere: Mask = np.ones(len(snapshot.nodes), np.bool_)
        self._pods: dict[object, Mask] = {}
        self._nodes: dict[object, Mask] = {}
        self._in_namespaces: dict[tuple[str, str], _Values] = {}
        self._held: dict[str, dict[str, _Values]] = {}

    def domains(self, key: str) -> Column:
        """Return the topology domain of each node: its value of the label, (nodes,)."""
        return self._snapshot.node_facts.label(key)

    def nodes_of_term(self, term: NodeTerm) -> Mask:
        """Return the nodes that one node selector term matches: (nodes,), not to be changed."""
        known = self._nodes.get(term)
        if known is None:
            known = self._nodes[term] = self._nodes_of_term(term)
        return known

    def nodes_of_terms(self, terms: Iterable[NodeTerm]) -> Mask:
        """Return the nodes that at least one of the terms matches: (nodes,)."""
        found = np.zeros(len(self._snapshot.nodes), np.bool_)
        for term in terms:
            found |= self.nodes_of_term(term)
        return found

    def nodes_of_labels(self, labels: Labels) -> Mask:
        """Return the nodes that have all of these labels: (nodes,)."""
        found = self._everywhere.copy()
        for key, value in labels:
            found &= spread_over(self.domains(key), partial(eq, value))
        return found

    def nodes_of_class(self, entry: PodClass) -> Mask:
        """Return the nodes that match nodeSelector and required node affinity: (nodes,)."""
        key = (entry.node_selector, entry.node_affinity)
        known = self._nodes.get(key)
        if known is None:
            known = self.nodes_of_labels(entry.node_selector)
            if entry.node_affinity is not None:
                known &= self.nodes_of_terms(entry.node_affinity)
            self._nodes[key] = known
        return known

    def pods(self, selector: Selector, namespaces: Iterable[str]) -> Mask:
        """Return the label sets of these namespaces that a selector matches: (labels,).

        Not to be changed.
        """
        wanted = frozenset(namespaces)
        key = (selector, wanted)
        known = self._pods.get(key)
        if known is None:
            known = self._pods[key] = self._pods_of(selector, wanted)
        return known

    def sets_in(self, namespace: str, requirements: Iterable[Requirement]) -> I64:
        """Return the numbers of the namespace's label sets that satisfy all of these, in order.

        The cost depends on the label sets of the namespace, so that thousands of selectors can be
        evaluated; only for the first keys of all is there a column of all label sets.
        """
        sets = self._by_namespace.get(namespace)
        if sets is None:
            return np.zeros(0, np.int64)
        wanted = tuple(requirements)
        if len(wanted) == 1 and wanted[0].operator is Operator.IN and len(wanted[0].values) == 1:
            values = self._values_in(namespace, wanted[0].key)
            return sets[values.get(wanted[0].values[0], sets[:0])]
        found = np.ones(len(sets), np.bool_)
        for requirement in wanted:
            test = partial(requirement_holds, requirement.operator, requirement.values)
            without = test(None)
            values = self._values_in(namespace, requirement.key)
            others = [places for value, places in values.items() if test(value) is not without]
            holds = np.full(len(sets), without, np.bool_)
            if others:
                holds[np.concatenate(others)] = not without
            found &= holds
        return sets[found]

    @cached_property
    def _by_namespace(self) -> dict[str, I64]:
        column = self._snapshot.label_facts.namespaces
        order = np.argsort(column.numbers, kind="stable")
        edges = np.searchsorted(column.numbers[order], np.arange(len(column.values) + 1)).tolist()
        return {
            name: order[edges[number] : edges[number + 1]]
            for number, name in enumerate(column.values)
        }

    def _values_in(self, namespace: str, key: str) -> _Values:
        found = self._in_namespaces.get((namespace, key))
        if found is None:
            column = self._snapshot.label_facts.label_if_few(key)
            if column is None:
                found = self._held_in(namespace).get(key, {})
            else:
                numbers = column.numbers[self._by_namespace[namespace]]
                places = np.argsort(numbers, kind="stable")
                distinct, first = np.unique(numbers[places], return_index=True)
                edges = [*first.tolist(), len(places)]
                found = {
                    column.values[number]: places[edges[at] : edges[at + 1]]
                    for at, number in enumerate(distinct.tolist())
                    if number >= 0
                }
            self._in_namespaces[namespace, key] = found
        return found

    def _held_in(self, namespace: str) -> dict[str, _Values]:
        """Return the values of all labels that the sets of a namespace have, by key."""
        found = self._held.get(namespace)
        if found is None:
            places: dict[str, dict[str, list[int]]] = {}
            for place, number in enumerate(self._by_namespace[namespace].tolist()):
                entry = self._snapshot.labels[number]
                for key, value in () if entry is None else entry.labels:
                    places.setdefault(key, {}).setdefault(value, []).append(place)
            found = self._held[namespace] = {
                key: {value: np.array(those, np.int64) for value, those in values.items()}
                for key, values in places.items()
            }
        return found

    def pods_of_term(self, term: AffinityTerm) -> Mask:
        """Return the label sets that a pod (anti-)affinity term matches: (labels,).

        Not to be changed.
        """
        return self.pods(term.selector, self._namespaces_of(term))

    def _namespaces_of(self, term: AffinityTerm) -> Iterable[str]:
        if term.namespace_selector is None:
            return term.namespaces
        labels = self._snapshot.namespace_labels
        return (
            name
            for name in self._snapshot.label_facts.namespaces.values
            if name in term.namespaces or selects(term.namespace_selector, labels(name))
        )

    def _pods_of(self, selector: Selector, namespaces: frozenset[str]) -> Mask:
        if selector is None or not namespaces:
            return np.zeros(len(self._snapshot.labels), np.bool_)
        found = spread_over(self._snapshot.label_facts.namespaces, namespaces.__contains__)
        for requirement in selector:
            column = self._snapshot.label_facts.label(requirement.key)
            found &= _spread(column, requirement)
        return found

    def _nodes_of_term(self, term: NodeTerm) -> Mask:
        found = self._everywhere.copy()
        if term.unreadable or not (term.expressions or term.fields):
            found[:] = False
            return found
        for requirement in term.expressions:
            found &= _spread(self.domains(requirement.key), requirement)
        for requirement in term.fields:
            found &= self._nodes_of_field(requirement)
        return found

    def _nodes_of_field(self, requirement: Requirement) -> Mask:
        readable = requirement.key == NODE_NAME and len(requirement.values) == 1
        if not readable or requirement.operator not in (Operator.IN, Operator.NOT_IN):
            return np.zeros(len(self._snapshot.nodes), np.bool_)
        among = requirement.operator is Operator.IN
        found = np.full(len(self._snapshot.nodes), not among, np.bool_)
        index = self._snapshot.node_index.get(requirement.values[0])
        if index is not None:
            found[index] = among
        return found


def selection_of(view: View) -> Selection:
    """Return the selection of a view's snapshot, made once."""
    known = view.shared.get(_SHARED)
    if not isinstance(known, Selection):
        known = view.shared[_SHARED] = Selection(view.snapshot)
    return known
