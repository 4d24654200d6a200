"""The accounts of all harm budgets: what is used of each, and when it is free again.

A candidate is held where an account that it falls into would exceed a limit with it. A plan draws
on all budgets that match, or on none: `refusal` adds its units up, and names the first account
that they exceed together, with the units of the plan that still fit. Exempt are preemptors of an
emergency priority, and those from a budget's `priority_from` on; what they displace counts.

For a held candidate the instant is reported at which enough has left the window. A unit that
exceeds a limit by itself is queried again after a window's length.

Pure: a fold over `Harm`, in any order. Callers hold the governor's guard (`Governor.harm`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.harm_budgets.budget import Harm, HarmBudget, HarmSide, Scope
from reprieve.engine.harm_budgets.reclaims import Reclaims
from reprieve.engine.harm_budgets.rooms import EACH, ENDLESS, UNKNOWN, Rooms
from reprieve.engine.harm_budgets.sums import Amount, HourlySums, Key

__all__ = ["Account", "HarmAccounts", "Refusal", "Use"]

Account = tuple[str, str]  # the names of a budget and of an account in it

_MOST_KNOWN: Final = 50_000
_MOST_ASKED: Final = 1_000
_NEVER: Final = Nanos(2**62)
_NO_LABELS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A plan exceeds an account; `fit`: objects of those units of it that fit, by uid."""

    account: Account
    until: Nanos
    fit: frozenset[str]


@dataclass(frozen=True, slots=True)
class Use:
    """What is used of an account.

    `free_at`: when one more displacement fits, None while it does. `leaves`: when the next of what
    is used leaves the window.
    """

    account: str
    displacements: int
    lost_device_seconds: int
    free_at: Nanos | None
    leaves: Nanos


class HarmAccounts:
    """What is used of each budget.

    `labels` returns those of a namespace. `emergency`: the priority from which no work is held.
    """

    def __init__(self, emergency: Callable[[], int | None] = lambda: None) -> None:
        self.labels: Callable[[str], Mapping[str, str]] = lambda namespace: _NO_LABELS
        self.sums = HourlySums()
        #: Notified when budgets, or what they select, are other ones.
        self.observers: list[Callable[[], None]] = []
        #: Who stores the displacements of a record, and whether one of them is stored.
        self.store: Callable[[str, Sequence[Harm]], None] = lambda record, harms: None
        self.is_stored: Callable[[str, Harm], bool] = lambda record, harm: False
        #: Whether all is known that decisions need: budgets, labels and stored sums.
        self.known: Callable[[], bool] = lambda: True
        # What happened before stored sums were loaded, None where none are to come.
        self._early: list[Callable[[], None]] | None = None
        self._emergency = emergency
        self._budgets: dict[str, HarmBudget] = {}
        self._rows: dict[str, dict[str, dict[Key, Amount]]] = {}  # by budget and account
        self._charged: set[str] = set()  # budgets of which other use is known since
        self._matching: dict[tuple[object, object, str], list[HarmBudget]] = {}
        self._stale = False
        # What is used of an account since an instant, until another one or until more is counted.
        self._used: dict[Account, tuple[Nanos, Nanos, int, int]] = {}
        # By preemptor and plane.
        self._rooms: dict[tuple[object, str], Rooms] = {}
        self._counts_preemptors = self._selects_priorities = False
        self.reclaims = Reclaims()

    def __bool__(self) -> bool:
        """Whether there is any budget."""
        return bool(self._budgets)

    @property
    def selects_priorities(self) -> bool:
        """Whether a budget separates candidates of one tenant by their priority."""
        return self._selects_priorities

    @property
    def budgets(self) -> Mapping[str, HarmBudget]:
        """All budgets by name."""
        return self._budgets

    # What happens

    def adopt(self, budgets: Mapping[str, HarmBudget]) -> None:
        """Use these budgets from now on; what has happened counts for them, too."""
        if budgets != self._budgets:
            self._budgets = dict(budgets)
            selectors = [each.selector for each in budgets.values()]
            self._selects_priorities = any(s.priority_below is not None for s in selectors)
            self.relabelled()

    def relabelled(self) -> None:
        """Read anew which namespaces are selected."""
        self._stale = True
        for reported in self.observers:
            reported()

    def record(self, harm: Harm) -> None:
        """Count a displacement."""
        self._note(partial(self._record, harm))

    def _record(self, harm: Harm) -> None:
        key, amount = self.sums.add(harm)
        if self.sums.made_coarser:
            self.sums.made_coarser, self._stale = False, True
        if self._budgets and not self._stale:
            self._charge(key, amount)
            self._forget_rooms(harm)

    def await_sums(self) -> None:
        """Know that `load` is to come: what happens until then is counted again on top of it."""
        self._early = []

    def load(self, rows: Iterable[tuple[Key, Amount]]) -> None:
        """Begin with stored sums, and add what happened meanwhile."""
        early, self._early = self._early, None
        self.sums = HourlySums()
        for key, amount in rows:
            self.sums.load(key, amount)
        self._stale = True
        for happened in early or ():
            happened()

    def _note(self, happens: Callable[[], None]) -> None:
        if self._early is not None:
            self._early.append(happens)
        happens()

    def restore(self, record: str, harms: Sequence[Harm], *, is_open: bool) -> None:
        """Count what a record of a former process displaced, unless that is stored.

        A plan that is over and not stored was not stored in time: it is closed now.
        """
        self._note(partial(self._restore, record, harms, is_open))

    def _restore(self, record: str, harms: Sequence[Harm], is_open: bool) -> None:
        new = [harm for harm in harms if is_open or not self.is_stored(record, harm)]
        for harm in new:
            self._record(harm)
        if new and not is_open:
            self.store(record, new)

    def close(self, record: str, harms: Sequence[Harm]) -> None:
        """A plan is over, with these displaced: they are stored."""
        self._note(lambda: self.store(record, harms))

    def saved(self, harm: Harm, in_truth: int) -> Harm:
        """Return a displacement that lost other device seconds in truth, since it was saved."""
        after = harm.in_truth(in_truth)
        self.undo(harm)
        self.record(after)
        return after

    def returned(self, name: str, lineage: str, at: Nanos, back: Nanos) -> None:
        """Count under a name of its own how long a unit that was displaced at `at` was away."""
        self._note(partial(self._returned, name, lineage, at, back))

    def _returned(self, name: str, lineage: str, at: Nanos, back: Nanos) -> None:
        key = self.sums.of_lineage(at // HOUR, lineage)
        if key is None:
            return  # more than a month ago, or displaced by another process
        away = max(0, back - at) // SECOND
        sides = key.victim, key.preemptor
        harm = Harm(at, key.plane, *sides, 0, key.reason, waited_seconds=away, units=0)
        if not self.is_stored(name, harm):
            self._record(harm)
            self.store(name, [harm])

    def undo(self, harm: Harm) -> None:
        """Undo a displacement, which did not happen."""
        self._note(partial(self._undo, harm))

    def _undo(self, harm: Harm) -> None:
        self.sums.remove(harm)
        self._used.clear()
        self._forget_rooms()
        self._charged.update(budget.name for budget in self._matched(harm))

    # What follows

    def held(self, harm: Harm) -> tuple[Nanos, str] | None:
        """Return until when a candidate is held and by which budget, None while by none.

        Of several budgets it is the one that is free last.
        """
        return max(self.holding(harm), key=lambda each: each[0], default=None)

    def holding(self, harm: Harm) -> list[tuple[Nanos, str]]:
        """Return all budgets that hold a candidate, each with until when."""
        found = []
        for budget, account in self._applying(harm):
            free = self._free_at(budget, account, harm.at, 1, harm.lost_device_seconds)
            if free is not None:
                found.append((free, budget.name))
        return found

    def rooms(self, asks: HarmSide | None, plane: str) -> Rooms:
        """Return how much victims may lose for a preemptor; kept, and emptied when it is less."""
        self._settle()
        # Where no budget counts preemptors, all of them are alike.
        asked = _class_of(asks) if self._counts_preemptors else None, plane
        found = self._rooms.get(asked)
        if found is None:
            if len(self._rooms) >= _MOST_ASKED:
                self._rooms.clear()
            found = self._rooms[asked] = Rooms(self._found_room)
        return found

    def _found_room(self, harm: Harm) -> int:
        rooms = (self._room(each, harm) for each in self._matched(harm) if each.holds)
        return min(rooms, default=ENDLESS)

    def _forget_rooms(self, harm: Harm | None = None) -> None:
        """Forget what victims may lose, of the accounts alone that a displacement is charged to."""
        of_tenant = harm is not None and all(each.of_tenants for each in self._matched(harm))
        for known in self._rooms.values():
            if harm is not None and of_tenant:
                known.forget(harm.victim.tenant)
            else:
                known.forget_all()

    def _room(self, budget: HarmBudget, harm: Harm) -> int:
        side = budget.side_of(harm)
        if side is None or budget.of_lineages or budget.schedule is not None:
            return EACH
        number, lost = self._sums_of(budget, budget.account(side), harm.at)
        if budget.displacements is not None and number >= budget.displacements:
            return UNKNOWN
        most = budget.lost_device_seconds
        return ENDLESS if most is None else max(UNKNOWN, most - lost)

    def accounts_of(self, harm: Harm) -> Iterator[Account]:
        """Yield the accounts that a displacement would be held by, were they exhausted."""
        for budget, account in self._applying(harm):
            yield budget.name, account

    def reclaimed(self, budget: str, queue: str, now: Nanos) -> Nanos:
        """Return until when a budget may keep a ClusterQueue from its own nominal quota."""
        after = self._budgets[budget].nominal_reclaim_after
        return self.reclaims.until(budget, queue, after, now)

    def has_waited(self, budget: str, queue: str, now: Nanos) -> bool:
        """Return whether a ClusterQueue was kept from its own quota for as long as is allowed."""
        after = self._budgets[budget].nominal_reclaim_after
        return self.reclaims.has_waited(queue, after, now)

    def refusal(self, plan: Sequence[Harm], exempt: Container[str] = ()) -> Refusal | None:
        """Return which account the units of a plan exceed together; None where all fit in all.

        `exempt`: budgets that do not apply to it.
        """
        asked: dict[Account, list[Harm]] = {}
        for harm in plan:
            for account in self.accounts_of(harm):
                if account[0] not in exempt:
                    asked.setdefault(account, []).append(harm)
        for (name, of), harms in asked.items():
            budget, fit = self._budgets[name], set[str]()
            number = lost = 0
            until: Nanos | None = None
            for harm in harms:
                more = lost + harm.lost_device_seconds
                free = self._free_at(budget, of, harm.at, number + 1, more)
                if free is None:
                    number, lost = number + 1, more
                    fit |= harm.uids
                else:
                    until = free if until is None else min(until, free)
            if until is not None:
                return Refusal((name, of), until, frozenset(fit))
        return None

    def used(self, name: str, now: Nanos) -> list[Use]:
        """Return what is used of the accounts of a budget that were charged, by their names."""
        self._settle()
        budget = self._budgets[name]
        found = []
        for account in sorted(self._rows.get(name, ())):
            current = self._current(budget, account, now)
            if current:
                free = self._free_at(budget, account, now, 1, 0)
                number = sum(row.displacements for row in current)
                lost = sum(row.lost_device_seconds for row in current)
                leaves = min(budget.leaves(row.last) for row in current)
                found.append(Use(account, number, lost, free, leaves))
        return found

    def changed(self) -> set[str]:
        """Return the budgets of which other use is known than at the last call."""
        self._settle()
        found, self._charged = self._charged, set()
        return found & self._budgets.keys()

    def _applying(self, harm: Harm) -> Iterator[tuple[HarmBudget, str]]:
        """Yield the budgets that hold such a displacement, each with the account."""
        priority = None if harm.preemptor is None else harm.preemptor.priority
        emergency = self._emergency()
        if priority is not None and emergency is not None and priority >= emergency:
            return
        for budget in self._matched(harm):
            exempt = budget.priority_from
            if not budget.holds or (
                exempt is not None and priority is not None and priority >= exempt
            ):
                continue
            side = budget.side_of(harm)
            if side is not None:
                yield budget, budget.account(side)

    def _matched(self, harm: Harm) -> list[HarmBudget]:
        self._settle()
        asked = _class_of(harm.victim), _class_of(harm.preemptor), harm.plane
        found = self._matching.get(asked)
        if found is None:
            if len(self._matching) >= _MOST_KNOWN:
                self._matching.clear()
            found = self._matching[asked] = [
                budget for budget in self._budgets.values() if self._counts(budget, harm)
            ]
        return found

    def _counts(self, budget: HarmBudget, harm: Harm) -> bool:
        side = budget.side_of(harm)
        return (
            side is not None
            and harm.plane in budget.planes
            and budget.selector.matches(side, self.labels(side.tenant))
        )

    def _free_at(
        self, budget: HarmBudget, account: str, now: Nanos, more: int, lost: int
    ) -> Nanos | None:
        """Return when so much more fits, None where it fits now."""
        self._settle()
        if budget.leaves(now) <= now:
            return None
        used = self._sums_of(budget, account, now)
        more, lost = more + used[0], lost + used[1]
        if budget.allows(more, lost):
            return None
        current = self._current(budget, account, now)
        for row in sorted(current, key=lambda row: row.last):
            more -= row.displacements
            lost -= row.lost_device_seconds
            if budget.allows(more, lost):
                return budget.leaves(row.last)
        return budget.leaves(now)

    def _sums_of(self, budget: HarmBudget, account: str, now: Nanos) -> tuple[int, int]:
        """Return the units and device seconds within the window."""
        used = self._used.get((budget.name, account))
        if used is None or not used[0] <= now < used[1]:
            current = self._current(budget, account, now)
            used = self._used[budget.name, account] = (
                now,
                min((budget.leaves(row.last) for row in current), default=_NEVER),
                sum(row.displacements for row in current),
                sum(row.lost_device_seconds for row in current),
            )
        return used[2], used[3]

    def _current(self, budget: HarmBudget, account: str, now: Nanos) -> list[Amount]:
        """Return the rows that the window reaches."""
        rows = self._rows.get(budget.name, {}).get(account, {})
        return [row for row in rows.values() if row.displacements and budget.leaves(row.last) > now]

    def _settle(self) -> None:
        """Charge all sums anew, if they or the budgets are other ones."""
        if not self._stale:
            return
        self._stale = False
        self._charged.update(self._budgets)
        self._rows.clear()
        self._matching.clear()
        self._used.clear()
        self._forget_rooms()
        self._counts_preemptors = any(each.scope is Scope.CAUSED for each in self._budgets.values())
        for key, amount in self.sums:
            self._charge(key, amount)

    def _charge(self, key: Key, amount: Amount) -> None:
        """Charge a row to its account in each budget that counts it."""
        harm = Harm(amount.last, key.plane, key.victim, key.preemptor)
        for budget in self._matched(harm):
            side = budget.side_of(harm)
            if side is not None and (side.lineage or not budget.of_lineages):
                accounts, account = self._rows.setdefault(budget.name, {}), budget.account(side)
                accounts.setdefault(account, {})[key] = amount
                self._used.pop((budget.name, account), None)
                self._charged.add(budget.name)


def _class_of(side: HarmSide | None) -> object:
    """Return what selectors know of a side."""
    return None if side is None else (side.tenant, side.queue, side.priority)
