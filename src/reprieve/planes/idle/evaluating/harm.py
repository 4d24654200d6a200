"""The idle plane and harm budgets: which idle work they spare from a demand, and which plans.

As in the scheduling plane: a candidate is held while a budget that counts it allows nothing more; a
plan that exceeds an account is not recorded, and of that account the next evaluation may choose
those alone that fit. The key of what is evicted for no work is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubeworld.units.clock import Clock
from kubeworld.units.instants import format_instant
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.lineage import Participant
from reprieve.engine.disruptions.questions import BudgetHold, Hold
from reprieve.engine.harm_budgets.asking import Asking, Evaluated
from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.idle.model import Workload
from reprieve.engine.plan import Plan, Plane
from reprieve.planes.idle.context import log
from reprieve.planes.idle.evaluating.lineages import RootLineages
from reprieve.units.counts import counted
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["IdleHarm"]


class IdleHarm:
    """Queries the budgets. `lost_with`: the device seconds that are lost with a root."""

    def __init__(
        self,
        governor: Governor,
        lineages: RootLineages,
        clock: Clock,
        lost_with: Callable[[Reference], int],
    ) -> None:
        self._governor = governor
        self._lineages = lineages
        self._clock = clock
        self._lost_with = lost_with
        self._asking = Asking(governor.harm, Plane.IDLE)
        # Roots that are not evicted for no work, each with the budget, as the log states it.
        self._spared: dict[Uid, str] = {}

    def __bool__(self) -> bool:
        """Whether there is any budget."""
        return bool(self._governor.harm)

    def candidates(self, idle: Iterable[Workload]) -> Evaluated:
        """Return what budgets are queried about, for all demands of an evaluation."""
        return Evaluated([workload.root for workload in idle])

    def held(self, key: str, asks: HarmSide | None, idle: Evaluated) -> dict[Uid, Hold]:
        """Return which roots budgets spare from a demand; `asks`: None for none."""
        now, losses = self._clock.wall(), idle.lost
        with self._governor.guard:
            doubtful = self._asking.in_doubt(key, asks, now, idle, self._lost_with)
        roots = {str(root.uid): root for root in doubtful}
        if not roots and key:
            return {}

        def lost(uid: str) -> int:
            known = losses.get(uid)
            if known is None:
                known = losses[uid] = self._lost_with(roots[uid])
            return known

        rows = [(uid, root.namespace, self._lineages.priority(root)) for uid, root in roots.items()]
        with self._governor.guard:
            held = self._asking.held(
                key, asks, now, rows, lost, lambda uid: self._lineages.of(roots[uid]).lineage
            )
        if not key:
            for uid, hold in held.items():
                self._report(roots[uid], hold)
            self._spared = {Uid(uid): hold.budget for uid, hold in held.items()}
        return {Uid(uid): hold for uid, hold in held.items()}

    def _report(self, root: Reference, hold: BudgetHold) -> None:
        """Log once which idle work of policy Always stays: no demand waits that could show it."""
        if self._spared.get(root.uid) != hold.budget:
            log.info(
                "idle %s %s/%s is not evicted before %s: harm budget %s is used up",
                root.kind,
                root.namespace,
                root.name,
                format_instant(hold.until),
                hold.budget,
            )

    def refuses(self, key: str, plan: Plan, asks: HarmSide | None) -> bool:
        """Return whether budgets do not allow a plan, so that it is to be evaluated again."""
        if not self._governor.harm:
            self._asking.keep(())
            return False
        units: dict[str, list[Reference]] = {}
        for victim in plan.victims:
            units.setdefault(victim.unit or victim.root.uid, []).append(victim.root)
        harms = [
            Harm(
                self._clock.wall(),
                Plane.IDLE,
                self.side(roots[0]),
                asks,
                sum(map(self._lost_with, roots)),
                uids=frozenset(str(root.uid) for root in roots),
            )
            for roots in units.values()
        ]
        with self._governor.guard:
            refusal = self._asking.refusal(key, harms)
        if refusal is None:
            return False
        log.info(
            "plan %s: harm budget %s does not allow its %s before %s",
            plan.id,
            refusal.account[0],
            counted(len(plan.victims), "victim"),
            format_instant(refusal.until),
        )
        return True

    def forget(self, keys: Iterable[str]) -> None:
        """Keep what fits of these demands alone."""
        self._asking.keep(keys)

    def side(self, root: Reference) -> HarmSide:
        """Return how budgets know a root."""
        lineage = self._lineages.of(root)
        return HarmSide(root.namespace, "", self._lineages.priority(root), lineage.lineage)

    def asking(self, participant: Participant | None, priority: int | None) -> HarmSide | None:
        """Return how budgets know a demand."""
        return (
            None
            if participant is None
            else HarmSide(participant.tenant, "", priority, participant.lineage)
        )
