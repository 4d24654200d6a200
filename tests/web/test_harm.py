"""The page Harm: who sees which accounts, and who paid for whom."""

from __future__ import annotations

import msgspec

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.api.harm_budget import HarmBudget
from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.harm_budgets.sums import HourlySums
from reprieve.web.mirror.harm import HarmRead
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages.harm import page
from reprieve.web.tables import Viewer

# A Wednesday; the week began on the second, the month on the first.
NOW = parse_instant("2026-11-04T12:00:00Z")
ALL = Viewer(sees_all=True)


def budget(name: str, per: str, used: list[str], **status: object) -> HarmBudget:
    """Return a budget of which these accounts are used up."""
    free = "2026-11-04T13:00:00Z"
    found = {
        "metadata": {"name": name},
        "spec": {"limits": {"displacements": 2}, "per": per},
        "status": {
            "window": "24h",
            "used": [{"of": of, "displacements": 2, "freeAt": free} for of in used],
            **status,
        },
    }
    return msgspec.convert(found, HarmBudget)


def mirror() -> Mirror:
    """Return a mirror with budgets and a ledger of this month."""
    found, sums = Mirror(), HourlySums()
    found.key = b"key"

    def displaced(at: Nanos, payer: str, beneficiary: str | None) -> None:
        gains = None if beneficiary is None else HarmSide(beneficiary)
        sums.add(Harm(at, "quota", HarmSide(payer), gains, 3_600, "rule"))

    displaced(Nanos(NOW - HOUR), "team-a", "team-b")
    displaced(Nanos(NOW - 80 * HOUR), "team-a", "team-b")
    displaced(Nanos(NOW - HOUR), "team-c", None)
    refused = [{"type": "Accepted", "status": "False", "message": "no such hour"}]
    budgets = (
        budget("day", "Tenant", ["team-a", "team-c"]),
        budget("lines", "Work", ["team-a/owner/1", "team-c/owner/1"]),
        budget("odd", "Tenant", [], conditions=refused),
    )
    found.harm = HarmRead(budgets, tuple(sums), ("1",))
    return found


def test_who_sees_everything_sees_all_accounts_and_both_sides() -> None:
    made = page(mirror(), ALL, {}, NOW)
    assert made.values["counts"] == {"budgets": 3, "exhausted": 4}
    assert made.values["refused"] == ["odd: no such hour"]
    assert list(made.tables["budgets"].rows) == [
        *("day/team-a", "day/team-c", "lines/team-a/owner/1", "lines/team-c/owner/1")
    ]
    week = [row[:2] + row[4:6] for row in made.tables["week"].rows.values()]
    assert week == [("team-a", "team-b", 1, 1.0), ("team-c", "nobody", 1, 1.0)]
    month = [row[:2] + row[4:6] for row in made.tables["month"].rows.values()]
    assert month == [("team-a", "team-b", 2, 2.0), ("team-c", "nobody", 1, 1.0)]


def test_a_tenant_sees_accounts_of_their_own_and_others_under_numbers() -> None:
    made = page(mirror(), Viewer(sees_all=False, namespaces=frozenset({"team-a"})), {}, NOW)
    assert made.values == {"counts": {"budgets": 0, "exhausted": 2}, "refused": []}
    assert list(made.tables["budgets"].rows) == ["day/team-a", "lines/team-a/owner/1"]
    ((payer, beneficiary, *_),) = made.tables["week"].rows.values()
    assert payer == "team-a"
    assert str(beneficiary).startswith("another tenant's work #")
    gains = page(mirror(), Viewer(sees_all=False, namespaces=frozenset({"team-b"})), {}, NOW)
    ((payer, beneficiary, *_),) = gains.tables["week"].rows.values()
    assert str(payer).startswith("another tenant's work #")
    assert beneficiary == "team-b"
    assert gains.tables["budgets"].rows == {}


def test_nobody_else_learns_anything() -> None:
    made = page(mirror(), Viewer(sees_all=False, namespaces=frozenset({"team-d"})), {}, NOW)
    assert all(table.rows == {} for table in made.tables.values())
    assert "team-" not in str(made)
