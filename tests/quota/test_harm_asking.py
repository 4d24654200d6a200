"""Harm budgets are asked about those that would be taken next, and spare whom they always did."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from bench.harm_budgets import scene_of
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.harm_budgets.accounts import HarmAccounts
from reprieve.engine.harm_budgets.budget import Harm, HarmBudget, HarmSide, Per, Scope
from reprieve.engine.quota.assigning.assigner import Assigner
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.targets.candidates import Preemptor, preemptor
from reprieve.engine.quota.targets.harm_budgets import QuotaHarm
from reprieve.engine.quota.targets.preemption import SearchOracle
from reprieve.engine.quota.targets.protection import Causes, Spared, protected, sparing
from tests.quota.cases import NOW, Scene

TENANTS = 6
AT = Nanos(NOW)


def ledger_of(random: Random) -> Displacements:
    """Return budgets of which some are used up."""
    governor = Governor()
    budgets = [
        HarmBudget("tenants", displacements=2, window=2 * HOUR),
        HarmBudget("hours", lost_device_seconds=random.choice((3_600, 360_000)), window=2 * HOUR),
        HarmBudget("queues", per=Per.QUEUE, displacements=random.choice((0, 3)), holds=False),
        HarmBudget("lines", Scope.WORK, displacements=random.choice((0, 1))),
    ]
    chosen = random.sample(budgets, random.randint(1, 3))
    governor.harm.adopt({each.name: each for each in chosen})
    for _ in range(random.randint(0, 12)):
        victim = HarmSide(f"tenant-{random.randrange(TENANTS)}", "", 0, "owner/one")
        at = Nanos(AT - random.randrange(4 * HOUR))
        governor.harm.record(Harm(at, "quota", victim, HarmSide("team"), 1_800, "rule"))
    return Displacements(governor=governor)


def targets(scene: Scene, snapshot: Snapshot, who: Preemptor) -> list[str] | None:
    """Return who is preempted, in order."""
    oracle = SearchOracle(snapshot, who)
    queue = snapshot.tree.queues[scene.queue]
    assigned = Assigner(snapshot, scene.incoming, queue, oracle).assign()
    if not assigned.usage:
        return None
    found = oracle.targets(assigned.usage, assigned.need)
    return [target.holder.key for target in found.targets] if found else None


def of_all(who: Preemptor, spared: Spared) -> Preemptor:
    """Return a preemptor that asks about all candidates beforehand."""

    def spares(holder: Holder) -> bool:
        return spared.by_budget(holder) or spared(holder)

    return replace(who, spares=spares)


@pytest.mark.parametrize("case", ["mixed-classical", "mixed-fair"])
def test_who_makes_way_is_whom_asking_about_all_leaves(case: str) -> None:
    counts: Counter[str] = Counter()
    scene = scene_of(case, (6, 72), TENANTS)
    holdings = Holdings(scene.configuration)
    for workload in scene.admitted:
        holdings.hold(workload)
    for seed in range(60):
        ledger, snapshot = ledger_of(Random(seed)), holdings.snapshot()
        who = preemptor(scene.incoming, snapshot.tree.queues[scene.queue], snapshot.settings)
        found, plain = [], targets(scene, snapshot, who)
        for asks in (sparing, of_all):
            spared = protected(who, AT, False, ledger, Causes(snapshot))
            assert spared is not None
            found.append(targets(scene, snapshot, asks(who, spared)))
            counts["spared"] += bool(spared.budgets)
        assert found[0] == found[1], seed
        counts["others"] += found[0] != plain
        counts["nobody" if found[0] is None else "somebody"] += 1
    assert min(counts[each] for each in ("spared", "others", "nobody", "somebody")) > 5, counts


def test_of_many_candidates_few_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[str] = Counter()
    right = QuotaHarm.held

    def held(self: QuotaHarm, holder: Holder) -> object:
        asked[holder.key] += 1
        return right(self, holder)

    monkeypatch.setattr(QuotaHarm, "held", held)
    scene = scene_of("mixed-classical", (12, 600), TENANTS)
    holdings = Holdings(scene.configuration)
    for workload in scene.admitted:
        holdings.hold(workload)
    ledger, snapshot = Displacements(governor=Governor()), holdings.snapshot()
    ledger.governor.harm.adopt({"all": HarmBudget("all", displacements=1_000)})
    who = preemptor(scene.incoming, snapshot.tree.queues[scene.queue], snapshot.settings)
    spared = protected(who, AT, False, ledger, Causes(snapshot))
    assert spared is not None
    assert targets(scene, snapshot, sparing(who, spared))
    assert 0 < len(asked) < 100
    assert set(asked.values()) == {1}


def test_room_is_never_more_than_what_is_allowed() -> None:
    """What `room` says fits is held by no budget, then and later."""
    random, counts = Random(3), Counter[str]()
    for _ in range(300):
        accounts = HarmAccounts()
        scope, per = (
            random.choice((Scope.SUFFERED, Scope.CAUSED)),
            random.choice((Per.ALL, Per.TENANT)),
        )
        accounts.adopt({"a": HarmBudget("a", scope, per=per, displacements=3, window=HOUR)})
        accounts.adopt(
            {
                **accounts.budgets,
                "b": HarmBudget("b", lost_device_seconds=5_000, window=30 * MINUTE),
            }
        )
        now = AT
        for _ in range(8):
            now = Nanos(now + random.randrange(40) * MINUTE)
            side = HarmSide(random.choice("xy"), "", 0, "owner/one")
            lost, key = random.choice((0, 2_000, 6_000)), (side.tenant, side.queue, side.priority)
            asking = [HarmSide("team"), HarmSide("other")]
            random.shuffle(asking)
            harm = None
            for asks in asking:
                asked = Harm(now, "quota", side, asks, lost)
                if lost <= accounts.rooms(asks, "quota").ask(key, asked):
                    counts["fits"] += 1
                    assert accounts.held(asked) is None
                    harm = asked
                elif accounts.held(asked) is None:
                    harm = asked
                else:
                    counts["held"] += 1
            if harm is not None:
                accounts.record(harm)
    assert counts["fits"] > 300
    assert counts["held"] > 100


def test_what_fitted_a_moment_ago_is_asked_about_again_in_time() -> None:
    """Decisions of one ledger, seconds apart, spare whom a ledger without a past spares."""
    counts, scene = Counter[str](), scene_of("mixed-classical", (6, 72), TENANTS)
    holdings = Holdings(scene.configuration)
    for workload in scene.admitted:
        holdings.hold(workload)
    snapshot = holdings.snapshot()
    who = preemptor(scene.incoming, snapshot.tree.queues[scene.queue], snapshot.settings)
    loses = [
        (AT - max(each.since, 0)) // SECOND * each.devices
        for each in holdings.holders.values()
        if each.devices and each.since < AT
    ]
    lost = 30, 600, 6_000, 60_000
    for seed in range(40):
        random = Random(seed)
        most = random.choice(loses) + random.randrange(600)
        budgets = {"hours": HarmBudget("hours", lost_device_seconds=most, window=24 * HOUR)}
        kept = Displacements(governor=Governor())
        kept.governor.harm.adopt(budgets)
        now, known = AT, [""]
        for _ in range(6):
            now = Nanos(now + random.randrange(45) * SECOND)
            if not random.randrange(3):
                victim = HarmSide(f"tenant-{random.randrange(TENANTS)}", "", 0, "owner/one")
                harm = Harm(now, "quota", victim, HarmSide("team"), random.choice(lost), "rule")
                kept.governor.harm.record(harm)
            fresh = Displacements(governor=Governor())
            fresh.governor.harm.adopt(budgets)
            fresh.governor.harm.load(kept.governor.harm.sums)
            found = []
            for ledger, asks in ((kept, sparing), (fresh, of_all)):
                spared = protected(who, now, False, ledger, Causes(snapshot))
                assert spared is not None
                found.append(targets(scene, snapshot, asks(who, spared)))
            assert found[0] == found[1], seed
            counts["others"] += str(found[0]) not in known
            known.append(str(found[0]))
    assert counts["others"] > 20, counts
