"""The recorded cycles, played to their end: with profile `best` nobody is evicted in vain."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from reprieve.engine.victim_choice import VictimChoice
from tests.conformance.topology_objects import FOLDER, cases
from tests.conformance.topology_stories import played

_KINDS: Final = ("cq", "cohort", "fair")
#: Victims whose quota was needed by more than the sum of what is free, which is all that a story
#: reads: a queue that borrows may not reclaim (0041, 0211), and what a workload waits for is kept
#: for it (0094, 0235).
_NEEDED: Final = {
    ("cohort-0041", "default/run00"),
    ("cohort-0211", "default/run01"),
    ("cohort-0094", "default/run12"),
    ("cohort-0235", "default/run07"),
}

pytestmark = pytest.mark.skipif(
    not FOLDER.exists(), reason="no cases of topologies beside the project"
)


@pytest.mark.parametrize("staggered", [False, True], ids=["at once", "one by one"])
@pytest.mark.parametrize("kind", _KINDS)
def test_with_profile_best_every_victim_helps_who_it_goes_for(kind: str, staggered: bool) -> None:
    vain: list[tuple[str, str, str]] = []
    evicted = 0
    for case in cases(FOLDER / f"Generated_cycles_{kind}.json.gz"):
        story = played(case, VictimChoice.BEST, staggered)
        assert story.faults == []
        evicted += len(story.evicted)
        vain += [(case["name"], victim, how) for victim, how in story.vain.items()]
    assert evicted >= 50
    assert [each for each in vain if each[:2] not in _NEEDED] == []
    assert all(how == "elsewhere" for _, _, how in vain)


def test_the_measure_finds_what_goes_in_vain_as_the_reference_has_it() -> None:
    seen: Counter[str] = Counter()
    for case in cases(FOLDER / "Generated_cycles_cohort.json.gz"):
        seen.update(played(case, VictimChoice.COMPATIBLE, staggered=True).vain.values())
    assert seen["never"] >= 5 and seen["elsewhere"] >= 3, seen
