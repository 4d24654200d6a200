"""The idle plane and harm budgets: which idle work they spare from a demand, and which plans.

As in the scheduling plane: a candidate is held while a budget that counts it allows nothing more; a
plan that exceeds an account is not recorded, and of that account the next evaluation may choose
those alone that fit. The key of what is evicted for nobody is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubeworld.units.clock import Clock
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.lineage import Party
from reprieve.engine.disruptions.questions import BudgetHold, Hold, Rule
from reprieve.engine.harm_budgets.accounts import Account
from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.idle.model import Workload
from reprieve.engine.plan import Plan, Plane
from reprieve.planes.idle.context import log
from reprieve.planes.idle.evaluating.lines import Lines
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["IdleHarm"]


class IdleHarm:
    """Asks the budgets. `lost_with`: the device seconds that are lost with a root."""

    def __init__(
        self, governor: Governor, lines: Lines, clock: Clock, lost_with: Callable[[Reference], int]
    ) -> None:
        self._governor = governor
        self._lines = lines
        self._clock = clock
        self._lost_with = lost_with
        # What may still be chosen of accounts that a plan for a demand exceeded, by its key.
        self._fits: dict[str, dict[Account, tuple[Nanos, frozenset[str]]]] = {}
        # Roots that are not evicted for nobody, each with the budget, as the log says it.
        self._spared: dict[Uid, str] = {}

    def __bool__(self) -> bool:
        """Whether there is any budget."""
        return bool(self._governor.harm)

    def held(self, key: str, asks: HarmSide | None, idle: Iterable[Workload]) -> dict[Uid, Hold]:
        """Return which roots budgets spare from a demand; `asks`: None for nobody."""
        now, accounts = self._clock.wall(), self._governor.harm
        fits, found = self._fits.get(key, {}), dict[Uid, Hold]()
        with self._governor.guard:
            for workload in idle:
                root = workload.root
                uids = frozenset((str(root.uid),))
                lost = self._lost_with(root)
                harm = Harm(now, Plane.IDLE, self.side(root), asks, lost, uids=uids)
                held = accounts.held(harm)
                for account in accounts.accounts_of(harm) if fits and held is None else ():
                    until, fit = fits.get(account, (now, uids))
                    if not uids <= fit:
                        held = until, account[0]
                if held is not None:
                    found[root.uid] = BudgetHold(held[0], Rule.HARM_BUDGET, held[1])
                    if not key:
                        self._report(root, *held)
        if not key:
            self._spared = {uid: self._spared[uid] for uid in found}
        return found

    def _report(self, root: Reference, until: Nanos, budget: str) -> None:
        """Log once which idle work of policy Always stays: nothing waits that could say so."""
        if self._spared.get(root.uid) != budget:
            self._spared[root.uid] = budget
            log.info(
                "idle %s %s/%s is not evicted before %s: harm budget %s is used up",
                root.kind,
                root.namespace,
                root.name,
                format_instant(until),
                budget,
            )

    def refuses(self, key: str, plan: Plan, asks: HarmSide | None) -> bool:
        """Return whether budgets do not allow a plan, so that it is to be evaluated again."""
        if not self._governor.harm:
            self._fits.clear()
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
            refusal = self._governor.harm.refusal(harms)
        if refusal is None:
            self._fits.pop(key, None)
            return False
        self._fits.setdefault(key, {})[refusal.account] = refusal.until, refusal.fit
        log.info(
            "plan %s: harm budget %s does not allow all %d victims before %s",
            plan.id,
            refusal.account[0],
            len(plan.victims),
            format_instant(refusal.until),
        )
        return True

    def forget(self, keys: Iterable[str]) -> None:
        """Keep what fits of these demands alone."""
        kept = {"", *keys}
        self._fits = {key: fits for key, fits in self._fits.items() if key in kept}

    def side(self, root: Reference) -> HarmSide:
        """Return how budgets know a root."""
        line = self._lines.of(root)
        return HarmSide(root.namespace, "", self._lines.priority(root), line.lineage)

    def asking(self, party: Party | None, priority: int | None) -> HarmSide | None:
        """Return how budgets know a demand."""
        return None if party is None else HarmSide(party.tenant, "", priority, party.lineage)
