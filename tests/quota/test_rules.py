"""Rules around the decisions: backoff, draining, exposure, usage-based order, published figures."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import Outcome
from reprieve.engine.quota.heads import RequeueReason
from reprieve.engine.quota.holdings.amounts import UNLIMITED
from reprieve.engine.quota.holdings.exposure import exposures
from reprieve.engine.quota.holdings.figures import (
    cluster_queue_share,
    cluster_queue_usage,
    cohort_share,
)
from reprieve.engine.quota.holdings.shares import Share
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.holdings.usage_based import Consumption, UsageBased
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    ClusterQueue,
    Configuration,
    Eviction,
    FlavorQuotas,
    LocalQueue,
    Policy,
    Preemption,
    Quota,
    ResourceGroup,
    Settings,
    StopPolicy,
    Workload,
)
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.quota.waiting.requeuing import (
    Backoff,
    EvictionReason,
    backoff_end,
    eviction_reason,
)
from tests.quota.cases import NOW, SECOND
from tests.quota.test_cycle import job, one_queue
from tests.quota.test_loops import configuration, queue

NEVER = Preemption()


def test_each_backoff_is_twice_the_last_up_to_the_longest() -> None:
    backoff = Backoff(60, 3_600)
    waits = [backoff_end(backoff, count, NOW) for count in (1, 2, 3, 6, 7, 100)]
    expected = (60, 120, 240, 1_920, 3_600, 3_600)
    assert waits == [NOW + seconds * SECOND for seconds in expected]
    assert backoff_end(Backoff(limit=2), 3, NOW) is None


def test_nothing_is_queued_before_its_backoff_ends() -> None:
    queues = Queues(one_queue())
    queues.heads(NOW)
    queues.push(job("a", 1, requeue_at=Nanos(NOW + 5 * SECOND)))
    queues.push(job("b", 1, requeued=False))
    assert queues.inadmissible() == {"team": ["ns/a", "ns/b"]}
    queues.flush(["team"])
    assert queues.heads(Nanos(NOW + 4 * SECOND)) == []
    assert [w.name for _, w in queues.heads(Nanos(NOW + 5 * SECOND))] == ["a"]
    queues.push(job("b", 1, requeued=True))
    assert [w.name for _, w in queues.heads(Nanos(NOW + 5 * SECOND))] == ["b"]


@pytest.mark.parametrize(
    "changes", [{"active": False}, {"admission_gated": True}, {"finished": True}]
)
def test_what_may_not_run_is_not_queued(changes: dict[str, Any]) -> None:
    queues = Queues(one_queue())
    queues.push(replace(job("a", 1), **changes))
    assert queues.heads(NOW) == []
    queues.push(job("a", 1))
    assert [w.name for _, w in queues.heads(NOW)] == ["a"]


def test_a_version_that_comes_while_its_head_is_decided_about_is_not_queued_twice() -> None:
    queues = Queues(one_queue())
    queues.push(job("a", 1))
    [(_, head)] = queues.heads(NOW)
    queues.push(replace(head, priority=3))
    queues.requeue(head.key, RequeueReason.FAILED_AFTER_NOMINATION)
    assert queues.active() == {"team": ["ns/a"]}
    assert [w.priority for _, w in queues.heads(NOW)] == [3]


def held(name: str = "a", amount: int = 1, **changes: Any) -> Workload:
    pod_set = AdmittedPodSet("main", 1, {"cpu": "default"}, {"cpu": amount})
    return replace(
        job(name, amount), admission=Admission("team", (pod_set,)), reserved_at=NOW, **changes
    )


def test_stopped_queues_drain_only_if_they_are_told_to() -> None:
    def why(workload: Workload, cluster_queue: StopPolicy, local_queue: StopPolicy) -> object:
        found = one_queue(stop_policy=cluster_queue)
        local = {"ns/main": LocalQueue("ns/main", "team", local_queue)}
        return eviction_reason(replace(found, local_queues=local), workload)

    none, hold, drain = StopPolicy.NONE, StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN
    assert why(held(), none, none) is why(held(), hold, hold) is None
    assert why(held(), drain, none) is EvictionReason.CLUSTER_QUEUE_STOPPED
    assert why(held(), none, drain) is EvictionReason.LOCAL_QUEUE_STOPPED
    assert why(held(active=False), none, none) is EvictionReason.DEACTIVATED


def test_a_stopped_local_queue_holds_its_workloads_and_a_stopped_queue_its_heads() -> None:
    local = {"ns/main": LocalQueue("ns/main", "team", StopPolicy.HOLD)}
    for stopped in (
        replace(one_queue(), local_queues=local),
        one_queue(stop_policy=StopPolicy.HOLD),
    ):
        queues = Queues(stopped)
        queues.push(job("a", 1))
        assert queues.heads(NOW) == []
        queues.configure(one_queue())
        assert [w.name for _, w in queues.heads(NOW)] == ["a"]


def test_a_queue_is_hit_by_its_own_rule_or_by_what_it_borrows() -> None:
    def hit(found: Configuration, name: str) -> list[str]:
        return [f"{e.cluster_queue}: {e.setting}" for e in exposures(Holdings(found), name)]

    quiet = configuration(queue("a", 2, NEVER), queue("b", 2, NEVER))
    assert hit(quiet, "a") == []
    reclaiming = configuration(queue("a", 2, NEVER), queue("b", 2))
    assert hit(reclaiming, "a") == ["b: reclaimWithinCohort: Any"]
    assert hit(reclaiming, "b") == ["b: withinClusterQueue: LowerPriority"]
    # Nobody lends to it, so that nothing can be reclaimed from it.
    alone = configuration(queue("a", 2, NEVER), queue("b", 0))
    assert hit(alone, "a") == []


def test_what_others_lend_of_flavors_that_a_queue_does_not_have_hits_nobody_in_it() -> None:
    def with_quota(name: str, flavor: str, quota: Quota, **rules: Any) -> ClusterQueue:
        groups = (ResourceGroup(("cpu",), (FlavorQuotas(flavor, {"cpu": quota}),)),)
        return ClusterQueue(name, "all", groups, **rules)

    reclaims = Preemption(Policy.NEVER, Policy.ANY)
    other = with_quota("other", "spot", Quota(9), preemption=reclaims)
    same = with_quota("same", "fine", Quota(9), preemption=reclaims)
    capped = with_quota("capped", "fine", Quota(2, borrowing_limit=0))

    def hit(*queues: ClusterQueue) -> list[str]:
        found = Holdings(Configuration({each.name: each for each in queues}))
        return [each.cluster_queue for each in exposures(found, "capped")]

    assert hit(capped, other) == []
    assert hit(capped, same) == []
    free = with_quota("capped", "fine", Quota(2))
    assert hit(free, other) == []
    assert hit(free, same) == ["same"]


def test_usage_of_a_local_queue_is_halved_every_half_life() -> None:
    rules = UsageBased(half_life_s=10, sampling_s=5, weights={"gpu": 2.0})
    empty = Consumption(at=NOW)
    held = rules.sampled(Consumption({"gpu": 8.0}, NOW), {}, Nanos(NOW + 10 * SECOND))
    assert held.amounts == {"gpu": 4.0}
    grown = rules.sampled(empty, {"gpu": 8}, Nanos(NOW + 10 * SECOND))
    assert grown.amounts == {"gpu": 4.0}
    assert rules.usage(grown, 4.0) == 2.0
    assert (rules.usage(grown, 0.0), rules.usage(empty, 0.0)) == (inf, 0.0)
    burst = rules.penalized(empty, {"gpu": 8})
    assert burst.amounts["gpu"] == pytest.approx(8 * (1 - 0.5**0.5))
    assert UsageBased().penalized(empty, {"gpu": 8}).amounts == {"gpu": 0.0}


def test_the_local_queue_that_used_less_comes_first() -> None:
    found = one_queue(usage_based=True)
    found = replace(
        found,
        local_queues={f"ns/{name}": LocalQueue(f"ns/{name}", "team") for name in ("main", "other")},
        settings=Settings(admission_fair_sharing=True),
    )
    queues = Queues(found)
    queues.push(job("a", 1, priority=9))
    queues.push(job("b", 1, queue="ns/other"))
    queues.local_queue_usage = {"ns/main": 2.0, "ns/other": 1.0}
    assert [w.name for _, w in queues.heads(NOW)] == ["b"]


def test_the_local_queue_that_used_more_is_preempted_first() -> None:
    found = one_queue(preemption=Preemption(Policy.LOWER_PRIORITY), usage_based=True)
    found = replace(
        found,
        local_queues={f"ns/{name}": LocalQueue(f"ns/{name}", "team") for name in ("main", "other")},
        settings=Settings(admission_fair_sharing=True),
    )
    victims = {}
    for usage in ({"ns/main": 2.0, "ns/other": 1.0}, {"ns/main": 1.0, "ns/other": 2.0}, {}):
        holdings, queues = Holdings(found), Queues(found)
        holdings.hold(held("a", amount=2, priority=1))
        holdings.hold(held("b", amount=2, queue="ns/other"))
        queues.push(job("high", 2, priority=2))
        queues.local_queue_usage = usage
        (entry,) = cycle(holdings, queues, NOW).entries
        victims[tuple(usage.values())] = [target.holder.workload.name for target in entry.targets]
    # Without any usage, priority decides.
    assert victims == {(2.0, 1.0): ["a"], (1.0, 2.0): ["b"], (): ["b"]}


def test_a_missing_flavor_is_named_and_stops_its_queue_only() -> None:
    found = one_queue()
    other = replace(found.cluster_queues["team"], name="other", groups=())
    queues = {"team": found.cluster_queues["team"], "other": other}
    holdings = Holdings(replace(found, cluster_queues=queues, flavors={}))
    assert holdings.tree.inactive == {"team": "it refers to missing ResourceFlavor(s): default"}


def test_negative_and_huge_amounts_neither_free_nor_overflow() -> None:
    holdings, queues = Holdings(one_queue()), Queues(one_queue())
    holdings.hold(held("debtor", amount=-5))
    assert [sum(row) for row in holdings.usage] == [0]
    queues.push(job("huge", UNLIMITED))
    queues.push(job("negative", -3))
    outcomes = {
        entry.workload.name: entry.reason or entry.outcome
        for number in range(2)
        for entry in cycle(holdings, queues, NOW, number).entries
    }
    assert outcomes == {"huge": "ExceedsMaxQuota", "negative": "admitted"}


def test_quota_below_usage_admits_nothing_and_breaks_nothing() -> None:
    holdings, queues = Holdings(one_queue()), Queues(one_queue())
    holdings.hold(held("large", amount=9))
    queues.push(job("small", 1))
    (entry,) = cycle(holdings, queues, NOW).entries
    # All of its quota could be free one day, but nobody may be preempted for it.
    assert (entry.outcome, entry.reason) == (Outcome.NO_CANDIDATES, "WaitingForQuota")
    assert "10m more needed" not in entry.message and "1m more needed" in entry.message


def test_figures_show_what_is_above_nominal_and_the_ceiling_of_the_share() -> None:
    found = configuration(queue("a", 2), queue("b", 4), shared=1)
    holdings = Holdings(found)
    for k in range(3):
        pod_set = AdmittedPodSet("main", 1, {"nvidia.com/gpu": "gpus"}, {"nvidia.com/gpu": 1})
        holdings.hold(
            replace(job(f"w{k}", 1), admission=Admission("a", (pod_set,)), reserved_at=NOW)
        )
    (usage,) = cluster_queue_usage(holdings, "a")
    assert (usage.total, usage.borrowed) == (3, 1)
    share = cluster_queue_share(holdings, "a")
    assert (share.weighted, share.published, share.resource) == (1000 / 7, 143, "nvidia.com/gpu")
    assert cohort_share(holdings, "all").published == 0


@pytest.mark.parametrize(
    ("ratio", "weight", "published"),
    [(0.0, 0.0, 0), (1.5, 1.0, 2), (1.0, 0.0, UNLIMITED), (1e21, 2e-9, UNLIMITED)],
)
def test_a_published_share_is_an_int64(ratio: float, weight: float, published: int) -> None:
    assert Share(True, ratio, "cpu", weight).published == published


def test_evicted_holders_are_counted_once_when_their_condition_arrives() -> None:
    holdings = Holdings(one_queue())
    holdings.hold(held())
    holdings.hold(held(evicted=Eviction("Preempted", NOW)))
    assert [sum(row) for row in holdings.usage] == [1]
    holdings.release("ns/a")
    assert [sum(row) for row in holdings.usage] == [0]


def test_the_policy_of_an_absent_field_is_literal() -> None:
    assert Policy("") is Policy.UNSET
