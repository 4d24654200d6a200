"""A step that `explain` offers with "it starts" starts the work, as a plan of it states."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from reprieve.answers.asking import answer
from reprieve.answers.decided import Decided
from reprieve.answers.diagnosing import PlanesOfSnapshot
from reprieve.answers.document import Answer, State
from reprieve.answers.kinds import asked_of
from reprieve.answers.sources import SnapshotSource
from reprieve.answers.unit import Unit
from reprieve.cli.sessions.deciding import deciders_of
from reprieve.engine.diagnosis.model import Change, Fix
from reprieve.engine.plan import Plane
from reprieve.kube.resource import NODES
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.questions.answer import Verdict
from reprieve.whatif.questions.changed import Unwritable, changed_by
from reprieve.whatif.questions.planning import planned
from reprieve.whatif.run import settled
from reprieve.whatif.snapshots.snapshot import Unseen
from tests.situations.asked import served
from tests.whatif.plan_stories import QUOTA, Object, job, node, pod, priority, queue, submitted
from tests.whatif.test_kinds import snapshot

OTHER = "volcano"
ONE_POD = "With spec.parallelism 1 instead of 4 and with spec.completions 1 instead of 4"
STARTS = (Verdict.STARTS, Verdict.STARTS_WITH_VICTIMS)
CLASSES = (priority("low", 100), priority("high", 1000))


class Asked:
    """What `explain` answers about work that was submitted to a cluster at rest."""

    def __init__(
        self,
        controllers: str,
        there: Sequence[Object],
        wanted: Sequence[Object],
        before: Sequence[Sequence[Object]] = (),
        *,
        nodes: bool = True,
    ) -> None:
        """Submit `before` in waves, then `wanted`; without `nodes` none may be listed."""
        self.deciders = deciders_of(controllers, (), {})
        self.every = deciders_of(f"{controllers},scheduling", ("default-scheduler", OTHER), {})
        held = served(snapshot(self.every, *QUOTA, *CLASSES, *there))
        for wave in before:
            held = settled(held, self.every, submitted(wave)).overlay.frozen()
        self.before, self.wanted, self.tried = held, wanted, list[Fix]()
        self.held = settled(held, self.every, submitted(wanted)).overlay.frozen()
        if not nodes:
            kinds = {k: v for k, v in self.held.kinds.items() if k != ("", "nodes")}
            self.held = replace(self.held, kinds=kinds, unseen=(Unseen(NODES, ()),))

    def explained(self) -> Answer:
        """Return the answer about the first of what was submitted."""

        async def diagnose(unit: Unit, plane: Plane) -> Decided | None:
            found = await PlanesOfSnapshot(self.held, self._deciders, trying=3_600.0)(unit, plane)
            if found is not None and found.diagnosis is not None:
                self.tried = [each for each in found.diagnosis.fixes if each.starts]
            return found

        first = self.wanted[0]
        name = f"{first['kind'].lower()}/{first['metadata']['name']}"
        question = asked_of(name)
        operator = "reprieve-system"
        found = answer(
            SnapshotSource(self.held),
            question,
            "team",
            operator_namespace=operator,
            diagnose=diagnose,
        )
        return asyncio.run(found)

    def _deciders(self, names: tuple[str, ...]) -> Deciders:
        return self.deciders

    def starts_with(self, fix: Fix) -> bool:
        """Return whether a plan of the changed work states that it starts, on nodes, too."""
        changed = changed_by(fix, self.wanted)
        found = asyncio.run(planned(None, self.before, self.every, submitted(changed), fixes=False))
        return found.verdict in STARTS


def steps(found: Answer) -> list[str]:
    assert found.state is State.WAITS, found
    return [each.text for each in found.next_steps]


def queued(name: str, pods: int, gpus: int, scheduler: str, **spec: Any) -> Object:
    found = job(name, pods, gpus, "q", "low")
    found["spec"]["template"]["spec"] |= {"schedulerName": scheduler, **spec}
    return found


@pytest.mark.parametrize("controllers", ["quota", "quota,scheduling"])
@pytest.mark.parametrize("scheduler", ["default-scheduler", OTHER, "reprieve-scheduler"])
def test_fewer_pods_are_not_offered_where_none_fits_a_node_whichever_scheduler_places_them(
    controllers: str, scheduler: str
) -> None:
    wanted = queued("mine", 4, 8, scheduler)
    there = queue("cq", 8)
    no_place = steps(Asked(controllers, [there, node("n", 4)], [wanted]).explained())
    assert not [each for each in no_place if "starts" in each], no_place
    placed = steps(Asked(controllers, [there, node("n", 8)], [wanted]).explained())
    assert placed == [
        f"{ONE_POD} it starts.",
        "With 2 nvidia.com/gpu a pod instead of 8 it starts.",
    ]


def test_what_cannot_be_tried_on_nodes_is_offered_as_quota_alone() -> None:
    wanted = queued("mine", 4, 8, "default-scheduler")
    asked = Asked("quota", [queue("cq", 8), node("n", 4)], [wanted], nodes=False)
    untried = "it gets its quota; whether nodes accept its pods was not tried."
    assert steps(asked.explained()) == [
        f"{ONE_POD} {untried}",
        f"With 2 nvidia.com/gpu a pod instead of 8 {untried}",
    ]


def test_a_step_that_helps_one_pod_of_a_job_is_not_offered_for_the_job() -> None:
    """Each of its pods waits by itself: without the selector one of four gets a node."""
    wanted = job("mine", 4, 8)
    wanted["spec"]["template"]["spec"] |= {"nodeSelector": {"disk": "fast"}}
    few = Asked("scheduling", [node("n", 8)], [wanted])
    few.deciders = few.every
    assert not [each for each in steps(few.explained()) if "starts" in each]
    enough = Asked("scheduling", [node("n", 32)], [wanted])
    enough.deciders = enough.every
    assert steps(enough.explained()) == [
        "Without spec.template.spec.nodeSelector.disk (fast) it starts."
    ]


def drawn(random: Random) -> Asked:
    """Return what waits on a small random cluster, in a queue or before its nodes."""
    there = [queue("cq", random.randint(1, 5))]
    for number in range(random.randint(1, 3)):
        there.append(node(f"n{number}", random.choice((1, 2, 4)), disk=random.choice("ab")))
    scheduler = random.choice(("default-scheduler", OTHER))
    holders = [
        job(f"old-{n}", 1, random.randint(1, 2), random.choice(("q", "")), "low")
        for n in range(random.randint(0, 1))
    ]
    constraint = {"nodeSelector": {"disk": random.choice("abc")}} if random.random() < 0.3 else {}
    pods, gpus = random.randint(2, 4), random.randint(2, 4)
    if random.random() < 0.2:
        wanted = pod("mine", gpus, "low", **constraint, schedulerName=scheduler)
    else:
        wanted = queued("mine", pods, gpus, scheduler, **copy.deepcopy(constraint))
        if random.random() < 0.3:
            wanted["metadata"]["labels"], wanted["spec"]["suspend"] = {}, False
    asked = Asked("quota,scheduling", there, [wanted], [[each] for each in holders])
    if random.random() < 0.5:
        asked.deciders = asked.every
    return asked


def test_each_step_that_is_offered_makes_a_plan_state_that_it_starts() -> None:
    random, tried, places = Random("offered steps"), list[Change](), 0
    for number in range(45):
        asked = drawn(random)
        found = asked.explained()
        if found.state is not State.WAITS:
            continue
        for fix in asked.tried:
            if fix.change is Change.WAIT:
                continue
            try:
                starts = asked.starts_with(fix)
            except Unwritable:
                pytest.fail(f"{number}: {fix} states a start, and nobody could try it")
            assert starts, (number, fix, asked.wanted)
            tried.append(fix.change)
            places += asked.wanted[0]["kind"] == "Job"
    assert len(tried) >= 15, tried
    assert len(set(tried)) >= 3, tried
    assert places >= 10
