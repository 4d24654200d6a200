"""Columns of what nodes and label sets state: made on first use, and shared by snapshots.

A label of all nodes is a number per node, so that a selector is tested once per distinct value.
Snapshots share these columns as long as no node (no label set) has changed, because reading 5,000
rows costs more than deciding on them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from reprieve.engine.cluster.arrays import I32, Mask
from reprieve.engine.cluster.images import ImageIndex, index_images
from reprieve.engine.cluster.rows import NodeRow, PodLabels, Taint

_MOST_COLUMNS: Final = 64  # that are made and carried on for selectors of tenants
_NAMESPACE: Final = ""  # stands for the namespace among keys, none of which is empty

__all__ = ["Column", "LabelFacts", "NodeFacts", "column_of"]


@dataclass(frozen=True, slots=True)
class Column:
    """One fact about each of a row of things, as numbers into `values`; -1 where it is missing."""

    values: tuple[str, ...]
    numbers: I32  # (things,)


def column_of(facts: Sequence[str | None]) -> Column:
    """Return the column of these facts, values in the order in which they first appear."""
    distinct = dict.fromkeys(facts)
    distinct.pop(None, None)
    numbers: dict[str | None, int] = {value: number for number, value in enumerate(distinct)}
    numbers[None] = -1
    values = tuple(value for value in distinct if value is not None)
    return Column(values, np.fromiter(map(numbers.__getitem__, facts), np.int32, len(facts)))


class NodeFacts:
    """Labels, taints, cordons and images of nodes."""

    def __init__(self, nodes: Sequence[NodeRow], before: NodeFacts | None = None) -> None:
        """`before`: the facts of the state before, from which images are followed."""
        self._nodes = nodes
        self._labels: dict[str, Column] = {}
        self._images: ImageIndex | None = None if before is None else before._images

    def label(self, key: str) -> Column:
        """Return each node's value of a label: (nodes,)."""
        column = self._labels.get(key)
        if column is None:
            column = column_of([node.labels.get(key) for node in self._nodes])
            self._labels[key] = column
        return column

    @property
    def images(self) -> ImageIndex:
        """Return which nodes have an image."""
        if self._images is None or self._images.rows is not self._nodes:
            self._images = index_images(self._nodes, self._images)
        return self._images

    @cached_property
    def taints(self) -> tuple[tuple[tuple[Taint, ...], ...], I32]:
        """Return the distinct lists of taints, and the number of each node's: (nodes,)."""
        numbers: dict[tuple[Taint, ...], int] = {}
        found = [numbers.setdefault(node.taints, len(numbers)) for node in self._nodes]
        return tuple(numbers), np.array(found, np.int32)

    @cached_property
    def unschedulable(self) -> Mask:
        """Return which nodes are cordoned: (nodes,)."""
        found = (node.unschedulable for node in self._nodes)
        return np.fromiter(found, np.bool_, len(self._nodes))


class LabelFacts:
    """Namespaces and labels of the label sets that pods have; free numbers have neither.

    Where every pod has labels of its own there are as many sets as pods, so that columns are
    carried over from the last state, with the sets that have changed since.
    """

    def __init__(self, labels: Sequence[PodLabels | None]) -> None:
        self._sets = labels
        self._columns: dict[str, _Growing] = {}

    def after(self, labels: Sequence[PodLabels | None], touched: Collection[int]) -> LabelFacts:
        """Return the facts of a later state, in which the sets of these numbers have changed."""
        later = LabelFacts(labels)
        for key, column in self._columns.items():
            if len(column.values) <= 2 * len(labels) + 64:
                facts = {number: _fact(labels[number], key) for number in touched}
                later._columns[key] = column.after(len(labels), facts)
        return later

    def label(self, key: str) -> Column:
        """Return each set's value of a label: (labels,)."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = _Growing.of([_fact(each, key) for each in self._sets])
        return Column(tuple(column.values), column.numbers)

    def label_if_few(self, key: str) -> Column | None:
        """Return each set's value of a label, None where there are too many columns for another.

        A column costs as much as there are sets, and every later state has it.
        """
        if key in self._columns or len(self._columns) < _MOST_COLUMNS:
            return self.label(key)
        return None

    @property
    def namespaces(self) -> Column:
        """Return each set's namespace: (labels,)."""
        return self.label(_NAMESPACE)


@dataclass(frozen=True, slots=True)
class _Growing:
    """A column whose later states share `values`: the numbers of those in use, by first use."""

    values: dict[str, int]
    numbers: I32

    @classmethod
    def of(cls, facts: Sequence[str | None]) -> _Growing:
        column = column_of(facts)
        return cls({value: number for number, value in enumerate(column.values)}, column.numbers)

    def after(self, size: int, facts: Mapping[int, str | None]) -> _Growing:
        """Return the column with these facts in place; it has at least as many things as before."""
        numbers = np.full(size, -1, np.int32)
        numbers[: len(self.numbers)] = self.numbers
        for place, fact in facts.items():
            numbers[place] = -1 if fact is None else self.values.setdefault(fact, len(self.values))
        return _Growing(self.values, numbers)


def _fact(labels: PodLabels | None, key: str) -> str | None:
    if labels is None:
        return None
    return labels.namespace if key == _NAMESPACE else dict(labels.labels).get(key)
