"""Small stories of three planes on the embedded cluster; a real server plays the same ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.together.site import node, site
from tests.together.stories import STORIES


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
async def test_nobody_goes_but_who_has_to(tmp_path: Path, name: str) -> None:
    story = STORIES[name]
    nodes = [node(f"n{number}", gpus) for number, gpus in enumerate(story.nodes)]
    async with site(tmp_path, nodes, story.quotas) as cluster:
        for unit in story.units:
            await cluster.runs(unit)
        await cluster.idle(*story.units[: story.idle])
        evicted = await cluster.demand(story.wanted)
        wanted = story.wanted[0]["metadata"]["name"]
        assert (set(evicted), cluster.placed(wanted) > 0) == (
            {each.rstrip("-01") for each in story.goes},
            True,
        )
