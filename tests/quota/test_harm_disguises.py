"""No tenant displaces more by other names, labels, owners, queues or the queues of others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from kubeworld.units.durations import HOUR, MINUTE
from reprieve.engine.disruptions.lineage import Identity, participant_of
from reprieve.engine.harm_budgets.budget import Harm, HarmBudget, HarmSide, Per, Scope
from reprieve.engine.quota.model import Workload
from tests.quota.simulation import Cluster
from tests.quota.test_harm_budgets import cluster, pass_time, work

MOST = 2


def disguised(random: Random, number: int) -> Workload:
    """Return urgent work of `ours` under another name, label, owner, template, queue or class."""
    name = f"urgent-{random.choice(('a', 'b', 'c'))}-{number}"
    found = work("ours", name, 4, random.choice((8, 9, 10)), queue=random.choice((0, 1)))
    identity = Identity(
        uid=name,
        namespace="ours",
        tenant="ours",
        # Owners are named by who makes an object, also those of other namespaces.
        owner=random.choice(("", "train", "owner-of-one", f"new-{number}")),
        queue=found.queue,
        template=random.choice(("", "same", f"template-{number}")),
        label=random.choice(("", "mine", "one", f"label-{number}")),
    )
    return replace(found, participant=participant_of(identity))


def played(seed: int, per: Per) -> tuple[Cluster, int]:
    """Let urgent work come in six disguises; return how often a workload was preempted for it."""
    random = Random(seed)
    budget = HarmBudget("ours", Scope.CAUSED, per=per, window=24 * HOUR, displacements=MOST)
    found = cluster(budget, quotas=(4, 4))
    for number in range(6):
        found.submit(*(work("one", f"low-{number}-{q}", 4, 1, queue=q) for q in (0, 1)))
        found.settle()
        urgent = disguised(random, number)
        found.submit(urgent)
        found.settle()
        pass_time(found, MINUTE)
        for key in list(found.holdings.holders):
            found.finish(key)
        for key in (urgent.key, *(f"one/low-{number}-{q}" for q in (0, 1))):
            found.queues.delete(key)
    return found, sum(found.preempted.values())


@pytest.mark.parametrize("per", [Per.TENANT, Per.ALL])
def test_what_a_tenant_causes_is_counted_whatever_it_calls_its_work(per: Per) -> None:
    counts: Counter[int] = Counter()
    for seed in range(40):
        found, displaced = played(seed, per)
        counts[displaced] += 1
        assert found.ledger is not None
        (use,) = found.ledger.governor.harm.used("ours", found.now)
        assert use.displacements == displaced
        assert use.account == ("ours" if per is Per.TENANT else "")
    assert set(counts) == {MOST}


def test_an_account_by_what_work_says_of_itself_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_lineage(budget: HarmBudget, side: HarmSide) -> str:
        return side.lineage

    monkeypatch.setattr(HarmBudget, "account", by_lineage)
    assert max(played(seed, Per.TENANT)[1] for seed in range(10)) > MOST


def test_work_that_names_the_owner_of_others_takes_nothing_from_their_account() -> None:
    found = cluster(HarmBudget("work", Scope.WORK, displacements=1, window=24 * HOUR))
    assert found.ledger is not None
    accounts = found.ledger.governor.harm
    names = [
        participant_of(Identity(f"pod-{space}", space, space, owner="train"))
        for space in ("one", "two")
    ]
    assert names[0].lineage == names[1].lineage
    sides = [HarmSide(each.tenant, "queue-0", 1, each.lineage) for each in names]
    accounts.record(Harm(found.now, "quota", sides[1]))
    held = [accounts.held(Harm(found.now, "quota", side)) is not None for side in sides]
    assert held == [False, True]
