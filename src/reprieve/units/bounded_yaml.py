"""YAML whose aliases stand for no more than a reader can hold: all YAML of ours is read here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml
from yaml.composer import ComposerError

from kubeworld.units.aliases import MOST_NODES, Bounded

__all__ = ["MOST_NODES", "BoundedLoader", "FastLoader", "read_yaml", "read_yaml_all"]


class BoundedLoader(Bounded, yaml.SafeLoader):
    """Reads plain data, for callers that change what scalars mean."""

    error = ComposerError


class FastLoader(Bounded, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads plain data, in C where PyYAML has it."""

    error = ComposerError


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
