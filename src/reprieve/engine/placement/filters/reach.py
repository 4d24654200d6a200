"""Which nodes a volume or a device can be reached from, as indices of nodes.

Local volumes and devices name one node each, and there may be as many of them as nodes; terms that
only request label values are therefore looked up in an inverted index instead of being tested on
every node. Source: specification 21.5 (node affinity of volumes) and 21.9 (nodeSelector).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.rows import NodeTerm, Operator, Requirement
from reprieve.engine.placement.filtering import View
from reprieve.engine.placement.filters.selection import Selection, selection_of

__all__ = ["NodeSets", "node_sets_of"]

_SHARED: Final = "reach"
_NAME: Final = "metadata.name"


class NodeSets:
    """The nodes that terms match, kept with the view."""

    def __init__(self, view: View) -> None:
        self._snapshot = view.snapshot
        self._selection: Selection = selection_of(view)
        self._everywhere: I64 = np.arange(len(view.snapshot.nodes), dtype=np.int64)
        self._values: dict[str, dict[str, I64]] = {}
        self._sets: dict[tuple[NodeTerm, ...], I64] = {}

    def of(self, terms: tuple[NodeTerm, ...] | None) -> I64:
        """Return the indices of the nodes that at least one term matches, ascending.

        None means every node. Not to be changed.
        """
        if terms is None:
            return self._everywhere
        known = self._sets.get(terms)
        if known is None:
            known = self._sets[terms] = self._of(terms)
        return known

    def mask(self, terms: tuple[NodeTerm, ...] | None) -> Mask:
        """Return the same nodes as a mask: (nodes,)."""
        found = np.zeros(len(self._everywhere), np.bool_)
        found[self.of(terms)] = True
        return found

    def holds(self, terms: tuple[NodeTerm, ...] | None, node: int) -> bool:
        """Return whether a node is among them."""
        if terms is None:
            return True
        found = self.of(terms)
        at = int(np.searchsorted(found, node))
        return at < len(found) and int(found[at]) == node

    def _of(self, terms: tuple[NodeTerm, ...]) -> I64:
        if not all(map(_by_values, terms)):
            return np.flatnonzero(self._selection.nodes_of_terms(terms))
        found = [self._of_values(term) for term in terms]
        return found[0] if len(found) == 1 else np.unique(np.concatenate([*found, _NONE]))

    def _of_values(self, term: NodeTerm) -> I64:
        found: I64 | None = None
        for requirement in (*term.expressions, *term.fields):
            here = self._with_values(requirement)
            found = here if found is None else np.intersect1d(found, here, assume_unique=True)
        return _NONE if found is None else found

    def _with_values(self, requirement: Requirement) -> I64:
        if requirement.key == _NAME:
            index = self._snapshot.node_index.get(requirement.values[0])
            return _NONE if index is None else np.array([index], np.int64)
        values = self._values.get(requirement.key)
        if values is None:
            column = self._selection.domains(requirement.key)
            order = np.argsort(column.numbers, kind="stable").astype(np.int64)
            starts = np.searchsorted(column.numbers[order], np.arange(len(column.values) + 1))
            values = self._values[requirement.key] = {
                value: order[starts[number] : starts[number + 1]]
                for number, value in enumerate(column.values)
            }
        found = [values[value] for value in dict.fromkeys(requirement.values) if value in values]
        return found[0] if len(found) == 1 else np.sort(np.concatenate([*found, _NONE]))


_NONE: Final = np.zeros(0, np.int64)


def _by_values(term: NodeTerm) -> bool:
    if term.unreadable or not (term.expressions or term.fields):
        return False
    named = all(f.key == _NAME and len(f.values) == 1 for f in term.fields)
    asked = all(e.key != _NAME for e in term.expressions)
    every = all(e.operator is Operator.IN for e in (*term.expressions, *term.fields))
    return named and asked and every


def node_sets_of(view: View) -> NodeSets:
    """Return the node sets of a view, made once."""
    known = view.shared.get(_SHARED)
    if not isinstance(known, NodeSets):
        known = view.shared[_SHARED] = NodeSets(view)
    return known
