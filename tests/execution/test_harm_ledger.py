"""The stored ledger of harm: its size, its months, and what a lost answer does to it."""

from __future__ import annotations

import json
from random import Random
from uuid import UUID

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos, parse_instant
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.harm_budgets.budget import Harm, HarmBudget, HarmSide
from reprieve.execution.accounts.harm_ledger import HarmLedger
from reprieve.execution.accounts.harm_refusals import REFUSED, HarmRefusals
from reprieve.execution.accounts.harm_store import HarmSite
from reprieve.execution.fence import Fence
from reprieve.kube.client import Client
from reprieve.kube.transport import Transport
from reprieve.records.harm_sums import part_name, part_rows
from tests.background import in_background
from tests.kube.fakes import FakeAnswer, refusal
from tests.scheduling.memory import LEASE, Held, MemoryApi, Target, Wire

START = parse_instant("2026-11-01T00:00:00Z")
SPACE = "reprieve"


class Stage:
    """One API server over a clock turned by hand, and processes that come and go."""

    def __init__(self) -> None:
        self.clock = VirtualClock(START)
        self.api = MemoryApi(self.clock)

    def process(self) -> tuple[Governor, HarmLedger, HarmRefusals]:
        """Return what one process has."""
        client = Client(Transport(Wire(self.api), self.clock, jitter=Random(7)))
        fence = Fence(Held(self.clock, "one", epoch=1), self.clock, LEASE)
        governor = Governor()
        site = HarmSite(client, SPACE, fence, self.clock, governor)
        return governor, HarmLedger(site), HarmRefusals(site)

    def parts(self) -> dict[str, int]:
        """Return the sizes of the stored ConfigMaps as JSON, by name."""
        held = self.api.objects["configmaps"]
        return {name: len(json.dumps(obj)) for (_, name), obj in held.items()}


def harm(at: Nanos, tenant: str, lineage: str = "owner/a", asks: str = "urgent") -> Harm:
    """Return a displacement."""
    victim = HarmSide(tenant, "", 5, lineage)
    return Harm(at, "scheduling", victim, HarmSide(asks, "", 9), 5_400, "lower priority")


def total(stage: Stage) -> int:
    """Return how many displacements are stored."""
    held = stage.api.objects["configmaps"].values()
    return sum(row.displacements for obj in held for row in part_rows(obj)[0].values())


async def appended(stage: Stage, harms: list[list[Harm]]) -> None:
    """Let one process count plans of these displacements, each as one record."""
    governor, ledger, _ = stage.process()
    async with in_background(ledger.run()):
        await stage.clock.advance(SECOND)
        for number, plan in enumerate(harms):
            for each in plan:
                governor.harm.record(each)
            governor.harm.close(f"plan-{plan[0].at}-{number}", plan)
        await stage.clock.advance(10 * SECOND)
        assert ledger.owes == 0


async def test_a_plan_of_several_tenants_counts_once_where_answers_are_lost() -> None:
    stage, lost = Stage(), 0
    plan = [harm(START, f"team-{number}") for number in range(20)]

    def after(verb: str, where: Target) -> FakeAnswer | None:
        nonlocal lost
        lost += 1
        return refusal(500, "InternalError", "lost") if lost % 2 else None

    stage.api.after = after
    governor, ledger, _ = stage.process()
    async with in_background(ledger.run()):
        await stage.clock.advance(SECOND)
        governor.harm.close("plan", plan)
        await stage.clock.advance(MINUTE)
        assert ledger.owes == 0
    assert total(stage) == 20
    assert len(stage.parts()) == 8
    # What a record says that is stored in no part, or in some, is counted once.
    governor, ledger, _ = stage.process()
    await ledger.load()
    governor.harm.restore("plan", plan, is_open=False)
    assert sum(row.displacements for _, row in governor.harm.sums) == 20


async def test_a_month_takes_the_place_of_the_same_month_a_year_ago() -> None:
    stage = Stage()
    await appended(stage, [[harm(START, "batch")]])
    stage.clock.set_wall(parse_instant("2026-12-01T12:00:00Z"))
    await appended(stage, [[harm(stage.clock.wall(), "batch")]])
    assert len(stage.parts()) == 2
    governor, ledger, _ = stage.process()
    await ledger.load()
    # The first of November is out of the reach of all windows.
    assert sum(row.displacements for _, row in governor.harm.sums) == 1
    stage.clock.set_wall(parse_instant("2027-11-02T00:00:00Z"))
    await appended(stage, [[harm(stage.clock.wall(), "batch")]])
    assert len(stage.parts()) == 2
    assert total(stage) == 2


async def month(tenants: int, hours: int) -> Stage:
    """Displace another job of each tenant every hour, and store that once a day."""
    stage, random = Stage(), Random(5)
    governor, ledger, _ = stage.process()
    async with in_background(ledger.run()):
        await stage.clock.advance(SECOND)
        for hour in range(hours):
            now = Nanos(stage.clock.wall() + hour % 24 * HOUR)
            for tenant in range(tenants):
                lineage = f"owner/{UUID(int=random.getrandbits(128))}"
                asks = f"team-{random.randrange(3)}"
                governor.harm.close(
                    f"{hour}-{tenant}", [harm(now, f"team-{tenant}", lineage, asks)]
                )
            if hour % 24 == 23:
                await stage.clock.advance(24 * HOUR)
        assert ledger.owes == 0
    return stage


async def test_a_part_that_is_full_is_summed_up_by_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reprieve.execution.accounts.harm_ledger._FULL", 4_000)
    stage = await month(8, 72)
    assert total(stage) == 8 * 72
    assert max(stage.parts().values()) < 8_000


@pytest.mark.slow
async def test_a_month_of_a_thousand_tenants_takes_two_megabytes_at_most() -> None:
    stage = await month(1_000, 720)
    size = sum(stage.parts().values())
    print(f"{size} bytes in {len(stage.parts())} parts")
    assert total(stage) == 720_000
    assert size <= 2_000_000


async def test_since_when_a_queue_is_refused_its_own_quota_outlives_the_process() -> None:
    stage = Stage()
    governor, _, refusals = stage.process()
    governor.harm.adopt({"none": HarmBudget("none", displacements=0)})
    began = stage.clock.wall()
    async with in_background(refusals.run()):
        await stage.clock.advance(SECOND)
        assert governor.harm.reclaimed("none", "cq", began) == began + HOUR
        await stage.clock.advance(10 * SECOND)
        writes = len(stage.api.writes)
        assert set(stage.parts()) == {REFUSED}
        for _ in range(30):
            governor.harm.reclaimed("none", "cq", stage.clock.wall())
            await stage.clock.advance(MINUTE)
        # Not at each refusal.
        assert writes + 2 <= len(stage.api.writes) <= writes + 3
    governor, _, refusals = stage.process()
    governor.harm.adopt({"none": HarmBudget("none", displacements=0)})
    async with in_background(refusals.run()):
        await stage.clock.advance(SECOND)
        assert governor.harm.reclaimed("none", "cq", stage.clock.wall()) == began + HOUR
        later = Nanos(began + HOUR)
        assert not governor.harm.has_waited("none", "cq", Nanos(later - 1))
        assert governor.harm.has_waited("none", "cq", later)


async def test_who_may_not_read_what_is_stored_begins_with_nothing_and_keeps_on_counting() -> None:
    stage = Stage()

    def before(verb: str, where: Target) -> FakeAnswer | None:
        return refusal(403, "Forbidden", "no") if where.kind == "configmaps" else None

    stage.api.before = before
    governor, ledger, refusals = stage.process()
    governor.harm.record(harm(START, "batch"))
    async with in_background(ledger.run()), in_background(refusals.run()):
        await stage.clock.advance(SECOND)
        assert ledger.loaded
        assert refusals.loaded
        governor.harm.record(harm(START, "batch"))
        assert sum(row.displacements for _, row in governor.harm.sums) == 2
        # What happens is not kept on to be counted again.
        await ledger.load()
        assert sum(row.displacements for _, row in governor.harm.sums) == 0


def test_a_part_has_the_name_of_its_month() -> None:
    assert part_name("2026-11", 3) == "reprieve-harm-11-3"
