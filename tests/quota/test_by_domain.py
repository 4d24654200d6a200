"""With profile `best` the victims of a gang are those of the domain that is freed most cheaply."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

import pytest

from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.model import (
    FlavorFungibility,
    FlavorQuotas,
    Fungibility,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
)
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.topology.model import HOSTNAME
from reprieve.engine.victim_choice import VictimChoice
from tests.engine.topology.build import GPU, RACK
from tests.quota.test_topologies import World, victims

Cost: TypeAlias = tuple[int, int]


def world(gpus: Mapping[str, int], profile: VictimChoice) -> World:
    """Return one ClusterQueue over such nodes that chooses victims so."""
    made = World(gpus)
    made.configuration = replace(made.configuration, settings=Settings(profile=profile))
    made.holdings.configure(made.configuration)
    made.queues = Queues(made.configuration)
    return made


def test_one_small_job_goes_rather_than_a_large_one_that_began_later() -> None:
    gone = {}
    for profile in VictimChoice:
        played = world({"b/r1/a": 4, "b/r2/c": 4, "b/r2/d": 4}, profile)
        for name, pods, level in (("small", 3, HOSTNAME), ("large", 8, RACK)):
            played.submit(name, pods, 1, required=level)
            assert played.decide().of(Outcome.ADMITTED)
        played.submit("urgent", 4, 1, 5, required=HOSTNAME)
        gone[profile] = victims(played.decide())
    # Both stand on a host that would be free; `large` was given its quota last.
    assert gone == {VictimChoice.COMPATIBLE: {"large"}, VictimChoice.BEST: {"small"}}


def test_no_higher_priority_goes_where_another_rack_needs_none() -> None:
    played = world({"b/r1/a": 4, "b/r2/c": 4}, VictimChoice.BEST)
    for name, priority in (("middle", 3), ("low", 0), ("low-too", 0), ("low-three", 0)):
        played.submit(name, 2, 1, priority, required=HOSTNAME)
        assert played.decide().of(Outcome.ADMITTED)
    beside = next(
        n for n in ("low", "low-too", "low-three") if where(played, n) == where(played, "middle")
    )
    played.submit("urgent", 4, 1, 5, required=RACK)
    (entry,) = played.decide().of(Outcome.PREEMPTING)
    names = {target.holder.workload.name for target in entry.issued}
    assert names == {"low", "low-too", "low-three"} - {beside}
    for name in names:
        played.end(name)
    assert played.decide().of(Outcome.ADMITTED)


@pytest.mark.parametrize("wanted", [4, 6], ids=["victims would do", "it never fits there"])
def test_another_flavor_with_room_is_taken_before_anybody_goes(wanted: int) -> None:
    chosen = {}
    for profile in VictimChoice:
        played = world({"b/r1/a": 4, "b/r2/c": 8}, profile)
        _two_flavors(played, Fungibility.TRY_NEXT_FLAVOR)
        played.submit("low", 3, 1, required=HOSTNAME)
        assert played.decide().of(Outcome.ADMITTED)
        played.submit("urgent", wanted, 1, 5, required=HOSTNAME)
        (entry,) = played.decide().entries
        chosen[profile] = entry.outcome
    waits = Outcome.PREEMPTING if wanted == 4 else Outcome.NO_FIT
    assert chosen == {VictimChoice.COMPATIBLE: waits, VictimChoice.BEST: Outcome.ADMITTED}


def test_a_queue_that_preempts_before_it_tries_the_next_flavor_does_so() -> None:
    played = world({"b/r1/a": 4, "b/r2/c": 8}, VictimChoice.BEST)
    _two_flavors(played, Fungibility.MAY_STOP_SEARCH)
    played.submit("low", 3, 1, required=HOSTNAME)
    assert played.decide().of(Outcome.ADMITTED)
    played.submit("urgent", 4, 1, 5, required=HOSTNAME)
    assert victims(played.decide()) == {"low"}


def _two_flavors(played: World, when_can_preempt: Fungibility) -> None:
    """Let the rack `r1` be of the first flavor, and `r2` of the second."""
    offers = tuple(FlavorQuotas(name, {GPU: Quota(100)}) for name in ("first", "second"))
    old = played.configuration.cluster_queues["team"]
    queue = replace(
        old,
        groups=(ResourceGroup((GPU,), offers),),
        fungibility=FlavorFungibility(when_can_preempt=when_can_preempt),
    )
    flavors = {
        name: ResourceFlavor(name, topology="default", labels={RACK: rack})
        for name, rack in (("first", "r1"), ("second", "r2"))
    }
    played.configuration = replace(
        played.configuration, cluster_queues={"team": queue}, flavors=flavors
    )
    played.holdings.configure(played.configuration)
    played.queues = Queues(played.configuration)


def where(played: World, name: str) -> Collection[str]:
    return played.places(name).keys()


@pytest.mark.parametrize(
    ("first", "cases"), [(150, 60), pytest.param(0, 400, marks=pytest.mark.thorough)]
)
def test_victims_cost_the_least_of_all_sets_that_would_do(first: int, cases: int) -> None:
    """The first 60 have three of which the candidates in their order are not the least."""
    seen: Counter[str] = Counter()
    for number in range(first, first + cases):
        draw = random.Random(number)
        gpus = {
            f"b/r{r}/r{r}h{h}": draw.choice((4, 8))
            for r in range(draw.randint(1, 3))
            for h in range(draw.randint(1, 3))
        }
        choices: dict[VictimChoice, Cost] = {}
        for profile in VictimChoice:
            case = _Case(random.Random(number), world(gpus, profile))
            entry = case.preempting()
            if entry is None:
                continue
            chosen = {target.holder.workload.name for target in entry.issued}
            choices[profile] = case.cost(chosen)
            if profile is VictimChoice.BEST:
                least = min(case.cost(each) for each in case.enough())
                seen["cases"] += 1
                seen["several would do"] += len({case.cost(e) for e in case.enough()}) > 1
                seen["least"] += choices[profile] == least
                assert entry.gap is not None and entry.gap >= case.exceeds(chosen)
                seen["known to be the least"] += entry.gap == 0
        assert len(choices) != 1, (number, choices)
        if choices:
            assert choices[VictimChoice.BEST] <= choices[VictimChoice.COMPATIBLE]
            seen["cheaper"] += choices[VictimChoice.BEST] < choices[VictimChoice.COMPATIBLE]
    assert seen["several would do"] >= cases / 2 and seen["cheaper"] >= cases / 30, seen
    assert seen["least"] == seen["cases"], seen
    assert seen["known to be the least"] >= 0.7 * seen["cases"], seen


@dataclass
class _Case:
    """A world that is full, and one gang that needs a rack or a host; read without the engine."""

    draw: random.Random
    played: World

    def __post_init__(self) -> None:
        # Nobody that comes later is of a higher priority and preempts another.
        priorities = sorted((self.draw.randint(0, 2) for _ in range(10)), reverse=True)
        for number, priority in enumerate(priorities):
            level = self.draw.choice((RACK, HOSTNAME))
            asked = self.draw.randint(1, 4), self.draw.choice((1, 2)), priority
            self.played.submit(f"w{number}", *asked, required=level)
            assert not self.played.decide().of(Outcome.PREEMPTING)
        self.rows = {
            holder.workload.name: (
                holder.workload.priority,
                holder.workload.pod_sets[0].requests,
                self.played.places(holder.workload.name),
            )
            for holder in self.played.holdings.holders.values()
        }
        self.level = self.draw.choice((RACK, HOSTNAME))
        self.pods, self.each = self.draw.randint(2, 6), self.draw.choice((1, 2))

    def preempting(self) -> Entry | None:
        """Submit the gang; return what it preempts, None where it needs nobody or gets nothing."""
        self.played.queues.flush(["team"])
        self.played.submit("gang", self.pods, self.each, 9, required=self.level)
        return next(iter(self.played.decide().of(Outcome.PREEMPTING)), None)

    def cost(self, gone: Collection[str]) -> Cost:
        """Return the highest priority among these, and what they cost together."""
        priorities = [self.rows[name][0] for name in gone]
        return max(priorities), sum(each + 2**31 for each in priorities)

    def exceeds(self, gone: Collection[str]) -> int:
        """Return by how many per cent there are more of them than of the fewest of their kind."""
        top = max(self.rows[name][0] for name in gone)
        least = min(len(e) for e in self.enough() if max(self.rows[n][0] for n in e) <= top)
        return (len(gone) - least) * 100 // least

    def enough(self) -> Iterator[tuple[str, ...]]:
        """Yield all sets with which gone the gang fits."""
        for size in range(1, len(self.rows) + 1):
            yield from (e for e in combinations(self.rows, size) if self._fits_without(e))

    def _fits_without(self, gone: Collection[str]) -> bool:
        racks: Counter[str] = Counter()
        for path, gpus in self.played.gpus.items():
            _, rack, host = path.split("/")
            used = sum(
                places.get(host, 0) * next(iter(requests.values()))
                for name, (_, requests, places) in self.rows.items()
                if name not in gone
            )
            racks[rack if self.level == RACK else host] += (gpus - used) // self.each
        return max(racks.values()) >= self.pods
