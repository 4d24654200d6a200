"""Makes many frozen values at once, as decisions with tens of thousands of victims need.

A frozen dataclass sets each field by `object.__setattr__`, which costs several times as long as all
else about a value. Values with slots are filled column by column instead; they are the same values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import fields
from itertools import repeat
from typing import Any, TypeVar

__all__ = ["many"]

T = TypeVar("T")


def many(kind: type[T], count: int, /, **columns: Iterable[Any]) -> list[T]:
    """Return so many values of a dataclass that has slots and no `__post_init__`.

    `columns`: what each field has, one after the other, `repeat(value)` where it is always the
    same; every field is named.
    """
    made: list[T] = list(map(object.__new__, repeat(kind, count)))
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # any dataclass
    if columns.keys() != set(names):
        raise TypeError(f"{kind.__name__} has the fields {names}, not {sorted(columns)}")
    for name in names:
        deque(map(getattr(kind, name).__set__, made, columns[name]), maxlen=0)
    return made
