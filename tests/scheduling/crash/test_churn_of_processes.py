"""Promise 4 over churn with processes that are killed: a victim is evicted in one record.

`faults/test_churn.py` plays the same in one process and virtual time. Here the operator is a
process, and dies by SIGKILL before, at and after writes drawn at random, so that what it had on
the way is lost as in a cluster. Who was deleted is counted by the server, and compared with the
records. A pod that ends by itself while no process runs is taken for evicted by the plan that names
it, as nobody can tell it any more; of others the records say what the server counted.

The same churn notices each rule that is broken on purpose (`broken_rule`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from kubelocal.cluster import Stage, Write
from reprieve.kube.errors import NotFound
from reprieve.kube.resource import PODS
from reprieve.scenarios.operator import OperatorProcesses
from tests.scheduling.crash.broken_rule import RULES
from tests.scheduling.site import (
    NAMESPACE,
    POD_GROUPS,
    Object,
    Site,
    group,
    node,
    pod,
    priority_class,
    site,
)

pytestmark = pytest.mark.real_time  # operators are processes of their own

_NODES, _CPUS = 4, 4
_PRIORITIES = {"low": 1_000, "middle": 10_000, "high": 100_000}
_STEP_S = 0.1
_MOST_STEPS = 1_500
#: What has to come before a run may end.
_KILLS, _EVICTED, _NAMED_TWICE = 4, 20, 1
_LIFE = 12  # steps that work of middle or high priority runs


@dataclass
class Churn:
    """One run. `ages`: steps since work that leaves by itself came to its nodes.

    `by_itself`: uids of pods that ended without having been evicted. `broken`: a rule that the
    operator lacks.
    """

    cluster: Site
    random: Random
    broken: str = ""
    by_itself: set[str] = field(default_factory=set)
    operator: OperatorProcesses | None = None
    kills: int = 0
    died_at: Counter[str] = field(default_factory=Counter)
    dead: bool = True
    calm: bool = False
    number: int = 0
    work: dict[str, int] = field(default_factory=dict)  # units by name: how many pods
    ages: Counter[str] = field(default_factory=Counter)

    async def at_write(self, write: Write, stage: Stage) -> None:
        """Die now and then; more often where a victim is about to go, or has just gone."""
        if self.dead or self.calm or self.operator is None:
            return
        delicate = "preemptions" in write.path or (
            write.verb == "delete" and "/pods/" in write.path
        )
        if self.random.random() < (0.04 if delicate else 0.002):
            self.dead = True
            self.kills += 1
            self.died_at[f"{write.verb} {stage.name}"] += 1
            for pid in self.operator.pids:
                os.kill(pid, signal.SIGKILL)

    async def _start(self) -> None:
        await self.cluster.free_leases()
        self.operator = await (
            self.cluster.operator_process(
                module="tests.scheduling.crash.broken_rule",
                environment={"BROKEN_RULE": self.broken},
            )
            if self.broken
            else self.cluster.operator_process()
        )
        self.dead = False

    async def step(self) -> None:
        if self.dead:
            await self._start()
        pods = await self.cluster.pods()
        self._arrive(pods)
        await self.cluster.run()
        leaving = [name for name, each in pods.items() if each["metadata"].get("deletionTimestamp")]
        gone = [name for name in leaving if self.random.random() < 0.3]
        if gone:
            await self.cluster.end(*gone)
        await self._leave(pods)
        for objects in self._coming:
            await self.cluster.create(*objects)
        await asyncio.sleep(_STEP_S)

    def _arrive(self, pods: dict[str, Object]) -> None:
        self._coming: list[list[Object]] = []
        staying = [each for each in pods.values() if not each["metadata"].get("deletionTimestamp")]
        low = sum(each["metadata"]["name"].startswith("low") for each in staying)
        for _ in range(low, _NODES * _CPUS // 2):
            self.number += 1
            self._coming.append([pod(f"low-{self.number}", 2, priority="low")])
        if len(self.work) < 3 and self.random.random() < 0.4:
            self.number += 1
            priority = self.random.choice(("middle", "high", "high"))
            name, size = f"{priority}-{self.number}", self.random.choice((1, 2, 3))
            mode = self.random.choice(("single", "all"))
            members = [pod(f"{name}-{i}", 2, group=name, priority=priority) for i in range(size)]
            gang = group(name, min_count=size, mode=mode, priority=priority)
            self._coming.append([gang, *members])
            self.work[name] = size

    async def _leave(self, pods: dict[str, Object]) -> None:
        """Let work that has run, or was evicted, go; whoever is a victim goes as victims do."""
        for name, size in list(self.work.items()):
            members = [f"{name}-{i}" for i in range(size)]
            there = [pods[each] for each in members if each in pods]
            placed = [each for each in there if each["spec"].get("nodeName")]
            self.ages[name] += len(placed) == size or 0 < len(there) < size
            if self.ages[name] > _LIFE or (self.ages[name] and not there):
                victims = {
                    each["metadata"]["name"]
                    for each in there
                    if each["metadata"].get("deletionTimestamp")
                }
                del self.work[name]
                leaving = {pods[each]["metadata"]["uid"] for each in set(members) & pods.keys()}
                self.by_itself |= leaving
                await self.cluster.end(*(set(members) & pods.keys() - victims) or {name})
                with contextlib.suppress(NotFound):
                    await self.cluster.client.delete(POD_GROUPS, NAMESPACE, name)

    async def finish(self) -> None:
        """Let everything that was begun come to its end, without more deaths."""
        self.calm = True
        if self.dead:
            await self._start()
        for name, each in (await self.cluster.pods()).items():
            if name.startswith(("middle", "high")):
                self.by_itself.add(each["metadata"]["uid"])
                with contextlib.suppress(NotFound):
                    await self.cluster.client.delete(PODS, NAMESPACE, name, grace_seconds=0)

        async def settled() -> bool:
            await self.cluster.end()
            phases = {
                (each.get("status") or {}).get("phase") for each in await self.cluster.intents()
            }
            return phases <= {"Completed", "Abandoned"}

        await self.cluster.until("every record is closed", settled)


async def churned(seed: int, folder: Path, broken: str = "") -> None:
    nodes = [node(f"node-{number}", _CPUS) for number in range(_NODES)]
    async with site(nodes, folder) as cluster:
        for name, value in _PRIORITIES.items():
            await cluster.create(priority_class(name, value))
        churn = Churn(cluster, Random(seed), broken)
        cluster.hook = churn.at_write
        named: Counter[str] = Counter()
        for step in range(_MOST_STEPS):
            await churn.step()
            if step % 20 or churn.kills < _KILLS or len(cluster.deleted) < _EVICTED:
                continue
            named = named_in(await cluster.intents())
            if sum(times > 1 for times in named.values()) >= _NAMED_TWICE:
                break
        await churn.finish()
        intents = await cluster.intents()
    named = named_in(intents)
    evicted = Counter(
        victim["uid"]
        for intent in intents
        for victim in intent["status"].get("victims") or ()
        if victim["state"] == "Evicted"
    )
    deleted = cluster.deleted
    print(
        f"{churn.kills} kills at {dict(churn.died_at)}, {len(intents)} records, "
        f"{len(deleted)} deleted, {len(evicted)} evicted, "
        f"{sum(times > 1 for times in named.values())} named in several records"
    )
    assert set(deleted.values()) == {1}, "a pod was deleted twice"
    assert deleted.keys() <= named.keys(), "a pod was deleted without a record"
    assert set(evicted.values()) == {1}, "a victim is evicted in two records"
    assert deleted.keys() <= evicted.keys() <= deleted.keys() | churn.by_itself, (
        "the records and the server differ"
    )
    assert churn.kills >= _KILLS and len(deleted) >= _EVICTED, "too little came"


def named_in(intents: list[Object]) -> Counter[str]:
    """Return how many records name each victim."""
    return Counter(
        uid
        for intent in intents
        for uid in {victim["root"]["uid"] for victim in intent["spec"]["victims"]}
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9))
async def test_a_victim_is_evicted_in_one_record_however_often_the_process_dies(
    seed: int, tmp_path: Path
) -> None:
    await churned(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
async def test_a_rule_that_is_broken_is_noticed(rule: str, tmp_path: Path) -> None:
    _, said = RULES[rule]
    with pytest.raises(AssertionError, match=said):
        await churned(1, tmp_path, rule)
