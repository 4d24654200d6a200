"""Random clusters for the engine and the oracle, and what both have to say in the same way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

from tests.engine.api_objects import Json
from tests.engine.scheduling import engine_cycle
from tests.oracle.scheduling import group, units
from tests.oracle.scheduling.clusters import random_cluster
from tests.oracle.scheduling.group import Outcome
from tests.oracle.scheduling.objects import Cluster, key_of
from tests.oracle.scheduling.situations import PREEMPTOR_PRIORITY

#: Shares of a chunk of random cases that have to be of each kind.
LEAST = {"preempting": 0.2, "refused": 0.08, "bound": 0.08, "tied": 0.1, "reprieved": 0.15}


def sound(case: Json) -> Json:
    """The case as the oracle judges it: a reprieve runs every filter of every member."""
    return {**case, "everyFilterAtReprieve": True}


def judged(case: Json) -> Outcome:
    return group.cycle(sound(case))


def plain(case: Json, outcome: Outcome) -> object:
    """An outcome without what either side leaves open: the order of pods inside a unit."""
    choice = outcome.choice
    if choice is None:
        return outcome
    cluster = Cluster.of(case)

    def by_unit(victims: Iterable[str]) -> list[str]:
        victims = list(victims)
        gone = [units.group_of(pod, cluster) for pod in cluster.live if key_of(pod) in victims]
        # Where groups may be torn, those that go to the last pod may have gone as one.
        whole = [
            key_of(group)
            for group in gone
            if case.get("nonUniformGroups")
            and group is not None
            and {key_of(p) for p in units.members_placed(group, cluster)} <= set(victims)
        ]
        number = {
            key_of(pod): index
            for index, unit in enumerate(units.units_with(cluster.live, cluster.together(whole)))
            for pod in unit.pods
        }
        return [key for _, run in groupby(victims, number.__getitem__) for key in sorted(run)]

    candidates = [
        (each.node, by_unit(map(key_of, each.victims)), each.violations, each.disruptions)
        for each in sorted(choice.candidates, key=lambda each: each.node)
    ]
    return outcome._replace(choice=None), (
        choice.code,
        choice.message,
        by_unit(choice.victims),
        choice.nominated,
        choice.violations,
        choice.disruptions,
        candidates,
        dict(choice.refused_nodes),
    )


def disagreement(case: Json, judgement: Outcome | None = None) -> str:
    """What the engine says otherwise than the oracle, empty when they agree."""
    expected = plain(case, judged(case) if judgement is None else judgement)
    got = plain(case, engine_cycle.cycle(case))
    if got == expected:
        return ""
    return f"seed {case['seed']} ({case['situations']}):\n expected {expected}\n got      {got}"


def kinds(case: Json, outcome: Outcome) -> set[str]:
    """What is interesting about a case."""
    choice = outcome.choice
    if choice is None:
        return {"bound"} if outcome.bound else {"not tried"}
    if choice.code != "Success":
        return {"refused"}
    found = {"preempting"} if choice.victims else {"without victims"}
    every = units.cluster_units(Cluster.of(case))
    lower = [u for u in every if u.priority < PREEMPTOR_PRIORITY]
    if len({units.importance(u)[:-1] for u in lower}) < len(lower) or len(choice.winners) > 1:
        found.add("tied")
    if sum(key_of(u.pods[0]) in choice.victims for u in every) < len(lower):
        found.add("reprieved")
    return found


def assert_interesting(cases: Iterable[tuple[Json, Outcome]]) -> None:
    """Fail when too few of the cases contain what they are generated for."""
    listed = list(cases)
    counts = Counter(kind for case, outcome in listed for kind in kinds(case, outcome))
    enough = {kind: part * len(listed) for kind, part in LEAST.items()}
    lacking = {kind: counts[kind] for kind, least in enough.items() if counts[kind] < least}
    assert lacking == {}, f"of {len(listed)} cases"


def cases_of(seeds: Iterable[int]) -> list[Json]:
    return [random_cluster(seed) for seed in seeds]
