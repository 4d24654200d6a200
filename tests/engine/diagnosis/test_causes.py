"""A cause is what the decision hangs on: with what its sentence names changed, the work starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.diagnosis.causes import Cause
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import Outcome
from reprieve.engine.quota.model import (
    BorrowWithinCohort,
    ClusterQueue,
    Eviction,
    FlavorFungibility,
    FlavorQuotas,
    Fungibility,
    PodSet,
    Policy,
    Preemption,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    Strategy,
    Taint,
    Toleration,
    Workload,
)
from reprieve.engine.topology.model import Topology, TopologyRequest
from reprieve.wording.diagnosis import general_step, sentence
from tests.engine.diagnosis.quota_cases import GPU, NOW, Site, held, queue, work

CPU = 1_000  # millicores
RACKS = Topology("racks", ("rack", "host"))
RECLAIMS = Preemption(Policy.NEVER, Policy.ANY)
OPEN = BorrowWithinCohort(Policy.LOWER_PRIORITY)


def asking(cpu: int, gpus: int, **given: Any) -> Workload:
    pod_set = PodSet("main", 1, {"cpu": cpu * CPU, GPU: gpus})
    return Workload("team", "w", "uid-w", "team/lender", pod_sets=(pod_set,), **given)


def group_of(cpu: int, gpus: int) -> tuple[ResourceGroup, ...]:
    quotas = {"cpu": Quota(cpu * CPU), GPU: Quota(gpus)}
    return (ResourceGroup(("cpu", GPU), (FlavorQuotas("a100", quotas),)),)


def cohort(lender: Preemption, **given: Any) -> Site:
    """Return a lender of 8 GPUs and 4 cpu whose GPUs somebody else has borrowed."""
    site = Site(
        queue("lender", 0, "all", groups=group_of(4, 8), preemption=lender),
        queue("borrower", 0, "all", groups=group_of(40, 0)),
        **given,
    )
    gpus = replace(work("gpus", "borrower", 8), priority=7)
    pod_set = PodSet("main", 1, {"cpu": CPU, GPU: 8})
    return site.hold(held(replace(gpus, pod_sets=(pod_set,)), "borrower"))


def starts(site: Site, name: str = "w") -> bool:
    entry = site.decide().entries[f"team/{name}"]
    return entry.outcome in (Outcome.ADMITTED, Outcome.PREEMPTING)


def told(site: Site, name: str = "w") -> Diagnosis:
    found = site.decide().why(name)
    assert found is not None
    return found


def test_work_that_would_borrow_is_told_so_and_starts_with_what_it_need_not_borrow() -> None:
    found = told(cohort(RECLAIMS).submit(asking(6, 8, priority=1000)))
    assert (found.reason, found.cause) == (Reason.HELD_BY_OTHERS, Cause.BORROWING)
    assert found.refused == {"borrowing": 1}
    assert sentence(found) == (
        f"lender: 0 of 8 {GPU} (a100) used, requests 8; borrower has borrowed 8 of its cohort; "
        "it would borrow, and work that borrows preempts no other work here: it lacks 8 "
        "nvidia.com/gpu in a100; it would borrow 2 cpu; ClusterQueue lender has "
        "borrowWithinCohort Never; who stays: 1 out of reach of work that would borrow"
    )
    assert general_step(found) == (
        "Request no more than 4 cpu, or have `borrowWithinCohort.policy: LowerPriority` set in "
        "ClusterQueue lender."
    )
    assert starts(cohort(RECLAIMS).submit(asking(4, 8, priority=1000)))
    assert starts(
        cohort(replace(RECLAIMS, borrow_within_cohort=OPEN)).submit(asking(6, 8, priority=1000))
    )


def test_work_that_would_borrow_is_told_above_which_priority_it_may_preempt() -> None:
    found = told(cohort(RECLAIMS).submit(asking(6, 8, priority=7)))
    assert found.cause is Cause.BORROWING
    assert general_step(found).endswith("set in ClusterQueue lender and use a priority above 7.")
    rules = replace(RECLAIMS, borrow_within_cohort=OPEN)
    assert not starts(cohort(rules).submit(asking(6, 8, priority=7)))
    assert starts(cohort(rules).submit(asking(6, 8, priority=8)))


def test_a_threshold_of_priorities_is_named_as_what_forbids_it() -> None:
    rules = replace(RECLAIMS, borrow_within_cohort=replace(OPEN, max_priority_threshold=5))
    found = told(cohort(rules).submit(asking(6, 8, priority=1000)))
    assert found.cause is Cause.BORROWING
    assert "borrowWithinCohort LowerPriority, with maxPriorityThreshold 5" in sentence(found)
    rules = replace(RECLAIMS, borrow_within_cohort=OPEN)
    assert starts(cohort(rules).submit(asking(6, 8, priority=1000)))


def test_with_nothing_of_its_own_only_the_policy_is_named() -> None:
    def site(rules: Preemption) -> Site:
        queues = (
            queue("q", 0, "all", preemption=rules),
            queue("r", 0, "all"),
            queue("s", 8, "all"),
        )
        return (
            Site(*queues).hold(held(work("h", "r", 8), "r")).submit(work("w", "q", 8, priority=1))
        )

    found = told(site(RECLAIMS))
    assert found.cause is Cause.BORROWING
    assert general_step(found).startswith("Wait until some of it ends, request less, or have `b")
    assert starts(site(replace(RECLAIMS, borrow_within_cohort=OPEN)))


def test_free_quota_that_is_kept_for_a_strict_head_is_said_to_be() -> None:
    def site(strategy: QueueingStrategy) -> Site:
        """The cohort has 4 free of 8; the head of `strict` wants some."""
        queues = (
            queue("strict", 8, "all", preemption=Preemption(), strategy=strategy),
            queue("q", 0, "all", preemption=Preemption()),
        )
        found = Site(*queues).hold(held(work("h", "strict", 4), "strict"))
        return found.submit(work("first", "strict", 8, priority=1), work("w", "q", 4))

    strict = QueueingStrategy.STRICT_FIFO
    found = told(site(strict))
    assert (found.reason, found.cause) == (Reason.HELD_BY_OTHERS, Cause.KEPT_FOR_HEADS)
    assert sentence(found).endswith("it is kept for team/first of ClusterQueue strict")
    assert general_step(found).endswith("`queueingStrategy: BestEffortFIFO`.")
    assert starts(site(QueueingStrategy.BEST_EFFORT_FIFO))


def test_a_priority_that_is_too_low_is_named_with_the_one_that_helps() -> None:
    def site(priority: int) -> Site:
        site = Site(queue("q", 8)).hold(held(work("h", "q", 8, priority=5), "q"))
        return site.submit(work("w", "q", 2, priority=priority))

    found = told(site(5))
    assert found.cause is Cause.PRIORITY
    assert general_step(found).startswith("Use a priority above 5,")
    assert starts(site(6))


def test_a_queue_that_preempts_nobody_is_told_as_what_keeps_it_waiting() -> None:
    def site(rules: Preemption, priority: int) -> Site:
        site = Site(queue("q", 8, preemption=rules)).hold(held(work("h", "q", 8), "q"))
        return site.submit(work("w", "q", 2, priority=priority))

    found = told(site(Preemption(), 9))
    assert found.cause is Cause.POLICY
    assert general_step(found) == (
        "Wait until some of it ends, request less, or have `preemption` of ClusterQueue q set to "
        "withinClusterQueue: LowerPriority."
    )
    assert starts(site(Preemption(Policy.LOWER_PRIORITY), 9))
    found = told(site(Preemption(), 0))
    assert general_step(found).endswith("LowerPriority and use a priority above 0.")
    assert starts(site(Preemption(Policy.LOWER_PRIORITY), 1))


def test_a_queue_that_takes_nothing_back_is_told_as_what_keeps_it_waiting() -> None:
    found = told(cohort(Preemption(Policy.LOWER_PRIORITY)).submit(asking(4, 8)))
    assert found.cause is Cause.POLICY
    assert general_step(found).endswith("set to reclaimWithinCohort: Any.")
    assert starts(cohort(RECLAIMS).submit(asking(4, 8)))


def test_where_both_policies_are_needed_both_are_named() -> None:
    def site(rules: Preemption) -> Site:
        site = Site(queue("q", 8, "all", preemption=rules), queue("r", 0, "all"))
        site.hold(held(work("own", "q", 4), "q"), held(work("theirs", "r", 4), "r"))
        return site.submit(work("w", "q", 8, priority=1))

    found = told(site(Preemption()))
    assert found.cause is Cause.POLICY
    assert "withinClusterQueue: LowerPriority, reclaimWithinCohort: Any" in general_step(found)
    assert starts(site(Preemption(Policy.LOWER_PRIORITY, Policy.ANY)))


def test_what_others_hold_of_their_own_is_changed_by_more_quota_only() -> None:
    def site(quota: int) -> Site:
        site = Site(queue("q", quota, "all"), queue("r", 8, "all"))
        return site.hold(held(work("h", "r", 8), "r")).submit(work("w", "q", 2, priority=9))

    found = told(site(1))
    assert found.cause is Cause.NOT_RECLAIMABLE
    assert "use a higher priority" not in general_step(found)
    assert starts(site(2))


def test_a_minimum_runtime_is_told_as_what_ends_by_itself() -> None:
    def site() -> Site:
        site = Site(queue("q", 8), ledger=Displacements())
        young = work("young", "q", 8, preempt_min_runtime_s=3600)
        return site.hold(held(young, "q")).submit(work("w", "q", 2, priority=5))

    found = told(site())
    assert found.cause is Cause.PROTECTION
    assert found.earliest == NOW + 3000 * SECOND
    later = site()
    later.decide(Nanos(found.earliest))
    assert later.entries["team/w"].outcome is Outcome.PREEMPTING


def test_of_partial_admission_the_smallest_count_is_asked_about() -> None:
    def site(priority: int) -> Site:
        site = Site(queue("q", 8)).hold(held(work("h", "q", 8, priority=5), "q"))
        return site.submit(work("w", "q", 1, 9, min_count=2, priority=priority))

    found = told(site(5))
    assert found.cause is Cause.PRIORITY
    assert starts(site(6))


def test_a_resource_without_quota_is_told_as_that_and_not_as_nodes() -> None:
    def site(workload: Workload, **given: Any) -> Site:
        return Site(queue("q", 8), **given).submit(workload)

    pod_set = PodSet("main", 1, {GPU: 1, "memory": 2**30})
    wanting = replace(work("w", "q", 1), pod_sets=(pod_set,))
    found = told(site(wanting))
    assert (found.reason, found.cause) == (Reason.NO_FLAVOR_MATCHES, Cause.NOT_COVERED)
    assert sentence(found) == (
        "Its queue has no quota for a resource that its pods request: ClusterQueue q has none for "
        "memory"
    )
    assert general_step(found) == (
        "Have memory added to `coveredResources` of ClusterQueue q, set "
        "`resources.quotaCheckStrategy: IgnoreUndeclared`, or do not request it."
    )
    assert starts(site(wanting, settings=Settings(ignore_undeclared=True)))
    assert starts(site(work("w", "q", 1)))
    quotas = {GPU: Quota(8), "memory": Quota(2**30)}
    covering = (ResourceGroup((GPU, "memory"), (FlavorQuotas("a100", quotas),)),)
    assert starts(Site(queue("q", 8, groups=covering)).submit(wanting))


def test_nodes_that_pods_do_not_accept_are_told_as_that() -> None:
    tainted = (ResourceFlavor("a100", taints=(Taint("gpu", "a100", "NoSchedule"),)),)
    found = told(Site(queue("q", 8), flavors=tainted).submit(work("w", "q", 1)))
    assert (found.reason, found.cause) == (Reason.NO_FLAVOR_MATCHES, None)
    tolerating = work("w", "q", 1)
    pod_set = replace(tolerating.pod_sets[0], tolerations=(Toleration("gpu", "Exists"),))
    site = Site(queue("q", 8), flavors=tainted)
    assert starts(site.submit(replace(tolerating, pod_sets=(pod_set,))))


def two_pools() -> tuple[ClusterQueue, tuple[ResourceFlavor, ...]]:
    """Return a queue of plain nodes without GPUs, and of tainted ones with 4."""
    flavors = tuple(
        FlavorQuotas(name, {"cpu": Quota(8 * CPU), GPU: Quota(gpus)})
        for name, gpus in (("cpu-nodes", 0), ("gpu-nodes", 4))
    )
    tainted = ResourceFlavor("gpu-nodes", taints=(Taint("gpu", "true", "NoSchedule"),))
    group = ResourceGroup(("cpu", GPU), flavors)
    two = queue("two", 0, groups=(group,), preemption=Preemption())
    return two, (ResourceFlavor("cpu-nodes"), tainted)


def driver_and_gpus() -> Workload:
    tolerations = (Toleration("gpu", "Exists"),)
    pod_sets = (
        PodSet("driver", 1, {"cpu": CPU}),
        PodSet("gpu", 1, {"cpu": CPU, GPU: 4}, tolerations=tolerations),
    )
    return Workload("team", "w", "uid-w", "team/two", pod_sets=pod_sets)


def test_of_several_pod_sets_the_one_is_named_that_lacks_something() -> None:
    two, flavors = two_pools()
    holder = replace(
        work("h", "two", 4),
        pod_sets=(PodSet("gpu", 1, {"cpu": CPU, GPU: 4}, tolerations=(Toleration("gpu"),)),),
    )
    site = Site(two, flavors=flavors).hold(held(holder, "two", "gpu-nodes"))
    found = told(site.submit(driver_and_gpus()))
    assert found.reason is Reason.HELD_BY_OTHERS
    assert found.deficit == {("gpu-nodes", GPU): 4}
    assert [each.holder.name for each in found.blockers] == ["h"]
    assert "it lacks 4 nvidia.com/gpu in gpu-nodes; that is of its pod set gpu" in sentence(found)
    assert starts(Site(two, flavors=flavors).submit(driver_and_gpus()))


def test_pod_sets_count_what_those_before_them_take() -> None:
    site = Site(queue("q", 6)).hold(held(work("h", "q", 1), "q"))
    pod_sets = (PodSet("first", 1, {GPU: 3}), PodSet("second", 1, {GPU: 3}))
    site.submit(replace(work("w", "q", 1), pod_sets=pod_sets))
    found = told(site)
    assert found.deficit == {("a100", GPU): 1}
    assert found.values["pod_sets"] == "pod set second"


@pytest.mark.parametrize(
    ("pod_sets", "needs", "named"),
    [
        ((PodSet("a", 1, {GPU: 1}), PodSet("b", 1, {GPU: 9})), f"9 {GPU}", "pod set b"),
        ((PodSet("a", 1, {GPU: 5}), PodSet("b", 1, {GPU: 5})), f"10 {GPU}", "pod sets a and b"),
    ],
)
def test_of_what_never_fits_the_pod_sets_are_named(
    pod_sets: tuple[PodSet, ...], needs: str, named: str
) -> None:
    found = told(Site(queue("q", 8)).submit(replace(work("w", "q", 1), pod_sets=pod_sets)))
    assert found.reason is Reason.NEVER_FITS
    assert (found.values["needs"], found.values["pod_sets"]) == (needs, named)


def test_a_workload_that_the_operator_deactivated_is_told_what_for() -> None:
    why = Eviction("DeactivatedDueToRequeuingLimitExceeded", NOW)
    site = Site(queue("q", 8)).submit(work("w", "q", 1, active=False, evicted=why))
    found = told(site)
    assert (found.reason, found.cause) == (Reason.STOPPED, Cause.DEACTIVATED_BY_OPERATOR)
    assert sentence(found) == (
        "Its Workload was deactivated by the operator: the Workload is w; the reason is "
        "RequeuingLimitExceeded"
    )
    assert general_step(found).endswith("then activate Workload w: `spec.active: true`.")
    by_hand = told(Site(queue("q", 8)).submit(work("w", "q", 1, active=False)))
    assert by_hand.cause is Cause.DEACTIVATED
    assert starts(Site(queue("q", 8)).submit(work("w", "q", 1)))


def test_under_fair_sharing_a_share_that_is_not_to_take_is_told() -> None:
    settings = Settings(fair_sharing=tuple(Strategy))

    def site(quota: int) -> Site:
        queues = queue("q", quota, "all"), queue("r", 8, "all")
        site = Site(*queues, settings=settings).hold(held(work("h", "r", 8), "r"))
        return site.submit(work("w", "q", 2, priority=9))

    assert told(site(1)).cause is Cause.NOT_RECLAIMABLE
    assert starts(site(2))


def test_a_condition_names_the_pod_set_that_lacks_something_though_the_scan_went_on() -> None:
    two, flavors = two_pools()
    tolerations = (Toleration("gpu", "Exists"),)
    gpus = PodSet("gpu", 1, {"cpu": CPU, GPU: 4}, tolerations=tolerations)
    holder = replace(work("h", "two", 4), pod_sets=(gpus,))
    site = Site(two, flavors=flavors).hold(held(holder, "two", "gpu-nodes"))
    entry = site.submit(driver_and_gpus()).decide().entries["team/w"]
    # The search went on behind the first flavors, and then began anew.
    assert entry.resumed is not None
    assert entry.outcome is Outcome.NO_CANDIDATES
    assert entry.reason == "WaitingForQuota"
    assert entry.message.startswith("couldn't assign flavors to pod set gpu: ")
    assert entry.message.endswith(
        "insufficient unused quota for nvidia.com/gpu in flavor gpu-nodes, 4 more needed"
    )


def test_holders_of_every_flavor_that_would_do_are_named() -> None:
    flavors = tuple(FlavorQuotas(name, {GPU: Quota(4)}) for name in ("a100", "h100"))
    both = queue("q", 0, groups=(ResourceGroup((GPU,), flavors),))
    site = Site(both)
    site.hold(held(work("one", "q", 4), "q", "a100"), held(work("two", "q", 4), "q", "h100"))
    found = told(site.submit(work("w", "q", 4)))
    assert found.deficit == {("a100", GPU): 4, ("h100", GPU): 4}
    assert {each.holder.name for each in found.blockers} == {"one", "two"}


def test_a_level_that_no_topology_of_the_queue_has_is_told_with_those_that_there_are() -> None:
    pod_set = PodSet("main", 2, {GPU: 1}, topology=TopologyRequest(required="block"))
    wanting = replace(work("w", "q", 2), pod_sets=(pod_set,))

    def cause(flavor: ResourceFlavor) -> Diagnosis:
        site = Site(queue("q", 8), flavors=(flavor,), topologies={"racks": RACKS})
        return told(site.submit(wanting))

    missing = cause(ResourceFlavor("a100", topology="racks"))
    assert (missing.reason, missing.cause) == (Reason.NO_FLAVOR_MATCHES, Cause.LEVEL_MISSING)
    assert sentence(missing) == (
        "No topology of its queue's flavors has the level that its pods request: they request "
        "block; topology racks has rack and host"
    )
    bare = cause(ResourceFlavor("a100"))
    assert (bare.reason, bare.cause) == (Reason.NO_FLAVOR_MATCHES, Cause.NO_TOPOLOGY)
    assert "they request block" in sentence(bare)


KINDS = ResourceFlavor("a", {"kind": "a"}), ResourceFlavor("b", {"kind": "b"})
TAINTED = ResourceFlavor("a", {}, (Taint("a", "", "NoSchedule"),)), ResourceFlavor("b")
ON_A, ON_B = {"kind": "a"}, {"kind": "b"}


def borrower(
    flavors: Sequence[ResourceFlavor], driver: PodSet, worker: PodSet, lent: int = 4
) -> Site:
    """Return a queue that borrows all, whose scan continues behind flavors that would borrow.

    It ends behind the last flavor, so that no later scan continues it.
    """

    def groups(*nominal: int) -> tuple[ResourceGroup, ...]:
        pairs = zip(flavors, nominal, strict=True)
        quotas = tuple(FlavorQuotas(each.name, {GPU: Quota(n)}) for each, n in pairs)
        return (ResourceGroup((GPU,), quotas),)

    scan = FlavorFungibility(when_can_borrow=Fungibility.TRY_NEXT_FLAVOR)
    lends = tuple(lent if each.name == "a" else 4 for each in flavors)
    site = Site(
        queue("q", 0, "all", groups=groups(0, 0), fungibility=scan),
        queue("r", 0, "all", groups=groups(*lends)),
        flavors=flavors,
    )
    return site.submit(Workload("team", "w", "uid-w", "team/q", pod_sets=(driver, worker)))


def gpus(name: str, **given: Any) -> PodSet:
    return PodSet(name, 1, {GPU: 4}, **given)


def test_flavors_that_an_earlier_pod_set_uses_up_are_named_and_others_start_it() -> None:
    worker = gpus("worker", node_selector=ON_A)
    found = told(borrower(KINDS, gpus("driver"), worker))
    assert (found.reason, found.cause) == (Reason.NEVER_FITS, Cause.NEVER_WITH_FLAVORS)
    assert general_step(found).endswith("by their labels (b for driver, a for worker).")
    assert starts(borrower(KINDS, gpus("driver", node_selector=ON_B), worker))


def test_flavors_that_would_be_free_are_named_where_others_hold_those_of_the_queue() -> None:
    def site(driver: PodSet) -> Site:
        holder = held(work("h", "r", 4, priority=9), "r", "a")
        return borrower(KINDS, driver, gpus("worker", node_selector=ON_A), lent=8).hold(holder)

    found = told(site(gpus("driver")))
    assert (found.reason, found.cause) == (Reason.HELD_BY_OTHERS, Cause.FLAVORS)
    assert general_step(found).endswith("by their labels (b for driver, a for worker).")
    assert starts(site(gpus("driver", node_selector=ON_B)))


def test_an_order_of_flavors_is_named_where_no_selector_can_choose_among_them() -> None:
    driver = gpus("driver", tolerations=(Toleration("a", "Exists"),))
    found = told(borrower(TAINTED[::-1], driver, gpus("worker")))
    assert (found.reason, found.cause) == (Reason.NEVER_FITS, Cause.NEVER_WITH_FLAVORS)
    assert general_step(found) == (
        "Request less, or have ClusterQueue q with its flavors in the order a, b."
    )
    assert starts(borrower(TAINTED, driver, gpus("worker")))


def test_flavors_that_work_uses_because_of_others_do_not_make_it_never_fit() -> None:
    def site(*holders: Workload) -> Site:
        # With a busy it would use b for both of its pod sets.
        pod_sets = gpus("driver"), gpus("worker", node_selector=ON_B)
        return borrower(KINDS, *pod_sets).hold(*holders)

    found = told(site(held(work("h", "r", 4, priority=9), "r", "a")))
    assert found.reason is Reason.HELD_BY_OTHERS
    assert starts(site())


@pytest.mark.parametrize(
    ("names", "named"),
    [
        (["head"], "that is of its pod set head"),
        (["head", "w"], "that is of its pod sets head and w"),
        (["head", "w", "x"], "that is of its pod sets head, w and x"),
    ],
)
def test_all_pod_sets_that_lack_something_are_named(names: list[str], named: str) -> None:
    lacking = tuple(PodSet(each, 1, {GPU: 4}) for each in names)
    free = PodSet("free", 1, {"cpu": CPU})
    site = Site(queue("q", 0, groups=group_of(4, 16)))
    site.hold(held(work("h", "q", 16, priority=9), "q"))
    wanting = Workload("team", "w", "uid-w", "team/q", pod_sets=(free, *lacking))
    assert f"; {named}; " in sentence(told(site.submit(wanting)))
