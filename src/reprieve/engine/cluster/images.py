"""Which nodes have an image, by its name: kept up to date node by node.

Nodes list tens of images each, and one of some thousand nodes reports a new one every few seconds:
an index of all is made once, and afterwards only the names are made anew whose nodes have changed.
Source: specification 17.2, ImageLocality.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.rows import NodeRow

__all__ = ["HavingNodes", "ImageIndex", "index_images", "tagged"]


@dataclass(frozen=True, slots=True)
class HavingNodes:
    """The nodes that have an image, in no order, and its size in bytes on each of them."""

    nodes: I64
    sizes: I64


@dataclass(frozen=True, slots=True)
class ImageIndex:
    """The images of these nodes, by name with tag."""

    rows: Sequence[NodeRow]
    having: Mapping[str, HavingNodes]


def tagged(name: str) -> str:
    """Return the name with its tag; one without a tag or digest is `:latest`."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def index_images(rows: Sequence[NodeRow], before: ImageIndex | None = None) -> ImageIndex:
    """Return the index of these nodes; `before`: that of an earlier state, if there is one."""
    if before is None or [row.name for row in rows] != [row.name for row in before.rows]:
        return _all(rows)
    changed = [
        (index, old, new)
        for index, (old, new) in enumerate(zip(before.rows, rows, strict=True))
        if old is not new and old.images != new.images
    ]
    if not changed:
        return ImageIndex(rows, before.having)
    having = dict(before.having)
    for index, old_row, new_row in changed:
        old, new = _images_of(old_row), _images_of(new_row)
        for name in dict(old.items() ^ new.items()):
            _set(having, name, index, new.get(name))
    return ImageIndex(rows, having)


def _all(rows: Sequence[NodeRow]) -> ImageIndex:
    found: dict[str, dict[int, int]] = {}
    for index, row in enumerate(rows):
        for name, size in _images_of(row).items():
            found.setdefault(name, {})[index] = size
    return ImageIndex(
        rows,
        {
            name: HavingNodes(np.fromiter(at, np.int64), np.fromiter(at.values(), np.int64))
            for name, at in found.items()
        },
    )


def _images_of(row: NodeRow) -> dict[str, int]:
    return {tagged(name): image.size for image in row.images for name in image.names}


def _set(having: dict[str, HavingNodes], name: str, index: int, size: int | None) -> None:
    """Write an image's size on one node, None where the node has it no longer."""
    known = having.pop(name, None)
    nodes, sizes = np.zeros(0, np.int64), np.zeros(0, np.int64)
    if known is not None:
        others = known.nodes != index
        nodes, sizes = known.nodes[others], known.sizes[others]
    if size is not None:
        nodes, sizes = np.append(nodes, index), np.append(sizes, size)
    if len(nodes):
        having[name] = HavingNodes(nodes, sizes)
