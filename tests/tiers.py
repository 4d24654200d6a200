"""Parts of one property: the first runs with the README's line, the others in the thorough tier."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

__all__ = ["first_of"]

T = TypeVar("T")


def first_of(parts: Iterable[T], count: int = 1) -> list[T | ParameterSet]:
    """Return what a test is parametrized with: all but the first `count` are thorough."""
    return [
        part if number < count else pytest.param(part, marks=pytest.mark.thorough)
        for number, part in enumerate(parts)
    ]
