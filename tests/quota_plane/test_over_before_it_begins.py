"""A plan whose victims have ended since it was made costs nobody anything, not even a record."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.planes.quota.deciding.preemptions import Preemptions
from reprieve.planes.quota.state import key_of
from tests.quota_plane.site import NAMESPACE, WORKLOADS, Site, job, site
from tests.quota_plane.test_jobs import LOWER, base


async def _finish(cluster: Site, name: str) -> None:
    held = (await cluster.workloads())[name]
    over = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
    over["lastTransitionTime"] = held["metadata"]["creationTimestamp"]
    conditions = [*held["status"]["conditions"], over]
    await cluster.client.patch(
        WORKLOADS,
        NAMESPACE,
        held["metadata"]["name"],
        {"status": {"conditions": conditions}},
        dict,
        subresource="status",
    )


@pytest.mark.parametrize("all_end", [True, False])
async def test_a_plan_is_recorded_only_while_a_victim_of_it_holds_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_end: bool
) -> None:
    carry = Preemptions.carry
    begun: list[str] = []
    carried: list[str] = []
    unrecorded: list[bool] = []
    tasks: list[asyncio.Task[None]] = []

    async def look(preemptions: Preemptions, preemptor: str) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        unrecorded.append(preemptor in preemptions._state.queues.unrecorded)

    async with site(tmp_path, *base(4, preemption=LOWER)) as cluster:

        async def after_the_end(preemptions: Preemptions, plan: Any, *rest: Any) -> set[str]:
            if not begun:
                begun.append(plan.id)
                ended = ("low-0", "low-1") if all_end else ("low-0",)
                for name in ended:
                    await _finish(cluster, name)

                async def seen() -> bool:
                    found = [await cluster.conditions(name) for name in ended]
                    return all("Finished" in each for each in found)

                await cluster.until("the end was seen", seen)
                await cluster.clock.sleep(SECOND)  # the plane's watch, too
                pauses = preemptions._state.queues.unrecorded
                pauses.hold(key_of(rest[0]), Nanos(0))
            failed = await carry(preemptions, plan, *rest)
            if not carried:
                tasks.append(asyncio.create_task(look(preemptions, key_of(rest[0]))))
            carried.append(plan.id)
            return failed

        await cluster.create(*(job(f"low-{i}", priority="low", pods=2) for i in range(2)))
        await cluster.until_admitted("low-0", "low-1")
        monkeypatch.setattr(Preemptions, "carry", after_the_end)
        await cluster.create(job("high", priority="high", pods=4))

        async def served() -> object:
            return carried and "high" in await cluster.admitted()

        await cluster.until("it got quota", served)
        planned = [each["spec"]["planId"] for each in await cluster.intents()]
        assert (begun[0] in planned) is not all_end
        assert len(planned) <= 1
        assert unrecorded == [all_end], "only who is recorded begins anew with its pauses"
