"""The quota plane and harm budgets: whom they spare from a workload, and which plans they refuse.

The accounts that all planes share (`Governor.harm`) are queried for each candidate and for the
targets of an entry together. A ClusterQueue within its own nominal quota is refused for a bounded
time alone (`HarmAccounts.reclaimed`). Targets that exceed an account together are refused once; of
that account the next cycle may choose those alone that fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.questions import BudgetHold, Rule
from reprieve.engine.harm_budgets.accounts import HarmAccounts, Refusal
from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.harm_budgets.rooms import UNKNOWN
from reprieve.engine.lost_work import lost_device_seconds
from reprieve.engine.quota.displacements import Displacements, Fits, participant_of
from reprieve.engine.quota.holdings.holders import Holder, effective_priority
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.model import Workload
from reprieve.engine.quota.targets.candidates import Preemptor, Target

__all__ = ["Answers", "QuotaHarm", "harm_of", "refused_by_budgets"]


_FEW: Final = 500  # copied, since most of them are what this search looks at, too


class Answers(dict[Holder, bool]):
    """Whether budgets spare candidates: each is checked once, while a search often looks at it.

    Nearly all budgets have something left, so that little is read of most candidates, and nothing
    of those that an earlier decision found to fit until after now. `ask` is called for the others.
    """

    def __init__(self, harm: QuotaHarm, ask: Callable[[Holder], bool]) -> None:
        self._ask = ask
        self._rooms: Mapping[object, int] = harm.rooms
        self._lasting, until = harm.lasting
        if len(self._lasting) <= _FEW:
            self.update(dict.fromkeys(self._lasting, False))
        # Seconds are counted from the beginning of one to the beginning of another.
        self._latest, self._until = harm.now + SECOND, until + SECOND

    def __missing__(self, holder: Holder) -> bool:
        found = False  # what is evicted leaves anyway
        if holder not in self._lasting and not holder.evicted:
            room, since = self._rooms.get(holder.kind, UNKNOWN), holder.since
            if not room >= 0 < self._latest - since:
                found = self._ask(holder)
            elif (self._until - since) * holder.devices <= room * SECOND:
                self._lasting[holder] = holder.kind.tenant
            elif (self._latest - since) * holder.devices > room * SECOND:
                found = self._ask(holder)
        self[holder] = found
        return found


class QuotaHarm:
    """Budgets as they apply to one preemptor; `reclaims`: whether it wants its own quota."""

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
        self.now = now
        self._reclaims = reclaims
        self._asks = side_of(snapshot, who.workload, who.queue)
        self._fits: Fits = ledger.fits.get(who.workload.key, {})
        with self._guard:
            self._rooms = self._accounts.rooms(self._asks, "quota")
            self._lasting: tuple[dict[Holder, str], Nanos] = self._rooms.lasting(now)

    @property
    def rooms(self) -> Mapping[object, int]:
        """What candidates may lose for sure, by kind; nothing where a plan did not fit."""
        return {} if self._fits else self._rooms

    @property
    def lasting(self) -> tuple[dict[Holder, str], Nanos]:
        """As of `Rooms.lasting`; empty where a plan did not fit."""
        return ({}, self._lasting[1]) if self._fits else self._lasting

    def held(self, holder: Holder) -> BudgetHold | None:
        """Return until when budgets spare a candidate and which does, None while none does."""
        with self._guard:
            return self._spared(holder)

    def _spared(self, holder: Holder) -> BudgetHold | None:
        # The lineage plays no role where the account has enough left.
        kind = holder.kind
        side = HarmSide(kind.tenant, kind.queue, kind.priority)
        room = self._rooms.ask(kind, Harm(self.now, "quota", side, self._asks))
        if not self._fits and _lost_with(holder, self.now) <= room:
            return None
        harm = harm_of(self._snapshot, self.now, self._asks, holder)
        found = self._held(harm)
        if found and holder.queue != self._who.queue and self._reclaims():
            # The time of each of them begins now, so that none begins after another has passed.
            asks, now = self._asks.queue, self.now
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
    long as the budget makes it wait; nothing is remembered then.
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
        participant_of(workload).lineage,
    )


def harm_of(snapshot: Snapshot, now: Nanos, asks: HarmSide, holder: Holder) -> Harm:
    """Return what budgets count of a workload that is preempted."""
    return Harm(
        now,
        "quota",
        side_of(snapshot, holder.workload, holder.queue),
        asks,
        _lost_with(holder, now),
        uids=frozenset((holder.workload.uid,)),
    )


def _lost_with(holder: Holder, now: Nanos) -> int:
    reserved, saved = holder.workload.reserved_at, holder.workload.checkpoint or 0
    start = None if reserved is None else reserved // SECOND
    return lost_device_seconds(start, saved // SECOND, holder.devices, now // SECOND)
