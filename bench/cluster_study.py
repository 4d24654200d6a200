"""The jobs of a study as Jobs on a cluster, decided about by the real quota plane.

Its objects are those of `cluster_study_objects`. A pod runs for as long as the job, anew from the
beginning after it was displaced, and leaves at once: the work model without saves. What happens is
noted in the order in which the API server tells it: who gets quota, and who is preempted for whom.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

import msgspec

from bench.cluster_study_objects import (
    LOCAL_QUEUES,
    job_object,
    job_of,
    large_node,
    local_queue,
    priority_class,
    queue_objects,
)
from kubeworld.units.durations import MILLISECOND, SECOND
from reprieve.api.reprieve import Preemption
from reprieve.engine.placement.profile import Policy
from reprieve.kube.each_object import EachObject
from reprieve.kube.reflector import Reflector
from reprieve.kube.resource import NAMESPACES, PREEMPTIONS
from reprieve.planes.quota.context import QuotaOptions
from reprieve.settings.quota import QuotaSettings
from reprieve.shadow.candidate import Candidate
from reprieve.shadow.comparison import compared
from reprieve.simulation.replaying.lives import Admitted, Preempted, Replay
from reprieve.simulation.trace import Job
from tests.quota_plane.site import JOBS, WORKLOADS, Site, site
from tests.virtual_time import LoopClock, VirtualTimeLoop

__all__ = [
    "TENANTS",
    "Agreement",
    "Notes",
    "Played",
    "agreement",
    "played",
    "reproduced",
    "study_jobs",
    "virtually",
]

Object = dict[str, Any]
TENANTS: Final = ("a", "b", "c")


@dataclass
class Played:
    """What came of the jobs: who got quota, in order; who went for whom; and when all was over."""

    admitted: list[str] = field(default_factory=list)
    victims: list[tuple[str, str]] = field(default_factory=list)
    makespan_s: float = 0.0
    records: list[Object] = field(default_factory=list)

    @classmethod
    def of(cls, replay: Replay) -> Played:
        """Return the same of a replay."""
        found = cls(makespan_s=replay.ended / SECOND)
        for decision in replay.decisions:
            if isinstance(decision, Admitted):
                found.admitted.append(decision.job)
            elif isinstance(decision, Preempted):
                found.victims += [(decision.preemptor, each.job) for each in decision.victims]
        return found

    def note_records(self, records: Sequence[Object]) -> None:
        """Take victims from the Preemptions of a cluster, in the order of their decisions."""
        self.records = sorted(records, key=lambda each: each["spec"]["decidedAt"])
        self.victims = [
            (job_of(record["spec"]["preemptor"]), job_of(victim["subject"]))
            for record in self.records
            for victim in record["spec"]["victims"]
        ]


@dataclass(frozen=True)
class Agreement:
    """Shares of one: admissions that both have in the same order, and pairs of victims."""

    admissions: float
    victims: float
    makespan_off: float


def agreement(one: Played, other: Played) -> Agreement:
    """Compare what came of the same jobs.

    Admissions agree as far as they are a common subsequence; victims are compared with whom they
    went for, however often.
    """
    blocks = SequenceMatcher(None, one.admitted, other.admitted, autojunk=False)
    common = sum(block.size for block in blocks.get_matching_blocks())
    longest = max(len(one.admitted), len(other.admitted), 1)
    rest, same = list(other.victims), 0
    for pair in one.victims:
        if pair in rest:
            rest.remove(pair)
            same += 1
    pairs = max(len(one.victims), len(other.victims), 1)
    return Agreement(
        common / longest,
        same / pairs if one.victims or other.victims else 1.0,
        one.makespan_s / other.makespan_s - 1,
    )


def virtually(main: Callable[[], Any]) -> Any:
    """Run in virtual time, which passes only while nobody has anything to do."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main())


def study_jobs(number_of_jobs: int, seed: int = 0) -> list[Job]:
    """Return jobs that contend for 16 devices; they arrive seconds apart, as the API counts.

    Instants have fractions, so that no two things happen at one instant: which of them a cluster
    takes note of first is nobody's decision.
    """
    random, now, found = Random(seed), 0, []
    for number in range(number_of_jobs):
        found.append(
            Job(
                f"j{number}",
                now * SECOND + random.randrange(1_000) * MILLISECOND,
                random.choice((1, 1, 2, 4, 8)),
                random.randint(10_000, 400_000) * MILLISECOND,
                tenant=random.choice(TENANTS),
                priority=random.choice((0, 0, 100)),
            )
        )
        now += random.randint(2, 26)
    return found


def reproduced(records: Sequence[Object]) -> tuple[int, int]:
    """Return how many records give their own plan when they are decided again, and of how many."""
    found = [
        compared(msgspec.convert(each, Preemption), Candidate("as recorded"), _no_plugins)
        for each in records
    ]
    return sum(each.decided and each.reproduced for each in found), len(found)


def _no_plugins(_policy: Policy) -> tuple[dict[str, Any], dict[str, Any]]:
    return {}, {}


async def played(jobs: Sequence[Job], tenants: Sequence[str], devices: int, folder: Path) -> Played:
    """Submit the jobs to an embedded cluster at their arrivals; return what came of them."""
    # Between equals the uid decides: here, as in the replay, who was created first.
    numbers = count(1)
    ordered = patch("uuid.uuid4", lambda: UUID(int=next(numbers)))
    # As the operator and the replay have it: who displaces in vain is held.
    usual = QuotaSettings()
    options = QuotaOptions(loop_limit=usual.loop_limit, loop_window=usual.loop_window)
    nodes, objects = [large_node(devices)], queue_objects(tenants, devices)
    async with site(folder, *objects, nodes=nodes, options=options) as cluster:
        ordered.start()
        for tenant in tenants:
            await cluster.client.create(NAMESPACES, {"metadata": {"name": tenant}}, dict)
            await cluster.client.create(LOCAL_QUEUES, local_queue(tenant), dict)
        for name in sorted({job.priority or 0 for job in jobs}):
            await cluster.create(priority_class(name))
        notes = Notes()
        watching = asyncio.create_task(_watch(cluster, notes))
        await asyncio.sleep(5)
        began = asyncio.get_running_loop().time()
        # The API counts whole seconds, by which queues are ordered.
        began += 1 - LoopClock().wall() % SECOND / SECOND
        for job in jobs:
            await asyncio.sleep(
                max(0.0, began + job.arrival / SECOND - asyncio.get_running_loop().time())
            )
            await cluster.client.create(JOBS, job_object(job), dict)
        await notes.until_finished(len(jobs))
        found = notes.found
        found.makespan_s = asyncio.get_running_loop().time() - began
        found.note_records((await cluster.client.list(PREEMPTIONS, dict)).items)
        watching.cancel()
        ordered.stop()
        return found


class Notes:
    """Notes who gets quota and who has finished."""

    def __init__(self) -> None:
        self.found = Played()
        self._reserved: dict[str, bool] = {}
        self._finished: set[str] = set()
        self._changed = asyncio.Event()

    async def until_finished(self, count: int) -> None:
        while len(self._finished) < count:
            self._changed.clear()
            await self._changed.wait()

    def take(self, obj: Object) -> None:
        """Note what a Workload says now."""
        said = {
            each["type"]
            for each in (obj.get("status") or {}).get("conditions") or ()
            if each["status"] == "True"
        }
        name, uid = job_of(obj["metadata"]), obj["metadata"]["uid"]
        holds = "QuotaReserved" in said
        if holds and not self._reserved.get(uid) and "Finished" not in said:
            self.found.admitted.append(name)
        self._reserved[uid] = holds
        if "Finished" in said:
            self._finished.add(name)
            self._changed.set()


async def _watch(cluster: Site, notes: Notes) -> None:
    await Reflector(cluster.client, WORKLOADS, dict, EachObject(notes.take), LoopClock()).run()
