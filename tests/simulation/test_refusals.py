"""Who is refused once more without a search is whom the search refuses."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from reprieve.engine.quota.model import (
    BorrowWithinCohort,
    Policy,
    Preemption,
    QueueingStrategy,
    Settings,
)
from reprieve.engine.quota.refusals import Refusals
from reprieve.simulation import deciding
from reprieve.simulation.lives import Replay
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replay import replay
from reprieve.simulation.trace import Job
from reprieve.simulation.work import Checkpointing
from reprieve.units.durations import MINUTE, SECOND

_LOWER, _NEWER = Policy.LOWER_PRIORITY, Policy.LOWER_OR_NEWER_EQUAL_PRIORITY
_BORROWS = BorrowWithinCohort(_LOWER, 100)
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
)


@pytest.mark.parametrize("policy", _POLICIES, ids=lambda policy: policy.name)
def test_decisions_are_the_same_without_it(
    policy: PolicySpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Refusals] = []

    class Counted(Refusals):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    class Forgetful(Refusals):
        def again(self, *_asked: Any) -> None:
            return None

    for seed in range(1):
        jobs = _jobs(seed)
        monkeypatch.setattr(deciding, "Refusals", Counted)
        one = _replayed(jobs, policy)
        monkeypatch.setattr(deciding, "Refusals", Forgetful)
        other = _replayed(jobs, policy)
        assert one.decisions == other.decisions
        assert one.cycles == other.cycles
    saved = sum(each.saved for each in made)
    # Where somebody may be spared, and where age decides, it says nothing.
    assert saved > 20 or policy.name in ("reclaims newer", "protected")


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
