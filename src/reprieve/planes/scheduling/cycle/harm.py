"""The scheduling plane and harm budgets: which pods they spare from a unit, and which plans.

A candidate is held while a budget that counts it allows nothing more. The units of a plan are added
up before it is recorded: where they exceed an account together, the unit is decided about again at
once, and of that account only those of its victims may be chosen again that fit. Each refusal
bounds one account more, so that this ends.

Nothing here costs anything while the cluster has no HarmBudget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from kubeworld.units.clock import Clock
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.cluster.rows import PodRow
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.questions import BudgetHold, Hold, Rule
from reprieve.engine.harm_budgets.accounts import Account
from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.plan import Plan, Plane
from reprieve.engine.scheduling.outcome import Unit
from reprieve.intake.lineage import pod_lineage
from reprieve.planes.scheduling.context import log
from reprieve.planes.scheduling.state import ClusterState
from reprieve.units.ids import Uid

__all__ = ["SchedulingHarm"]

_Fits = dict[Account, tuple[Nanos, frozenset[str]]]


class SchedulingHarm:
    """Asks the budgets. `lost_with`: the device seconds that are lost with a pod."""

    def __init__(self, governor: Governor, state: ClusterState, clock: Clock) -> None:
        self._governor = governor
        self._state = state
        self._clock = clock
        self.lost_with: Callable[[PodRow], int] = lambda row: 0
        # What may still be chosen of accounts that a plan of a unit exceeded, by its name.
        self._fits: dict[str, _Fits] = {}

    def __bool__(self) -> bool:
        """Whether there is any budget."""
        return bool(self._governor.harm)

    def held(self, unit: Unit, rows: Sequence[PodRow], pods: Iterable[Uid]) -> dict[Uid, Hold]:
        """Return which of these pods budgets spare from a unit; `rows` are its own pods."""
        asks, now = self.asks(rows), self._clock.wall()
        fits = self._fits.get(unit.name, {})
        found: dict[Uid, Hold] = {}
        with self._governor.guard:
            for uid in pods:
                row = self._state.pod(uid)
                if row is None:
                    continue
                side = self.side(row)
                if (
                    side.priority is not None
                    and asks.priority is not None
                    and side.priority >= asks.priority
                ):
                    continue
                harm = Harm(now, Plane.SCHEDULING, side, asks, self.lost_with(row))
                held = self._held(harm, str(uid), fits)
                if held is not None:
                    found[uid] = BudgetHold(held[0], Rule.HARM_BUDGET, held[1])
        return found

    def _held(self, harm: Harm, uid: str, fits: _Fits) -> tuple[Nanos, str] | None:
        held = self._governor.harm.held(harm)
        if held is not None or not fits:
            return held
        for account in self._governor.harm.accounts_of(harm):
            until, fit = fits.get(account, (Nanos(0), frozenset((uid,))))
            if uid not in fit:
                return until, account[0]
        return None

    def refuses(self, unit: Unit, plan: Plan | None) -> bool:
        """Return whether budgets do not allow a plan, so that the unit is to be decided again."""
        if plan is None or not self._governor.harm:
            self._fits.pop(unit.name, None)
            return False
        with self._governor.guard:
            refusal = self._governor.harm.refusal(self._harms(unit, plan))
        if refusal is None:
            self._fits.pop(unit.name, None)
            return False
        fits = self._fits.setdefault(unit.name, {})
        budget = refusal.account[0]
        fits[refusal.account] = refusal.until, refusal.fit
        log.info(
            "%s: harm budget %s does not allow all %d victims of a plan before %s",
            unit.name,
            budget,
            len(plan.victims),
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
        group = self._state.group(f"{row.namespace}/{row.group}") if row.group else None
        priority = row.priority if group is None else group.priority
        return HarmSide(row.namespace, "", priority, pod_lineage(row))

    def sides(self, plan: Plan) -> Mapping[str, HarmSide]:
        """Return how budgets know the victims of a plan, by uid."""
        found = {}
        for victim in plan.victims:
            row = self._state.pod(Uid(victim.root.uid))
            if row is not None:
                found[str(victim.root.uid)] = self.side(row)
        return found
