"""YAML whose aliases stand for no more than a reader can take.

An alias costs a few characters and stands for all that its anchor holds, so that twelve lines of
aliases of aliases are billions of nodes to whoever walks them. What a document holds with its
aliases expanded is counted on the nodes of its composer, before anything is made of it. It asks of
a node its `value` alone, a text, a list of nodes or a list of pairs of them, so that this package
needs no reader of YAML.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

__all__ = ["MOST_NODES", "Aliased", "count_aliases"]

#: Nodes of one document that has aliases, expanded; one without is bounded by its own length.
MOST_NODES: Final = 200_000


class Node(Protocol):
    """A node of a composed document."""

    value: Any


class Aliased(ValueError):
    """Aliases of a document stand for too much. `node` is where."""

    def __init__(self, node: Any, why: str) -> None:
        super().__init__(why)
        self.node = node


def count_aliases(root: Node) -> None:
    """Count what a document holds with its aliases expanded.

    Raises:
        Aliased: it is more than `MOST_NODES`, or an alias stands for what it is in.
    """
    sizes: dict[int, int] = {}  # with aliases expanded; 0 while what is inside is counted
    aliased = False
    work: list[tuple[Any, bool]] = [(root, False)]
    while work:
        node, counted = work.pop()
        if counted:
            sizes[id(node)] = 1 + sum(sizes[id(each)] for each in _inside(node))
            continue
        known = sizes.get(id(node))
        if known is not None:
            aliased = True
            if not known:
                raise Aliased(node, "an alias stands for what it is in")
            continue
        sizes[id(node)] = 0
        work.append((node, True))
        work.extend((each, False) for each in _inside(node))
    if aliased and sizes[id(root)] > MOST_NODES:
        raise Aliased(root, f"with its aliases it has more than {MOST_NODES} values")


def _inside(node: Node) -> list[Any]:
    if isinstance(node.value, str):
        return []
    return [part for each in node.value for part in (each if isinstance(each, tuple) else (each,))]
