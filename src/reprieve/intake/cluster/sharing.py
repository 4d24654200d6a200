"""Equal values of many objects, each kept once.

A cluster of 65,000 nodes names each of its images fifty times per node and each label of a Job on
all of its pods; decoding makes every mention a value of its own. What is shared here is never
changed, so that sharing has no visible effect. The tables are bounded: beyond their bounds equal
values stand more than once, which costs memory and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Final

from reprieve.api.scheduling import ContainerImage
from reprieve.engine.cluster.rows import Image, Labels

__all__ = ["SharedLabels", "SharedNodes"]

_KEPT: Final = 100_000


class SharedLabels:
    """Labels of pods, and their owners: texts, pairs and whole sets."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], tuple[str, str]] = {}
        self._sets: dict[Labels, Labels] = {}

    def of(self, labels: Mapping[str, str] | None) -> Labels:
        """Return labels as rows have them, sorted by key."""
        if not labels:
            return ()
        found = tuple(sorted(labels.items()))
        known = self._sets.get(found)
        if known is None:
            if len(self._pairs) + len(self._sets) >= _KEPT:
                self._pairs.clear()
                self._sets.clear()
            known = tuple([self.pair(pair) for pair in found])
            self._sets[known] = known
        return known

    def pair(self, pair: tuple[str, str]) -> tuple[str, str]:
        """Return an equal pair."""
        known = self._pairs.get(pair)
        if known is None:
            known = sys.intern(pair[0]), sys.intern(pair[1])
            self._pairs[known] = known
        return known


class SharedNodes:
    """Labels, amounts and images of nodes."""

    def __init__(self) -> None:
        self._images: dict[tuple[str, ...], Image] = {}
        self._amounts: dict[tuple[tuple[str, int], ...], Mapping[str, int]] = {}

    def labels(self, labels: Mapping[str, str]) -> Mapping[str, str]:
        """Return the labels with shared texts."""
        return {sys.intern(key): sys.intern(value) for key, value in labels.items()}

    def amounts(self, amounts: Mapping[str, int]) -> Mapping[str, int]:
        """Return the same amounts, by resource name."""
        key = tuple(amounts.items())
        known = self._amounts.get(key)
        if known is None:
            if len(self._amounts) >= _KEPT:
                self._amounts.clear()
            known = self._amounts[key] = amounts
        return known

    def images(self, images: Iterable[ContainerImage]) -> tuple[Image, ...]:
        """Return the images, in order."""
        return tuple([self._image(tuple(each.names or ()), each.size_bytes) for each in images])

    def _image(self, names: tuple[str, ...], size: int) -> Image:
        known = self._images.get(names)
        if known is None or known.size != size:
            if len(self._images) >= _KEPT:
                self._images.clear()
            known = self._images[names] = Image(names, size)
        return known
