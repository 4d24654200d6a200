"""With profile `best` the quota plane evicts the fewest jobs, and the record says how it chose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprieve.engine.quota.model import Settings
from reprieve.engine.victim_choice import VictimChoice
from reprieve.planes.quota.context import QuotaOptions
from reprieve.scenarios.model import NodeSpec
from tests.quota_plane.site import (
    Object,
    TurnedClock,
    cluster_queue,
    flavor,
    job,
    local_queue,
    priority_class,
    site,
)
from tests.quota_plane.test_jobs import LOWER

NODE = NodeSpec("node-0", {"cpu": "16", "memory": "32Gi", "pods": "110"}, {})


def sized(name: str, cpu: int, **facts: Any) -> Object:
    made = job(name, pods=1, **facts)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": str(cpu)}}
    return made


@pytest.mark.parametrize(
    ("profile", "stays", "proof"),
    [
        (VictimChoice.COMPATIBLE, {"wide"}, {"profile": "compatible"}),
        (VictimChoice.BEST, {"small-1", "small-2"}, {"profile": "best", "gap": 0}),
    ],
)
async def test_one_wide_job_goes_in_place_of_two_that_came_later(
    tmp_path: Path, profile: VictimChoice, stays: set[str], proof: Object
) -> None:
    classes = [priority_class("low", 100), priority_class("high", 10_000)]
    queue = cluster_queue("cq", 8, preemption=LOWER)
    objects = [flavor(), queue, local_queue("q", "cq"), *classes]
    options = QuotaOptions(settings=Settings(profile=profile))
    clock = TurnedClock()
    async with site(tmp_path, *objects, nodes=[NODE], options=options, clock=clock) as cluster:
        admitted = []
        for name, cpu in (("wide", 4), ("small-1", 2), ("small-2", 2)):
            await cluster.create(sized(name, cpu, priority="low"))
            admitted.append(name)
            await cluster.until_admitted(*admitted)
            clock.turn(60)
        await cluster.create(sized("high", 4, priority="high"))
        await cluster.until_admitted("high", *sorted(stays))
        (intent,) = await cluster.intents()
        victims = {victim["subject"]["name"] for victim in intent["spec"]["victims"]}
        evicted = {
            name
            for name in ("wide", "small-1", "small-2")
            if any(name in victim for victim in victims)
        }
        assert evicted == {"wide", "small-1", "small-2"} - stays
        told = intent["spec"]["proof"]
        assert {key: told[key] for key in ("profile", "gap") if key in told} == proof
