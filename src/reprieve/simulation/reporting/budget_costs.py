"""What harm budgets cost whom in a replay: who waits longer, on which day, and who loses less.

Compared is a policy with budgets to the one of the study that is the same without them, else to the
first one, on the same trace and seed. A job's wait is that of the day on which it arrived.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kubeworld.units.durations import HOUR, SECOND
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.lives import Replay
from reprieve.wording.harm_budgets import wait_text

__all__ = ["TenantCosts", "budget_line", "compared_to", "costs_of"]

_DAY: Final = 24 * HOUR
_LEAST: Final = 30  # seconds
_EPOCH: Final = datetime.date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class TenantCosts:
    """Seconds of waiting by tenant and day of arrival, and lost device seconds by tenant."""

    waited: tuple[tuple[str, int, int], ...] = ()
    lost: tuple[tuple[str, int], ...] = ()


def costs_of(done: Replay) -> TenantCosts:
    """Return what a replay cost each tenant."""
    waited: Counter[tuple[str, int]] = Counter()
    lost: Counter[str] = Counter()
    for life in done.lives:
        waited[life.job.tenant, life.job.arrival // _DAY] += life.waited // SECOND
        lost[life.job.tenant] += life.lost // SECOND
    rows = ((*key, seconds) for key, seconds in sorted(waited.items()))
    return TenantCosts(tuple(rows), tuple(sorted(lost.items())))


def compared_to(policy: PolicySpec, others: Sequence[PolicySpec]) -> PolicySpec:
    """Return the policy that is the same without budgets, else the first one."""
    for each in others:
        if not each.harm_budgets and replace(policy, name=each.name, harm_budgets=()) == each:
            return each
    return others[0]


def budget_line(names: Sequence[str], than: str, after: TenantCosts, before: TenantCosts) -> str:
    """Return the sentence of what these budgets cost and whom, against a policy without them."""
    said = f"with harm budget{'s' if len(names) > 1 else ''} {' and '.join(names)}, against {than}"
    return f"{said}: {'; '.join(_parts(after, before)) or 'no work waits longer or loses less'}"


def _parts(after: TenantCosts, before: TenantCosts) -> Iterator[str]:
    known = {(tenant, day): seconds for tenant, day, seconds in before.waited}
    longer = {
        (tenant, day): seconds - known.get((tenant, day), 0)
        for tenant, day, seconds in after.waited
    }
    more = {key: seconds for key, seconds in longer.items() if seconds >= _LEAST}
    if more:
        tenant, day = max(more, key=lambda key: (more[key], key))
        date = _EPOCH + datetime.timedelta(days=day)
        yield wait_text(tenant, more[tenant, day], f"day {day + 1}, a {date:%A}")
    lost = dict(after.lost)
    less = {tenant: seconds - lost.get(tenant, 0) for tenant, seconds in before.lost}
    payer = max(less, key=lambda key: (less[key], key), default="")
    if payer and less[payer] > 0:
        yield f"{payer} would have lost {less[payer] / 3_600:,.1f} GPU hours less"
