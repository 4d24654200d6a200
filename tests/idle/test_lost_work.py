"""The idle plane counts the work that its victims lose, by the rules of its records."""

from __future__ import annotations

import re

import aiohttp

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from tests.idle.site import Operator, Site, pod
from tests.virtual_time import LoopClock

CHECKPOINT = "reprieve.dev/last-checkpoint"
_LOST = re.compile(r'reprieve_lost_device_seconds_total\{plane="idle",reason="([^"]*)"\} (\S+)')


def ago(clock: LoopClock, seconds: int) -> str:
    return format_instant(Nanos(clock.wall() - seconds * SECOND))


async def lost(operator: Operator) -> dict[str, float]:
    """Device-seconds by reason."""
    (port, *_) = [m[1] for line in operator.lines if (m := re.search(r"on port (\d+)", line))]
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://localhost:{port}/metrics") as response,
    ):
        return {reason: float(value) for reason, value in _LOST.findall(await response.text())}


async def test_lost_work_counts_from_the_checkpoint_or_the_start(site: Site) -> None:
    clock = LoopClock()  # the true time may be far behind what the planes count
    began = clock.wall()
    await site.create(
        pod("saved", 4, policy="Always", **{CHECKPOINT: ago(clock, 600)}),
        pod("silent", 2, policy="Always"),
    )
    for name in ("saved", "silent"):

        async def runs(name: str = name) -> bool:
            found = await site.get("pods", name)
            return found is not None and found["status"].get("phase") == "Running"

        await site.until(runs)
        await site.patch(
            "pods", name, {"status": {"startTime": ago(clock, 3_600)}}, subresource="status"
        )
    operator = await site.run()
    for name in ("saved", "silent"):
        await site.until_phase(f"Pod/{name}", "Preempted")
    least = 4 * 600 + 2 * 3_600

    async def counted() -> bool:
        return sum((await lost(operator)).values()) >= least

    await site.until(counted)
    found = await lost(operator)
    took = (clock.wall() - began) / SECOND
    assert sum(found.values()) <= least + 6 * (took + 2)
    records = await site.records()
    assert set(found) == {v["rule"] for record in records for v in record["spec"]["victims"]}
