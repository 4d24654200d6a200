"""Every reason of the quota plane is told where it holds, with what its sentence needs."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.plan import Plane
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.model import (
    Admission,
    Check,
    ClusterQueue,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    NodeExpression,
    Policy,
    Preemption,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    StopPolicy,
    Strategy,
    Taint,
    Workload,
)
from reprieve.wording.diagnosis import sentence
from tests.engine.diagnosis.quota_cases import GPU, NOW, STRICT, Site, held, queue, work

NEVER = Preemption()
IN = LabelSelector((NodeExpression("tier", "In", ("gold",)),))


def told(found: Diagnosis | None) -> tuple[Reason, dict[str, str]]:
    assert found is not None and found.plane is Plane.QUOTA
    return found.reason, dict(found.values)


@pytest.mark.parametrize(
    ("cluster_queue", "local", "workload", "expected"),
    [
        (
            queue("q", 8, stop_policy=StopPolicy.HOLD),
            LocalQueue("team/q", "q"),
            work("w", "q", 1),
            (Reason.STOPPED, {"queue": "ClusterQueue q", "policy": "Hold"}),
        ),
        (
            queue("q", 8),
            LocalQueue("team/q", "q", StopPolicy.HOLD),
            work("w", "q", 1),
            (Reason.STOPPED, {"queue": "LocalQueue q", "policy": "Hold"}),
        ),
        (
            queue("q", 8),
            LocalQueue("team/q", "q"),
            work("w", "q", 1, active=False),
            (Reason.STOPPED, {"cause": "deactivated", "workload": "w"}),
        ),
        (
            queue("q", 8, flavor="gone"),
            LocalQueue("team/q", "q"),
            work("w", "q", 1),
            (
                Reason.INACTIVE,
                {"cluster_queue": "q", "why": "it refers to missing ResourceFlavor(s): gone"},
            ),
        ),
        (
            queue("q", 8, checks=("c",), unready_checks=("c",)),
            LocalQueue("team/q", "q"),
            work("w", "q", 1),
            (
                Reason.INACTIVE,
                {
                    "cluster_queue": "q",
                    "why": "it refers to missing or inactive AdmissionCheck(s): c",
                },
            ),
        ),
        (
            queue("q", 8),
            LocalQueue("team/q", "other"),
            work("w", "q", 1),
            (Reason.INACTIVE, {"cluster_queue": "other", "why": "it does not exist"}),
        ),
        (
            queue("q", 8, selector=IN),
            LocalQueue("team/q", "q"),
            work("w", "q", 1),
            (
                Reason.NAMESPACE_NOT_ALLOWED,
                {"cluster_queue": "q", "namespaces": "namespaces with tier=gold"},
            ),
        ),
        (
            queue("q", 8),
            LocalQueue("team/q", "q"),
            work("w", "q", 1, invalid="a quantity"),
            (Reason.INVALID, {"why": "a quantity"}),
        ),
        (
            queue("q", 8),
            LocalQueue("team/q", "q"),
            work("w", "q", 1, admission_gated=True),
            (Reason.CHECKS_OPEN, {"checks": "its admission gate"}),
        ),
        (
            queue("q", 8, checks=("budget",)),
            LocalQueue("team/q", "q"),
            work("w", "q", 1, checks={"budget": Check.REJECTED}),
            (Reason.CHECKS_OPEN, {"checks": "budget"}),
        ),
        (
            queue("q", 8),
            LocalQueue("team/q", "q"),
            work("w", "q", 1, requeue_at=Nanos(NOW + 60 * SECOND)),
            (Reason.BACKOFF, {"until": format_instant(Nanos(NOW + 60 * SECOND))}),
        ),
    ],
)
def test_what_can_be_looked_up_is_told(
    cluster_queue: ClusterQueue,
    local: LocalQueue,
    workload: Workload,
    expected: tuple[Reason, dict[str, str]],
) -> None:
    site = Site(cluster_queue, local_queues={local.key: local}).submit(workload).decide()
    assert told(site.why("w")) == expected


def test_a_workload_of_a_queue_that_is_not_there_is_told_so() -> None:
    site = Site(queue("q", 8)).submit(work("w", "nobody", 1)).decide()
    assert told(site.why("w")) == (
        Reason.INACTIVE,
        {"missing": "nobody", "namespace": "team", "known": "q"},
    )


def test_what_exceeds_the_whole_cohort_never_fits() -> None:
    site = Site(queue("q", 8, "all"), queue("r", 8, "all")).submit(work("w", "q", 1, 17)).decide()
    assert told(site.why("w")) == (
        Reason.NEVER_FITS,
        {
            "needs": f"17 {GPU}",
            "ceiling": f"16 {GPU} at most: nominal 8, the rest borrowed from cohort all",
        },
    )


def test_the_borrowing_limit_is_a_ceiling() -> None:
    group = ResourceGroup((GPU,), (FlavorQuotas("a100", {GPU: Quota(4, borrowing_limit=2)}),))
    site = Site(queue("q", 4, "all", groups=(group,)), queue("r", 8, "all"))
    site.submit(work("w", "q", 1, 7)).decide()
    assert told(site.why("w")) == (
        Reason.NEVER_FITS,
        {
            "needs": f"7 {GPU}",
            "ceiling": f"6 {GPU} at most: nominal 4, borrowingLimit 2",
        },
    )


def test_what_fits_with_fewer_pods_does_not_never_fit() -> None:
    site = Site(queue("q", 8)).hold(held(work("h", "q", 8, priority=1), "q"))
    site.submit(work("w", "q", 1, 9, min_count=2)).decide()
    assert told(site.why("w"))[0] is Reason.HELD_BY_OTHERS


def test_pods_that_accept_no_flavor_are_told_why() -> None:
    tainted = ResourceFlavor("a100", taints=(Taint("gpu", "a100", "NoSchedule"),))
    site = Site(queue("q", 8), flavors=(tainted,)).submit(work("w", "q", 1)).decide()
    reason, values = told(site.why("w"))
    assert reason is Reason.NO_FLAVOR_MATCHES
    assert "untolerated taint {gpu a100 NoSchedule <nil>} in flavor a100" in values["why"]


def test_who_holds_what_is_missing_is_named_with_the_rule_that_lets_each_stay() -> None:
    site = Site(queue("q", 8, "all"), queue("r", 8, "all"), ledger=Displacements())
    site.hold(
        held(work("high", "q", 4, priority=9), "q"),
        held(work("young", "q", 3, preempt_min_runtime_s=3600), "q"),
        held(work("theirs", "r", 8), "r"),
    )
    site.submit(work("w", "q", 2, priority=5)).decide()
    found = site.why("w")
    assert found is not None
    assert found.reason is Reason.HELD_BY_OTHERS
    assert found.deficit == {("a100", GPU): 1}
    assert [(each.holder.name, dict(each.amounts), each.rule) for each in found.blockers] == [
        ("theirs", {GPU: 8}, "own quota"),
        ("high", {GPU: 4}, "priority"),
        ("young", {GPU: 3}, "protected"),
    ]
    assert found.refused == {"own quota": 1, "priority": 1, "protected": 1}
    assert found.earliest == NOW + 3000 * SECOND
    assert f"it lacks 1 {GPU} in a100" in sentence(found)


@pytest.mark.parametrize("fair", [None, (Strategy.LESS_THAN_INITIAL_SHARE,)])
def test_a_policy_of_never_is_named(fair: tuple[Strategy, ...] | None) -> None:
    settings = Settings(fair_sharing=fair)
    site = Site(queue("q", 8, preemption=NEVER), settings=settings)
    site.hold(held(work("h", "q", 8), "q")).submit(work("w", "q", 1, priority=5)).decide()
    found = site.why("w")
    assert found is not None and found.refused == {"policy": 1}
    assert found.earliest is None


def test_who_took_turns_is_held_by_a_loop() -> None:
    ledger = Displacements()
    ledger.refuse("uid-w", "uid-h", Nanos(NOW + 90 * SECOND))
    site = Site(queue("q", 8), ledger=ledger)
    site.hold(held(work("h", "q", 8), "q")).submit(work("w", "q", 1, priority=5)).decide()
    found = site.why("w")
    assert found is not None and found.refused == {"loop": 1}
    assert found.earliest == NOW + 90 * SECOND


def test_what_is_missing_is_told_of_each_flavor_the_nearest_first() -> None:
    flavors = (FlavorQuotas("a100", {GPU: Quota(4)}), FlavorQuotas("h100", {GPU: Quota(8)}))
    site = Site(queue("q", 0, groups=(ResourceGroup((GPU,), flavors),), preemption=NEVER))
    site.hold(held(work("a", "q", 4), "q"), held(work("h", "q", 6), "q", "h100"))
    site.submit(work("w", "q", 3)).decide()
    found = site.why("w")
    assert found is not None
    assert list(found.deficit.items()) == [(("h100", GPU), 1), (("a100", GPU), 3)]
    assert [each.holder.name for each in found.blockers] == ["h", "a"]


def test_who_waits_for_victims_is_told_whom() -> None:
    site = Site(queue("q", 8)).hold(held(work("victim", "q", 8), "q"))
    site.submit(work("w", "q", 8, priority=5)).decide()
    assert told(site.why("w")) == (Reason.VICTIMS_LEAVING, {"victims": "team/victim"})


def test_who_waits_for_a_save_of_victims_is_told_of_whom_and_until_when() -> None:
    save = Nanos(NOW + 300 * SECOND)
    victim = replace(held(work("victim", "q", 8), "q", ago=1_500), next_checkpoint=save)
    site = Site(queue("q", 8), settings=Settings(harm_order=True)).hold(victim)
    site.submit(work("w", "q", 8, priority=5)).decide()
    found = site.why("w")
    assert told(found) == (
        Reason.VICTIMS_LEAVING,
        {"saving": "team/victim", "saved": format_instant(save)},
    )
    assert found is not None
    assert sentence(found) == (
        "Work is preempted for it and has not ended yet: team/victim to be evicted once the next "
        f"save is made, expected by {format_instant(save)}"
    )


def test_behind_the_head_of_a_strict_queue_nobody_is_told_of_quota() -> None:
    site = Site(queue("q", 8, strategy=STRICT)).hold(held(work("h", "q", 6, priority=9), "q"))
    site.submit(work("head", "q", 4, priority=5), work("w", "q", 1)).decide()
    assert told(site.why("head"))[0] is Reason.HELD_BY_OTHERS
    assert told(site.why("w")) == (Reason.BEHIND_HEAD, {"head": "team/head"})


def test_who_would_never_fit_is_told_so_behind_the_head_as_well() -> None:
    site = Site(queue("q", 8, strategy=STRICT)).hold(held(work("h", "q", 6, priority=9), "q"))
    site.submit(work("head", "q", 4, priority=5), work("w", "q", 9)).decide()
    found = site.why("w")
    assert found is not None
    assert (found.reason, found.others) == (Reason.NEVER_FITS, (Reason.BEHIND_HEAD,))


def test_with_quota_the_open_checks_are_told() -> None:
    waits = held(work("w", "q", 1, checks={"budget": Check.PENDING}), "q")
    site = Site(queue("q", 8, checks=("budget",))).hold(waits)
    assert told(site.why("w")) == (Reason.CHECKS_OPEN, {"checks": "budget"})
    site.hold(replace(waits, checks={"budget": Check.READY}))
    assert site.why("w") is None


def test_while_pods_are_not_ready_nobody_is_admitted() -> None:
    site = Site(queue("q", 8), settings=Settings(block_admission=True))
    site.hold(held(work("h", "q", 1, pods_ready=False), "q")).submit(work("w", "q", 1)).decide()
    assert told(site.why("w"))[0] is Reason.PODS_NOT_READY


def test_a_fault_sets_aside_until_an_instant() -> None:
    site = Site(queue("q", 8)).submit(work("w", "q", 1))
    until = site.queues.fail_to_record("team/w", NOW)
    assert until is not None
    assert told(site.why("w")) == (
        Reason.SET_ASIDE,
        {"why": "", "until": format_instant(until)},
    )


def test_who_is_admitted_or_finished_does_not_wait() -> None:
    site = Site(queue("q", 8)).submit(work("w", "q", 1), work("over", "q", 1, finished=True))
    site.decide()
    assert site.why("w") is None
    assert site.why("over") is None


def test_asking_changes_nothing() -> None:
    site = Site(queue("q", 8, "all"), queue("r", 8, "all"), ledger=Displacements())
    site.hold(held(work("h", "q", 8, priority=9), "q"))
    site.submit(work("w", "q", 9), work("v", "r", 9)).decide()

    def state() -> object:
        holdings = site.holdings
        return copy.deepcopy((holdings.usage, site.queues.active(), site.queues.inadmissible()))

    before = state()
    for name in ("w", "v", "w"):
        site.why(name)
    assert state() == before


def test_an_admission_to_a_queue_that_is_gone_waits_for_nothing_of_ours() -> None:
    site = Site(queue("q", 8))
    workload = replace(held(work("w", "q", 1), "q"), admission=Admission("gone", ()))
    site.known[workload.key] = workload
    assert site.why("w") is None


def test_lower_or_newer_equal_priority_lets_the_older_stay() -> None:
    rules = Preemption(Policy.LOWER_OR_NEWER_EQUAL_PRIORITY)
    site = Site(queue("q", 8, preemption=rules))
    site.hold(held(work("old", "q", 8, created=Nanos(1)), "q"))
    site.submit(work("w", "q", 8, created=Nanos(2))).decide()
    found = site.why("w")
    assert found is not None and found.refused == {"priority": 1}


def test_quota_that_was_lowered_below_its_use_is_not_called_borrowed() -> None:
    site = Site(queue("q", 4)).hold(held(work("r", "q", 6), "q")).submit(work("w", "q", 1))
    found = site.decide().why("w")
    assert found is not None
    assert found.values["usage"].startswith(f"q: 6 of 4 {GPU} (a100) used, 2 too many, requests 1;")
    lent = Site(queue("q", 4, "all"), queue("r", 2, "all")).hold(held(work("r", "q", 6), "q"))
    found = lent.submit(work("w", "q", 1)).decide().why("w")
    assert found is not None
    assert ", the rest borrowed, requests 1;" in found.values["usage"]
