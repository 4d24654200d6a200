"""Idle work goes for a queued workload where that gives it quota and nodes, and no more of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.cycle import cycles
from reprieve.engine.quota.entries import Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    Configuration,
    Eviction,
    PodSet,
    QueueingStrategy,
    Workload,
)
from reprieve.engine.quota.release import (
    IdleUnit,
    NodeTest,
    PassedHalf,
    Promise,
    Release,
    Standing,
    release,
)
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.units.ids import Uid
from tests.engine.builders import GPU, node
from tests.quota.cases import NOW, SECOND
from tests.quota.test_loops import configuration, queue
from tests.quota.test_node_proof import LONG_AGO, LOWER, Site, running


def waiting(name: str, gpus: int, door: str = "a", **facts: Any) -> Workload:
    pod_sets = (PodSet("main", 1, {GPU: gpus}),)
    return replace(Workload("ns", name, name, f"ns/{door}", pod_sets=pod_sets), **facts)


def holding(name: str, gpus: int, door: str = "a", **facts: Any) -> Workload:
    pod_set = AdmittedPodSet("main", 1, {GPU: "gpus"}, {GPU: gpus})
    given = {"admission": Admission(door, (pod_set,)), "reserved_at": LONG_AGO, **facts}
    return waiting(name, gpus, door, **given)


def unit(name: str, gpus: int) -> IdleUnit:
    return IdleUnit(name, (f"ns/{name}",), (), gpus)


def standing(
    found: Configuration,
    workloads: Iterable[Workload],
    nodes: NodeTest | None = None,
    promised: Sequence[Promise] = (),
) -> Standing:
    holdings, queues = Holdings(found), Queues(found)
    for each in workloads:
        if each.admission is not None:
            holdings.hold(each)
        else:
            queues.push(each)
    return Standing(holdings, queues, nodes, promised, now=NOW)


def two_queues(first: int, second: int) -> Configuration:
    return configuration(queue("a", first, LOWER), queue("b", second, LOWER))


def test_the_oldest_idle_work_that_holds_what_lacks_goes() -> None:
    state = standing(
        two_queues(8, 0), [holding("old", 4), holding("young", 4), waiting("wanted", 4)]
    )
    found = release(state, "ns/wanted", [unit("old", 4), unit("young", 4)])
    assert found == Release(("old",))


def test_the_set_with_the_fewest_devices_goes() -> None:
    state = standing(
        two_queues(8, 0), [holding("large", 6), holding("small", 2), waiting("wanted", 2)]
    )
    found = release(state, "ns/wanted", [unit("large", 6), unit("small", 2)])
    assert found == Release(("small",))


def test_two_units_go_that_are_no_beginning_of_any_order() -> None:
    sizes = {"a": 4, "b": 6, "c": 3, "d": 4}
    held = [holding(name, gpus) for name, gpus in sizes.items()]
    state = standing(two_queues(17, 0), [*held, waiting("wanted", 9)])
    found = release(state, "ns/wanted", [unit(name, gpus) for name, gpus in sizes.items()])
    assert found == Release(("b", "c"))


def test_nobody_goes_for_what_is_more_than_there_is() -> None:
    state = standing(two_queues(8, 0), [holding("old", 4), waiting("wanted", 12)])
    found = release(state, "ns/wanted", [unit("old", 4)])
    assert found == Release(why="all idle work together is not enough for it")


def test_idle_work_without_quota_of_the_cohort_is_of_no_use() -> None:
    state = standing(two_queues(4, 0), [holding("busy", 4), waiting("wanted", 4)])
    found = release(state, "ns/wanted", [IdleUnit("stranger", (), (), 8)])
    assert found == Release(why="no idle work holds what it lacks")


def test_nobody_goes_while_quota_that_was_evicted_is_still_held() -> None:
    leaving = holding("leaving", 4)
    state = standing(two_queues(8, 0), [leaving, holding("old", 4), waiting("wanted", 8)])
    state.holdings.expect_eviction(leaving.key, "Preempted", NOW)  # type: ignore[arg-type]
    found = release(state, "ns/wanted", [unit("old", 4)])
    assert found == Release(why="what was evicted in its cohort still ends", waits=True)


def test_one_whose_eviction_is_refused_is_not_waited_for() -> None:
    leaves = holding("leaves", 4, evicted=Eviction("Preempted", LONG_AGO))
    state = standing(two_queues(8, 0), [holding("idle", 4), leaves, waiting("wanted", 4)])
    state = replace(state, refused=frozenset({Uid("leaves")}))
    assert release(state, "ns/wanted", [unit("idle", 4)]) == Release(("idle",))


def test_nobody_goes_for_quota_that_another_would_get_first() -> None:
    workloads = [
        holding("old", 4),
        waiting("first", 4, created=Nanos(NOW - 2 * SECOND)),
        waiting("wanted", 4, created=Nanos(NOW - SECOND)),
    ]
    found = release(standing(two_queues(4, 0), workloads), "ns/wanted", [unit("old", 4)])
    assert found == Release(why="what comes free would be used by ns/first, whose turn comes first")


def test_a_head_that_does_not_fit_is_in_the_way_of_a_strict_queue_alone() -> None:
    workloads = [
        holding("old", 4),
        waiting("first", 8, created=Nanos(NOW - 2 * SECOND)),
        waiting("wanted", 4, created=Nanos(NOW - SECOND)),
    ]
    strict = configuration(replace(queue("a", 4, LOWER), strategy=QueueingStrategy.STRICT_FIFO))
    taken = release(standing(strict, workloads), "ns/wanted", [unit("old", 4)])
    assert taken.units == ()
    found = release(standing(two_queues(4, 0), workloads), "ns/wanted", [unit("old", 4)])
    assert found == Release(("old",))


def test_what_goes_for_an_earlier_demand_is_not_given_twice() -> None:
    workloads = [
        holding("old", 4),
        holding("other", 4),
        waiting("earlier", 4, created=Nanos(NOW - 2 * SECOND)),
        waiting("wanted", 4, created=Nanos(NOW - SECOND)),
    ]
    promised = [Promise("ns/earlier", ("ns/old",))]
    state = standing(two_queues(8, 0), workloads, promised=promised)
    assert release(state, "ns/wanted", [unit("other", 4)]) == Release(("other",))
    state = standing(two_queues(8, 0), workloads, promised=promised)
    assert release(state, "ns/wanted", []).units == ()


def test_where_nodes_are_looked_at_idle_work_has_to_free_a_node_as_well() -> None:
    site = Site(
        [node("n0", gpus=4), node("n1", gpus=4)],
        [running("busy", "n0", 4), running("old", "n1", 2), running("other", "n1", 2, number=1)],
        8,
    )
    workloads = [holding("busy", 2), holding("old", 2), holding("other", 2), waiting("wanted", 4)]
    pods = {each.workload.removeprefix("ns/"): (each.uid,) for each in site.pods}
    units = [IdleUnit(name, (f"ns/{name}",), pods[name], 2) for name in ("old", "other")]
    state = standing(two_queues(8, 0), workloads)
    assert release(state, "ns/wanted", units) == Release(("old",))
    state = standing(two_queues(8, 0), workloads, nodes=site.proof())
    assert release(state, "ns/wanted", units) == Release(("old", "other"), placed=True)


def test_a_set_that_passes_one_half_of_the_proof_alone_is_refused_with_what_lacks() -> None:
    site = Site(
        [node("n0", gpus=4), node("n1", gpus=4)],
        [running("busy", "n0", 2), running("old", "n1", 2), running("other", "n1", 2, number=1)],
        8,
    )
    workloads = [holding("busy", 2), holding("old", 2), holding("other", 2)]
    pods = {each.workload.removeprefix("ns/"): (each.uid,) for each in site.pods}
    units = [IdleUnit(name, (f"ns/{name}",), pods[name], 2) for name in ("old", "other")]
    lacks = "all idle work together is not enough for it: "
    room = standing(two_queues(4, 0), [*workloads, waiting("wanted", 4)], nodes=site.proof())
    found = release(room, "ns/wanted", units)
    assert (found.units, found.half) == ((), PassedHalf.ROOM)
    assert found.why.startswith(lacks + "its pods would have nodes, but it lacks quota: ")
    assert "2 more needed" in found.why
    quota = standing(two_queues(8, 0), [*workloads, waiting("wanted", 6)], nodes=site.proof())
    assert release(quota, "ns/wanted", units) == Release(
        why=lacks + "it would have its quota, but not all of its pods a node",
        half=PassedHalf.QUOTA,
    )
    neither = standing(two_queues(4, 0), [*workloads, waiting("wanted", 6)], nodes=site.proof())
    assert release(neither, "ns/wanted", units) == Release(
        why=lacks + "neither for its quota nor for its nodes"
    )


def test_over_random_queues_what_goes_is_enough_and_the_least() -> None:
    """Played: with exactly these gone a scheduler that goes on admits the workload."""
    met: Counter[str] = Counter()
    least = taken = 0
    for seed in range(400):
        r = Random(seed)
        found = two_queues(r.choice((4, 8, 12)), r.choice((0, 4, 8)))
        held = [
            holding(f"h{n}", r.choice((1, 2, 2, 4)), r.choice("ab")) for n in range(r.randint(2, 7))
        ]
        ages = [Nanos(NOW - r.randint(1, 60) * SECOND) for _ in range(4)]
        others = [
            waiting(f"w{n}", r.choice((1, 4, 8)), r.choice("ab"), created=ages[n])
            for n in range(r.randint(0, 3))
        ]
        wanted = waiting("wanted", r.choice((1, 2, 4, 8)), r.choice("ab"), created=ages[3])
        everybody = [*held, *others, wanted]
        units = [unit(h.name, h.pod_sets[0].requests[GPU]) for h in held if r.random() < 0.7]
        if _admitted(found, everybody, ()):
            met["nothing lacks"] += 1
            continue
        answer = release(standing(found, everybody), wanted.key, units)
        met["goes" if answer.units else "nobody"] += 1
        assert bool(answer.units) != bool(answer.why)
        if not answer.units:
            continue
        assert _admitted(found, everybody, answer.units), (seed, answer)
        for name in answer.units:
            fewer = [each for each in answer.units if each != name]
            assert not _fits(found, everybody, fewer), (seed, answer, name)
        devices = {each.name: each.devices for each in units}
        taken += sum(devices[name] for name in answer.units)
        least += min(
            sum(devices[name] for name in some)
            for size in range(1, len(units) + 1)
            for some in combinations(devices, size)
            if _fits(found, everybody, some)
        )
    assert met["goes"] > 60 and met["nobody"] > 60
    assert taken == least


def _admitted(found: Configuration, everybody: Sequence[Workload], gone: Iterable[str]) -> bool:
    """Whether cycles admit the workload `wanted` with these gone, others waiting beside it."""
    left = {f"ns/{name}" for name in gone}
    state = standing(found, [each for each in everybody if each.key not in left])
    admitted = {
        entry.workload.key
        for result in cycles(state.holdings, state.queues, NOW, 100)
        for entry in result.of(Outcome.ADMITTED)
    }
    return "ns/wanted" in admitted


def _fits(found: Configuration, everybody: Sequence[Workload], gone: Iterable[str]) -> bool:
    """Whether the workload `wanted` is admitted with these gone, and nobody waits beside it."""
    alone = [e for e in everybody if e.admission is not None or e.name == "wanted"]
    return _admitted(found, alone, gone)
