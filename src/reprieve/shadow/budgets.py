"""What harm budgets would have delayed of the preemptions that are recorded: for whom, how long.

Plans are folded in the order in which they were decided. One that the budgets refuse is evaluated
again at the instant that they state, until it fits, and counts from then on. A ClusterQueue that
reclaims its nominal quota is refused for no longer than the budgets state. No other victims are
looked for, so that a wait is the longest there would have been.

Sides are known as records state them: by tenant and lineage, by priority and ClusterQueue where the
cluster had harm budgets when the plan was decided.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.reprieve import Preemption
from reprieve.engine.disruptions.displacement import Actor
from reprieve.engine.harm_budgets.accounts import HarmAccounts
from reprieve.engine.harm_budgets.budget import Harm, HarmBudget
from reprieve.engine.harm_budgets.sums import LONGEST_WINDOW
from reprieve.engine.quota.model import Reason
from reprieve.records.displacements import displacements_of
from reprieve.records.harm import harms_in

__all__ = ["Delayed", "delayed"]

_DAY: Final = len("2026-11-28")
_NOBODY: Final = "nobody"


class Delayed(msgspec.Struct, frozen=True, rename="camel"):
    """What budgets would have delayed on one day (UTC) for one tenant.

    `budgets`: those that refused. `never`: how many of the plans would not have fitted within 30
    days; they do not count in `waited_seconds`.
    """

    day: str
    tenant: str
    budgets: list[str]
    plans: int
    waited_seconds: int
    never: int = 0


def delayed(
    records: Iterable[Preemption],
    budgets: Sequence[HarmBudget],
    labels: Callable[[str], Mapping[str, str]],
) -> list[Delayed]:
    """Return what budgets would have delayed, by day and tenant; `labels`: of a namespace."""
    accounts = HarmAccounts()
    accounts.labels = labels
    accounts.adopt({each.name: each for each in budgets})
    plans = [harms for each in records if (harms := _harms(each))]
    # (when it is evaluated, its number, who refused it so far)
    waiting = [(harms[0].at, number) for number, harms in enumerate(plans)]
    heapq.heapify(waiting)
    refused: dict[int, set[str]] = {}
    found: dict[tuple[str, str], list[Delayed]] = {}
    while waiting:
        now, number = heapq.heappop(waiting)
        began = plans[number][0].at
        asked = [replace(harm, at=now) for harm in plans[number]]
        refusal = _refused(accounts, asked)
        if refusal is not None:
            refused.setdefault(number, set()).add(refusal[0])
            if refusal[1] - began <= LONGEST_WINDOW:
                heapq.heappush(waiting, (max(refusal[1], Nanos(now + SECOND)), number))
                continue
        else:
            for harm in asked:
                accounts.record(harm)
        if number in refused:
            asks = asked[0].preemptor
            tenant = _NOBODY if asks is None else asks.tenant
            day = format_instant(began)[:_DAY]
            waited = 0 if refusal is not None else (now - began) // SECOND
            row = Delayed(day, tenant, sorted(refused[number]), 1, waited, int(refusal is not None))
            found.setdefault((day, tenant), []).append(row)
    return [_sum(rows) for _, rows in sorted(found.items())]


def _harms(record: Preemption) -> tuple[Harm, ...]:
    return harms_in(record, list(displacements_of(record, lambda ref: None)))


def _refused(accounts: HarmAccounts, asked: Sequence[Harm]) -> tuple[str, Nanos] | None:
    """Return which budget refuses a plan, and until when."""
    now, asks = asked[0].at, asked[0].preemptor
    reclaims = (
        asks is not None
        and bool(asks.queue)
        and all(
            each.plane == Actor.QUOTA and each.reason == Reason.IN_COHORT_RECLAMATION
            for each in asked
        )
    )
    exempt: set[str] = set()
    if reclaims and asks is not None:
        exempt = {name for name in accounts.budgets if accounts.has_waited(name, asks.queue, now)}
    refusal = accounts.refusal(asked, exempt)
    if refusal is None:
        return None
    name, until = refusal.account[0], refusal.until
    if reclaims and asks is not None:
        until = min(until, accounts.reclaimed(name, asks.queue, now))
    return name, until


def _sum(rows: Sequence[Delayed]) -> Delayed:
    return Delayed(
        rows[0].day,
        rows[0].tenant,
        sorted({name for row in rows for name in row.budgets}),
        len(rows),
        sum(row.waited_seconds for row in rows),
        sum(row.never for row in rows),
    )
