"""Steps of one reconciliation that the API server refuses: one refused step delays no other.

A webhook, a policy or a quota of another product may refuse one write of several for as long as it
likes. The steps that do not depend on it are done all the same; the refusal is raised at the end,
so that the object is reconciled again and its trouble is logged.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from reprieve.kube.errors import ApiError, Forbidden, Invalid

__all__ = ["Refusals"]

T = TypeVar("T")


class Refusals:
    """The refusals of one reconciliation."""

    def __init__(self) -> None:
        self._first: ApiError | None = None

    async def of(self, step: Awaitable[T], otherwise: T) -> T:
        """Return what a step returns, `otherwise` where it is refused."""
        try:
            return await step
        except (Forbidden, Invalid) as refusal:
            self._first = self._first or refusal
            return otherwise

    async def step(self, step: Awaitable[object]) -> None:
        """Do a step; a refusal is kept for later."""
        await self.of(step, None)

    def raise_first(self) -> None:
        """Raise the first refusal.

        Raises:
            ApiError: a step was refused.
        """
        if self._first is not None:
            raise self._first
