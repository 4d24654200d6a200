"""The server's clock, which tests move as an administrator or a bad time server would."""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.units.clock import Clock
from reprieve.units.instants import Nanos

__all__ = ["JumpingClock"]


@dataclass(slots=True)
class JumpingClock:
    """Another clock with its wall time moved by `offset` nanoseconds."""

    inner: Clock
    offset: int = 0

    def wall(self) -> Nanos:
        return Nanos(self.inner.wall() + self.offset)

    def monotonic(self) -> Nanos:
        return self.inner.monotonic()

    async def sleep(self, nanoseconds: int) -> None:
        await self.inner.sleep(nanoseconds)
