"""Work that is submitted again as new objects is the same lineage, and goes in no circle."""

from __future__ import annotations

import asyncio

import pytest

from reprieve.engine.disruptions.lineage import LINEAGE_LABEL
from tests.idle.site import Object, Site, container, job, pod

_ROUNDS = 8


def _made(kind: str, name: str, label: str) -> Object:
    made = (
        job(name, container(gpu=8), enabled="true")
        if kind == "Job"
        else pod(name, 8, enabled="true")
    )
    if label:
        template = made["spec"]["template"] if kind == "Job" else made
        template.setdefault("metadata", {})["labels"] = {LINEAGE_LABEL: f"{label}-{name}"}
    return made


@pytest.mark.parametrize("label", ["", "line"], ids=["alike", "labelled"])
@pytest.mark.parametrize("kind", ["Job", "Pod"])
async def test_two_that_come_again_displace_each_other_until_the_loop_is_held(
    site: Site, kind: str, label: str
) -> None:
    """Each is idle once it runs, and its owner makes it anew whenever it was evicted."""
    await site.run()
    await site.create(_made(kind, "one", label))
    await site.until_phase(f"{kind}/one", "Idle")
    turns = ["two", "one"]
    for number in range(_ROUNDS):
        name = turns[number % 2]
        await site.create(_made(kind, name, label))
        before = len(site.evictions())
        for _ in range(60):
            if len(site.evictions()) > before:
                break
            await asyncio.sleep(1)
        else:
            break
        await site.until_phase(f"{kind}/{name}", "Idle")
    # Twice each way, and then one of them waits.
    assert len(site.evictions()) in (3, 4), site.evictions()
    texts = await site.told()
    assert "PreemptionLoop" in texts or "PreemptionPairHeld" in texts
