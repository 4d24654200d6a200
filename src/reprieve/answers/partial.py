"""Answers that are not complete yet, for those who watch one being made.

The first one is what the objects state; then follow the diagnosis of the planes and each change
that was tried and helps. Each replaces the one before it, and the complete answer the last.
"""

from __future__ import annotations

from collections.abc import Callable

from reprieve.answers.decided import Decided
from reprieve.answers.document import Answer

__all__ = ["Partial"]


class Partial:
    """Passes on answers as they are. `show`: gets each of them."""

    def __init__(self, show: Callable[[Answer], None]) -> None:
        self._show = show
        self._of: Callable[[Decided | None], Answer] | None = None

    def begin(self, of: Callable[[Decided | None], Answer]) -> None:
        """Show what the objects state. `of` makes the answer of what the planes decided so far."""
        self._of = of
        self._show(of(None))

    def decided(self, decided: Decided) -> None:
        """Show the answer with what the planes have decided so far."""
        if self._of is not None:
            self._show(self._of(decided))
