"""The server's clock, which tests move as an administrator or a bad time server would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kubeworld.units.instants import Nanos

__all__ = ["JumpingClock", "TimeSource"]


class TimeSource(Protocol):
    """Any clock: nanoseconds as whole numbers, the wall's since 1970."""

    def wall(self) -> int: ...

    def monotonic(self) -> int: ...

    async def sleep(self, nanoseconds: int) -> None: ...


@dataclass(slots=True)
class JumpingClock:
    """Another clock with its wall time moved by `offset` nanoseconds."""

    inner: TimeSource
    offset: int = 0

    def wall(self) -> Nanos:
        return Nanos(self.inner.wall() + self.offset)

    def monotonic(self) -> Nanos:
        return Nanos(self.inner.monotonic())

    async def sleep(self, nanoseconds: int) -> None:
        await self.inner.sleep(nanoseconds)
