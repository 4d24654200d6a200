"""How many pods of a victim set would find no other node without further evictions.

One placement pass with the victims removed and the preemptor in place: the most important victims
first, a group that is evicted as a whole only all together. Nothing is tried twice, and what the
victims would evict themselves is not examined. Source: KEP-5710, "Future extensions" (cascading
preemption).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.simulation import Checkpoint, Simulation
from reprieve.engine.scheduling.nodes.placing import Choose, place_members
from reprieve.engine.scheduling.outcome import UnitVictim
from reprieve.engine.scheduling.victims.trackers import Members

__all__ = ["homeless"]


def homeless(
    simulation: Simulation,
    full: Checkpoint,
    members: Members,
    victims: Sequence[UnitVictim],
    choose: Choose,
) -> int:
    """Return how many of the victims' pods fit nowhere; the simulation is left as it was.

    `full`: the state in which no pod has been removed yet.
    """
    before = simulation.checkpoint()
    try:
        simulation.rollback(full)
        for victim in victims:
            simulation.remove(_slots(victim))
        for pending, node in members:
            simulation.place(pending, node)
        return sum(_left_over(simulation, victim, choose) for victim in victims)
    finally:
        simulation.rollback(before)


def _left_over(simulation: Simulation, victim: UnitVictim, choose: Choose) -> int:
    pods = [_again(simulation, slot) for slot in victim.pods]
    minimum = len(pods) if victim.whole_group else 0
    placing, placed = place_members(simulation, pods, 0, minimum, choose)
    if placing.failure is None and not placing.error:
        return len(pods) - placing.placed
    for pod in reversed(placed):
        simulation.unplace(pod)
    return len(pods)


def _slots(victim: UnitVictim) -> I64:
    return np.array(victim.pods, np.int64)


def _again(simulation: Simulation, slot: int) -> Pending:
    """Return a placed pod as it would wait once its owner has made it anew."""
    snapshot = simulation.snapshot
    number, labels = int(snapshot.pod_class[slot]), int(snapshot.pod_labels[slot])
    entry, own = snapshot.classes[number], snapshot.labels[labels]
    assert entry is not None and own is not None, "what a placed pod uses is never free"
    namespace, _, name = snapshot.pod_keys[slot].partition("/")
    priority = int(snapshot.pod_priority[slot])
    row = PodRow(snapshot.pod_uids[slot], namespace, name, 0, entry, own.labels, priority=priority)
    return Pending(row, number, labels)
