"""The story of a preemption names everybody, and says why for each."""

from __future__ import annotations

from dataclasses import replace

from kubeworld.units.durations import HOUR
from reprieve.api.reprieve import (
    Action,
    IntentPhase,
    Metadata,
    Preemption,
    PreemptionStatus,
    VictimState,
    VictimStatus,
)
from reprieve.engine.idle.model import Fit, IdleSnapshot, NodeRow, Phase, Policy, PreemptionPolicy
from reprieve.records.idle.record import encode
from reprieve.records.idle.replay import Replay, decide_again
from reprieve.records.idle.story import answer_text, answers_named, story
from reprieve.records.plans.intent_specs import intent_spec
from reprieve.units.ids import GpuWorkloadKey, Uid
from tests.engine.rows import NOW, ago, demand, pod, sample, snapshot, with_settings, workload

AT = "2026-03-04T10:15:01Z"


def replayed(rows: IdleSnapshot, policy: Policy | None = None) -> Replay:
    return decide_again(encode(rows, policy or Policy(), NOW))


def record(replay: Replay, index: int, status: PreemptionStatus, **spec: object) -> Preemption:
    """The record of one plan of a decision."""
    plan = replay.plan(replay.evaluation.plans[index].id)
    assert plan is not None
    actions = [Action.SCALE_TO_ZERO] * len(plan.victims)
    written = intent_spec(plan, 1, NOW, actions=actions, **spec)  # type: ignore[arg-type]
    return Preemption(Metadata("idle-1", "reprieve", creation_timestamp=AT), written, status)


CROWD = snapshot(
    demand("needy", 8, created=ago(500)),
    workload("oldest", gpus=2, idle_since=ago(4000)),
    workload("second", gpus=6, idle_since=ago(3000)),
    workload("third", gpus=2, idle_since=ago(2000)),
    workload("leaving", Phase.PREEMPTING, preempted_for="needy", gpus=1),
    demand("late", 90, created=ago(100)),
    demand("served", 1, created=ago(50)),
    with_settings(workload("young", gpus=4), grace_period=HOUR),
    workload("silent", samples={"silent-0": [sample(seen=999)]}),
    with_settings(workload("always", gpus=1), policy=PreemptionPolicy.ALWAYS),
    workload("claimed", gpus=1),
    claims={Uid("claimed-uid"): GpuWorkloadKey("ml-team/served")},
)


def test_everybody_is_told_of() -> None:
    replay = replayed(CROWD, Policy(irreducible=True))
    victims = [
        VictimStatus("second-uid", VictimState.EVICTED, AT),
    ]
    status = PreemptionStatus(
        IntentPhase.COMPLETED,
        "host_1",
        3,
        "1 of 1 victims evicted",
        1,
        victims,
        started_at=AT,
        finished_at=AT,
    )

    told = story(record(replay, 1, status), replay)

    always, served = (plan.id for plan in replay.evaluation.plans)
    assert told == [
        "Preemptor: ml-team/needy (Job/needy), tracked since 2026-03-04T10:06:40Z",
        "",
        "RESOURCE     NEED  IN FLIGHT  FREED",
        "amd.com/gpu  8     2          6",
        (
            "Proof Sum: the compatible option, which knows no nodes: what is freed and in flight "
            "reaches the need"
        ),
        "Chosen by profile compatible",
        "",
        "Victims, in the order in which they were chosen:",
        "  ml-team/second (Job/second): OldestIdle, 6 amd.com/gpu, idle for 50m0s",
        "    Preempted to free 6 amd.com/gpu for pending workload needy",
        f"    ScaleToZero: Evicted at {AT}",
        "",
        "Reprieved: 1 NotNeeded",
        "  ml-team/oldest (Job/oldest): 2 amd.com/gpu, idle for 1h6m40s",
        "",
        "All others that were looked at:",
        f"  ml-team/always (Job/always) is preempted: Always, idle for 30m0s (plan {always})",
        "  ml-team/claimed (Job/claimed) stays, idle for 30m0s: it is already being preempted",
        (
            "  ml-team/late (Job/late) gets no victim: all eligible idle workloads together are "
            "short of 86 amd.com/gpu"
        ),
        "  ml-team/leaving (Job/leaving) is on its way out already, for needy: 1 amd.com/gpu",
        (
            "  ml-team/served (Job/served) gets no victim: what is free or already on its way is "
            "enough for it"
        ),
        (
            "  ml-team/silent (Job/silent) stays, idle for 30m0s: its metrics are missing or "
            "out of date"
        ),
        "  ml-team/third (Job/third) stays, idle for 33m20s: no pending workload needs it",
        (
            "  ml-team/young (Job/young) stays, idle for 30m0s: it is within its grace period "
            "until 2026-03-04T10:45:00Z"
        ),
        "",
        "Status: Completed: 1 of 1 victims evicted",
        "  decided   2026-03-04T10:15:00Z",
        f"  recorded  {AT}",
        f"  started   {AT}",
        f"  finished  {AT}",
        "  by host_1, epoch 3",
    ]
    assert served == record(replay, 1, status).spec.plan_id


def test_a_record_without_its_input_tells_what_it_holds() -> None:
    replay = replayed(CROWD, Policy(irreducible=True))
    told = story(record(replay, 1, PreemptionStatus(IntentPhase.EVICTING)), None)
    assert told[0] == "Preemptor: ml-team/needy"
    assert told[8] == "  ml-team/second (Job/second): OldestIdle, 6 amd.com/gpu"
    assert told[10:14] == ["    ScaleToZero: not done yet", "", "Reprieved: 1 NotNeeded", ""]
    assert told[14] == "Status: Evicting"


def test_nobody_waits_for_those_that_go_anyway() -> None:
    replay = replayed(CROWD)
    told = story(record(replay, 0, PreemptionStatus(IntentPhase.PLANNED), dry_run=True), replay)
    assert told[0] == "Preemptor: none"
    assert told[4] == "Proof Exempt: none is needed; no work waits, or another process began it"
    assert "Status: Planned (dry run: nothing is marked or evicted)" in told
    assert "Reprieved: nobody" in told


def test_the_places_of_a_node_fit_are_told_by_the_names_of_pods() -> None:
    rows = snapshot(
        demand("needy", 4, pods=[pod("needy-0", "Pending", demand=True)]),
        workload("elsewhere", pods=[pod("e", node="b")], idle_since=ago(4000)),
        workload("here", pods=[pod("h", node="a")]),
        nodes=(NodeRow("a", {"amd.com/gpu": 0}), NodeRow("b", {"amd.com/gpu": -1})),
    )
    replay = replayed(rows, Policy(fit=Fit.NODE))
    told = story(record(replay, 0, PreemptionStatus(IntentPhase.PLANNED)), replay)
    assert told[4:8] == [
        "Proof Placement: every pending pod has a node",
        "Chosen by profile compatible",
        "  pod ml-team/needy-0 fits on node a",
        "",
    ]


def test_one_workload_is_answered_for_by_its_own_name_or_by_its_root_owners() -> None:
    owner = workload("w")
    rows = snapshot(
        replace(owner, ref=replace(owner.ref, name="job-w-1")),
        workload("w-2", namespace="other"),
        demand("needy"),
    )
    replay = replayed(rows)

    def answered(namespace: str, name: str) -> list[str]:
        return [answer_text(each, NOW) for each in answers_named(replay, namespace, name)]

    plan = replay.evaluation.plans[0].id
    victim = (
        "ml-team/job-w-1 (Job/w) is preempted for ml-team/needy: OldestIdle, idle for 30m0s "
        f"(plan {plan})"
    )
    assert answered("ml-team", "job-w-1") == [victim]
    assert answered("ml-team", "w") == [victim]
    assert answered("ml-team", "needy") == [
        f"ml-team/needy (Job/needy) gets 4 amd.com/gpu: 1 were preempted for it (plan {plan})"
    ]
    assert answered("other", "w-2") == [
        "other/w-2 (Job/w-2) stays, idle for 30m0s: no pending workload needs it"
    ]
    assert answered("other", "w") == []
