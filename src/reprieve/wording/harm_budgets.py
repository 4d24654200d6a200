"""The status of a HarmBudget: what is used of it, and its conditions."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.api.harm_budget import HarmBudget, HarmCondition, HarmStatus, HarmUse
from reprieve.engine.harm_budgets.accounts import Use
from reprieve.units.counts import counted

__all__ = ["account_text", "day_text", "harm_status", "wait_text"]

_MOST_SHOWN: Final = 1_000
_MOST_NAMED: Final = 3
_SECONDS: Final = 3_600  # of one device in a GPU-hour
_ALL: Final = "all"


def harm_status(
    budget: HarmBudget, window: str, fault: str, uses: Sequence[Use], now: Nanos
) -> HarmStatus:
    """Return the status of a budget; `fault`: what is not accepted of it, empty where all is.

    `window` is shown as it is. A condition that holds already keeps its time.
    """
    exhausted = [use for use in uses if use.free_at is not None]
    shown = sorted(
        uses,
        key=lambda use: (
            use.free_at is None,  # 1. exhausted accounts first
            -use.displacements,  # 2. then the most used
            -use.lost_device_seconds,
            use.account,  # 3. by name
        ),
    )
    names = ", ".join(account_text(use.account) for use in exhausted[:_MOST_NAMED])
    others = len(exhausted) - _MOST_NAMED
    conditions = [
        ("Accepted", "False", "Invalid", fault)
        if fault
        else ("Accepted", "True", "Accepted", "the operator applies this budget"),
        (
            "Exhausted",
            "True",
            "LimitReached",
            f"no further displacement fits: {names}"
            + (f" and {counted(others, 'other')}" if others > 0 else ""),
        )
        if exhausted
        else ("Exhausted", "False", "WithinLimits", "each account allows another displacement"),
    ]
    before = [] if budget.status is None else budget.status.conditions
    since = {(each.type, each.status): each.last_transition_time for each in before}
    return HarmStatus(
        window,
        len(uses),
        len(exhausted),
        [
            HarmUse(
                account_text(use.account),
                use.displacements,
                f"{use.lost_device_seconds / _SECONDS:.1f}",
                None if use.free_at is None else format_instant(use.free_at),
            )
            for use in shown[:_MOST_SHOWN]
        ],
        [
            HarmCondition(
                type,
                status,
                reason,
                message,
                since.get((type, status)) or format_instant(now),
                budget.metadata.generation,
            )
            for type, status, reason, message in conditions
        ],
    )


def wait_text(tenant: str, seconds: int, day: str) -> str:
    """Return what budgets cost a tenant that waits longer for them, on a day as it is named."""
    minutes = max(1, round(seconds / 60))
    said = f"{minutes:,} minute{'s' if minutes != 1 else ''}"
    return f"{tenant} would have waited {said} more on {day}"


def day_text(day: str) -> str:
    """Return a day such as 2026-03-03 with its weekday."""
    at = parse_instant(f"{day}T00:00:00Z") // SECOND
    return f"{datetime.datetime.fromtimestamp(at, datetime.UTC):%A} {day}"


def account_text(account: str) -> str:
    """Return the name of an account; that of a budget with one alone is `all`."""
    return account or _ALL
