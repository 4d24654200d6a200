"""What plans of one plane that are open at the same time query of each other's nodes.

A plan keeps its nodes for its preemptor while its victims save, so that others see these claims.
The next proof of another plan counts both sides of each: the claims as used, the victims as
leaving. Each is counted once, also where several plans name the same victim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from kubeworld.units.durations import MINUTE
from reprieve.api.reprieve import IntentPhase, Preemption, VictimState
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.scheduling.nodes.nominations import Saving
from reprieve.execution.carried import Carried
from reprieve.kube.bodies import Json
from reprieve.planes.scheduling.state import ClusterState
from reprieve.units.ids import Uid

__all__ = ["OpenPlans", "claim_nodes"]

_CLAIMED_FOR: Final = MINUTE
_STAYS: Final = (VictimState.SPARED, VictimState.FAILED)


class OpenPlans:
    """The open plans of one plane; `all` returns them."""

    def __init__(
        self, state: ClusterState, all: Callable[[], Iterable[Carried[Json]]] = tuple
    ) -> None:
        self._state = state
        self.all = all

    def waiting(self, intent: Preemption) -> list[PodRow]:
        """Return the pods that a plan evicts for, as far as they still wait for a node."""
        rows = (self._state.pod(Uid(place.uid)) for place in intent.spec.placement)
        return [row for row in rows if row is not None and self._state.ours(row)]

    def claim(self, intent: Preemption, now: int) -> None:
        """Keep the nodes of a plan for its preemptor; `now`: monotonic."""
        nodes = {Uid(place.uid): place.node for place in intent.spec.placement}
        claim_nodes(self._state, nodes, now)

    def leaving_beside(self, intent: Preemption) -> frozenset[Uid]:
        """Return the victims of other open plans that leave, as seen from this plan.

        Who is not on the way yet leaves only with a plan whose claims this one has to respect.
        """
        waiting = self.waiting(intent)
        least = min((_priority(self._state, row) for row in waiting), default=0)
        found = (
            uid
            for each in self.all()
            if each.name != intent.metadata.name
            for uid in self._leaving(each, least)
        )
        return frozenset(found) - self._state.overdue

    def saving(self) -> list[Saving]:
        """Return the plans that wait for their victims, in the order of their notices."""
        found = list[Saving]()
        for each in self.all():
            if each.intent.status.phase is not IntentPhase.NOTICED or each.ending is not None:
                continue
            claims = frozenset(row.uid for row in self.waiting(each.intent))
            left = [v for v in each.intent.spec.victims if each.state(v) not in _STAYS]
            uids = [Uid(victim.root.uid) for victim in left]
            found.append((claims, [uid for uid in uids if uid not in self._state.overdue]))
        return found

    def _leaving(self, each: Carried[Json], least: int) -> Iterator[Uid]:
        claims = [_priority(self._state, row) for row in self.waiting(each.intent)]
        counts = each.ending is None and bool(claims) and min(claims) >= least
        for victim in each.intent.spec.victims:
            if each.is_over(victim) or (counts and each.state(victim) not in _STAYS):
                yield Uid(victim.root.uid)


def claim_nodes(state: ClusterState, nodes: Mapping[Uid, str], now: int) -> None:
    """Reserve nodes for the pods that still wait for one, for a minute; `now`: monotonic."""
    for uid, node in nodes.items():
        row = state.pod(uid)
        if row is not None and state.ours(row):
            state.cluster.nominate(uid, node, _priority(state, row), now + _CLAIMED_FOR)


def _priority(state: ClusterState, row: PodRow) -> int:
    group = state.group(f"{row.namespace}/{row.group}") if row.group else None
    return row.priority if group is None else group.priority
