"""Three planes of one operator on a real API server, killed at each write of a plan of two planes.

Deletions are counted from the API server's audit log, every one of them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import parse_instant
from reprieve.api.reprieve import Preemption
from reprieve.kube.bodies import Propagation
from reprieve.kube.client import Client
from reprieve.kube.errors import NotFound
from reprieve.kube.resource import GPU_WORKLOADS, PREEMPTIONS
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.stage import Stage
from tests.integration.audited_planes import (
    create,
    decided,
    every_eviction,
    runs,
    until,
    use,
)
from tests.integration.control_plane import ControlPlane
from tests.integration.dying_operator import WHERE
from tests.together.site import KINDS, deployment, job, node

pytestmark = pytest.mark.usefixtures("with_pod_groups")

#: Of the two evictions: the records of both planes, their progress, and the marks of the victims.
_FEWEST: Final = 8


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["before", "stored"])
async def test_nobody_goes_twice_or_in_vain_at_every_write_that_the_process_is_killed_at(
    audited: ControlPlane, tmp_path: Path, stage: str
) -> None:
    """Idle work by one plane and lower priorities by another, for one demand after the other."""
    file, write = tmp_path / "dies", 0
    given = (audited, tmp_path, (node("n0"),), {"a": 8, "b": 0})
    module = "tests.integration.dying_operator"
    async with decided(*given, module=module, variables={WHERE: str(file)}) as (
        place,
        client,
        operator,
    ):
        died = True
        while died:
            write += 1
            died = await _died(place, client, operator, tmp_path, f"{write} {stage}")
    print(f"killed at {write - 1} writes, {stage}")
    assert write > _FEWEST


async def _died(
    place: Stage, client: Client, operator: OperatorProcesses, folder: Path, dies_at: str
) -> bool:
    """Play one demand from an empty cluster to an empty one; whether the process was killed."""
    number, file = dies_at.partition(" ")[0], folder / "dies"
    ann, bob, stays, wanted = (f"{name}{number}" for name in ("ann", "bob", "stays", "wanted"))
    idle = deployment(ann, "b", priority="high")
    units = [
        idle,
        job(bob, "b", gpus=2, opted=False),
        job(stays, "b", gpus=2, priority="high", opted=False),
    ]
    for unit in units:
        await create(client, place, unit)

    async def running(*names: str) -> bool:
        if not operator.pids:
            await operator.start()
        return await runs(client, *names)

    await until("all run", lambda: running(ann, bob, stays))
    use(place, idle, 0.0)
    await until("the grace is over", lambda: _is_idle(client, ann))
    before = len(every_eviction(folder))
    file.write_text(dies_at, encoding="utf-8")
    demand = job(wanted, "a", gpus=6, priority="high")
    await create(client, place, demand)

    async def settled() -> bool:
        return await running(wanted, stays) and await _closed(client)

    await until(f"it runs and its records are closed, killed at {dies_at}", settled)
    died = not file.exists()
    file.unlink(missing_ok=True)
    gone = Counter(each.name.partition("-")[0] for each in every_eviction(folder)[before:])
    assert gone == {ann: 1, bob: 1}, f"killed at {dies_at}"
    for unit in [*units, demand]:
        for each in unit:
            await _removed(client, each["kind"], each["metadata"])
    await until("nobody is there", lambda: _empty(client))
    return died


async def _removed(client: Client, kind: str, metadata: dict[str, str]) -> None:
    whole = Propagation.BACKGROUND
    try:
        await client.delete(KINDS[kind], metadata["namespace"], metadata["name"], propagation=whole)
    except NotFound:
        return  # it was evicted


async def _empty(client: Client) -> bool:
    return not (await client.list(KINDS["Pod"], dict)).items


async def _closed(client: Client) -> bool:
    found = (await client.list(PREEMPTIONS, Preemption)).items
    return bool(found) and not any(each.status.phase.open for each in found)


async def _is_idle(client: Client, unit: str) -> bool:
    """Tell whether a unit has been idle for longer than its grace period."""
    now = SystemClock().wall()
    for found in (await client.list(GPU_WORKLOADS, dict)).items:
        since = (found.get("status") or {}).get("idleSince")
        if since and unit in found["metadata"]["name"]:
            return now - parse_instant(since) > 6 * SECOND
    return False
