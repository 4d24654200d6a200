"""Where cycles end, nothing is left that cycles over the same state begun anew would do.

Queues remember where searches of flavors stopped and what was set aside. Neither may hide what a
fresh decision on the present state would admit or preempt for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from reprieve.engine.quota.cycle import cycles
from reprieve.engine.quota.entries import Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    ClusterQueue,
    Configuration,
    FlavorFungibility,
    FlavorQuotas,
    Fungibility,
    LocalQueue,
    PodSet,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Workload,
)
from reprieve.engine.quota.waiting.queues import Queues
from tests.quota.cases import NOW, Size, scene

_LIMIT = 200  # cycles


def settle(holdings: Holdings, queues: Queues) -> list[tuple[str, Outcome]]:
    """Run cycles until none is left to do, victims giving back their quota; return what was done.

    Raises:
        AssertionError: it did not end.
    """
    done: list[tuple[str, Outcome]] = []
    for _ in range(_LIMIT):
        victims: set[str] = set()
        acted = False
        for result in cycles(holdings, queues, NOW, _LIMIT):
            for entry in result.entries:
                if entry.outcome in (Outcome.ADMITTED, Outcome.PREEMPTING):
                    done.append((entry.workload.key, entry.outcome))
                    acted = True
                if entry.outcome is Outcome.PREEMPTING:
                    victims |= {target.holder.key for target in entry.targets}
        if not acted:
            return done
        for key in victims:
            holdings.release(key)
        if victims:
            queues.flush(holdings.configuration.cluster_queues)
    raise AssertionError("cycles go on for ever")


def anew(holdings: Holdings, pending: Iterable[Workload]) -> tuple[Holdings, Queues]:
    """Return the same state as one who has only just begun knows it."""
    fresh = Holdings(holdings.configuration)
    for holder in holdings.holders.values():
        fresh.hold(holder.workload)
    queues = Queues(holdings.configuration)
    for workload in pending:
        queues.push(workload)
    return fresh, queues


def choosy(random: Random, workload: Workload) -> Workload:
    """Return a workload of which some accept fewer pods."""
    sets = tuple(
        replace(each, count=3, min_count=1) if random.random() < 0.5 else each
        for each in workload.pod_sets
    )
    return replace(workload, pod_sets=sets)


def driven(random: Random, workload: Workload) -> Workload:
    """Return a workload that often has a small pod set before its own, which fits elsewhere."""
    first = workload.pod_sets[0]
    if random.random() < 0.5 or not first.requests:
        return workload
    driver = replace(first, name="driver", count=1, requests={min(first.requests): 1})
    return replace(workload, pod_sets=(driver, *workload.pod_sets))


def test_where_cycles_end_a_fresh_start_finds_nothing_to_do() -> None:
    random = Random(83)
    done = 0
    for number in range(120):
        case = scene(random, size=Size(admitted=8, pending=14))
        holdings, queues = Holdings(case.configuration), Queues(case.configuration)
        for workload in case.admitted:
            holdings.hold(workload)
        for workload in (*case.pending, case.incoming):
            queues.push(choosy(random, workload))
        done += len(settle(holdings, queues))
        left = settle(*anew(holdings, [*queues.pending()]))
        assert left == [], number
    assert done > 400


def test_no_workload_is_kept_waiting_by_one_that_is_refused() -> None:
    """Each that waits in a BestEffortFIFO queue is refused where it waits alone, too."""
    random = Random(47)
    kept = 0
    for number in range(150):
        case = scene(random, size=Size(admitted=5, pending=12))
        best_effort = {
            name: replace(each, strategy=QueueingStrategy.BEST_EFFORT_FIFO)
            for name, each in case.configuration.cluster_queues.items()
        }
        holdings = Holdings(replace(case.configuration, cluster_queues=best_effort))
        queues = Queues(holdings.configuration)
        for workload in case.admitted:
            holdings.hold(workload)
        for workload in (*case.pending, case.incoming):
            queues.push(driven(random, workload))
        settle(holdings, queues)
        for workload in [*queues.pending()]:
            kept += 1
            assert settle(*anew(holdings, [workload])) == [], (number, workload.key)
    assert kept > 300


def test_what_is_refused_keeps_none_waiting_whose_flavor_was_not_the_last() -> None:
    """Of two pod sets the first always fits the first flavor, so that others are left to try."""
    flavors = (
        FlavorQuotas("cpus", {"cpu": Quota(8), "gpu": Quota(0)}),
        FlavorQuotas("gpus", {"cpu": Quota(8), "gpu": Quota(4)}),
    )
    queue = ClusterQueue("queue", groups=(ResourceGroup(("cpu", "gpu"), flavors),))
    configuration = Configuration(
        {"queue": queue},
        {},
        {name: ResourceFlavor(name) for name in ("cpus", "gpus")},
        {"ns/queue": LocalQueue("ns/queue", "queue")},
        {"ns": {}},
    )
    holdings, queues = Holdings(configuration), Queues(configuration)
    used = AdmittedPodSet("main", 1, {"gpu": "gpus"}, {"gpu": 4})
    runs = Workload("ns", "runs", "runs", "ns/queue", pod_sets=(PodSet("main", 1, {"gpu": 4}),))
    holdings.hold(replace(runs, admission=Admission("queue", (used,)), reserved_at=NOW))
    sets = (PodSet("driver", 1, {"cpu": 1}), PodSet("worker", 2, {"cpu": 1, "gpu": 2}))
    queues.push(Workload("ns", "large", "a", "ns/queue", pod_sets=sets))
    queues.push(Workload("ns", "small", "b", "ns/queue", pod_sets=sets[:1]))
    assert settle(holdings, queues) == [("ns/small", Outcome.ADMITTED)]


def test_a_search_that_began_behind_the_first_flavor_is_made_once_more_from_there() -> None:
    """Two fit at once, one by borrowing; what is left for that one is in the first flavor."""

    def queue(name: str, first: Quota, second: int) -> ClusterQueue:
        flavors = (
            FlavorQuotas("first", {"cpu": first}),
            FlavorQuotas("second", {"cpu": Quota(second)}),
        )
        stops = FlavorFungibility(when_can_borrow=Fungibility.MAY_STOP_SEARCH)
        groups = (ResourceGroup(("cpu",), flavors),)
        return ClusterQueue(name, "cohort", groups, fungibility=stops)

    def waiting(name: str, queue: str, **pods: int) -> Workload:
        main = PodSet("main", 2, {"cpu": 1}, pods.get("min_count"))
        return Workload("ns", name, name, f"ns/{queue}", pod_sets=(main,))

    lender, borrower = queue("lender", Quota(2), 0), queue("borrower", Quota(1), 2)
    configuration = Configuration(
        {each.name: each for each in (lender, borrower)},
        {},
        {name: ResourceFlavor(name) for name in ("first", "second")},
        {f"ns/{name}": LocalQueue(f"ns/{name}", name) for name in ("lender", "borrower")},
        {"ns": {}},
    )
    holdings, queues = Holdings(configuration), Queues(configuration)
    used = AdmittedPodSet("main", 2, {"cpu": "second"}, {"cpu": 2})
    holds = replace(waiting("runs", "borrower"), admission=Admission("borrower", (used,)))
    holdings.hold(replace(holds, reserved_at=NOW))
    queues.push(waiting("lent", "lender"))
    queues.push(waiting("borrows", "borrower", min_count=1))
    assert settle(holdings, queues) == [
        ("ns/lent", Outcome.ADMITTED),
        ("ns/borrows", Outcome.ADMITTED),
    ]
