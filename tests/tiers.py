"""Parts of one property: the first runs with the README's line, the others in the thorough tier."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

import pytest
from _pytest.mark import ParameterSet

__all__ = ["first_of"]

T = TypeVar("T")
_THOROUGH: Final = pytest.mark.thorough
_SLOW: Final = pytest.mark.slow


def first_of(parts: Iterable[T], count: int = 1, most: int | None = None) -> list[T | ParameterSet]:
    """Return what a test is parametrized with: all but the first `count` are thorough.

    Those after the first `most` are slow.
    """
    return [
        part
        if number < count
        else pytest.param(part, marks=_SLOW if most is not None and number >= most else _THOROUGH)
        for number, part in enumerate(parts)
    ]
