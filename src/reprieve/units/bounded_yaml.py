"""YAML whose aliases stand for no more than a reader can hold: all YAML of ours is read here.

A reader in C ends the process where a document is nested a hundred thousand deep. So the depth of a
text that could be nested deeply is counted on its events first, which need no stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml
from yaml.composer import ComposerError

from kubeworld.units.aliases import MOST_NODES, Bounded, Typed

__all__ = ["MOST_NESTED", "MOST_NODES", "BoundedLoader", "FastLoader", "read_yaml", "read_yaml_all"]


class BoundedLoader(Bounded, yaml.SafeLoader):
    """Reads plain data, for callers that change what scalars mean."""

    error = ComposerError


class FastLoader(Bounded, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads plain data, in C where PyYAML has it."""

    error = ComposerError


class _Unbounded(Typed, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads what has no aliases."""

    error = ComposerError


#: Mappings and lists in one another.
MOST_NESTED: Final = 500


def read_yaml(text: str | bytes) -> Any:
    """Return the one document of a text.

    Raises:
        yaml.YAMLError: it is none, is nested too deeply, or its aliases stand for too much.
    """
    _check_depth(text)
    return yaml.load(text, Loader=_loader(text))


def read_yaml_all(text: str | bytes) -> Iterator[Any]:
    """Yield the documents of a text.

    Raises:
        yaml.YAMLError: as `read_yaml`.
    """
    _check_depth(text)
    yield from yaml.load_all(text, Loader=_loader(text))


def _loader(text: str | bytes) -> Any:
    """Return what reads a text: without an anchor there is nothing to count."""
    anchored = b"&" in text if isinstance(text, bytes) else "&" in text
    return FastLoader if anchored else _Unbounded


def _check_depth(text: str | bytes) -> None:
    """Refuse a text that is nested too deeply."""
    if _levels(text) <= MOST_NESTED:
        return
    depth = 0
    for event in yaml.parse(text, Loader=_Unbounded):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_NESTED:
            line = "" if event.start_mark is None else f", in line {event.start_mark.line + 1}"
            raise ComposerError(None, None, f"it is nested more than {MOST_NESTED} deep{line}")


def _levels(text: str | bytes) -> int:
    """Return a bound on how deeply a text can be nested: by brackets, and within one line."""
    known = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    lines = known.splitlines()
    within = max((line.count("- ") + line.count("? ") + _indent(line) for line in lines), default=0)
    return known.count("[") + known.count("{") + within


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
