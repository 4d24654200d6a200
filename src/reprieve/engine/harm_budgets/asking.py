"""Budgets queried about the candidates of one unit after the other, by one plane.

A candidate is held while a budget that counts it allows nothing more. The units of a plan are added
up before it is recorded: where they exceed an account together, the plan is not recorded, and of
that account the next decision for the same key may choose those alone that fit. Each refusal bounds
one account more, so that this ends.

What a candidate loses and which lineage it is are read where that plays a role alone. Callers
hold the governor's guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.questions import BudgetHold, Rule
from reprieve.engine.harm_budgets.accounts import Account, HarmAccounts, Refusal
from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.harm_budgets.kinds import Doubts, Kinds
from reprieve.engine.harm_budgets.rooms import ENDLESS, Rooms
from reprieve.units.references import Reference

__all__ = ["Asking", "Candidate", "Evaluated"]

_MOST_ASKED: Final = 1_000
#: The uid of a candidate, its tenant and its priority.
Candidate = tuple[str, str, int | None]


@dataclass(slots=True)
class Evaluated:
    """The roots of one evaluation; `lost` with each, once it was requested.

    `doubtful`: those that have to be checked one by one, for these `rooms`.
    """

    roots: Sequence[Reference]
    lost: dict[str, int] = field(default_factory=dict)
    rooms: Rooms | None = None
    doubtful: Sequence[Reference] = ()


class Asking:
    """What budgets answer a plane, and what still fits for units whose plan they refused."""

    def __init__(self, accounts: HarmAccounts, plane: str) -> None:
        self._accounts = accounts
        self._plane = plane
        self._fits: dict[str, dict[Account, tuple[Nanos, frozenset[str]]]] = {}
        self._doubts: dict[int, Doubts] = {}  # by identity of the rooms, which they hold

    def held(
        self,
        key: str,
        asks: HarmSide | None,
        now: Nanos,
        candidates: Iterable[Candidate],
        lost: Callable[[str], int],
        lineage: Callable[[str], str],
    ) -> dict[str, BudgetHold]:
        """Return which candidates budgets spare from a preemptor, by uid.

        Args:
            key: for whom plans are refused.
            asks: the preemptor; None for no work.
            now: the instant of the decision.
            candidates: all that might be chosen.
            lost: the device seconds that a candidate loses, by uid.
            lineage: of a candidate, by uid.
        """
        fits, rooms = self._fits.get(key), self._accounts.rooms(asks, self._plane)
        found: dict[str, BudgetHold] = {}
        for uid, tenant, priority in candidates:
            kind = tenant, priority
            room = rooms.get(kind)
            if room is None:
                side = HarmSide(tenant, "", priority)
                room = rooms.ask(kind, Harm(now, self._plane, side, asks))
            if not fits and (room == ENDLESS or (room >= 0 and lost(uid) <= room)):
                continue
            side = HarmSide(tenant, "", priority, lineage(uid))
            harm = Harm(now, self._plane, side, asks, lost(uid), uids=frozenset((uid,)))
            held = self._accounts.held(harm) or self._does_not_fit(key, harm)
            if held is not None:
                found[uid] = BudgetHold(held[0], Rule.HARM_BUDGET, held[1])
        return found

    def doubtful(
        self, key: str, asks: HarmSide | None, now: Nanos, kinds: Kinds
    ) -> list[Candidate]:
        """Return the candidates that `held` has to be called for: budgets spare no others.

        `kinds`: all of them, of one plane; it stays the same.
        """
        found = list(kinds) if self._fits.get(key) else self._doubts_of(asks, kinds).at(now)
        return [(uid, kind.tenant, kind.priority) for kind in found for uid in kind.members]

    def _doubts_of(self, asks: HarmSide | None, kinds: Kinds) -> Doubts:
        rooms = self._accounts.rooms(asks, self._plane)
        found = self._doubts.get(id(rooms))
        if found is None:
            if len(self._doubts) >= _MOST_ASKED:
                self._doubts.clear()
            found = self._doubts[id(rooms)] = Doubts(rooms, kinds, self._plane, asks)
        return found

    def in_doubt(
        self,
        key: str,
        asks: HarmSide | None,
        now: Nanos,
        candidates: Evaluated,
        lost: Callable[[Reference], int],
    ) -> Iterable[Reference]:
        """Return the roots of an evaluation that `held` has to be called for.

        Preemptors who are alike for budgets have the same answer. Priorities are not read, so that
        all are in doubt where budgets select by them.
        """
        if self._fits.get(key) or self._accounts.selects_priorities:
            return candidates.roots
        rooms, losses = self._accounts.rooms(asks, self._plane), candidates.lost
        if candidates.rooms is rooms:
            return candidates.doubtful
        found = []
        for root in candidates.roots:
            tenant = root.namespace
            room = rooms.get(tenant)
            if room is None:
                room = rooms.ask(tenant, Harm(now, self._plane, HarmSide(tenant), asks))
            if room == ENDLESS:
                continue
            if room >= 0:
                loss = losses.get(root.uid)
                if loss is None:
                    loss = losses[root.uid] = lost(root)
                if loss <= room:
                    continue
            found.append(root)
        candidates.rooms, candidates.doubtful = rooms, found
        return found

    def _does_not_fit(self, key: str, harm: Harm) -> tuple[Nanos, str] | None:
        fits = self._fits.get(key)
        for account in self._accounts.accounts_of(harm) if fits else ():
            until, fit = (fits or {}).get(account, (harm.at, harm.uids))
            if not harm.uids <= fit:
                return until, account[0]
        return None

    def refusal(self, key: str, plan: Sequence[Harm]) -> Refusal | None:
        """Return which account the units of a plan exceed, and remember which of them fit."""
        refusal = self._accounts.refusal(plan) if self._accounts else None
        if refusal is None:
            self._fits.pop(key, None)
        else:
            self._fits.setdefault(key, {})[refusal.account] = refusal.until, refusal.fit
        return refusal

    def forget(self, key: str) -> None:
        """Forget what fits for one: it has no plan."""
        self._fits.pop(key, None)

    def keep(self, keys: Iterable[str]) -> None:
        """Keep what fits for these units alone."""
        kept = {"", *keys}
        self._fits = {key: fits for key, fits in self._fits.items() if key in kept}
