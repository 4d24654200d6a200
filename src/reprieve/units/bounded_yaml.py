"""YAML whose aliases stand for no more than a reader can take.

An alias costs a few characters and stands for all that its anchor holds, so that twelve lines of
aliases of aliases are billions of nodes to whoever walks them. What a text holds with its aliases
expanded is counted before anything is made of it. All YAML of ours is read by these loaders.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml
from yaml.composer import ComposerError

__all__ = ["MOST_NODES", "BoundedLoader", "FastLoader", "bounded", "read_yaml", "read_yaml_all"]

#: Nodes of one document that has aliases, expanded; one without is bounded by its own length.
MOST_NODES: Final = 200_000


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
    sizes: dict[int, int] = {}  # with aliases expanded; 0 while what is inside is counted
    aliased = False
    work: list[tuple[yaml.Node, bool]] = [(root, False)]
    while work:
        node, counted = work.pop()
        if counted:
            sizes[id(node)] = 1 + sum(sizes[id(each)] for each in _inside(node))
            continue
        known = sizes.get(id(node))
        if known is not None:
            aliased = True
            if not known:
                raise _refused(node, "an alias stands for what it is in")
            continue
        sizes[id(node)] = 0
        work.append((node, True))
        work.extend((each, False) for each in _inside(node))
    if aliased and sizes[id(root)] > MOST_NODES:
        raise _refused(root, f"with its aliases it has more than {MOST_NODES} values")
    return root


def _inside(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return []


def _refused(node: yaml.Node, why: str) -> ComposerError:
    return ComposerError(None, None, why, node.start_mark)
