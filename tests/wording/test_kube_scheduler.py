"""The texts are those that kube-scheduler 1.37 was seen to write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code, Reason, Rejection
from reprieve.engine.scheduling.outcome import (
    Attempt,
    Diagnosis,
    Explanation,
    Member,
    Preemption,
    Sentence,
    Unit,
)
from reprieve.engine.scheduling.queueing.pre_enqueue import no_group
from reprieve.engine.scheduling.session import Session
from reprieve.units.ids import Uid
from reprieve.wording import kube_scheduler as wording
from reprieve.wording.events import EventText
from reprieve.wording.rejections import reason_text
from tests.engine.builders import pending_of, pod, snapshot_of

_STATUS = Explanation(
    Sentence.GROUP_UNSCHEDULABLE,
    (),
    (
        Explanation(
            Sentence.PLACEMENTS, (1,), (Explanation(Sentence.MIN_COUNT_UNREACHABLE, (2, 0, 1)),)
        ),
    ),
)
_NO_CPU = Diagnosis(2, ((Reason(Rejection.INSUFFICIENT, "cpu"), 2),))


def _group(*said: Explanation, code: Code = Code.UNSCHEDULABLE) -> Attempt:
    members = (Member(Uid("a"), diagnosis=_NO_CPU), Member(Uid("b")))
    return Attempt(
        Unit((Uid("a"), Uid("b")), "ns/high"),
        Code.UNSCHEDULABLE,
        members,
        (_STATUS, *said),
        preemption=Preemption(code, said[-1]) if said else None,
    )


def test_a_member_shows_its_own_failure_and_one_that_was_not_reached_the_groups() -> None:
    attempt = _group(Explanation(Sentence.FOUND_GROUP, (4,)), code=Code.SUCCESS)
    texts = [wording.member_message(attempt, member) for member in attempt.members]
    assert texts == [
        "0/2 nodes are available: 2 Insufficient cpu.",
        (
            "pod group is unschedulable, 0/1 placements are available, first placement status: "
            "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining"
        ),
    ]


@pytest.mark.parametrize(
    ("said", "ending"),
    [
        (
            [Explanation(Sentence.FOUND_GROUP, (4,))],
            "pod group preemption: found a placement for podgroup, preempting 4 victims",
        ),
        (
            [Explanation(Sentence.NO_VICTIMS_GROUP)],
            "pod group preemption: No preemption victims found for incoming preemptor",
        ),
        (
            [
                Explanation(Sentence.CLAIMS_DEALLOCATED),
                Explanation(Sentence.NOT_ELIGIBLE_POLICY),
            ],
            (
                "deallocation and deletion of ResourceClaims completed, "
                "pod group preemption: not eligible due to preemptionPolicy=Never."
            ),
        ),
        (
            [_STATUS],
            (
                "pod group preemption: pod group is unschedulable, 0/1 placements are available, "
                "first placement status: minCount (2) cannot be satisfied: 0 scheduled, "
                "1 remaining"
            ),
        ),
        (
            [Explanation(Sentence.PLUGIN_FAILED, ("Mine", "boom"))],
            'error in "Mine" PodGroupPostFilter plugins: boom',
        ),
    ],
)
def test_a_groups_condition_ends_with_what_post_filter_said(
    said: list[Explanation], ending: str
) -> None:
    condition = wording.group_condition(_group(*said))
    assert condition == wording.ConditionText(
        "PodGroupInitiallyScheduled",
        "False",
        "Unschedulable",
        "pod group is unschedulable, 0/1 placements are available, first placement status: "
        f"minCount (2) cannot be satisfied: 0 scheduled, 1 remaining, {ending}",
    )


def test_the_keps_sentence_for_a_group_that_waits_goes_before_the_reasons() -> None:
    attempt = _group(Explanation(Sentence.FOUND_GROUP, (4,)), code=Code.SUCCESS)
    reasons = wording.group_message(attempt)
    assert reasons.endswith(
        ", pod group preemption: found a placement for podgroup, preempting 4 victims"
    )
    message = wording.group_message(attempt, kep_messages=True)
    assert message == f"pod group is waiting for podgroup preemption to complete: {reasons}"


@pytest.mark.parametrize("kep_messages", [False, True])
def test_members_say_what_they_lack_and_leave_the_preemption_to_their_group(
    kep_messages: bool,
) -> None:
    attempt = _group(Explanation(Sentence.FOUND_GROUP, (4,)), code=Code.SUCCESS)
    for member in attempt.members:
        message = wording.member_message(attempt, member, kep_messages=kep_messages)
        assert message
        assert "preemption" not in message


def test_the_kep_has_a_sentence_of_its_own_for_priorities_that_differ() -> None:
    attempt = replace(
        _group(), status=(Explanation(Sentence.PRIORITIES, (50, 100)),), scheduler_error=True
    )
    member = attempt.members[1]
    assert wording.pod_condition(attempt, member) == wording.ConditionText(
        "PodScheduled",
        "False",
        "SchedulerError",
        "all pods in a single pod group should have the same priority as the pod group's "
        "priority, got 50 and 100",
    )
    assert wording.member_message(attempt, member, kep_messages=True) == (
        "all pods in a single pod group should match the priority of the pod group, got: 50 and 100"
    )


def _pod(preemption: Preemption | None, diagnosis: Diagnosis = _NO_CPU) -> str:
    member = Member(Uid("a"), diagnosis=diagnosis)
    attempt = Attempt(Unit((Uid("a"),)), Code.UNSCHEDULABLE, (member,), preemption=preemption)
    return wording.member_message(attempt, member)


def test_a_plain_pod_shows_its_failure_and_what_preemption_found() -> None:
    found = Preemption(Code.SUCCESS, Explanation(Sentence.FOUND_POD, ("node1", 2)))
    assert _pod(found) == (
        "0/2 nodes are available: 2 Insufficient cpu. preemption: found a potential placement "
        "for pod on node node1, preempting 2 victims"
    )


def test_nodes_that_preemption_does_not_look_at_are_counted_as_not_helpful() -> None:
    none = Preemption(
        Code.UNSCHEDULABLE,
        Explanation(Sentence.NO_CANDIDATES, (3,)),
        unhelpful=(
            (Explanation(Sentence.NO_VICTIMS_POD), 1),
            (Explanation(Sentence.NOT_HELPFUL), 2),
        ),
    )
    diagnosis = Diagnosis(
        3,
        ((Reason(Rejection.INSUFFICIENT, "cpu"), 1), (Reason(Rejection.TAINT), 2)),
    )
    assert _pod(none, diagnosis) == (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). "
        "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )


def test_counts_are_sorted_as_strings() -> None:
    diagnosis = Diagnosis(
        12,
        (
            (Reason(Rejection.TOO_MANY_PODS), 3),
            (Reason(Rejection.INSUFFICIENT, "cpu"), 5),
            (Reason(Rejection.INSUFFICIENT, "memory"), 10),
        ),
    )
    assert wording.fit_text(diagnosis) == (
        "0/12 nodes are available: 10 Insufficient memory, 3 Too many pods, 5 Insufficient cpu."
    )


def test_what_refuses_all_nodes_at_once_is_shown_without_counts() -> None:
    claim = Reason(Rejection.CLAIM_MISSING, "data")
    assert wording.fit_text(Diagnosis(3, everywhere=claim)) == (
        '0/3 nodes are available: persistentvolumeclaim "data" not found.'
    )
    assert wording.fit_text(Diagnosis(0)) == "no nodes available to schedule pods"


def test_every_rejection_has_a_text() -> None:
    assert all(reason_text(Reason(each, "subject")) for each in Rejection)


def test_every_sentence_has_a_text() -> None:
    values = ("a", "b", "c")
    said = {each: wording.explanation_text(Explanation(each, values)) for each in Sentence}
    assert [each for each, text in said.items() if not text] == [Sentence.SILENT]


def test_a_post_filter_that_states_nothing_leaves_no_prefix_behind() -> None:
    silent = Explanation(Sentence.SILENT)
    found = Preemption(Code.UNSCHEDULABLE, silent, evaluated=False)
    member = Member(Uid("a"), diagnosis=_NO_CPU)
    plain = Attempt(Unit((Uid("a"),)), Code.UNSCHEDULABLE, (member,), preemption=found)
    assert wording.member_message(plain, member) == "0/2 nodes are available: 2 Insufficient cpu."
    group = _group(silent)
    assert wording.group_message(group) == wording.group_message(replace(group, status=(_STATUS,)))


def test_a_long_note_is_cut_and_says_so() -> None:
    event = wording.failed_scheduling("x" * 1025)
    assert event.message == "x" * 1020 + " ..."
    assert wording.failed_scheduling("x" * 1024).message == "x" * 1024


def test_events_name_preemptor_and_target() -> None:
    assert wording.preempted("podgroup", "8f48", "cluster") == EventText(
        "Normal", "Preempted", "Preempted by podgroup 8f48 on node cluster", "Preempting"
    )
    assert wording.scheduled("ns", "low-0", "n1") == EventText(
        "Normal", "Scheduled", "Successfully assigned ns/low-0 to n1", "Binding"
    )
    assert wording.disruption_message("default-scheduler", "podgroup") == (
        "default-scheduler: preempting to accommodate a higher priority podgroup"
    )


def test_a_group_that_went_while_its_pods_were_in_flight_is_named_as_before_the_queue() -> None:
    snapshot = snapshot_of(pod("g-0", group="g"))
    uid = pending_of(snapshot, "g-0").row.uid
    attempt = Session(snapshot, Policy()).attempt(Unit((uid,), "default/g"))
    assert attempt is not None
    assert wording.member_message(attempt, attempt.members[0]) == no_group("default/g").message
