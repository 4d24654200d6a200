"""A naive second opinion on harm budgets: every row is looked at for every question.

Written from the contract of harm budgets alone; imports nothing of the engine. A row is a mapping
with `at` and `lost` in seconds, `plane`, `reason`, and for each side `victim` and `asks` a mapping
of `tenant`, `queue`, `priority`, `lineage` and `labels`. A budget is a mapping with the names of
the object's fields in snake case; durations and losses are in seconds. `starts` are the seconds
of each day at which windows of a schedule begin, None where the window slides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HOUR = 3_600
DAY = 86_400
Row = Mapping[str, Any]
Budget = Mapping[str, Any]


def counted(budget: Budget, row: Row) -> str | None:
    """Return the account of a row in a budget, None where the budget does not count it."""
    side = row["asks"] if budget["scope"] == "Caused" else row["victim"]
    if row["plane"] not in budget["planes"]:
        return None
    below = budget["priority_below"]
    if below is not None and side["priority"] >= below:
        return None
    if budget["queues"] is not None and side["queue"] not in budget["queues"]:
        return None
    label = budget["label"]
    if label is not None and side["labels"].get(label[0]) != label[1]:
        return None
    if budget["scope"] == "Cluster":
        return ""
    if budget["scope"] == "Work":
        return f"{side['tenant']}/{side['lineage']}"
    if budget["per"] == "Work":
        return f"{side['tenant']}/{side['lineage']}"
    by = {"Tenant": "tenant", "ClusterQueue": "queue"}.get(budget["per"])
    return "" if by is None else str(side[by])


def exempt(budget: Budget, row: Row, emergency: int | None) -> bool:
    """Return whether the preemptor passes, whatever is used."""
    limits = [each for each in (budget["priority_from"], emergency) if each is not None]
    return not budget["holds"] or any(row["asks"]["priority"] >= limit for limit in limits)


def leaves(budget: Budget, at: int) -> int:
    """Return until when a displacement counts, `at` where it does not."""
    if budget["starts"] is None:
        return int(at + budget["window"])
    days = range((at - budget["window"]) // DAY, at // DAY + 1)
    starts = [day * DAY + second for day in days for second in budget["starts"]]
    ends = [start + budget["window"] for start in starts if start <= at < start + budget["window"]]
    return max(ends, default=at)


def exact(budget: Budget, account: str, rows: Iterable[Row], now: int) -> tuple[int, int]:
    """Return how many units, and what they lost, lie within the window to the second."""
    inside = [
        row
        for row in rows
        if counted(budget, row) == account and row["at"] <= now < leaves(budget, row["at"])
    ]
    return len(inside), sum(row["lost"] for row in inside)


def within(budget: Budget, units: int, lost: int) -> bool:
    """Return whether an account may reach these sums."""
    most, hours = budget["displacements"], budget["lost"]
    return (most is None or units <= most) and (hours is None or lost <= hours)


def by_hours(
    budget: Budget, account: str, rows: Iterable[Row], now: int
) -> list[tuple[int, int, int]]:
    """Return last instant, units and loss of each hour's rows that are alike and still count."""
    alike: dict[Any, list[Row]] = {}
    for row in rows:
        if counted(budget, row) == account:
            sides = tuple(
                (side["tenant"], side["queue"], side["priority"])
                for side in (row["victim"], row["asks"])
            )
            key = row["at"] // HOUR, sides, row["victim"]["lineage"], row["plane"], row["reason"]
            alike.setdefault(key, []).append(row)
    found = []
    for group in alike.values():
        last = max(row["at"] for row in group)
        if leaves(budget, last) > now:
            found.append((last, len(group), sum(row["lost"] for row in group)))
    return sorted(found)


def free_at(budget: Budget, row: Row, rows: Iterable[Row]) -> int | None:
    """Return when a candidate fits, None where it fits now."""
    account = counted(budget, row)
    assert account is not None
    if leaves(budget, row["at"]) <= row["at"]:
        return None
    hours = by_hours(budget, account, rows, row["at"])
    instants = [row["at"], *sorted({leaves(budget, last) for last, _, _ in hours})]
    for instant in instants:
        left = [hour for hour in hours if leaves(budget, hour[0]) > instant]
        units = 1 + sum(hour[1] for hour in left)
        lost = row["lost"] + sum(hour[2] for hour in left)
        if within(budget, units, lost):
            return None if instant == row["at"] else instant
    return leaves(budget, row["at"])


def held_until(
    budgets: Iterable[Budget], row: Row, rows: Sequence[Row], emergency: int | None
) -> int | None:
    """Return until when any budget holds a candidate."""
    found = []
    for budget in budgets:
        if counted(budget, row) is not None and not exempt(budget, row, emergency):
            free = free_at(budget, row, rows)
            if free is not None:
                found.append(free)
    return max(found, default=None)
