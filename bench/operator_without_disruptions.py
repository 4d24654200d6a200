"""`python -m bench.operator_without_disruptions run ...`: the operator without Disruptions.

No Disruption is written, and what that would cost is what another run has on top. For comparisons
alone: there is no such option.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from reprieve.cli.main import main
from reprieve.operator import process

__all__ = ["NoDisruptions"]


class NoDisruptions:
    """Replace `Disruptions`, and write none."""

    def __init__(self, *arguments: Any) -> None:
        """Accept the same arguments."""

    async def report(self, *arguments: Any) -> None:
        """Write nothing."""

    def owes(self, name: str) -> bool:
        """Owe nothing."""
        return False

    def note(self, row: Any) -> None:
        """Count nothing."""

    async def recover(self, intents: Any, records: Iterable[Any]) -> None:
        """Read nothing."""

    async def known_as(self, namespace: str, lineage: str) -> str:
        """Return the same for all."""
        return "another tenant's work"

    async def run(self) -> None:
        """Wait until cancelled."""
        await asyncio.Event().wait()


if __name__ == "__main__":
    parts: Mapping[str, Any] = {"Disruptions": NoDisruptions}
    vars(process).update(parts)
    main()
