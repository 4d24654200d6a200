"""Each state of a demand has one owner."""

from __future__ import annotations

from itertools import product

from reprieve.engine.owners import DemandState, owner_of
from reprieve.engine.plan import Plane


def test_every_state_has_the_owner_of_the_table() -> None:
    found = {state: owner_of(DemandState(*state)) for state in product((False, True), repeat=3)}
    assert found == {
        # awaits quota, quota is ours, scheduler is ours
        (False, False, False): Plane.IDLE,
        (False, False, True): Plane.SCHEDULING,
        (False, True, False): Plane.IDLE,
        (False, True, True): Plane.SCHEDULING,
        (True, False, False): Plane.IDLE,
        (True, False, True): Plane.IDLE,
        (True, True, False): Plane.QUOTA,
        (True, True, True): Plane.QUOTA,
    }
