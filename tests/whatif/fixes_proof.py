"""Plan, change what was submitted as the plan says first, submit, see it start.

Random clusters with nodes and flavors of two kinds, taints, and little room; of what is submitted
most asks for certain nodes. Where a plan says that it waits and names a change, the changed
manifests are submitted in place of the first ones, and have to start: with the quota plane alone,
to have their quota; else all that a gang or a Job needs has a node. Nothing else changes meanwhile.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec

from reprieve.engine.diagnosis.model import Fix
from reprieve.scenarios.model import NodeSpec
from reprieve.whatif.questions.answer import Answer
from reprieve.whatif.questions.changed import changed_by
from tests.quota_plane.site import cluster_queue, flavor, job, local_queue
from tests.quota_plane.site import priority_class as workload_class
from tests.scheduling.site import group, node, pod, priority_class
from tests.whatif.observing import STARTS, happened, seen
from tests.whatif.playing import Drawing, Object, Playground, playground
from tests.whatif.proof import GPU, PRIORITIES, gpu_job

__all__ = ["CONSTRAINED", "FixTally", "played_fixes"]

_TAINT = {"key": "team", "value": "other", "effect": "NoSchedule"}
_DISKS = ("fast", "slow")
_SELECTED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class FixCase:
    """What waits: the first change that is named for it, if any, and whether it starts with it."""

    where: str
    fix: Fix | None
    told: Sequence[tuple[str, str, str]]
    submitted: Sequence[Object]
    starts: bool


@dataclass
class FixTally:
    """How many changes were applied, by what was changed, and which did not help."""

    applied: Counter[str] = field(default_factory=Counter)
    failures: list[FixCase] = field(default_factory=list)
    without: int = 0

    def __iadd__(self, other: FixTally) -> FixTally:
        self.applied += other.applied
        self.failures += other.failures
        self.without += other.without
        return self

    def count(self, case: FixCase) -> None:
        """Count one case."""
        if case.fix is None:
            self.without += 1
            return
        self.applied[str(case.fix.change)] += 1
        self.failures += [] if case.starts else [case]


async def played_fixes(
    folder: Path,
    seed: int,
    planes: str,
    cases: int,
    *,
    drawing: Drawing | None = None,
    tell: Callable[[FixCase], None] = lambda case: None,
) -> FixTally:
    """Ask about so many submissions on one random cluster; apply what is said to help."""
    random = Random(f"fixes {planes} {seed}")
    tally = FixTally()
    async with playground(folder, random, planes, drawing or CONSTRAINED) as played:
        await played.at_rest()
        for number in range(cases):
            submitted = played.drawing.work(random, planes, f"s{number}")
            answer = await played.ask(submitted)
            fix = _first_fix(answer)
            wanted = submitted if fix is None else changed_by(fix, submitted)
            starts = await _starts(played, answer, wanted)
            if fix is not None or _waiting(answer):
                where = f"{planes} seed {seed} case {number}"
                told = [(e.name, str(e.verdict), e.message) for e in answer.outcomes]
                case = FixCase(where, fix, told, wanted, starts)
                tally.count(case)
                tell(case)
            await played.thin_out()
    return tally


def _waiting(answer: Answer) -> list[str]:
    return [each.name for each in answer.outcomes if each.reason]


def _first_fix(answer: Answer) -> Fix | None:
    for each in answer.outcomes:
        if each.diagnosis is not None and each.diagnosis.fixes:
            return each.diagnosis.fixes[0]
    return None


async def _starts(played: Playground, answer: Answer, wanted: Sequence[Object]) -> bool:
    """Submit, and tell whether it has started once the cluster is at rest.

    Until then it is busy, as a plan takes what starts to be: idle work is preempted at once for
    those that was preempted for it. Afterwards half of it is idle.
    """
    before = await seen(played.client)
    await played.submit(wanted)
    await played.at_rest()
    found = await happened(played, wanted, before)
    told = {(each.kind, each.name) for each in answer.outcomes}
    played.some_are_idle(wanted)
    return all(what == STARTS for kind, name, what in found.starts if (kind, name) in told)


def _nodes(random: Random, planes: str) -> Sequence[NodeSpec]:
    return [_node(random, number, planes) for number in range(random.randint(2, 4))]


def _node(random: Random, number: int, planes: str) -> NodeSpec:
    labels = {"disk": _DISKS[number % 2], "zone": random.choice("ab")}
    found = node(f"node-{number}", random.choice((3, 4, 6)), **labels)
    amounts = found.allocatable | ({GPU: "4"} if "idle" in planes else {})
    taints = [_TAINT] if number > 1 and random.random() < 0.5 else []
    return msgspec.structs.replace(found, allocatable=amounts, taints=taints)


def _base(random: Random, planes: str) -> Iterator[Object]:
    for name, value in PRIORITIES.items():
        never = random.random() < 0.1
        yield priority_class(name, value, "Never" if never else "PreemptLowerPriority")
    if "quota" not in planes:
        return
    for disk in _DISKS:
        taints = [_TAINT] if disk == "slow" and random.random() < 0.3 else []
        yield flavor(disk, nodeLabels={"disk": disk}, nodeTaints=taints)
    for number in range(2):
        preemption = {
            "withinClusterQueue": random.choice(("Never", "LowerPriority")),
            "reclaimWithinCohort": random.choice(("Never", "LowerPriority", "Any")),
        }
        cohort = "cohort" if random.random() < 0.6 else ""
        queue = cluster_queue(f"cq-{number}", 1, cohort, preemption=preemption)
        queue["spec"]["resourceGroups"] = [_quotas(random, planes)]
        yield queue
        yield local_queue(f"q-{number}", f"cq-{number}")
    for name, value in PRIORITIES.items():
        yield workload_class(f"w-{name}", value)


def _quotas(random: Random, planes: str) -> Object:
    """Return quota of both flavors, in a random order."""
    covered = ["cpu", *([GPU] if "idle" in planes else [])]
    flavors = [
        {
            "name": disk,
            "resources": [
                {"name": each, "nominalQuota": str(random.randint(1, 4))} for each in covered
            ],
        }
        for disk in random.sample(_DISKS, 2)
    ]
    return {"coveredResources": covered, "flavors": flavors}


def _submission(random: Random, planes: str, name: str) -> Sequence[Object]:
    priority = random.choice(list(PRIORITIES))
    kinds = ["job"] if "quota" in planes else []
    kinds += ["gpus"] if "idle" in planes else []
    kinds += ["pod", "gang"] if "scheduling" in planes else []
    cpu = random.randint(1, 4)
    match random.choice(kinds):
        case "pod":
            found = pod(name, cpu, priority=priority)
            _constrain(random, found["spec"], {"app": name})
            return [found]
        case "gang":
            count = random.randint(2, 4)
            mode = random.choice(("single", "all"))
            constraints: Object = {}
            _constrain(random, constraints, {"app": name})
            members = [
                pod(f"{name}-{i}", cpu, group=name, priority=priority, **copy.deepcopy(constraints))
                for i in range(count)
            ]
            head = group(name, min_count=random.randint(1, count), mode=mode, priority=priority)
            return [head, *members]
        case "gpus":
            found = gpu_job(random, name, priority, queued=random.random() < 0.7)
            _constrain(random, found["spec"]["template"]["spec"], {})
            return [found]
        case _:
            found = job(
                name,
                f"q-{random.randint(0, 1)}",
                priority=f"w-{priority}",
                pods=random.randint(1, 4),
                cpu=str(random.randint(1, 3)),
            )
            _constrain(random, found["spec"]["template"]["spec"], {})
            return [found]


def _constrain(random: Random, spec: Object, labels: dict[str, str]) -> None:
    """Ask for certain nodes, now and then; of pods with `labels`, for certain neighbours."""
    if random.random() < 0.4:
        spec["nodeSelector"] = {"disk": random.choice(_DISKS)}
    if random.random() < 0.15:
        spec.setdefault("nodeSelector", {})["zone"] = random.choice("abc")
    affinity: Object = {}
    if random.random() < 0.15:
        term = {"key": "disk", "operator": "In", "values": [random.choice(_DISKS)]}
        terms = [{"matchExpressions": [term]}]
        affinity["nodeAffinity"] = {_SELECTED: {"nodeSelectorTerms": terms}}
    own = {"matchLabels": labels}
    if labels and random.random() < 0.15:
        apart = {"labelSelector": own, "topologyKey": "disk"}
        affinity["podAntiAffinity"] = {_SELECTED: [apart]}
    if affinity:
        spec["affinity"] = affinity
    if labels and random.random() < 0.15:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": own,
            }
        ]


#: Work that asks for certain nodes, on little room.
CONSTRAINED = Drawing(_nodes, _base, _submission)
