"""What a plan says first to change lets the work start, when it is submitted changed so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.whatif.fixes_proof import FixTally, played_fixes

PLANES = ("scheduling", "quota", "scheduling,quota")


@pytest.mark.thorough
@pytest.mark.parametrize("planes", PLANES)
async def test_the_first_change_that_is_named_lets_it_start(tmp_path: Path, planes: str) -> None:
    tally = await played_fixes(tmp_path, 1, planes, cases=8)
    assert not tally.failures
    assert tally.applied.total() >= 2


@pytest.mark.slow
@pytest.mark.parametrize("planes", [*PLANES, "idle,scheduling,quota"])
async def test_of_hundreds_of_changes_that_are_named_99_in_100_let_it_start(
    tmp_path: Path, planes: str
) -> None:
    tally = FixTally()
    for seed in range(12):
        folder = tmp_path / str(seed)
        folder.mkdir()
        tally += await played_fixes(folder, seed, planes, cases=12)
    print(planes, dict(tally.applied), len(tally.failures), tally.without)
    assert len(tally.failures) <= max(1, tally.applied.total() // 100), tally.failures
    assert tally.applied.total() >= 25
