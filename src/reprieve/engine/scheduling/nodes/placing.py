"""Places the queued pods of a unit one after the other, each seeing those before it.

A pod is placed on its nominated node when that passes, else on the node with the best score, the
first by name among equals. A pod that does not fit does not end the loop by itself: the group's
minimum does, once it can no longer be met. Source: specification 5.3, 8.7 and 17.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from reprieve.engine.cluster.arrays import I64, Mask
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Placed
from reprieve.engine.placement.reasons import PLUGIN, Reason, Rejection
from reprieve.engine.placement.scores.examined import examined
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.outcome import Diagnosis, Explanation, GroupStatus, Sentence

__all__ = ["Choose", "Placing", "best_node", "diagnose", "place_members", "unreachable"]

Choose: TypeAlias = Callable[[Simulation, Pending, I64], int]

_OUTSIDE: Final = int(Rejection.PLACEMENT)
_DETAILED: Final = frozenset(
    {
        Rejection.RESOURCES,
        Rejection.RESOURCES_EXCEED_NODE,
        Rejection.DRIVER_MISSING,
        Rejection.VOLUME_AFFINITY,
        Rejection.NO_VOLUME,
        Rejection.NO_STORAGE,
        Rejection.VOLUME_MISSING,
        Rejection.DEVICES,
        Rejection.DEVICES_TAKEN,
        Rejection.LEFT_OUT,
        Rejection.UNSUPPORTED,
    }
)


@dataclass(frozen=True, slots=True)
class Placing:
    """Where the pods are placed: `nodes[i]` is the index of the i-th pod's node, -1 for none.

    `failure` is None when the group has its minimum. `waiting`: the loop never started or ended
    while the minimum was still not met, so that the text gets its longer form. `diagnoses[i]`: why
    the i-th pod has no node, None when it has one or was not tried. `parts`: the groups of a tree
    that were tried.
    """

    nodes: tuple[int, ...]
    diagnoses: tuple[Diagnosis | None, ...]
    failure: Explanation | None
    waiting: bool = False
    error: bool = False
    parts: tuple[GroupStatus, ...] = ()

    @property
    def placed(self) -> int:
        """Return how many pods have a node now."""
        return sum(node >= 0 for node in self.nodes)


def best_node(simulation: Simulation, pending: Pending, nodes: I64) -> int:
    """Return the best of these node indices by score, the first by name among equals."""
    if len(nodes) == 1:
        return int(nodes[0])
    return int(nodes[np.argmax(simulation.totals(pending, nodes))])


def place_members(
    simulation: Simulation,
    queued: Sequence[Pending],
    scheduled: int,
    minimum: int,
    choose: Choose,
    within: Mask | None = None,
) -> tuple[Placing, list[Placed]]:
    """Place pods in order; the placed ones stay in the simulation and are returned to be undone.

    `scheduled`: pods of the group that have a node already. `within`: (nodes,) of the placement
    that is examined, None for all.
    """
    nodes = [-1] * len(queued)
    diagnoses: list[Diagnosis | None] = [None] * len(queued)
    placed: list[Placed] = []
    remaining = len(queued)
    if scheduled + remaining < minimum:
        failure = unreachable(minimum, scheduled, remaining)
        return Placing(tuple(nodes), tuple(diagnoses), failure, waiting=True), placed
    for index, pending in enumerate(queued):
        remaining -= 1
        node = _node_for(simulation, pending, choose, within)
        if node >= 0:
            nodes[index] = node
            placed.append(simulation.place(pending, node))
            scheduled += 1
        else:
            diagnoses[index] = found = diagnose(simulation, pending, within)
            if found.error:
                return Placing(tuple(nodes), tuple(diagnoses), None, error=True), placed
        if scheduled + remaining < minimum:
            failure = unreachable(minimum, scheduled, remaining)
            return Placing(tuple(nodes), tuple(diagnoses), failure), placed
    if scheduled < minimum:
        values = (minimum, scheduled, remaining)
        failure = Explanation(Sentence.MIN_COUNT_NOT_YET, values)
        return Placing(tuple(nodes), tuple(diagnoses), failure, waiting=True), placed
    return Placing(tuple(nodes), tuple(diagnoses), None), placed


def unreachable(minimum: int, scheduled: int, remaining: int) -> Explanation:
    """Return the failure of a group that cannot reach its minimum any more."""
    return Explanation(Sentence.MIN_COUNT_UNREACHABLE, (minimum, scheduled, remaining))


def _node_for(simulation: Simulation, pending: Pending, choose: Choose, within: Mask | None) -> int:
    nominated = simulation.snapshot.node_index.get(pending.row.nominated, -1)
    allowed = nominated >= 0 and (within is None or bool(within[nominated]))
    if allowed and simulation.code_at(pending, nominated) == 0:
        return nominated
    passes = simulation.codes(pending) == 0
    if simulation.profile.percentage_of_nodes is None:
        nodes = np.flatnonzero(passes if within is None else passes & within)
    else:
        nodes = _searched(simulation, passes, within)
    return choose(simulation, pending, nodes) if len(nodes) else -1


def _searched(simulation: Simulation, passes: Mask, within: Mask | None) -> I64:
    """Return the nodes that a search finds which ends when enough have passed."""
    listed = np.arange(len(passes)) if within is None else np.flatnonzero(within)
    search = examined(
        passes[listed], simulation.profile.percentage_of_nodes, simulation.search_start
    )
    simulation.search_start = search.next_start
    return listed[search.found]


def diagnose(simulation: Simulation, pending: Pending, within: Mask | None = None) -> Diagnosis:
    """Return why no node fits the pod, with the number of nodes for each reason."""
    size = len(simulation.snapshot.nodes) if within is None else int(within.sum())
    refusal = simulation.refusal(pending)
    if refusal is not None:
        return Diagnosis(size, everywhere=refusal.reason, error=refusal.error)
    codes = simulation.codes(pending).copy()
    if within is not None:
        codes[~within] = _OUTSIDE
    counts: dict[Reason, int] = {}
    refusals: list[tuple[Rejection, int]] = []
    for code in np.unique(codes).tolist():
        if code in (0, _OUTSIDE):
            continue
        nodes = np.flatnonzero(codes == code)
        refusals.append((Rejection(code), len(nodes)))
        for reason, count in _tally(simulation, pending, Rejection(code), nodes):
            counts[reason] = counts.get(reason, 0) + count
    return Diagnosis(size, tuple(counts.items()), refusals=tuple(refusals))


def _tally(
    simulation: Simulation, pending: Pending, rejection: Rejection, nodes: I64
) -> list[tuple[Reason, int]]:
    if rejection not in _DETAILED:
        return [(Reason(rejection), len(nodes))]
    plugin = PLUGIN.get(rejection)
    counts: dict[Reason, int] = {}
    for each in simulation.filters(pending):
        tally = getattr(each, "tally", None)
        if each.name is plugin and tally is not None:
            kept = np.isin(nodes, list(simulation.nominated))
            counts.update(tally(nodes[~kept]))
            nodes = nodes[kept]
    for node in nodes.tolist():
        for reason in simulation.status_at(pending, node).reasons:
            counts[reason] = counts.get(reason, 0) + 1
    return list(counts.items())
