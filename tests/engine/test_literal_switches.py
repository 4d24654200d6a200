"""Each literal switch: the default gives one outcome, the reference's hazard another."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from reprieve.engine.idle.discovery import (
    Answer,
    Found,
    Lookup,
    NodeRoot,
    Owner,
    OwnerNotFound,
    Root,
    resolve_root,
)
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.lifecycle import step
from reprieve.engine.idle.lifecycle_facts import Facts, Present
from reprieve.engine.idle.literal import SWITCHES, LiteralSwitches
from reprieve.engine.idle.model import Phase, Policy, PreemptionPolicy, Status, TrackedPod
from reprieve.engine.idle.samples import ImpossibleReading, Reading, aggregate, merge
from reprieve.engine.idle.transitions import Action
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording.documentation import switches_markdown
from tests.engine.rows import (
    DEFAULTS,
    NOW,
    ago,
    demand,
    pod,
    sample,
    snapshot,
    with_settings,
    workload,
)

OURS = Facts(root=Present(Uid("w-uid")))


def policies(switch: str) -> tuple[Policy, Policy]:
    return Policy(), Policy(literal=LiteralSwitches(**{switch: True}))


def victims(policy: Policy, *rows: Any) -> list[str]:
    return [v.subject.name for p in evaluate(snapshot(*rows), policy, NOW).plans for v in p.victims]


def test_h1_an_idle_workload_without_pods_is_no_capacity() -> None:
    default, literal = policies("podless_idle_stays")
    row = workload(pods=[])
    decided = step(row, OURS, default, NOW)
    assert (decided.status.phase, decided.status.idle_since) == (Phase.PENDING_OTHER, None)
    kept = step(row, OURS, literal, NOW)
    assert (kept.status.phase, kept.status.idle_since) == (Phase.IDLE, row.status.idle_since)


def test_h2_silence_is_not_idleness() -> None:
    default, literal = policies("missing_metrics_are_zero")
    row = workload(phase=Phase.PENDING_OTHER, samples={})
    assert step(row, OURS, default, NOW).status.phase is Phase.ACTIVE
    decided = step(row, OURS, literal, NOW)
    assert (decided.status.phase, decided.status.idle_since) == (Phase.IDLE, NOW)


def test_h2_a_multi_pod_job_without_samples_is_idle_only_literally() -> None:
    default, literal = policies("missing_metrics_are_zero")
    pods = [pod(f"w-{n}", gpus={"amd.com/gpu": 1}) for n in range(2)]
    row = workload(phase=Phase.PENDING_OTHER, gpus=1, pods=pods, samples={})
    outcomes = [step(row, OURS, policy, NOW) for policy in (default, literal)]
    assert [o.status.phase for o in outcomes] == [Phase.ACTIVE, Phase.IDLE]
    assert [o.gpus for o in outcomes] == [{"amd.com/gpu": 2}] * 2


def test_h2_old_samples_do_not_count() -> None:
    default, literal = policies("missing_metrics_are_zero")
    rows = (workload(samples={"w-0": [sample(seen=61)]}), demand())
    assert victims(default, *rows) == []
    assert victims(literal, *rows) == ["w"]


def test_h3_a_root_created_again_is_not_deleted() -> None:
    default, literal = policies("delete_without_uid")
    row = workload(phase=Phase.PREEMPTING)
    recreated = Facts(root=Present(Uid("another")))
    decided = step(row, recreated, default, NOW)
    assert (decided.status.phase, decided.action) == (Phase.PREEMPTED, Action.NONE)
    assert step(row, recreated, literal, NOW).action is Action.DELETE_ROOT


def test_h4_a_preempted_workload_is_in_flight_while_its_pods_exist() -> None:
    default, literal = policies("preempted_not_in_flight")
    gone = workload("gone", Phase.PREEMPTED, preempted_for="demand", preempted_at=ago(300))
    rows = (gone, workload("idle"), demand())
    assert victims(default, *rows) == []
    assert victims(literal, *rows) == ["idle"]


def test_h5_an_impossible_sample_costs_only_itself() -> None:
    default, literal = policies("impossible_samples_refuse_all")
    status = Status(Phase.ACTIVE, (TrackedPod("a"),))
    readings = {"a": [Reading("1", 7.0)]}
    impossible = [ImpossibleReading("a", "0")]
    kept = merge(status, readings, NOW, default, impossible)
    assert aggregate(kept.status.tracked_pods, DEFAULTS.aggregation) == 7.0
    assert merge(status, readings, NOW, literal, impossible).status == status


def test_h5_a_nan_of_a_known_gpu_is_ignored_even_literally() -> None:
    _, literal = policies("impossible_samples_refuse_all")
    status = Status(Phase.ACTIVE, (TrackedPod("a", (sample(3.0),)),))
    merged = merge(
        status,
        {"a": [Reading("1", 7.0)]},
        NOW,
        literal,
        [ImpossibleReading("a", "0", not_a_number=True)],
    )
    assert [s.utilization for s in merged.status.tracked_pods[0].samples] == [3.0, 7.0]


def test_h6_partitions_of_one_gpu_are_kept_apart() -> None:
    default, literal = policies("partitions_collapse")
    status = Status(Phase.ACTIVE, (TrackedPod("a"),))
    readings = {"a": [Reading("0", 90.0, "0"), Reading("0", 2.0, "1")]}
    values = [
        [(s.gpu_id, s.utilization) for s in merged.status.tracked_pods[0].samples]
        for merged in (merge(status, readings, NOW, policy) for policy in (default, literal))
    ]
    assert values == [[("0", 90.0), ("0", 2.0)], [("0", 2.0)]]


def test_h7_an_owner_with_another_uid_is_not_the_owner() -> None:
    default, literal = policies("owner_uid_unchecked")
    static = _pod_of(Owner("batch/v1", "Job", "train", Uid("old"), True))
    job = Found(Reference("batch/v1", "Job", "ml-team", "train", Uid("new")))
    with pytest.raises(OwnerNotFound):
        _root(static, default.literal, job)
    assert _root(static, literal.literal, job).chain == "Pod/p -> Job/train"


def test_h8_gpus_freed_under_always_are_credited() -> None:
    default, literal = policies("always_not_credited")
    always = with_settings(workload("always"), policy=PreemptionPolicy.ALWAYS)
    rows = (always, workload("idle"), demand())
    assert victims(default, *rows) == ["always"]
    assert victims(literal, *rows) == ["always", "idle"]


def test_h10_a_demand_without_pods_is_no_demand() -> None:
    default, literal = policies("podless_demand_stays")
    row = workload(phase=Phase.PENDING_GPU, pods=[])
    assert step(row, OURS, default, NOW).status.phase is Phase.PENDING_OTHER
    assert step(row, OURS, literal, NOW).status.phase is Phase.PENDING_GPU


def test_h11_a_node_is_never_a_root() -> None:
    default, literal = policies("node_roots_tracked")
    static = _pod_of(Owner("v1", "Node", "gpu-0", Uid("node"), True))
    node = Found(Reference("v1", "Node", "", "gpu-0", Uid("node")))
    with pytest.raises(NodeRoot):
        _root(static, default.literal, node)
    assert _root(static, literal.literal, node).ref.kind == "Node"


def test_h13_idle_time_does_not_pass_in_silence() -> None:
    default, literal = policies("silence_counts_as_idle_time")
    row = workload(samples={"w-0": [sample(seen=121)]})
    assert step(row, OURS, default, NOW).status.idle_since is None
    assert step(row, OURS, literal, NOW).status.idle_since == row.status.idle_since


def test_every_switch_has_a_row_in_the_documentation() -> None:
    table = switches_markdown()
    assert all(f"`{switch.name}` | {switch.hazard} |" in table for switch in SWITCHES)
    hazards = [switch.hazard for switch in SWITCHES]
    numbered = [hazard for hazard in hazards if hazard.startswith("H")]
    assert numbered == [f"H{n}" for n in range(1, 14) if n != 9]
    assert hazards[len(numbered) :] == ["section 4", "section 10"]
    assert LiteralSwitches.all().switched_on() == tuple(switch.name for switch in SWITCHES)


def test_a_switch_changes_the_identity_of_plans() -> None:
    literal = LiteralSwitches(partial_sets_marked=True)  # H12, which the executor acts on
    rows = snapshot(workload(), demand())
    plans = [evaluate(rows, Policy(literal=each), NOW).plans[0] for each in (literal, LITERAL_OFF)]
    assert plans[0].id != plans[1].id
    assert replace(plans[0], id=plans[1].id) == plans[1]


LITERAL_OFF = LiteralSwitches()


def test_settling_ends_the_credit_of_h4() -> None:
    policy = Policy(settling=15 * SECOND)
    for seconds, expected in ((14, []), (15, ["idle"])):
        gone = workload(
            "gone",
            Phase.PREEMPTED,
            pods=[],
            preempted_for="demand",
            preempted_at=ago(300),
            released=ago(seconds),
        )
        assert victims(policy, gone, workload("idle"), demand()) == expected


def _pod_of(owner: Owner) -> Found:
    return Found(Reference("v1", "Pod", "ml-team", "p", Uid("p")), (owner,))


def _root(start: Found, literal: LiteralSwitches, *others: Found) -> Root:
    walk: Generator[Lookup, Answer, Root] = resolve_root(
        Lookup("v1", "Pod", "ml-team", "p"), literal, start
    )
    answers = iter(others)
    try:
        next(walk)
        while True:
            walk.send(next(answers))
    except StopIteration as end:
        root: Root = end.value
        return root
