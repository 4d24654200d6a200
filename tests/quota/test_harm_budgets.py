"""Harm budgets in the quota plane: who is spared, which plans are refused, what comes back."""

from __future__ import annotations

from collections.abc import Mapping

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.questions import GovernorPolicy
from reprieve.engine.harm_budgets.budget import Expression, HarmBudget, Scope, Selector
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import Outcome
from reprieve.engine.quota.model import (
    ClusterQueue,
    Configuration,
    FlavorQuotas,
    LocalQueue,
    PodSet,
    Policy,
    Preemption,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    Workload,
)
from reprieve.records.quota.record import inputs_of
from reprieve.records.quota.replay import Standing, decide_quota_again, quota_answers
from reprieve.records.quota.story import quota_answer_text
from tests.quota.simulation import Cluster

GPU = "nvidia.com/gpu"
SPACES = ("one", "two", "ours")


def configuration(*quotas: int) -> Configuration:
    """Return a cohort of ClusterQueues `queue-0` and so on, reached from every namespace."""
    rules = Preemption(Policy.LOWER_PRIORITY, Policy.ANY)
    queues = {
        f"queue-{number}": ClusterQueue(
            f"queue-{number}",
            "all",
            (ResourceGroup((GPU,), (FlavorQuotas("a100", {GPU: Quota(amount)}),)),),
            rules,
        )
        for number, amount in enumerate(quotas)
    }
    return Configuration(
        queues,
        {},
        {"a100": ResourceFlavor("a100")},
        {f"{s}/{q}": LocalQueue(f"{s}/{q}", q) for s in SPACES for q in queues},
        {space: {} for space in SPACES},
        Settings(),
    )


def work(space: str, name: str, gpus: int, priority: int, queue: int = 0) -> Workload:
    """Return a workload that waits."""
    return Workload(
        space,
        name,
        uid=name,
        queue=f"{space}/queue-{queue}",
        priority=priority,
        created=Nanos(priority * SECOND),
        pod_sets=(PodSet("main", 1, {GPU: gpus}),),
    )


def cluster(*budgets: HarmBudget, quotas: tuple[int, ...] = (4,), emergency: int = 0) -> Cluster:
    """Return a cluster with these budgets."""
    governor = Governor(GovernorPolicy(loop_limit=0, emergency_priority=emergency or None))
    labels: Mapping[str, Mapping[str, str]] = {"one": {"tier": "batch"}}
    governor.harm.labels = lambda space: labels.get(space, {})
    governor.harm.adopt({each.name: each for each in budgets})
    return Cluster(configuration(*quotas), ledger=Displacements(governor=governor))


def last_message(found: Cluster, name: str) -> str:
    """Return what was last said to a workload."""
    entries = [e for each in found.results for e in each.entries if e.workload.name == name]
    return entries[-1].message


def pass_time(found: Cluster, length: int) -> None:
    """Let time pass, and all try again."""
    found.now = Nanos(found.now + length)
    found.queues.flush(found.holdings.related("queue-0"))
    found.settle()


def displaced_once(found: Cluster) -> None:
    """Let one workload of `one` are preempted, and that for which it did end."""
    found.submit(work("one", "first", 4, 1))
    found.settle()
    found.submit(work("ours", "urgent", 4, 9))
    found.settle()
    assert found.preempted["one/first"] == 1
    found.queues.delete("one/first")
    found.finish("ours/urgent")


def test_an_exhausted_budget_spares_until_the_window_has_passed() -> None:
    found = cluster(HarmBudget("day", window=10 * MINUTE, displacements=1))
    displaced_once(found)
    began = found.now
    found.submit(work("one", "second", 4, 1))
    found.settle()
    found.submit(work("ours", "waits", 4, 9))
    found.settle()
    assert "one/second" in found.holdings.holders
    said = last_message(found, "waits")
    assert "1 workload(s) whose harm budget is used up (day), the first until" in said
    until = said.rpartition("until ")[2]
    assert until <= format_instant(Nanos(began + 10 * MINUTE))
    pass_time(found, 11 * MINUTE)
    assert "ours/waits" in found.holdings.holders


def test_another_victim_is_looked_for() -> None:
    batch = Selector(namespaces=(Expression("tier", "In", ("batch",)),))
    found = cluster(HarmBudget("none", selector=batch, displacements=0))
    found.submit(work("one", "spared", 2, 1), work("two", "other", 2, 2))
    found.settle()
    found.submit(work("ours", "urgent", 2, 9))
    found.settle()
    assert set(found.holdings.holders) == {"one/spared", "ours/urgent"}


def test_a_plan_takes_no_more_than_is_left_and_finds_others() -> None:
    found = cluster(HarmBudget("one-each", displacements=1))
    low = [work("one", f"small-{n}", 1, 1) for n in range(2)]
    found.submit(*low, work("two", "other", 2, 2))
    found.settle()
    found.submit(work("ours", "urgent", 3, 9))
    found.settle()
    assert found.preempted["two/other"] == 1
    assert sum(found.preempted[f"one/small-{n}"] for n in range(2)) == 1
    assert "ours/urgent" in found.holdings.holders


def test_a_plan_that_no_choice_makes_small_enough_evicts_nobody() -> None:
    found = cluster(HarmBudget("one-each", displacements=1))
    found.submit(*(work("one", f"small-{n}", 2, 1) for n in range(2)))
    found.settle()
    found.submit(work("ours", "urgent", 4, 9))
    found.settle()
    assert not found.preempted
    assert "one-each" in last_message(found, "urgent")


def test_nominal_quota_comes_back_after_the_stated_time_and_not_before() -> None:
    found = cluster(
        HarmBudget("none", displacements=0, window=24 * HOUR, nominal_reclaim_after=5 * MINUTE),
        quotas=(4, 4),
    )
    found.submit(work("one", "borrows", 8, 1, queue=1))
    found.settle()
    assert "one/borrows" in found.holdings.holders
    found.submit(work("ours", "own", 4, 1))
    found.settle()
    assert not found.preempted
    retry = next(each.retries for each in reversed(found.results) if each.retries)
    assert retry["queue-0"] <= found.now + 5 * MINUTE
    pass_time(found, 4 * MINUTE)
    assert not found.preempted
    pass_time(found, 2 * MINUTE)
    assert found.preempted["one/borrows"] == 1


def test_an_emergency_passes_and_counts() -> None:
    found = cluster(HarmBudget("none", displacements=0), emergency=9)
    displaced_once(found)
    assert found.ledger is not None
    (use,) = found.ledger.governor.harm.used("none", found.now)
    assert (use.account, use.displacements) == ("one", 1)


def test_what_work_causes_is_bounded_for_who_causes_it() -> None:
    found = cluster(HarmBudget("mine", scope=Scope.CAUSED, displacements=1))
    displaced_once(found)
    found.submit(work("one", "second", 4, 1))
    found.settle()
    found.submit(work("ours", "waits", 4, 9))
    found.settle()
    assert "one/second" in found.holdings.holders
    found.submit(work("two", "others", 4, 9))
    found.settle()
    assert "two/others" in found.holdings.holders


def test_lost_gpu_hours_are_bounded() -> None:
    found = cluster(HarmBudget("hours", lost_device_seconds=4 * 3_600))
    found.submit(work("one", "long", 4, 1))
    found.settle()
    found.now = Nanos(found.now + 2 * HOUR)
    found.submit(work("ours", "waits", 4, 9))
    found.settle()
    assert not found.preempted
    outcomes = {e.outcome for r in found.results for e in r.entries if e.workload.name == "waits"}
    assert outcomes == {Outcome.NO_CANDIDATES}


def test_the_record_names_the_candidate_that_a_budget_spared_and_until_when() -> None:
    batch = Selector(namespaces=(Expression("tier", "In", ("batch",)),))
    found = cluster(HarmBudget("none", selector=batch, displacements=0, window=10 * MINUTE))
    found.submit(work("one", "spared", 2, 1), work("two", "other", 2, 2))
    found.settle()
    found.queues.push(work("ours", "urgent", 2, 9))
    holdings, queues, ledger = found.holdings, found.queues, found.ledger
    assert ledger is not None
    result = cycle(holdings, queues, found.now, 1, ledger)
    written = inputs_of(result, holdings, queues, found.now, ledger)["ours/urgent"]
    answers = {each.key: each for each in quota_answers(decide_quota_again(written))}
    assert answers["two/other"].standing is Standing.VICTIM
    until = format_instant(Nanos(found.now + 10 * MINUTE))
    told = quota_answer_text(answers["one/spared"])
    assert told.endswith(f"stays: harm budget none is used up until {until}")
