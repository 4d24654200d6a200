"""Who is refused once more without a search is whom the search refuses."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.engine.quota.assigning.assignment import Assignment, Choice, Mode, PodSetAssignment
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import Outcome
from reprieve.engine.quota.heads import shape
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.holdings.tree import available, borrowing_level
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    BorrowWithinCohort,
    Eviction,
    FlavorResource,
    Gates,
    Policy,
    Preemption,
    QueueingStrategy,
    Settings,
    Strategy,
    Workload,
)
from reprieve.engine.quota.refusals import Refusals
from reprieve.engine.quota.targets.candidates import preemptor
from reprieve.engine.quota.targets.fair import fair_targets
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying import deciding
from reprieve.simulation.replaying.lives import Replay
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.replaying.work import Checkpointing
from reprieve.simulation.trace import Job
from tests.quota.cases import NOW
from tests.quota.test_loops import configuration, jobs, queue

_LOWER, _NEWER = Policy.LOWER_PRIORITY, Policy.LOWER_OR_NEWER_EQUAL_PRIORITY
_BORROWS = BorrowWithinCohort(_LOWER, 100)
_FINAL, _INITIAL = Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, Strategy.LESS_THAN_INITIAL_SHARE
_POLICIES = (
    PolicySpec("classical"),
    PolicySpec("none", Preemption()),
    PolicySpec("reclaims lower", Preemption(_NEWER, _LOWER)),
    PolicySpec("reclaims newer", Preemption(_LOWER, _NEWER)),
    PolicySpec("borrows", Preemption(_LOWER, _LOWER, _BORROWS)),
    PolicySpec("borrows from all", Preemption(_LOWER, Policy.ANY, BorrowWithinCohort(_LOWER))),
    PolicySpec("harm", settings=Settings(harm_order=True)),
    PolicySpec("strict", strategy=QueueingStrategy.STRICT_FIFO),
    PolicySpec("protected", preempt_min_runtime_s=600, reclaim_min_runtime_s=600),
    PolicySpec("fair", settings=Settings(fair_sharing=())),
    PolicySpec("fair, lower", Preemption(_LOWER, _LOWER), settings=Settings(fair_sharing=())),
    PolicySpec("fair, newer", Preemption(_NEWER, _NEWER), settings=Settings(fair_sharing=())),
    PolicySpec("fair by what was", settings=Settings(fair_sharing=(_INITIAL,), harm_order=True)),
)


@pytest.mark.parametrize("cases", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("policy", _POLICIES, ids=lambda policy: policy.name)
def test_decisions_are_the_same_without_it(
    policy: PolicySpec, cases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Refusals] = []

    class Counted(Refusals):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    class Forgetful(Refusals):
        def again(self, *_asked: Any) -> None:
            return None

    for seed in range(cases):
        jobs = _jobs(seed)
        monkeypatch.setattr(deciding, "Refusals", Counted)
        one = _replayed(jobs, policy)
        monkeypatch.setattr(deciding, "Refusals", Forgetful)
        other = _replayed(jobs, policy)
        assert one.decisions == other.decisions
        assert one.cycles == other.cycles
    saved = sum(each.saved for each in made)
    # Where somebody may be spared or passed over it states nothing.
    silent = ("reclaims newer", "borrows", "borrows from all", "protected")
    assert saved > 6 * cases or policy.name in silent


def test_who_may_displace_one_that_comes_after_one_passed_over_is_not_refused() -> None:
    """A borrower passes over work of a higher priority, and a larger one goes in its place."""
    borrows = Preemption(Policy.NEVER, Policy.ANY, BorrowWithinCohort(_LOWER))
    queues = (queue("mine", 0, borrows), queue("other", 10), queue("idle", 1))
    new = configuration(*queues)
    leaves, holder, later = (
        holding(name, gpus=gpus, priority=priority)
        for name, gpus, priority in (("leaves", 1, 5), ("holder", 10, 5), ("later", 10, 1))
    )
    outcomes = []
    for refusals in (None, Refusals()):
        holdings, pending = Holdings(new), Queues(new)
        holdings.hold(replace(leaves, evicted=Eviction("Preempted", NOW)))
        holdings.hold(holder)
        (head,) = jobs(Random(1), "mine", 1, gpus=5, priority=3)
        pending.push(head)
        cycle(holdings, pending, NOW, 0, refusals=refusals)
        holdings.release(holder.key)
        holdings.hold(later)
        pending.flush(["mine"])
        (entry,) = cycle(holdings, pending, NOW, 1, refusals=refusals).entries
        outcomes.append((entry.outcome, [each.holder.key for each in entry.targets]))
    assert outcomes == [(Outcome.PREEMPTING, [later.key])] * 2


def test_nobody_is_refused_for_whom_fair_sharing_finds_victims() -> None:
    random, seen = Random(43), Counter[str]()
    for number in range(1_000):
        holdings = crowded(random)
        (head,) = jobs(random, "a", 1, gpus=random.choice((1, 2, 3, 5, 8)), priority=5)
        tree = holdings.tree
        queue, column = tree.queues["a"], tree.column(FlavorResource("gpus", "nvidia.com/gpu"))
        who = preemptor(head, queue, holdings.configuration.settings)
        amount, usage = head.pod_sets[0].requests["nvidia.com/gpu"], holdings.usage[column]
        if available(tree, column, usage, tree.path[queue]) >= amount:
            continue
        level, _ = borrowing_level(tree, column, usage, queue, amount)
        choice = {"nvidia.com/gpu": Choice("gpus", Mode.PREEMPT, level)}
        pods = PodSetAssignment("main", 1, {"nvidia.com/gpu": amount}, choice)
        refused = Assignment((pods,), {column: amount}, frozenset({column}))
        refusals, alike = Refusals(), shape(head, 5)
        refusals.record(holdings, who, alike, refused)
        again = refusals.again(holdings, who, alike)
        wanted = {column: amount}
        found = fair_targets(holdings.snapshot(), who, wanted, refused.need)
        assert again is None or found is None, number
        seen["refused"] += again is not None
        seen["refused by a search alone"] += again is None and found is None
        seen["victims"] += found is not None
    assert seen["refused"] > 200 and seen["victims"] > 200, seen


def crowded(random: Random) -> Holdings:
    """Return three queues of a cohort that use most of it, two of them with the same weight."""
    policies = (Policy.NEVER, _LOWER, _NEWER, Policy.ANY)
    weight = random.choice((1.0, 1.0, 1.0, 0.5))
    rules = Preemption(random.choice(policies[:3]), random.choice(policies))
    queues = [
        queue(name, random.randrange(1, 9), rules, weight=weight if name == "b" else 1.0)
        for name in "abc"
    ]
    strategies = random.choice(((), (_FINAL,), (_INITIAL,), (_INITIAL, _FINAL)))
    new = configuration(*queues, fair=strategies)
    gates = Gates(fair_sharing_preempt_within_nominal=random.random() < 0.7)
    holdings = Holdings(replace(new, settings=replace(new.settings, gates=gates)))
    left = sum(each.groups[0].flavors[0].resources["nvidia.com/gpu"].nominal for each in queues)
    for number in range(12):
        gpus = random.choice((0, 1, 1, 2, 3, 5))
        if gpus <= left:
            left -= gpus
            held = holding(f"h{number}", gpus, random.choice((0, 5, 9)), random.choice("abc"))
            gone = Eviction("Preempted", NOW) if random.random() < 0.1 else None
            holdings.hold(replace(held, evicted=gone))
    return holdings


def holding(name: str, gpus: int, priority: int, queue: str = "other") -> Workload:
    """Return a workload that has its quota in a queue."""
    (found,) = jobs(Random(name), queue, 1, gpus=gpus, priority=priority)
    pods = AdmittedPodSet("main", 1, {"nvidia.com/gpu": "gpus"}, {"nvidia.com/gpu": gpus})
    admission = Admission(queue, (pods,))
    return replace(found, name=name, admission=admission, reserved_at=NOW)


def _replayed(jobs: list[Job], policy: PolicySpec) -> Replay:
    model = Checkpointing(30 * MINUTE, 90 * SECOND, 3 * MINUTE)
    return replay(jobs, policy, model, ("a", "b", "c", "d"), (3, 9))


def _jobs(seed: int) -> list[Job]:
    random, now, found = Random(seed), 0, []
    for number in range(70):
        now += random.randrange(600)
        found.append(
            Job(
                f"j{number}",
                now * SECOND,
                random.choice((1, 2, 3, 5, 8, 13)),
                random.randrange(60, 7_200) * SECOND,
                tenant=random.choice("abcd"),
                priority=random.choice((0, 0, 100, 1000)),
            )
        )
    return found
