"""Columns of what nodes and label sets say: made when somebody asks, and shared by snapshots.

A label of all nodes is a number per node, so that a selector is tested once per distinct value.
Snapshots share these columns as long as no node (no label set) has changed, because reading 5,000
rows takes longer than deciding on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from reprieve.engine.cluster.images import ImageIndex, index_images
from reprieve.engine.cluster.rows import NodeRow, Taint

if TYPE_CHECKING:
    from reprieve.engine.cluster.snapshot import I32, Mask, PodLabels

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
    """Namespaces and labels of the label sets that pods have; free numbers have neither."""

    def __init__(self, labels: Sequence[PodLabels | None]) -> None:
        self._sets = labels
        self._labels: dict[str, Column] = {}

    def label(self, key: str) -> Column:
        """Return each set's value of a label: (labels,)."""
        column = self._labels.get(key)
        if column is None:
            found = [None if each is None else dict(each.labels).get(key) for each in self._sets]
            column = self._labels[key] = column_of(found)
        return column

    @cached_property
    def namespaces(self) -> Column:
        """Return each set's namespace: (labels,)."""
        return column_of([None if each is None else each.namespace for each in self._sets])
