"""With profile `best` no workload is evicted for one that is never admitted.

Random stories of levels, nested cohorts, fair sharing, slices, leaders, taints and pods in no queue
(`mixed_racks`). A victim is in vain if its preemptor is never admitted, or runs on none of its
domains though neither quota nor its rules needed it.
"""

from __future__ import annotations

from collections import Counter

import pytest

from reprieve.engine.victim_choice import VictimChoice
from tests.quota.mixed_racks import in_vain, played

#: Stories in which victims were in vain once, by what went wrong.
_OTHER_TREE = (266,)  # who shares the nodes but no quota was decided first
_STRICT = (2040,)  # a younger workload of a StrictFIFO queue went ahead
# Quota came free in another flavor, whose nodes have no room.
_OTHER_FLAVOR = (1598, 2136, 4743, 7307)
_SLOTS = (1624, 2851)  # nodes had GPUs left and no place for another pod
_OTHER_PLAN = (344, 3872)  # the nodes freed for one went to another whose own victims still left
_RESERVED = (4626, 4878, 7292)  # a preemptor used what others had kept for themselves at first
_ALL = (*_OTHER_TREE, *_STRICT, *_OTHER_FLAVOR, *_SLOTS, *_OTHER_PLAN, *_RESERVED)


@pytest.mark.parametrize("number", _ALL)
def test_what_is_freed_for_a_workload_is_used_by_it(number: int) -> None:
    cluster = played(number, VictimChoice.BEST)
    assert cluster.evicted and in_vain(cluster) == {}


@pytest.mark.parametrize(
    "stories",
    [pytest.param(120, marks=pytest.mark.thorough), pytest.param(10_000, marks=pytest.mark.slow)],
)
def test_nobody_is_evicted_in_vain_over_random_stories(stories: int) -> None:
    seen: Counter[str] = Counter()
    for number in range(stories):
        cluster = played(number, VictimChoice.BEST)
        vain = Counter(in_vain(cluster).values())
        assert not vain, number
        seen += cluster.seen
        seen["evicted"] += len(cluster.evicted)
    print(dict(seen))
    rare = min(seen[each] for each in ("evicted", "slices", "leaders", "fair sharing", "skipped"))
    assert rare >= stories / 10, seen


def test_the_measure_finds_what_is_in_vain_with_the_order_of_the_reference() -> None:
    found: Counter[str] = Counter()
    for number in _ALL:
        found.update(in_vain(played(number, VictimChoice.COMPATIBLE)).values())
    assert found.total() >= 3, found
