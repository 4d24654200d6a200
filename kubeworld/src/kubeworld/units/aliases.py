"""YAML whose aliases stand for no more than a reader can hold, of values that are what they claim.

An alias costs a few characters and stands for all that its anchor holds, so that twelve lines of
aliases of aliases are billions of nodes to a program that walks them. What a document holds with
its aliases expanded is counted on the nodes of its composer, before anything is made of it. It
reads of a node its `value` alone, a text, a list of nodes or a list of pairs of them, so that this
package needs no reader of YAML:

    class Loader(Bounded, yaml.SafeLoader):
        error = yaml.composer.ComposerError

A value may claim by its tag to be what it is not, such as `!!bool maybe`: PyYAML then fails with
whatever its constructor comes upon, and `Typed` with the reader's own error.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

__all__ = ["MOST_NODES", "Bounded", "Typed"]

#: Nodes of one document that has aliases, expanded; one without is bounded by its own length.
MOST_NODES: Final = 200_000


class Node(Protocol):
    """A node of a composed document."""

    value: Any


class Typed:
    """Stands before a loader of PyYAML; `error` is what its composer raises."""

    error: type[Exception]

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)  # type: ignore[misc]
        except (LookupError, AttributeError, TypeError, ValueError, OverflowError) as fault:
            why = str(fault) if isinstance(fault, ValueError) else f"the value is no {node.tag}"
            raise self.error(None, None, why, node.start_mark) from None


class Bounded(Typed):
    """Refuses aliases that stand for too much, too."""

    def get_single_node(self) -> Any:
        return self._counted(super().get_single_node())  # type: ignore[misc]

    def get_node(self) -> Any:
        return self._counted(super().get_node())  # type: ignore[misc]

    def _counted(self, root: Any) -> Any:
        found = None if root is None else _excess(root)
        if found is not None:
            node, why = found
            raise self.error(None, None, why, node.start_mark)
        return root


def _excess(root: Node) -> tuple[Any, str] | None:
    """Return where aliases stand for too much or for what they are in, and what is wrong."""
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
                return node, "an alias stands for what it is in"
            continue
        sizes[id(node)] = 0
        work.append((node, True))
        work.extend((each, False) for each in _inside(node))
    if aliased and sizes[id(root)] > MOST_NODES:
        return root, f"with its aliases it has more than {MOST_NODES} values"
    return None


def _inside(node: Node) -> list[Any]:
    if isinstance(node.value, str):
        return []
    return [part for each in node.value for part in (each if isinstance(each, tuple) else (each,))]
