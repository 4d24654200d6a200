"""The input of a preemption by quota is stored so that running the cycle again gives its plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import Metadata, Preemption
from reprieve.engine.plan import Plan, ProofLevel
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.entries import Entry, NodeCheck, Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    ClusterQueue,
    Configuration,
    FlavorQuotas,
    LocalQueue,
    PodSet,
    Policy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    Workload,
)
from reprieve.engine.quota.model import Preemption as Rules
from reprieve.engine.quota.plans import plan_of
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.planes.quota.deciding.cycles import recorded_cycles
from reprieve.records.idle.replay import InputOmitted, SpoiltInput
from reprieve.records.plans.intent_specs import intent_spec
from reprieve.records.quota import record as quota_record
from reprieve.records.quota.record import policy_text
from reprieve.records.quota.replay import (
    QuotaReplay,
    Standing,
    decide_quota_again,
    quota_answers,
)
from reprieve.records.quota.story import quota_answer_text, quota_story, workloads_named
from tests.quota.cases import NOW, SECOND, Size, holding, scene

TOLD = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in "
    "flavor gpus, 2 more needed. Pending the preemption of 1 workload(s)"
)
SPARED = "stays: reclaimWithinCohort of a is LowerPriority"
SIZE = Size(queues=7, admitted=16, pending=14)
Preempted = tuple[Entry, Plan, dict[str, Any]]


def again(recorded: dict[str, Any]) -> QuotaReplay:
    """Decide what comes back from the API server."""
    return decide_quota_again(msgspec.json.decode(msgspec.json.encode(recorded)))


class Refusing(NodeCheck):
    """Nodes that would not take every third workload."""

    def refusal(self, entry: Entry, holders: Any, flavors: Any) -> str:
        entry.proven = sum(entry.workload.name.encode()) % 3 > 0
        return "" if entry.proven else "Not preempted: no node"

    def flavor_for(self, entry: Entry, others: Any, holders: Any, flavors: Any) -> None:
        return None

    def room_made(
        self, entry: Entry, snapshot: Any, holders: Any, flavors: Any, by_rules: Any
    ) -> tuple[()]:
        return ()

    def delays(self, entry: Entry) -> str:
        return ""

    def claim(self, entry: Entry, flavors: Any) -> None:
        pass


def preemptions(
    holdings: Holdings,
    queues: Queues,
    ledger: Displacements | None = None,
    proof: NodeCheck | None = None,
) -> Iterator[Preempted]:
    """Run cycles; yield each entry that preempts with its plan and its stored input."""
    for result, inputs in recorded_cycles(
        holdings, queues, NOW, 30, 1_000, ledger=ledger, proof=proof
    ):
        for entry in result.entries:
            if entry.issued:
                policy = policy_text(holdings.configuration, entry.cluster_queue)
                plan = plan_of(entry, holdings.tree, 7, policy)
                assert plan is not None
                yield entry, plan, inputs[entry.workload.key]


def test_runs_that_end_once_they_admitted_enough_decide_what_one_long_run_does() -> None:
    random, cut = Random(17), 0
    for number in range(120):
        case = scene(random, size=Size(queues=7, admitted=2, pending=24))
        told = []
        for most in (10**6, 1 + number % 3):
            holdings, queues = Holdings(case.configuration), Queues(case.configuration)
            for workload in case.admitted:
                holdings.hold(workload)
            for workload in (*case.pending, case.incoming):
                queues.push(workload)
            lines: list[tuple[str, str, str]] = []
            first, runs = 0, 0
            while True:
                results = [r for r, _ in recorded_cycles(holdings, queues, NOW, 90, most, first)]
                admitted = [len(result.of(Outcome.ADMITTED)) for result in results]
                lines += [
                    (entry.workload.key, str(entry.outcome), entry.message)
                    for result in results
                    for entry in result.entries
                ]
                first, runs = first + len(results), runs + 1
                assert sum(admitted[:-1]) < most
                if sum(admitted) < most:
                    break
            told.append(lines)
            cut += most < 10**6 and runs > 2
        assert told[0] == told[1], number
    assert cut >= 30


def test_the_cycle_run_again_gives_the_same_plan_and_an_answer_for_everybody() -> None:
    random, seen = Random(71), Counter[str]()
    for number in range(450):
        case = scene(random, size=SIZE)
        holdings, queues = Holdings(case.configuration), Queues(case.configuration)
        ledger = Displacements(1, HOUR) if number % 3 == 0 else None
        for workload in case.admitted:
            protected = random.randint(1, 9) if number % 4 == 0 and random.random() < 0.3 else 0
            holdings.hold(replace(workload, reclaim_min_runtime_s=protected))
            if ledger is not None and random.random() < 0.3:
                ledger.record(case.incoming, workload, NOW)
        for workload in (*case.pending, case.incoming):
            queues.push(workload)
        proof = Refusing() if number % 5 == 0 else None
        for entry, plan, recorded in preemptions(holdings, queues, ledger, proof):
            replay = again(recorded)
            assert replay.plan(7) == plan, number
            assert replay.entry.message == entry.message, number
            answers = list(quota_answers(replay))
            asked = Counter(each.key for each in answers)
            heads = {each.workload.key for each in replay.decided_on.heads}
            holders = {each.key for each in replay.decided_on.holders}
            assert asked == Counter({*heads, *holders}), number
            victims = [each.uid for each in answers if each.standing is Standing.VICTIM]
            assert victims == [victim.subject.uid for victim in plan.victims], number
            seen.update(each.standing for each in answers)
            fair = replay.decided_on.settings.fair_sharing is not None
            seen["fair" if fair else "classical"] += 1
            seen["scan resumed"] += entry.resumed is not None
            seen["others in the cycle"] += len(heads) > 1
            seen["refused by nodes"] += any(head.refused for head in replay.decided_on.heads)
            seen["proven on nodes"] += plan.proof.level is ProofLevel.PLACEMENT
            seen["other trees"] += len(holders) < len(case.admitted)
    wanted = ("fair", "classical", "scan resumed", "others in the cycle", "other trees")
    assert min(seen[each] for each in (*Standing, *wanted)) >= 10, seen
    assert min(seen["refused by nodes"], seen["proven on nodes"]) >= 3


def small(**changes: Any) -> tuple[Holdings, Queues]:
    """Two queues of four GPUs: `b` has borrowed two for `old`; `a` wants four."""
    quotas = (FlavorQuotas("gpus", {"nvidia.com/gpu": Quota(4)}),)
    rules = Rules(Policy.LOWER_PRIORITY, Policy.LOWER_PRIORITY)
    rows = {
        name: ClusterQueue(name, "all", (ResourceGroup(("nvidia.com/gpu",), quotas),), rules)
        for name in ("a", "b")
    }
    configuration = Configuration(
        rows,
        {},
        {"gpus": ResourceFlavor("gpus")},
        {f"ns/{name}": LocalQueue(f"ns/{name}", name) for name in rows},
        {"ns": {}},
        Settings(**changes),
    )
    holdings, queues = Holdings(configuration), Queues(configuration)
    for number, (name, priority) in enumerate((("low", 1), ("old", 0), ("high", 9))):
        reserved = Nanos(NOW - (9 - number) * SECOND)
        holdings.hold(holding(gpus(name, "b", 2, priority), "b", "gpus", reserved))
    queues.push(gpus("urgent", "a", 4, 5))
    return holdings, queues


def gpus(name: str, queue: str, count: int, priority: int) -> Workload:
    requests = {"nvidia.com/gpu": count}
    return Workload(
        "ns",
        name,
        uid=f"uid-{name}",
        queue=f"ns/{queue}",
        priority=priority,
        created=NOW,
        pod_sets=(PodSet("main", 1, requests),),
    )


def test_the_story_names_the_setting_that_spared_each_of_the_others() -> None:
    ((_, plan, recorded),) = preemptions(*small())
    spec = intent_spec(plan, 1, NOW, decision_input=recorded)
    record = Preemption(metadata=Metadata(name="one", namespace="ns"), spec=spec)
    replay = again(recorded)

    assert quota_story(record, replay)[:14] == [
        "Preemptor: Workload ns/urgent of ClusterQueue a, priority 5",
        f"  {TOLD}",
        "",
        "RESOURCE        NEED  AVAILABLE  FREED",
        "nvidia.com/gpu  4     2          2",
        "Proof Quota: the need fits the quota",
        "Chosen by profile compatible",
        "",
        "Victims, in the order in which they were chosen:",
        "  ns/old (b, priority 0, 2 nvidia.com/gpu) is preempted: InCohortReclamation",
        "    Delete: not done yet",
        "",
        "Others that held quota in its cohorts:",
        f"  ns/high (b, priority 9, 2 nvidia.com/gpu) {SPARED}",
    ]
    (low,) = workloads_named(replay, "ns", "low")
    assert quota_answer_text(low) == (
        "ns/low (b, priority 1, 2 nvidia.com/gpu) stays: the preemptor fits with it in place"
    )
    assert workloads_named(replay, "ns", "nobody") == []
    assert quota_story(record, None)[4:10] == [
        "Proof Quota: the need fits the quota",
        "Chosen by profile compatible",
        "",
        "Victims, in the order in which they were chosen:",
        "  ns/old (2 nvidia.com/gpu): InCohortReclamation",
        "    Delete: not done yet",
    ]


def test_fair_sharing_tells_the_shares_that_decided() -> None:
    ((_, plan, recorded),) = preemptions(*small(fair_sharing=()))
    spec = intent_spec(plan, 1, NOW, decision_input=recorded)
    record = Preemption(metadata=Metadata(name="one", namespace="ns"), spec=spec)
    assert "  Shares before: a 0, b 250" in quota_story(record, again(recorded))


def test_too_many_workloads_are_left_out_and_a_spoilt_input_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ((_, _, recorded),) = preemptions(*small())
    with pytest.raises(SpoiltInput, match="sha256"):
        again(recorded | {"sha256": "0"})
    monkeypatch.setattr(quota_record, "MOST_WORKLOADS", 2)
    ((_, _, recorded),) = preemptions(*small())
    assert recorded == {"version": 1, "omitted": "3 workloads with quota"}
    with pytest.raises(InputOmitted, match="3 workloads with quota"):
        again(recorded)
