"""Endless preemption through quota, while all that is displaced is made again under another name.

The report is kueue 14543: in one queue a small job reclaims what a gang of the other one borrows,
and a large one of its own queue takes its place, and has to give it back. What is displaced is
deleted and made again, as a CronJob does that replaces its Jobs, or by people who submit it anew
with the same label. Played by the whole operator on the embedded cluster; counted is of which
Workloads the API server was told that they are evicted.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from kubelocal.cluster import Stage, Write
from reprieve.kube.bodies import Propagation
from reprieve.kube.resource import Resource
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, OPERATOR_USER
from tests.operator_in_process import operator_of_this_time
from tests.ports import free_port
from tests.quota_plane.site import (
    JOBS,
    NAMESPACE,
    Object,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    priority_class,
    site,
)

CRON_JOBS: Final = Resource("batch", "v1", "cronjobs", "CronJob")
_RULES: Final = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
_QUEUES: Final = {"a": 1, "b": 2}
#: Pods of one cpu each, and the priority, by lineage; its queue is the first letter.
_LINES: Final = {"a-small": (1, "same"), "a-large": (3, "more"), "b-gang": (3, "same")}
_SETTINGS: Final = """\
quota:
  configuration:
    apiVersion: config.kueue.x-k8s.io/v1beta2
    kind: Configuration
    fairSharing: {preemptionStrategies: [LessThanInitialShare]}
"""
_QUIET_S: Final = 12.0
_PATIENCE_S: Final = 90.0
_MANY: Final = 20


def objects() -> list[Object]:
    queues = [
        each
        for name, cpu in _QUEUES.items()
        for each in (cluster_queue(name, cpu, "all", preemption=_RULES), local_queue(name, name))
    ]
    return [flavor(), priority_class("same", 1), priority_class("more", 2), *queues]


def line_of(workload: str) -> str:
    return workload.removeprefix("job-").partition(".")[0]


@dataclass
class Play:
    """Makes displaced work again. `evicted`: the Workloads that were, in their order."""

    cluster: Site
    returning: str
    owners: dict[str, str] = field(default_factory=dict)
    made: int = 0
    evicted: list[str] = field(default_factory=list)
    displaced: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    lines: list[str] = field(default_factory=list)

    async def on_write(self, write: Write, stage: Stage) -> None:
        if stage is not Stage.STORED or write.user != OPERATOR_USER:
            return
        _, _, path = write.path.partition("/workloads/")
        name = re.sub(r"[/?].*", "", path)
        said = b'"Evicted"' in write.body and b'"Preempted"' in write.body
        if name and said and name not in self.evicted:
            self.evicted.append(name)
            self.displaced.put_nowait(name)

    async def own(self) -> None:
        """Make the CronJobs; the garbage collector looks for them."""
        for name, (pods, _) in _LINES.items():
            template = {"spec": job(name, pods=pods)["spec"]}
            found = {**job(name), "kind": "CronJob"}
            found["spec"] = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": template}
            stored: Object = await self.cluster.client.create(CRON_JOBS, found, dict)
            self.owners[name] = stored["metadata"]["uid"]

    async def submit(self, line: str) -> None:
        """Make the next Job of a lineage."""
        self.made += 1
        pods, priority = _LINES[line]
        found = job(f"{line}.{self.made}", line[0], priority=priority, pods=pods)
        if self.returning == "label":
            found["metadata"]["labels"]["reprieve.dev/lineage"] = line
        else:
            owner: Object = {"apiVersion": "batch/v1", "kind": "CronJob", "name": line}
            owner |= {"uid": self.owners[line], "controller": True}
            found["metadata"]["ownerReferences"] = [owner]
        await self.cluster.client.create(JOBS, found, dict)

    async def replace(self) -> None:
        """Delete each Job that is evicted, and make the next one."""
        while True:
            workload = await self.displaced.get()
            name = workload.removeprefix("job-").rpartition("-")[0]
            await self.cluster.client.delete(
                JOBS, NAMESPACE, name, propagation=Propagation.BACKGROUND
            )
            await self.submit(line_of(workload))

    async def settles(self) -> bool:
        """Wait until nobody was evicted for a while, or very many were; return which."""
        loop = asyncio.get_running_loop()
        end, quiet, before = loop.time() + _PATIENCE_S, loop.time(), 0
        while loop.time() < end:
            if len(self.evicted) != before:
                before, quiet = len(self.evicted), loop.time()
            if before >= _MANY:
                return False
            if before and loop.time() - quiet > _QUIET_S:
                return True
            await asyncio.sleep(0.1)
        raise AssertionError(f"neither settled nor endless: {self.evicted}")

    async def who(self) -> Counter[tuple[str, str]]:
        """Return who was displaced for whom, of those that were evicted."""
        found = Counter[tuple[str, str]]()
        for record in await self.cluster.intents():
            for victim in record["spec"]["victims"]:
                assert victim["subject"]["name"] in self.evicted
                names = record["spec"]["preemptor"]["name"], victim["subject"]["name"]
                found[line_of(names[0]), line_of(names[1])] += 1
        return found


async def metric(port: int, name: str) -> list[str]:
    """Return the lines of a metric of the operator."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return [line for line in text.splitlines() if line.startswith(name)]


async def played(play: Play, folder: Path, port: int, settings: str) -> bool:
    """Begin the story, and return whether it settles; the operator is left running."""
    config = folder / "values.yaml"
    config.write_text(_SETTINGS + settings, encoding="utf-8")
    play.cluster.embedded.cluster.on_write = play.on_write
    await play.own()
    operator = operator_of_this_time(
        play.cluster.embedded.operator_kubeconfig,
        {"GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE},
        arguments=(
            *("--controllers", "quota", "--config", str(config)),
            *("--metrics-port", str(port)),
        ),
        on_line=play.lines.append,
    )
    await operator.start()
    replacing = asyncio.create_task(play.replace())
    try:
        for line in _LINES:
            await play.submit(line)
            await asyncio.sleep(1.1)  # API servers tell who was there first by the second
        settled = await play.settles()
        if settled:
            await all_are_told(play, port)
        return settled
    finally:
        replacing.cancel()
        await operator.stop()


async def all_are_told(play: Play, port: int) -> None:
    """See that who is in two pairs was told so, and that the pair of equals is held still.

    A strictly higher priority only waits between its tries, here for less than the quiet lasts.
    """
    told = {
        (line_of(about), line_of(note.split()[0].partition("/")[2]), line_of(note.split()[2][5:]))
        for kind, about, severity, reason, note in await play.cluster.events()
        if (kind, severity, reason) == ("Workload", "Warning", "PreemptionPairHeld")
        and "does not preempt the second before" in note
    }
    large, small = ("a-large", "a-small"), ("a-small", "b-gang")
    assert told == {(about, *pair) for pair in (large, small) for about in pair}
    held = await metric(port, "reprieve_quota_held_pair{")
    assert held == ['reprieve_quota_held_pair{first="other",second="other"} 1.0'], held
    (waits,) = [name for name in await play.cluster.workloads() if line_of(name) == "a-small"]
    said = (await play.cluster.conditions(waits))["QuotaReserved"]
    assert said[0] == "False"
    assert "Not preempted: 1 workload(s) that it displaced in turn, the first until" in said[2]


@pytest.mark.parametrize("returning", ["owner", "label"])
async def test_work_that_is_made_again_under_other_names_settles_and_all_are_told(
    returning: str, tmp_path: Path
) -> None:
    async with site(tmp_path, *objects(), start=False) as cluster:
        play = Play(cluster, returning)
        assert await played(play, tmp_path, free_port(), ""), play.evicted
        # The large one has a strictly higher priority and got its quota the first time: in vain
        # were two. Of equals nobody is displaced for the same one more often than the limit.
        assert await play.who() == {
            ("a-large", "a-small"): 3,
            ("a-small", "b-gang"): 2,
            ("b-gang", "a-large"): 1,
        }
        assert len(play.evicted) == 6
        assert play.made == len(_LINES) + 6


@pytest.mark.slow
async def test_work_that_is_made_again_under_other_names_goes_in_circles_without_the_governor(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, *objects(), start=False) as cluster:
        play = Play(cluster, "owner")
        settled = await played(play, tmp_path, free_port(), "governor: {loopLimit: 0}\n")
        assert not settled and len(play.evicted) >= _MANY
