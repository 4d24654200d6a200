"""YAML whose aliases stand for no more than a reader can take: all YAML of ours is read here.

Source: `kubeworld.units.aliases`, which counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml
from yaml.composer import ComposerError

from kubeworld.units.aliases import MOST_NODES, Aliased, count_aliases

__all__ = ["MOST_NODES", "BoundedLoader", "FastLoader", "bounded", "read_yaml", "read_yaml_all"]


class _Bounded:
    """Checks each document that is composed; stands before a loader of PyYAML."""

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()  # type: ignore[misc]
        return None if node is None else bounded(node)

    def get_node(self) -> yaml.Node | None:
        node = super().get_node()  # type: ignore[misc]
        return None if node is None else bounded(node)


class BoundedLoader(_Bounded, yaml.SafeLoader):
    """Reads plain data, for whoever changes what scalars mean."""


class FastLoader(_Bounded, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads plain data, in C where PyYAML has it."""


_UNCHECKED: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(text: str | bytes) -> Any:
    """Return the one document of a text.

    Raises:
        yaml.YAMLError: it is none, or its aliases stand for too much.
    """
    return yaml.load(text, Loader=_loader(text))


def read_yaml_all(text: str | bytes) -> Iterator[Any]:
    """Yield the documents of a text.

    Raises:
        yaml.YAMLError: as `read_yaml`.
    """
    yield from yaml.load_all(text, Loader=_loader(text))


def _loader(text: str | bytes) -> Any:
    """Return what reads a text: without an anchor there is nothing to count."""
    anchored = b"&" in text if isinstance(text, bytes) else "&" in text
    return FastLoader if anchored else _UNCHECKED


def bounded(root: yaml.Node) -> yaml.Node:
    """Return a document whose aliases stand for no more than `MOST_NODES`.

    Raises:
        ComposerError: they stand for more, or for what they are in.
    """
    try:
        count_aliases(root)
    except Aliased as found:
        raise ComposerError(None, None, str(found), found.node.start_mark) from None
    return root
