"""Random histories against a naive second reading: what is held, until when, and what is exceeded.

In each history plans of one to three units are asked about, and those that are allowed happen. Some
are taken back, and budgets change on the way.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.harm_budgets.accounts import HarmAccounts
from reprieve.engine.harm_budgets.budget import (
    ALL_PLANES,
    Expression,
    Harm,
    HarmBudget,
    HarmSide,
    Per,
    Scope,
    Selector,
)
from reprieve.intake.cron import schedule_of
from tests.oracle import harm_budgets as oracle

EMERGENCY = 1_000
LABELS = {"a": {"tier": "batch"}, "b": {"tier": "batch"}, "c": {}}
PLANES = sorted(ALL_PLANES)
WINDOWS = (600, 3_600, 3 * 3_600, 86_400)
#: Schedules, and the seconds of a day at which they begin.
SCHEDULES = {
    "0 * * * *": tuple(range(0, 86_400, 3_600)),
    "0 8,15 * * *": (8 * 3_600, 15 * 3_600),
    "30 */2 * * *": tuple(range(1_800, 86_400, 7_200)),
    "0 0 * * *": (0,),
}
Row = dict[str, Any]


def random_budget(random: Random) -> dict[str, Any]:
    """Return a budget as the second reading has it."""
    scope = random.choice(("Suffered", "Suffered", "Caused", "Work", "Cluster"))
    pers = ("Tenant", "ClusterQueue", "All") + (("Work",) if scope != "Caused" else ())
    displacements = random.choice((None, 0, 1, 2, 4))
    schedule = random.choice((None, None, *SCHEDULES))
    return {
        "scope": scope,
        "schedule": schedule,
        "starts": None if schedule is None else SCHEDULES[schedule],
        "per": random.choice(pers),
        "window": random.choice(WINDOWS),
        "displacements": displacements,
        "lost": random.choice((None, 3_600, 7_200)) if displacements is not None else 3_600,
        "planes": random.choice((PLANES, PLANES, PLANES[:1])),
        "priority_below": random.choice((None, None, 5)),
        "queues": random.choice((None, None, ("x",))),
        "label": random.choice((None, None, ("tier", "batch"))),
        "holds": random.random() < 0.9,
        "priority_from": random.choice((None, None, 8)),
    }


def budget_of(name: str, found: dict[str, Any]) -> HarmBudget:
    """Return the same budget for the engine."""
    label, queues = found["label"], found["queues"]
    return HarmBudget(
        name,
        Scope(found["scope"]),
        Selector(
            None if label is None else (Expression(label[0], "In", (label[1],)),),
            None if queues is None else frozenset(queues),
            found["priority_below"],
        ),
        Per(found["per"]),
        found["window"] * SECOND,
        found["displacements"],
        found["lost"],
        frozenset(found["planes"]),
        found["holds"],
        found["priority_from"],
        schedule=None if found["schedule"] is None else schedule_of(found["schedule"]),
    )


def random_side(random: Random, priorities: tuple[int, ...]) -> Row:
    """Return one side of a displacement."""
    tenant = random.choice("abc")
    return {
        "tenant": tenant,
        "queue": random.choice("xy"),
        "priority": random.choice(priorities),
        # Also those of other namespaces, which anybody may name as an owner.
        "lineage": f"owner/{random.randint(0, 2)}",
        "labels": LABELS[tenant],
    }


def harm_of(row: Row) -> Harm:
    """Return the same displacement for the engine."""
    victim, asks = (
        HarmSide(side["tenant"], side["queue"], side["priority"], side["lineage"])
        for side in (row["victim"], row["asks"])
    )
    at = Nanos(row["at"] * SECOND)
    return Harm(
        at, row["plane"], victim, asks, row["lost"], row["reason"], frozenset((row["uid"],))
    )


def adopt(accounts: HarmAccounts, budgets: list[dict[str, Any]]) -> None:
    """Let the engine go by these budgets."""
    accounts.adopt({str(n): budget_of(str(n), each) for n, each in enumerate(budgets)})


class _History:
    """One history; `counts` says what came in it."""

    def __init__(self, random: Random, counts: Counter[str]) -> None:
        self.random, self.counts = random, counts
        self.accounts = HarmAccounts(lambda: EMERGENCY)
        self.accounts.labels = lambda tenant: LABELS[tenant]
        self.budgets = [random_budget(random) for _ in range(random.randint(1, 3))]
        adopt(self.accounts, self.budgets)
        self.rows: list[Row] = []
        self.now = 1_000_000 + random.randint(0, 3_600)

    def step(self, number: int) -> None:
        """Ask about a plan, and let it happen where it is allowed."""
        random = self.random
        self.now += random.choice((0, 1, 60, 700, 2_000, 4_000))
        plane, asks = random.choice(PLANES), random_side(random, (5, 7, 9, 1_000))
        plan = [
            {
                "at": self.now,
                "plane": plane,
                "victim": random_side(random, (1, 4, 6)),
                "asks": asks,
                "lost": random.choice((0, 10, 1_800, 4_000)),
                "reason": "rule",
                "uid": f"{number}-{unit}",
            }
            for unit in range(random.choice((1, 1, 2, 3)))
        ]
        candidates = [row for row in plan if not self.is_held(row)]
        refusal = self.accounts.refusal([harm_of(row) for row in candidates])
        if refusal is not None:
            self.counts["plans refused"] += 1
            assert not self.fits(candidates)
            budget = self.budgets[int(refusal.account[0])]
            kept = [
                row
                for row in candidates
                if row["uid"] in refusal.fit or oracle.counted(budget, row) != refusal.account[1]
            ]
            assert len(kept) < len(candidates)
            return
        assert self.fits(candidates)
        for row in candidates:
            self.accounts.record(harm_of(row))
            self.rows.append(row)
            self.counts["displaced"] += 1
        self.check_nothing_is_exceeded(candidates)
        if candidates and random.random() < 0.1:
            self.accounts.undo(harm_of(candidates[-1]))
            self.rows.pop()
            self.counts["taken back"] += 1
            if any(self.alike(row, candidates[-1]) for row in self.rows):
                # What stays of an hour keeps its last instant: from here on it is not the same.
                self.now += 40 * 86_400

    def alike(self, row: Row, other: Row) -> bool:
        """Return whether two rows are of one hour."""
        return bool(row["at"] // 3_600 == other["at"] // 3_600)

    def is_held(self, row: Row) -> bool:
        """Compare what both say of a candidate."""
        found = self.accounts.held(harm_of(row))
        expected = oracle.held_until(self.budgets, row, self.rows, EMERGENCY)
        assert (None if found is None else found[0]) == (
            None if expected is None else expected * SECOND
        )
        if found is None:
            return False
        self.counts["held"] += 1
        later = {**row, "at": expected}
        alone = all(
            oracle.within(each, 1, row["lost"])
            for each in self.budgets
            if oracle.counted(each, row) is not None
        )
        if alone and self.accounts.held(harm_of(later)) is None:
            self.counts["free when it was told"] += 1
        return True

    def fits(self, rows: list[Row]) -> bool:
        """Return whether all rows fit together in all budgets, by the second reading."""
        for budget in self.budgets:
            accounts = {oracle.counted(budget, row) for row in rows} - {None}
            for account in accounts:
                mine = [
                    row
                    for row in rows
                    if oracle.counted(budget, row) == account
                    and not oracle.exempt(budget, row, EMERGENCY)
                ]
                if oracle.leaves(budget, self.now) <= self.now:
                    continue
                hours = oracle.by_hours(budget, str(account), self.rows, self.now)
                units = len(mine) + sum(hour[1] for hour in hours)
                lost = sum(row["lost"] for row in mine) + sum(hour[2] for hour in hours)
                if mine and not oracle.within(budget, units, lost):
                    return False
        return True

    def check_nothing_is_exceeded(self, rows: list[Row]) -> None:
        """No budget is exceeded to the second, but by those that it exempts."""
        for budget in self.budgets:
            for row in rows:
                account = oracle.counted(budget, row)
                if account is None:
                    continue
                if oracle.exempt(budget, row, EMERGENCY):
                    self.counts["exempt"] += 1
                    continue
                if oracle.leaves(budget, self.now) <= self.now:
                    self.counts["outside the windows"] += 1
                    continue
                units, lost = oracle.exact(budget, account, self.rows, self.now)
                assert oracle.within(budget, units, lost)
                self.counts["within a budget"] += 1


def played(histories: int) -> Counter[str]:
    """Play histories, and return how often what came."""
    counts: Counter[str] = Counter()
    for seed in range(histories):
        history = _History(Random(seed), counts)
        for number in range(10):
            history.step(number)
            if history.random.random() < 0.05:
                history.budgets = [*history.budgets, random_budget(history.random)]
                adopt(history.accounts, history.budgets)
                counts["budgets changed"] += 1
        counts["histories"] += 1
    return counts


def check(counts: Counter[str]) -> None:
    """Everything that the histories are about came often enough."""
    for what in (
        "displaced",
        "held",
        "plans refused",
        "exempt",
        "within a budget",
        "taken back",
        "budgets changed",
        "free when it was told",
        "outside the windows",
    ):
        assert counts[what] >= counts["histories"] // 20, counts


def test_budgets_hold_what_a_naive_reading_holds_and_nothing_exceeds_them() -> None:
    check(played(200))


@pytest.mark.slow
def test_ten_thousand_histories() -> None:
    counts = played(10_000)
    check(counts)
    print(dict(counts))


def test_a_wrong_reading_of_the_window_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = HarmBudget.allows
    monkeypatch.setattr(HarmBudget, "allows", lambda self, n, lost: right(self, n - 1, lost))
    with pytest.raises(AssertionError):
        played(200)
