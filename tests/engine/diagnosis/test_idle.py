"""Every reason of the idle plane is told where it holds, by trying what would be without it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kubeworld.units.instants import format_instant, parse_instant
from reprieve.engine.diagnosis.causes import CAUSE, Cause
from reprieve.engine.diagnosis.idle import IdleFacts, counted_reasons, diagnose_demand
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.engine.idle.model import Fit, IdleSnapshot, NodeRow, Phase, Policy, Workload
from reprieve.engine.idle.samples import SampleState, freshness
from reprieve.units.ids import GpuWorkloadKey, Uid
from reprieve.units.references import Reference
from tests.conformance.conftest import DEFAULT
from tests.conformance.idle_decisions import evaluated
from tests.engine.rows import NOW, ago, demand, pod, sample, snapshot, with_settings, workload

POLICY = Policy()
GPU = "amd.com/gpu"
BUSY = {
    Reference("kaiwo.silogen.ai/v1alpha1", "GpuWorkload", "ml-team", "busy", Uid("b")): {GPU: 8}
}


def facts(*rows: Workload, policy: Policy = POLICY, busy: Any = None, **changes: Any) -> IdleFacts:
    seen = snapshot(*rows, **changes)
    return IdleFacts(seen, policy, NOW, evaluate(seen, policy, NOW), busy or {})


def why(given: IdleFacts, name: str = "demand") -> Diagnosis | None:
    return diagnose_demand(given, GpuWorkloadKey(f"ml-team/{name}"))


def reason(given: IdleFacts, name: str = "demand") -> Reason | None:
    found = why(given, name)
    counted = {ref.name: said for ref, said in counted_reasons(given).items()}.get(name)
    if found is not None and found.reason is not Reason.NO_PRESSURE:
        assert counted is found.reason
    return found.reason if found is not None else None


def test_who_is_served_waits_for_nothing_of_ours() -> None:
    assert reason(facts(workload(gpus=4), demand())) is None
    flying = workload("flying", Phase.PREEMPTING, preempted_for="demand")
    assert reason(facts(flying, demand())) is None


@pytest.mark.parametrize(
    ("spaced", "cause"), [(False, Cause.NOT_YET), (True, Cause.SPACED)], ids=["delayed", "spaced"]
)
def test_a_plan_that_is_due_later_has_its_own_cause(spaced: bool, cause: Cause) -> None:
    later = replace(demand(), preempts_from=ago(-200), spaced=spaced)
    given = facts(workload(gpus=4), later)
    assert reason(given) is Reason.VICTIMS_PROTECTED
    found = why(given)
    assert found is not None and found.earliest == ago(-200)
    assert found.values == {CAUSE: cause, "until": format_instant(ago(-200))}


def test_without_work_that_opted_in_that_is_the_reason() -> None:
    assert reason(facts(demand())) is Reason.NOT_OPTED_IN
    found = facts(workload(gpus={"nvidia.com/gpu": 8}), demand())
    assert reason(found) is Reason.NOT_OPTED_IN


def test_work_that_is_busy_is_named() -> None:
    found = why(facts(demand(), busy=BUSY))
    assert found is not None and found.reason is Reason.NOBODY_IDLE
    assert [(each.holder.name, each.rule) for each in found.blockers] == [("busy", "in use")]
    assert reason(facts(demand(), busy=BUSY)) is Reason.NOBODY_IDLE


def test_too_few_idle_gpus_would_not_help_and_what_is_missing_is_told() -> None:
    given = facts(workload(gpus=3), workload("young", gpus=2, idle_since=ago(5)), demand(gpus=10))
    assert reason(given) is Reason.WOULD_NOT_HELP
    found = why(given)
    assert found is not None
    assert found.deficit == {("", GPU): 5}
    assert found.refused == {"NotIdleYet": 1, "not enough": 1}


def test_within_its_grace_period_the_instant_is_told_at_which_enough_is_idle() -> None:
    rows = [workload(f"w{k}", gpus=2, idle_since=ago(500 - 100 * k)) for k in range(4)]
    given = facts(*rows, demand(gpus=4))
    assert reason(given) is Reason.NOT_IDLE_YET
    found = why(given)
    # Two of them: the second began to be idle 400 seconds ago, and 600 are asked for.
    assert found is not None and found.earliest == ago(-200)
    assert found.values == {"until": format_instant(ago(-200))}


def test_metrics_that_are_too_old_are_told_with_their_age() -> None:
    silent = workload(samples={"w-0": [sample(seen=900)]})
    given = facts(silent, demand())
    assert reason(given) is Reason.STALE_METRICS
    found = why(given)
    assert found is not None and found.values == {"since": format_instant(ago(900))}


def test_a_claim_of_another_demand_is_named() -> None:
    given = facts(
        workload(),
        demand(),
        demand("older"),
        claims={Uid("w-uid"): GpuWorkloadKey("ml-team/older")},
    )
    assert reason(given) is Reason.HELD_BY_CLAIM
    found = why(given)
    assert found is not None and found.values == {"claim": "ml-team/older"}


def test_what_an_older_demand_takes_in_the_same_run_is_held_by_it() -> None:
    given = facts(workload(), demand("first", created=ago(9000)), demand())
    found = why(given)
    assert found is not None and found.reason is Reason.HELD_BY_CLAIM
    assert found.values == {"claim": "ml-team/first"}


def test_only_what_is_in_the_way_is_told() -> None:
    silent = workload("silent", samples={"silent-0": [sample(seen=900)]})
    young = workload("young", idle_since=ago(300))
    assert reason(facts(silent, young, demand())) is Reason.NOT_IDLE_YET
    both = facts(silent, young, demand(gpus=8))
    found = why(both)
    assert found is not None
    assert (found.reason, found.others) == (Reason.STALE_METRICS, (Reason.NOT_IDLE_YET,))
    assert reason(both) is Reason.STALE_METRICS


def test_who_asks_for_nothing_is_under_no_pressure() -> None:
    assert reason(facts(workload("active", Phase.ACTIVE)), "active") is Reason.NO_PRESSURE
    assert reason(facts(), "nobody") is Reason.NO_PRESSURE


def test_placement_counts_where_it_is_asked_for() -> None:
    nodes = (NodeRow("n1", {GPU: 0}), NodeRow("n2", {GPU: 0}))
    halves = [
        workload(f"w{k}", gpus=2, pods=[pod(f"w{k}-0", gpus={GPU: 2}, node=f"n{k}")])
        for k in (1, 2)
    ]
    given = facts(*halves, demand(gpus=4), policy=Policy(fit=Fit.NODE), nodes=nodes)
    assert reason(given) is Reason.WOULD_NOT_HELP


def test_a_member_of_a_gang_is_told_what_its_speaker_is_told() -> None:
    waiting = demand(pods=[pod("a", "Pending", demand=True), pod("b", "Pending", demand=True)])
    given = facts(waiting)
    found = diagnose_demand(given, GpuWorkloadKey("ml-team/member"), {Uid("b-uid")})
    assert found is not None and found.reason is Reason.NOT_OPTED_IN


def test_a_waiting_demand_has_exactly_one_reason_in_random_clusters() -> None:
    seen: Counter[Reason | None] = Counter()
    for seed in range(2_000):
        random = Random(seed)
        claimed = {Uid("w0-uid"): GpuWorkloadKey("ml-team/older")}
        given = facts(
            *rows(random),
            demand(gpus=random.randint(1, 9)),
            demand("older", gpus=1, created=ago(9000)),
            claims=random.choice(({}, claimed)),
        )
        found = why(given)
        declined = given.kept.get(demand().ref)
        served = declined is None or declined.reason.value == "Covered"
        assert (found is None) is served
        seen[found.reason if found is not None else None] += 1
        assert (demand().ref in counted_reasons(given)) is not served
        if found is not None:
            # The instant that is told is one at which it is served, and no earlier one is.
            check_instant(given, found)
    wanted = {Reason.WOULD_NOT_HELP, Reason.STALE_METRICS, Reason.HELD_BY_CLAIM}
    wanted |= {Reason.NOT_IDLE_YET, Reason.NOT_OPTED_IN}
    assert all(seen[each] >= 50 for each in wanted), seen


def check_instant(given: IdleFacts, found: Diagnosis) -> None:
    if found.reason is not Reason.NOT_IDLE_YET or found.others or found.earliest is None:
        return
    policy = replace(POLICY, polling_interval=10**15)  # metrics stay as good as they are
    # Whose metrics are too old now would be told so after its grace period.
    good = (SampleState.FRESH, SampleState.NO_SAMPLES)
    seen = replace(
        given.snapshot,
        workloads=tuple(
            each
            for each in given.snapshot.workloads
            if each.status.phase is Phase.PENDING_GPU
            or each.root.uid in given.snapshot.claims
            or freshness(each, POLICY, NOW).state in good
        ),
    )
    for late, served in ((0, True), (-1, False)):
        again = evaluate(seen, policy, type(NOW)(found.earliest + late))
        plans = [plan for plan in again.plans if plan.preemptor == demand().ref]
        assert bool(plans) is served


def rows(random: Random) -> list[Workload]:
    found = []
    for k in range(random.randint(0, 4)):
        fresh = random.random() < 0.7
        row = workload(
            f"w{k}",
            gpus=random.randint(1, 4),
            idle_since=ago(random.randint(1, 1200)),
            samples={f"w{k}-0": [sample(seen=0 if fresh else 900)]},
        )
        found.append(with_settings(row))
    return found


def test_in_published_cases_who_gets_nobody_has_one_reason(
    request: pytest.FixtureRequest,
) -> None:
    given = request.config.getoption("vectors", default=None)
    path = (Path(given) if given else DEFAULT) / "idle" / "decision_evaluate.json"
    if not path.is_file():
        pytest.skip("there are no vectors of the idle plane beside the project")
    seen: Counter[bool] = Counter()
    for case in json.loads(path.read_text())["cases"]:
        now = parse_instant(case["now"])
        shown = IdleSnapshot(1, tuple(evaluated(case, LiteralSwitches())))
        found = IdleFacts(shown, POLICY, now, evaluate(shown, POLICY, now))
        for each in shown.workloads:
            if each.status.phase is not Phase.PENDING_GPU:
                continue
            plans = [p for p in found.evaluation.plans if p.preemptor == each.ref]
            declined = found.kept.get(each.ref)
            unserved = declined is not None and declined.reason.value in ("Short", "NoPlacement")
            said = diagnose_demand(found, each.key)
            assert (said is not None) is unserved
            assert not (plans and said is not None)
            assert (each.ref in counted_reasons(found)) is unserved
            seen[unserved] += 1
    assert seen[True] >= 3 and seen[False] >= 5, seen
