"""Values that are made by the hundred thousand: none is changed, and mypy sees to it.

A frozen dataclass sets each of its fields by `object.__setattr__`, so that a row of thirty fields
needs six microseconds to make, several times as long as all of it that is not that. A `value` is
the same to every caller that reads it, compares it, hashes it or calls `dataclasses.replace`, and
to the type checker, which refuses to set a field of it; only the interpreter would allow that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

__all__ = ["value"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(kind: type[T]) -> type[T]:
    """Make a class a dataclass with slots whose fields are set once; a hash of its own stays."""
    return dataclass(slots=True, unsafe_hash="__hash__" not in vars(kind))(kind)
