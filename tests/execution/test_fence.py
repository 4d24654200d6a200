"""Promise 4, one decider: no write leaves without a lease that outlasts it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.execution.fence import Deposed, Fence

LEASE = 15 * SECOND


@dataclass
class Tenure:
    held_until: Nanos | None
    identity: str = "operator-1"
    epoch: int = 3


async def test_a_write_is_allowed_only_while_the_lease_outlasts_its_timeout() -> None:
    clock = VirtualClock()
    fence = Fence(Tenure(Nanos(LEASE)), clock, LEASE)
    assert fence.request_timeout == 5 * SECOND
    fence.check()
    await clock.advance(LEASE - fence.request_timeout)
    assert not fence.open
    with pytest.raises(Deposed, match="operator-1 does not hold the process lease"):
        fence.check()


async def test_the_wall_clock_plays_no_role() -> None:
    clock = VirtualClock()
    fence = Fence(Tenure(Nanos(LEASE)), clock, LEASE)
    clock.set_wall(Nanos(0))
    assert fence.open
    clock.set_wall(Nanos(2**62))
    assert fence.open


def test_a_lease_that_is_not_held_allows_nothing() -> None:
    assert not Fence(Tenure(None), VirtualClock(), LEASE).open
