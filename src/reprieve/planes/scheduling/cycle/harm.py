"""The scheduling plane and harm budgets: which pods they spare from a unit, and which plans.

A unit whose plan they refuse is decided about again at once (`engine.harm_budgets.asking`).

Nothing here costs anything while the cluster has no HarmBudget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kubeworld.units.clock import Clock
from kubeworld.units.instants import format_instant
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.questions import Hold
from reprieve.engine.harm_budgets.asking import Asking, Candidate
from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.plan import Plan, Plane
from reprieve.engine.scheduling.outcome import Unit
from reprieve.intake.lineage import pod_lineage
from reprieve.planes.scheduling.context import log
from reprieve.planes.scheduling.cycle.placed_kinds import PlacedKinds
from reprieve.planes.scheduling.state import ClusterState
from reprieve.units.counts import counted
from reprieve.units.ids import Uid

__all__ = ["SchedulingHarm"]


class SchedulingHarm:
    """Queries the budgets. `lost_with`: the device seconds that are lost with a pod."""

    def __init__(self, governor: Governor, state: ClusterState, clock: Clock) -> None:
        self._governor = governor
        self._state = state
        self._clock = clock
        self.lost_with: Callable[[PodRow], int] = lambda row: 0
        self._asking = Asking(governor.harm, Plane.SCHEDULING)
        self._placed: PlacedKinds | None = None  # kept from the first query of budgets on

    def __bool__(self) -> bool:
        """Whether there is any budget."""
        return bool(self._governor.harm)

    def held(self, unit: Unit, rows: Sequence[PodRow], pods: Iterable[Uid]) -> dict[Uid, Hold]:
        """Return which of the placed pods budgets spare from a unit; `rows` are its own pods.

        `pods`: all that are placed, which are read the first time; later `placed` and `gone`
        report.
        """
        asks, known, now = self.asks(rows), dict[str, PodRow](), self._clock.wall()
        candidates = self._known(pods)
        with self._governor.guard:
            doubtful = self._asking.doubtful(unit.name, asks, now, candidates)
            if not doubtful:
                return {}
            found = self._asking.held(
                unit.name,
                asks,
                now,
                self._below(asks.priority, doubtful, known),
                lambda uid: self.lost_with(known[uid]),
                lambda uid: pod_lineage(known[uid]),
            )
        return {Uid(uid): hold for uid, hold in found.items()}

    def _below(
        self, below: int | None, candidates: Iterable[Candidate], known: dict[str, PodRow]
    ) -> Iterator[Candidate]:
        """Yield those of a lower priority, and note their rows."""
        for uid, tenant, priority in candidates:
            row = self._state.pod(Uid(uid))
            if row is not None and (priority is None or below is None or priority < below):
                known[uid] = row
                yield uid, tenant, priority

    def _known(self, pods: Iterable[Uid]) -> PlacedKinds:
        if self._placed is None:
            self._placed = PlacedKinds(self._priority)
            self._state.forest.observers.append(self._placed.group_changed)
            for uid in pods:
                row = self._state.pod(uid)
                if row is not None:
                    self._placed.see(row)
        self._placed.settle(self._state.pod)
        return self._placed

    def placed(self, row: PodRow) -> None:
        """A pod has a node, or something else about it is other than before."""
        if self._placed is not None:
            self._placed.see(row)

    def gone(self, uid: Uid) -> None:
        """A pod has no node any more."""
        if self._placed is not None:
            self._placed.forget(uid)

    def refuses(self, unit: Unit, plan: Plan | None) -> bool:
        """Return whether budgets do not allow a plan, so that the unit is to be decided again."""
        if plan is None:
            self._asking.forget(unit.name)
            return False
        with self._governor.guard:
            harms = self._harms(unit, plan) if self else []
            refusal = self._asking.refusal(unit.name, harms)
        if refusal is None:
            return False
        log.info(
            "%s: harm budget %s does not allow the %s of a plan before %s",
            self._state.called(unit),
            refusal.account[0],
            counted(len(plan.victims), "victim"),
            format_instant(refusal.until),
        )
        return True

    def _harms(self, unit: Unit, plan: Plan) -> list[Harm]:
        now = self._clock.wall()
        asks = self.asks([row for uid in unit.pods if (row := self._state.pod(uid)) is not None])
        units: dict[str, list[Uid]] = {}
        for victim in plan.victims:
            units.setdefault(victim.unit or victim.root.uid, []).append(Uid(victim.root.uid))
        found = []
        for uids in units.values():
            rows = [row for uid in uids if (row := self._state.pod(uid)) is not None]
            if rows:
                lost = sum(map(self.lost_with, rows))
                side = self.side(rows[0])
                found.append(
                    Harm(now, Plane.SCHEDULING, side, asks, lost, uids=frozenset(map(str, uids)))
                )
        return found

    def asks(self, rows: Sequence[PodRow]) -> HarmSide:
        """Return how budgets know the preemptor with these pods."""
        return self.side(rows[0]) if rows else HarmSide("")

    def side(self, row: PodRow) -> HarmSide:
        """Return how budgets know a pod; its priority is that of its group."""
        return HarmSide(row.namespace, "", self._priority(row), pod_lineage(row))

    def _priority(self, row: PodRow) -> int | None:
        group = self._state.group(f"{row.namespace}/{row.group}") if row.group else None
        return row.priority if group is None else group.priority

    def sides(self, plan: Plan) -> Mapping[str, HarmSide]:
        """Return how budgets know the victims of a plan, by uid."""
        found = {}
        for victim in plan.victims:
            row = self._state.pod(Uid(victim.root.uid))
            if row is not None:
                found[str(victim.root.uid)] = self.side(row)
        return found
