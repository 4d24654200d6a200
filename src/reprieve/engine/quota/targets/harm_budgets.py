"""The quota plane and harm budgets: whom they spare from a workload, and which plans they refuse.

Asked are the accounts that all planes share (`Governor.harm`), for each candidate and for the
targets of an entry together. A ClusterQueue within its own nominal quota is refused for a bounded
time alone (`HarmAccounts.reclaimed`). Targets that exceed an account together are refused once; of
that account the next cycle may choose those alone that fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.questions import BudgetHold, Rule
from reprieve.engine.harm_budgets.accounts import HarmAccounts, Refusal
from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.lost_work import devices_of, is_device, lost_device_seconds
from reprieve.engine.quota.displacements import Displacements, Fits, party_of
from reprieve.engine.quota.holdings.holders import Holder, effective_priority
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.model import Workload
from reprieve.engine.quota.targets.candidates import Preemptor, Target

__all__ = ["QuotaHarm", "harm_of", "refused_by_budgets"]


class QuotaHarm:
    """Budgets as they apply to one preemptor; `reclaims` says whether it asks for its own quota."""

    def __init__(
        self,
        ledger: Displacements,
        snapshot: Snapshot,
        who: Preemptor,
        now: Nanos,
        reclaims: Callable[[], bool],
    ) -> None:
        self._guard = ledger.governor.guard
        self._accounts: HarmAccounts = ledger.governor.harm
        self._snapshot = snapshot
        self._who = who
        self._now = now
        self._reclaims = reclaims
        self._asks = side_of(snapshot, who.workload, who.queue)
        self._fits: Fits = ledger.fits.get(who.workload.key, {})
        with self._guard:
            self._rooms = self._accounts.rooms(self._asks, "quota")
        self._devices = {
            column
            for column, (_, resource) in enumerate(snapshot.tree.flavor_resources)
            if is_device(resource)
        }

    def held(self, holder: Holder) -> BudgetHold | None:
        """Return until when budgets spare a candidate and which does, None while none does."""
        with self._guard:
            return self._spared(holder)

    def _lost(self, holder: Holder) -> int:
        devices = sum(amount for column, amount in holder.held if column in self._devices)
        return _lost_with(holder.workload, devices, self._now)

    def _spared(self, holder: Holder) -> BudgetHold | None:
        # Nearly all budgets have room: the lineage plays no role then.
        names = self._snapshot.tree.names
        key = holder.workload.namespace, names[holder.queue], holder.priority
        room = self._rooms.get(key)
        if room is None:
            room = self._accounts.room(Harm(self._now, "quota", HarmSide(*key), self._asks))
        if not self._fits and self._lost(holder) <= room:
            return None
        harm = harm_of(self._snapshot, self._now, self._asks, holder)
        found = self._held(harm)
        if found and holder.queue != self._who.queue and self._reclaims():
            # The time of each of them begins now, so that none begins after another has passed.
            asks, now = self._asks.queue, self._now
            ends = [(min(u, self._accounts.reclaimed(b, asks, now)), b) for u, b in found]
            found = [each for each in ends if each[0] > now]
        if not found:
            return None
        until, budget = max(found, key=lambda each: each[0])
        return BudgetHold(until, Rule.HARM_BUDGET, budget)

    def _held(self, harm: Harm) -> list[tuple[Nanos, str]]:
        """Return the budgets that hold a candidate, or of which it does not fit into a plan."""
        held = self._accounts.holding(harm)
        for account in self._accounts.accounts_of(harm) if self._fits else ():
            until, fit = self._fits.get(account, (Nanos(0), harm.uids))
            if not harm.uids <= fit:
                held.append((until, account[0]))
        return held


def refused_by_budgets(
    ledger: Displacements,
    snapshot: Snapshot,
    who: Preemptor,
    targets: Sequence[Target],
    now: Nanos,
    reclaims: Callable[[], bool],
) -> Refusal | None:
    """Return which account the targets exceed together, and remember which of them fit.

    None where they exceed none, or where the preemptor has waited for its own nominal quota for as
    long as the budget lets it wait; nothing is remembered then.
    """
    accounts, key = ledger.governor.harm, who.workload.key
    if not accounts:
        return None
    asks = side_of(snapshot, who.workload, who.queue)
    units = [harm_of(snapshot, now, asks, each.holder) for each in targets]
    exempt: set[str] = set()
    if all(each.holder.queue != who.queue for each in targets) and reclaims():
        exempt = {name for name in accounts.budgets if accounts.has_waited(name, asks.queue, now)}
    refusal = accounts.refusal(units, exempt)
    if refusal is None:
        ledger.fits.pop(key, None)
    else:
        ledger.fits.setdefault(key, {})[refusal.account] = refusal.until, refusal.fit
    return refusal


def side_of(snapshot: Snapshot, workload: Workload, queue: int) -> HarmSide:
    """Return how budgets know a workload in a ClusterQueue."""
    return HarmSide(
        workload.namespace,
        snapshot.tree.names[queue],
        effective_priority(workload, snapshot.settings),
        party_of(workload).lineage,
    )


def harm_of(snapshot: Snapshot, now: Nanos, asks: HarmSide, holder: Holder) -> Harm:
    """Return what budgets count of a workload that makes way."""
    columns = snapshot.tree.flavor_resources
    devices = devices_of((columns[column].resource, amount) for column, amount in holder.held)
    return Harm(
        now,
        "quota",
        side_of(snapshot, holder.workload, holder.queue),
        asks,
        _lost_with(holder.workload, devices, now),
        uids=frozenset((holder.workload.uid,)),
    )


def _lost_with(workload: Workload, devices: int, now: Nanos) -> int:
    reserved = workload.reserved_at
    start = None if reserved is None else reserved // SECOND
    return lost_device_seconds(start, (workload.checkpoint or 0) // SECOND, devices, now // SECOND)
