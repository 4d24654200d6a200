"""A preemption is looked at once more before it is carried out: every fault is found and named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from kubeworld.units.instants import Nanos
from reprieve.engine.plan_faults import PlanFault, PlanRefused
from reprieve.engine.quota import evictions
from reprieve.engine.quota.cycle import cycle, cycles
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.snapshot import Snapshot
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    AdmittedPodSet,
    BorrowWithinCohort,
    ClusterQueue,
    Configuration,
    FlavorQuotas,
    FlavorResource,
    LocalQueue,
    PodSet,
    Policy,
    Preemption,
    Quota,
    Reason,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    Workload,
)
from reprieve.engine.quota.proofs.proof import Fault, faults_of
from reprieve.engine.quota.proofs.proof_state import Preempting, Victim
from reprieve.engine.quota.targets.candidates import preemptor
from reprieve.engine.quota.targets.preemption import find_targets
from reprieve.engine.quota.waiting.queues import Queues
from tests.quota.cases import NOW, SECOND, Size, holding, scene
from tests.quota.test_cycle import start
from tests.quota.test_invariants import stop

CPU = FlavorResource("default", "cpu")
RECLAIM = Preemption(Policy.LOWER_PRIORITY, Policy.ANY)
DEFAULTS = Settings()
BORROWING = Preemption(
    Policy.LOWER_PRIORITY, Policy.ANY, BorrowWithinCohort(Policy.LOWER_PRIORITY, 3)
)


def queue(
    name: str, cpu: Quota, cohort: str = "all", preemption: Preemption = RECLAIM
) -> ClusterQueue:
    flavors = (
        FlavorQuotas("default", {"cpu": cpu}),
        FlavorQuotas("spare", {"cpu": Quota(1)}),
    )
    return ClusterQueue(name, cohort, (ResourceGroup(("cpu",), flavors),), preemption)


def asking(name: str, queue: str, cpu: int, priority: int = 0, **changes: Any) -> Workload:
    pods = (PodSet("main", 1, {"cpu": cpu}),)
    made = Workload("ns", name, uid=name, queue=f"ns/{queue}", priority=priority, pod_sets=pods)
    return replace(made, created=NOW, **changes)


def admitted(
    name: str, queue: str, cpu: int, priority: int = 0, flavor: str = "default", **changes: Any
) -> Workload:
    return holding(asking(name, queue, cpu, priority, **changes), queue, flavor, NOW)


@dataclass(frozen=True)
class Given:
    """A decided preemption, and all that its proof looks at."""

    holdings: Holdings
    plan: Preempting
    searched: Snapshot
    current: Snapshot
    leaving: tuple[Holder, ...] = ()

    def faults(self) -> tuple[PlanFault, ...]:
        holders = self.holdings.holders
        return faults_of(self.plan, self.searched, self.current, holders, self.leaving)

    def victims(self, *names: str, reason: Reason = Reason.IN_COHORT_RECLAMATION) -> Given:
        """Return it with these victims; those of the preemptor's own queue have their reason."""
        found = []
        for name in names:
            holder = self.holdings.holders[f"ns/{name}"]
            own = holder.queue == self.plan.queue
            found.append(Victim(holder, Reason.IN_CLUSTER_QUEUE if own else reason))
        return replace(self, plan=replace(self.plan, victims=tuple(found)))


def decided(
    queues: Iterable[ClusterQueue],
    holders: Iterable[Workload],
    incoming: Workload,
    settings: Settings = DEFAULTS,
) -> Given:
    """Return what the search decides for one that asks for cpus of the flavor `default`."""
    made = {each.name: each for each in queues}
    configuration = Configuration(
        made,
        {},
        {name: ResourceFlavor(name) for name in ("default", "spare")},
        {f"ns/{name}": LocalQueue(f"ns/{name}", name) for name in made},
        {"ns": {}},
        settings,
    )
    holdings = Holdings(configuration)
    for workload in holders:
        holdings.hold(workload)
    snapshot = holdings.snapshot()
    tree = snapshot.tree
    who = preemptor(incoming, tree.queues[incoming.queue.partition("/")[2]], settings)
    asked = {tree.column(CPU): incoming.pod_sets[0].requests["cpu"]}
    found = find_targets(snapshot, who, asked, frozenset(asked))
    victims = () if found is None else (Victim(t.holder, t.reason) for t in found.targets)
    plan = Preempting(incoming, who.queue, asked, tuple(victims), NOW)
    return Given(holdings, plan, snapshot, snapshot.without(()))


def reclaiming() -> Given:
    """`theirs` has borrowed 4 cpus, which `mine` wants back for one workload."""
    return decided(
        (
            queue("mine", Quota(6)),
            queue("theirs", Quota(2)),
            queue("elsewhere", Quota(2), "other"),
        ),
        (
            *(admitted(f"low-{number}", "theirs", 2) for number in (1, 2, 3)),
            admitted("own-low", "mine", 1),
            admitted("own-high", "mine", 1, priority=9),
            admitted("on-spare", "theirs", 2, flavor="spare"),
            admitted("young", "theirs", 0, reclaim_min_runtime_s=60),
            admitted("other-tree", "elsewhere", 2),
        ),
        asking("incoming", "mine", 4, priority=5),
    )


def borrowing() -> Given:
    """`mine` borrows already and is to borrow more, for which only lower ones are preempted."""
    return decided(
        (
            queue("mine", Quota(2), preemption=BORROWING),
            queue("theirs", Quota(0)),
            queue("lender", Quota(4)),
        ),
        (
            admitted("own", "mine", 2, priority=9),
            admitted("low", "theirs", 2),
            admitted("over-threshold", "theirs", 2, priority=4),
        ),
        asking("incoming", "mine", 2, priority=5),
    )


def sharing(mine: int = 1, asked: int = 2) -> Given:
    """`mine` borrows less than `theirs`; shares decide who is preempted."""
    return decided(
        (queue("mine", Quota(0)), queue("theirs", Quota(0)), queue("lender", Quota(8))),
        (
            admitted("own", "mine", mine, priority=9),
            *(admitted(f"low-{number}", "theirs", 1) for number in range(8 - mine)),
        ),
        asking("incoming", "mine", asked, priority=5),
        Settings(fair_sharing=()),
    )


def names(given: Given) -> list[tuple[str, str]]:
    return [(each.holder.workload.name, str(each.reason)) for each in given.plan.victims]


def test_what_the_search_decides_has_no_fault() -> None:
    reclamation = Reason.IN_COHORT_RECLAMATION
    assert names(reclaiming()) == [("low-1", reclamation), ("low-2", reclamation)]
    assert names(borrowing()) == [("low", Reason.IN_COHORT_RECLAIM_WHILE_BORROWING)]
    assert [reason for _, reason in names(sharing())] == [Reason.IN_COHORT_FAIR_SHARING] * 2
    decisions = (reclaiming(), assigned(reclaiming()), borrowing(), sharing())
    assert [each.faults() for each in decisions] == [()] * 4


def also(given: Given, workload: Workload, *victims: str) -> Given:
    """Return the case with one more that holds quota, as if it were there before."""
    given.holdings.hold(workload)
    return replace(given.victims(*victims), searched=given.holdings.snapshot())


def dearer(given: Given) -> Given:
    """Return the plan as if one workload were enough, and others had been taken for it."""
    spared = (given.plan.victims[0].holder,)
    return replace(given, plan=replace(given.plan, instead=spared))


def without(given: Given, name: str) -> Given:
    given.holdings.release(f"ns/{name}")
    return given


def evicted(given: Given, name: str) -> Given:
    given.holdings.expect_eviction(f"ns/{name}", Reason.IN_CLUSTER_QUEUE, NOW)
    return given


def itself(given: Given) -> Given:
    tree, plan = given.searched.tree, given.plan
    held = given.holdings.holder(holding(plan.workload, "mine", "default", NOW), plan.queue)
    assert tree.names[plan.queue] == "mine"
    victims = (*plan.victims, Victim(held, Reason.IN_CLUSTER_QUEUE))
    return replace(given, plan=replace(plan, victims=victims))


def asks(given: Given, cpu: int) -> Given:
    requests = dict.fromkeys(given.plan.requests, cpu)
    return replace(given, plan=replace(given.plan, requests=requests))


def miscounted(given: Given) -> Given:
    tree = given.searched.tree
    given.searched.usage[tree.column(CPU)][tree.cohorts["all"]] -= 1
    return given


def taken_meanwhile(given: Given) -> Given:
    tree = given.searched.tree
    given.current.add_usage(tree.queues["mine"], [(tree.column(CPU), 1)])
    return given


def inactive(given: Given, name: str) -> Given:
    given.searched.tree.inactive[name] = "it is stopped"
    return given


def only_lent(given: Given) -> Given:
    """Return the case in which the lender keeps all but 3 of its 4 cpus for itself."""
    changed = dict(given.searched.configuration.cluster_queues)
    changed["lender"] = queue("lender", Quota(4, lending_limit=3))
    again = decided(
        changed.values(),
        [holder.workload for holder in given.holdings.holders.values()],
        given.plan.workload,
    )
    victims = [each.holder.workload.name for each in given.plan.victims]
    assert not again.plan.victims
    return again.victims(*victims, reason=given.plan.victims[0].reason)


def assigned(given: Given, flavor: str = "default", count: int = 1) -> Given:
    """Return the case with the flavor and the number of pods that the request comes from."""
    pod_set = AdmittedPodSet("main", count, {"cpu": flavor}, {"cpu": 4 * count})
    return replace(given, plan=replace(given.plan, pod_sets=(pod_set,)))


Tamper = Callable[[], Given]
CASES: dict[str, tuple[Tamper, tuple[PlanFault, ...]]] = {
    "a victim twice": (
        lambda: reclaiming().victims("low-1", "low-2", "low-2"),
        (PlanFault(Fault.NAMED_TWICE, "ns/low-2"),),
    ),
    "one victim too few": (
        lambda: reclaiming().victims("low-1"),
        (PlanFault(Fault.NOT_FEASIBLE, "ns/incoming"),),
    ),
    "one victim too many": (
        lambda: reclaiming().victims("low-1", "low-2", "own-low"),
        (PlanFault(Fault.NOT_NEEDED, "ns/own-low"),),
    ),
    "one too many, who did not even borrow": (
        lambda: reclaiming().victims("low-1", "low-2", "low-3"),
        (
            PlanFault(Fault.WITHIN_ITS_OWN, "theirs", "theirs"),
            *(PlanFault(Fault.NOT_NEEDED, f"ns/low-{number}") for number in (1, 2, 3)),
        ),
    ),
    "the preemptor itself": (
        lambda: itself(reclaiming()),
        (PlanFault(Fault.ITSELF, "ns/incoming"),),
    ),
    "one that has ended": (
        lambda: without(reclaiming(), "low-1"),
        (PlanFault(Fault.NOT_HOLDING, "ns/low-1"),),
    ),
    "one that another plan evicts": (
        lambda: evicted(reclaiming(), "low-1"),
        (PlanFault(Fault.ALREADY_EVICTED, "ns/low-1"),),
    ),
    "one of a higher priority": (
        lambda: reclaiming().victims("low-1", "low-2", "own-high"),
        (PlanFault(Fault.FORBIDDEN, "ns/own-high"),),
    ),
    "one on another flavor": (
        lambda: reclaiming().victims("low-1", "low-2", "on-spare"),
        (PlanFault(Fault.OF_NO_USE, "ns/on-spare"),),
    ),
    "one that has just started": (
        lambda: reclaiming().victims("low-1", "low-2", "young"),
        (PlanFault(Fault.PROTECTED, "ns/young", "60s"),),
    ),
    "one of another tree": (
        lambda: reclaiming().victims("low-1", "low-2", "other-tree"),
        (PlanFault(Fault.ELSEWHERE, "ns/other-tree", "elsewhere"),),
    ),
    "those of a queue that is stopped": (
        lambda: inactive(reclaiming(), "theirs"),
        tuple(PlanFault(Fault.ELSEWHERE, f"ns/low-{number}", "theirs") for number in (1, 2)),
    ),
    "another reason": (
        lambda: reclaiming().victims("low-1", "low-2", reason=Reason.IN_COHORT_FAIR_SHARING),
        tuple(
            PlanFault(
                Fault.WRONG_REASON,
                f"ns/low-{number}",
                "InCohortFairSharing, not InCohortReclamation",
            )
            for number in (1, 2)
        ),
    ),
    "less than its pod set needs": (
        lambda: assigned(asks(reclaiming(), 3)).victims("low-1", "own-low"),
        (PlanFault(Fault.DEMAND, "ns/incoming"),),
    ),
    "fewer pods than it has": (
        lambda: assigned(reclaiming(), count=0),
        (PlanFault(Fault.DEMAND, "ns/incoming", "main"),),
    ),
    "a flavor that its queue does not offer": (
        lambda: assigned(reclaiming(), "unknown"),
        (PlanFault(Fault.NOT_OFFERED, "ns/incoming", "main: flavor unknown for cpu"),),
    ),
    "a preemptor that holds quota": (
        lambda: also(reclaiming(), admitted("incoming", "mine", 0), "low-1", "low-2"),
        (PlanFault(Fault.HOLDS_QUOTA, "ns/incoming"),),
    ),
    "nothing is lacking": (
        lambda: asks(reclaiming(), 0),
        (PlanFault(Fault.NOTHING_LACKS, "ns/incoming"),),
    ),
    "a cohort that is said to use less": (
        lambda: miscounted(reclaiming()),
        (PlanFault(Fault.UNDERSTATED, "all"),),
    ),
    "quota that another one has taken meanwhile": (
        lambda: taken_meanwhile(reclaiming()),
        (PlanFault(Fault.NOT_FEASIBLE, "ns/incoming", "by now"),),
    ),
    "quota that is not lent": (
        lambda: only_lent(borrowing()),
        (PlanFault(Fault.NOT_FEASIBLE, "ns/incoming"),),
    ),
    "one above the threshold for a preemptor that borrows": (
        lambda: borrowing().victims("over-threshold"),
        (PlanFault(Fault.NOT_WHILE_BORROWING, "ns/incoming"),),
    ),
    "others that cost more than those of the reference": (
        lambda: dearer(reclaiming()),
        (PlanFault(Fault.DEARER, "ns/incoming"),),
    ),
    "one whose share is not the larger one": (
        lambda: sharing(mine=4, asked=1).victims("low-0", reason=Reason.IN_COHORT_FAIR_SHARING),
        (PlanFault(Fault.SHARES, "ns/low-0"),),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_plan_that_was_tampered_with_is_refused_with_its_fault(case: str) -> None:
    tampered, faults = CASES[case]
    assert tampered().faults() == faults


def test_every_fault_has_been_seen() -> None:
    seen = {each.fault for _, faults in CASES.values() for each in faults}
    assert seen == set(Fault) - {Fault.NOT_PLACED}, "that one is seen in test_topologies"


def test_no_preemption_of_random_cycles_is_refused() -> None:
    random, seen = Random(71), Counter[str]()
    sizes = (Size(admitted=12, pending=14), Size(queues=7, cohorts=5, admitted=25, pending=14))
    for number in range(600):
        case = scene(random, size=sizes[number % 2])
        holdings, queues = start(case)
        for turn in range(4):
            now = Nanos(NOW + turn * SECOND)
            result = cycle(holdings, queues, now, turn)
            assert not result.of(Outcome.FAULT), (number, turn)
            for entry in result.of(Outcome.PREEMPTING):
                note(seen, entry, result.entries)
            seen["looked at again"] += len(result.recomputations)
            stop(holdings, queues, random, now)
    assert min(seen[each] for each in Reason) >= 50, seen
    assert min(seen[each] for each in ("several", "after another", "evicted before")) >= 50, seen
    assert seen["looked at again"] >= 20, seen


def note(seen: Counter[str], entry: Entry, entries: list[Entry]) -> None:
    seen.update(str(target.reason) for target in entry.targets)
    seen["several"] += len(entry.targets) > 1
    seen["evicted before"] += len(entry.issued) < len(entry.targets)
    before = entries[: entries.index(entry)]
    seen["after another"] += any(each.outcome is Outcome.PREEMPTING for each in before)


def test_a_plan_whose_proof_fails_evicts_nobody_and_its_preemptor_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = reclaiming()
    holdings, queues = given.holdings, Queues(given.searched.configuration)
    queues.push(given.plan.workload)
    refusal = (PlanFault(Fault.NOT_FEASIBLE, "ns/incoming"),)
    with monkeypatch.context() as patched:
        patched.setattr(evictions, "faults_of", lambda *_: refusal)
        results = list(cycles(holdings, queues, NOW, 20))
    (refused,) = [entry for result in results for entry in result.of(Outcome.FAULT)]
    assert isinstance(refused.failure, PlanRefused)
    assert refused.failure.faults == refusal
    assert refused.issued == ()
    assert refused.message == (
        "A fault of the operator keeps it from being decided about; tried again after 10s: "
        "PlanRefused: ns/incoming: the preemptor does not fit without the victims"
    )
    assert not any(holder.evicted for holder in holdings.holders.values())
    queues.flush(given.searched.configuration.cluster_queues)
    later = [
        entry
        for result in cycles(holdings, queues, Nanos(NOW + 10 * SECOND), 20)
        for entry in result.of(Outcome.PREEMPTING)
        if entry.issued
    ]
    assert [len(entry.issued) for entry in later] == [2]
