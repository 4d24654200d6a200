"""Plan, submit, compare: random clusters and manifests on the embedded cluster.

Nothing else changes between the plan and the submission, so that what happens is what was planned:
what starts, who is preempted, and where pods run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random

import msgspec

from reprieve.scenarios.model import NodeSpec
from reprieve.units.errors import ReprieveError
from reprieve.whatif.questions.answer import Answer
from tests.idle.site import PREFIX
from tests.quota_plane.site import cluster_queue, flavor, job, local_queue
from tests.quota_plane.site import priority_class as workload_class
from tests.scheduling.site import group, node, pod, priority_class
from tests.whatif.observing import STARTS, Happened, happened, planned, seen
from tests.whatif.playing import Drawing, Object, Playground, playground

__all__ = ["GPU", "PLAIN", "PRIORITIES", "Case", "Tally", "gpu_job", "proven", "with_gpus"]

PRIORITIES = {"low": 100, "middle": 1000, "high": 10_000}
GPU = "amd.com/gpu"


@dataclass(frozen=True)
class Case:
    """One submission: where it was played, what was planned and what happened."""

    where: str
    submitted: Sequence[Object]
    verdict: str
    told: Sequence[tuple[str, str, str]]
    plan: Happened
    real: Happened

    @property
    def differs(self) -> bool:
        return self.plan != self.real


@dataclass
class Tally:
    """What was compared, by verdict, and what differed; `tell` is called with each as it comes."""

    tell: Callable[[Case], None]
    verdicts: Counter[str] = field(default_factory=Counter)
    differences: list[Case] = field(default_factory=list)

    def count(self, case: Case) -> None:
        """Count one case."""
        self.verdicts[case.verdict] += 1
        self.differences += [case] if case.differs else []
        self.tell(case)


async def proven(
    folder: Path,
    seed: int,
    planes: str,
    cases: int,
    *,
    drawing: Drawing | None = None,
    tell: Callable[[Case], None] = lambda case: None,
) -> Tally:
    """Play so many submissions on one random cluster, and compare each."""
    random = Random(f"{planes} {seed}")
    tally = Tally(tell)
    async with playground(folder, random, planes, drawing or PLAIN) as played:
        await _taken(played)
        for number in range(cases):
            submitted = played.drawing.work(random, planes, f"s{number}")
            where = f"{planes} seed {seed} case {number}"
            tally.count(await _played(played, where, submitted))
            await played.thin_out()
    return tally


async def _played(played: Playground, where: str, submitted: Sequence[Object]) -> Case:
    """Plan one submission, submit it, and return both."""
    answer: Answer | ReprieveError
    try:
        answer = await played.ask(submitted)
    except ReprieveError as refusal:
        answer = refusal
    before = await seen(played.client)
    at_once = played.drawing.idle_at_once
    # A grace period is over by the next submission.
    busy = partial(played.random.choice, (0.0, 90.0)) if at_once else lambda: 90.0
    await played.submit(submitted, busy)
    await played.at_rest()
    real = await happened(played, submitted, before)
    if not at_once:
        played.some_are_idle(submitted)
        # Whoever waited for them makes them go, which is not for what comes next.
        await played.at_rest()
    return _case(where, submitted, answer, real)


def _case(
    where: str, submitted: Sequence[Object], answer: Answer | ReprieveError, real: Happened
) -> Case:
    """Return a case; of what is told in one with its group no start is compared.

    What a plan refuses is refused as a whole, and on the cluster at least one document of it.
    """
    plan = planned(answer, submitted)
    if isinstance(answer, ReprieveError):
        plan = real if any(what != STARTS for _, _, what in real.starts) else plan
        return Case(where, submitted, "Refused", [("", "", str(answer))], plan, real)
    told = [(each.name, str(each.verdict), each.message) for each in answer.outcomes]
    named = {(kind, name) for kind, name, _ in plan.starts}
    starts = tuple(each for each in real.starts if each[:2] in named)
    real = replace(real, starts=starts)
    return Case(where, submitted, str(answer.verdict), told, plan, real)


async def _taken(played: Playground) -> None:
    """Take most of the room of a cluster with GPUs, by idle work among others."""
    random = played.random
    for number in range(len(played.nodes) if "idle" in played.planes else 0):
        first = gpu_job(random, f"f{number}", "low", queued=False)
        await played.submit([first], lambda: random.choice((0.0, 0.0, 90.0)))
    await played.at_rest()


def _nodes(random: Random, planes: str) -> Sequence[NodeSpec]:
    found = [node(f"node-{i}", random.choice((4, 6, 8))) for i in range(random.randint(2, 4))]
    if "idle" not in planes:
        return found
    return [msgspec.structs.replace(e, allocatable=e.allocatable | {GPU: "4"}) for e in found]


def _base(random: Random, planes: str) -> Iterator[Object]:
    for name, value in PRIORITIES.items():
        never = random.random() < 0.1
        yield priority_class(name, value, "Never" if never else "PreemptLowerPriority")
    if "quota" not in planes:
        return
    yield flavor()
    policies = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
    for number in range(random.randint(1, 3)):
        preemption = {
            "withinClusterQueue": random.choice(policies),
            "reclaimWithinCohort": random.choice(("Never", "LowerPriority", "Any")),
        }
        cohort = "cohort" if random.random() < 0.8 else ""
        queue = cluster_queue(f"cq-{number}", random.randint(2, 6), cohort, preemption=preemption)
        if "idle" in planes:
            with_gpus(queue, random.randint(4, 12))
        yield queue
        yield local_queue(f"q-{number}", f"cq-{number}")
    for name, value in PRIORITIES.items():
        yield workload_class(f"w-{name}", value)


def with_gpus(queue: Object, gpus: int) -> None:
    """Give a ClusterQueue quota of GPUs, too."""
    (group,) = queue["spec"]["resourceGroups"]
    group["coveredResources"].append(GPU)
    group["flavors"][0]["resources"].append({"name": GPU, "nominalQuota": str(gpus)})


def _submission(random: Random, planes: str, name: str) -> Sequence[Object]:
    priority = random.choice(list(PRIORITIES))
    kinds = ["job"] if "quota" in planes else []
    kinds += ["gpus"] * 3 if "idle" in planes else []
    kinds += ["pod", "gang"] if "scheduling" in planes else []
    cpu = random.randint(1, 4)
    match random.choice(kinds):
        case "pod":
            return [pod(name, cpu, priority=priority)]
        case "gang":
            count = random.randint(2, 4)
            least = random.randint(1, count)
            mode = random.choice(("single", "all"))
            members = (pod(f"{name}-{i}", cpu, group=name, priority=priority) for i in range(count))
            return [group(name, min_count=least, mode=mode, priority=priority), *members]
        case "gpus":
            return [gpu_job(random, name, priority, queued=random.random() < 0.5)]
        case _:
            queue = f"q-{random.randint(0, 2)}"
            body = job(
                name,
                queue,
                priority=f"w-{priority}",
                pods=random.randint(1, 3),
                cpu=str(random.randint(1, 2)),
                suspend=random.random() < 0.7,
            )
            return [body]


def gpu_job(random: Random, name: str, priority: str, *, queued: bool) -> Object:
    """Return a Job with GPUs, queued or not, that mostly opts in."""
    body = job(
        name,
        f"q-{random.randint(0, 2)}",
        priority=f"w-{priority}",
        pods=random.randint(1, 2),
        suspend=queued,
    )
    if not queued:
        body["metadata"]["labels"] = {}
    if random.random() < 0.9:
        body["metadata"]["annotations"] = {f"{PREFIX}enabled": "true"}
    limits = {GPU: str(random.randint(2, 4))}
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "1", **limits}, "limits": limits}
    return body


#: Pods, gangs and queued Jobs.
PLAIN = Drawing(_nodes, _base, _submission, idle_at_once=True)
