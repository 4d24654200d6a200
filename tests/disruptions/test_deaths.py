"""A process that dies after any of its writes: the next one's ledger is what its own would be.

Each plane displaces twice undisturbed, so that its rows, its books and the order of its writes are
there, and dies while it displaces a third time. Whether that one is in the ledger is judged from
the records that the API server stores. Source: specification of disruptions, section 3.
"""

from __future__ import annotations

from random import Random

import pytest

from kubeworld.units.durations import SECOND
from reprieve.engine.disruptions.ledger import Actor, Displacement
from reprieve.engine.disruptions.questions import GovernorPolicy
from tests.disruptions.machine import MANNERS, World

_MOST_WRITES = 40


async def told_so_far(plane: Actor) -> World:
    """Return a world in which work that is known in each manner was displaced, for a loop too."""
    world = World(Random(3), GovernorPolicy())
    one, other, third = (world.works[name] for name in "abc")
    # A scheduler displaces for a strictly higher priority alone.
    one.priority = int(plane is Actor.SCHEDULING)
    for victim in (other, third):
        assert await world.displace(plane, one, victim)
        await world.clock.advance(5 * SECOND)
    return world


def rows(world: World) -> list[Displacement]:
    return sorted(world.planes.governor.rows, key=lambda row: (row.at, row.uid))


async def displaced_again(world: World, plane: Actor) -> None:
    assert await world.displace(plane, world.works["a"], world.works["d"])


@pytest.mark.parametrize("plane", list(MANNERS), ids=lambda plane: plane.value)
async def test_a_death_after_any_write_leaves_the_ledger_as_it_was(plane: Actor) -> None:
    undisturbed = await told_so_far(plane)
    before = rows(undisturbed)
    await displaced_again(undisturbed, plane)
    after = rows(undisturbed)
    assert len(after) == len(before) + 1 == 3

    deaths = 0
    for write in range(1, _MOST_WRITES):
        world = await told_so_far(plane)
        assert rows(world) == before
        world.kill_soon(write)
        await displaced_again(world, plane)
        if not world.seen["restarts"]:
            break
        deaths += 1
        # Its record is stored by a write of its own: after each of them the row is there.
        assert len(world.records) == 3, write
        assert rows(world) == after, write
    else:
        raise AssertionError("it never comes to its end")
    print(f"{plane.value}: {deaths} deaths")
    assert deaths >= 3
