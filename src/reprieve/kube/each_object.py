"""A sink that hands every object on and keeps none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["EachObject"]


class EachObject:
    """Hands every listed or changed object to a function, and to another the deleted ones."""

    def __init__(
        self, apply: Callable[[Any], None], gone: Callable[[Any], None] = lambda obj: None
    ) -> None:
        self._apply = apply
        self._gone = gone

    def received(self, objects: list[Any]) -> list[Any]:
        """Read a page of a list."""
        for each in objects:
            self._apply(each)
        return []

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        """A list is complete."""

    def applied(self, obj: Any) -> None:
        """Read an object that is new or has changed."""
        self._apply(obj)

    def deleted(self, obj: Any) -> None:
        """An object was deleted."""
        self._gone(obj)
