"""Promise 4, one decider: a leader that stood still for longer than its lease evicts nobody.

The operator is a process of its own, which is stopped (SIGSTOP) in its plans: at the record, and
after some of the victims were told to go. Somebody else takes its lease, and it goes on. What it
sends while the lease is another's is counted by the server. The same is noticed when the fence is
broken on purpose (`broken_rule`).
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kubelocal.cluster import Stage, Write
from kubeworld.units.clock import SystemClock
from kubeworld.units.instants import format_micro
from reprieve.kube.resource import LEASES
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from reprieve.scenarios.operator import OperatorProcesses
from tests.scheduling.crash.broken_rule import FENCE
from tests.scheduling.site import Site, node, pod, site

pytestmark = pytest.mark.real_time  # operators are processes of their own

_LEASE_S = 5
_NODES, _CPUS = 4, 8
#: After how many victims of a plan that were told to go; 0 is when its record is stored.
_MOMENTS = (0, 1, 5)
_MOST_ROUNDS = 8


@dataclass
class Round:
    """One leader that stands still, and what it sends under the lease of somebody else."""

    operator: OperatorProcesses
    after: int
    told: int = 0
    groups: tuple[int, ...] = ()
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    taken: bool = False
    late: list[str] = field(default_factory=list)

    async def at_write(self, write: Write, stage: Stage) -> None:
        deletes = write.verb == "delete" and "/pods/" in write.path
        binds = write.path.endswith("/binding")
        records = write.verb == "create" and write.path.endswith("/preemptions")
        if self.taken and stage is Stage.BEFORE and (deletes or binds or records):
            self.late.append(f"{write.verb} {write.path}")
        if stage is not Stage.STORED or self.stopped.is_set():
            return
        self.told += deletes
        if (deletes and self.told == self.after) or (records and not self.after):
            self.groups = tuple(self.operator.pids)
            for group in self.groups:
                os.killpg(group, signal.SIGSTOP)  # the keeper of its lease, too
            self.stopped.set()

    def go_on(self) -> None:
        for group in self.groups:
            os.killpg(group, signal.SIGCONT)


async def take_the_lease(cluster: Site) -> None:
    spec = {
        "holderIdentity": "somebody-else",
        "leaseDurationSeconds": 3_600,
        "renewTime": format_micro(SystemClock().wall()),
    }
    await cluster.client.patch(LEASES, OPERATOR_NAMESPACE, "reprieve", {"spec": spec}, dict)


async def went_on(after: int, folder: Path, broken: str = "") -> None:
    nodes = [node(f"node-{number}", _CPUS) for number in range(_NODES)]
    async with site(nodes, folder) as cluster:
        await cluster.classes()
        low = [pod(f"low-{i}", 2, priority="low") for i in range(_NODES * _CPUS // 2)]
        await cluster.create(*low)
        operator = await cluster.operator_process(
            lease=f"{_LEASE_S}s",
            module="tests.scheduling.crash.broken_rule" if broken else "reprieve",
            environment={"BROKEN_RULE": broken} if broken else None,
        )

        async def full() -> bool:
            return len(await cluster.placed()) == len(low)

        await cluster.until("all pods are placed", full)
        await cluster.run()
        round_ = Round(operator, after)
        cluster.hook = round_.at_write
        try:
            await cluster.gang(_NODES, _CPUS)
            async with asyncio.timeout(60):
                await round_.stopped.wait()
            # What was sent before it stood still arrives; then its lease runs out.
            await asyncio.sleep(_LEASE_S * 1.5)
            before = dict(cluster.deleted)
            await take_the_lease(cluster)
            round_.taken = True
        finally:
            round_.go_on()
        await asyncio.sleep(_LEASE_S)
        assert round_.late == [], "sent under the lease of somebody else"
        assert cluster.deleted == before
        assert len(before) < len(low), "everybody was gone before: nothing was left to do"


@pytest.mark.slow
@pytest.mark.parametrize("after", _MOMENTS)
async def test_a_leader_that_stood_still_evicts_nobody_under_the_lease_of_another(
    after: int, tmp_path: Path
) -> None:
    await went_on(after, tmp_path)


@pytest.mark.slow
async def test_a_fence_that_is_broken_is_noticed(tmp_path: Path) -> None:
    # Whether the process hears of its loss before it sends again is chance: the loss ends it.
    for number in range(_MOST_ROUNDS):
        try:
            (tmp_path / str(number)).mkdir()
            await went_on(1, tmp_path / str(number), FENCE)
        except AssertionError as noticed:
            assert "under the lease of somebody else" in str(noticed)
            return
    pytest.fail("nothing was sent late without a fence")
