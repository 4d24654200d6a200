"""With several planes only those changes are named with which all of them let the work start."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from reprieve.cli.sessions.deciding import deciders_of
from reprieve.cli.texts.plan_text import plan_text
from reprieve.engine.diagnosis.model import Change, Fix, Gain
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.whatif.questions.answer import Answer, Verdict
from reprieve.whatif.questions.changed import changed_by
from reprieve.whatif.questions.planning import planned
from reprieve.whatif.run import settled
from reprieve.whatif.submitting.submission import Submitted
from tests.quota_plane.site import cluster_queue, flavor, local_queue
from tests.whatif.plan_stories import GPU, JOBS, QUOTA, job, node, queue, submitted
from tests.whatif.test_kinds import snapshot

Object = dict[str, Any]
BOTH = "scheduling,quota"
FEWER_PODS = Fix(Change.FEWER_PODS, "spec.podSets[main].count", "4", "2")
FEWER_DEVICES = Fix(
    Change.FEWER_DEVICES, f"spec.podSets[main].template.spec, requests of {GPU}", "8", "4"
)
OTHER_QUEUE = Fix(Change.OTHER_QUEUE, "spec.queueName", "q", "other")
#: Two flavors, of which each node is of one, and a queue for each.
SPLIT = (
    flavor("here", nodeLabels={"disk": "fast"}),
    flavor("there", nodeLabels={"disk": "slow"}),
    local_queue("other", "far"),
)


def split(name: str, of: str, gpus: int) -> Object:
    """Return a ClusterQueue with quota of one flavor."""
    quotas = [{"name": "cpu", "nominalQuota": "1000"}, {"name": GPU, "nominalQuota": str(gpus)}]
    group = {"coveredResources": ["cpu", GPU], "flavors": [{"name": of, "resources": quotas}]}
    return cluster_queue(name, 0, resourceGroups=[group])


def answered(
    wanted: Object, *there: Object, controllers: str = BOTH, trying: float = 60.0
) -> Answer:
    """Return what is planned of a Job on a cluster with these objects."""
    deciders = deciders_of(controllers, ("default-scheduler",), {})
    given = snapshot(deciders, *QUOTA, *there)
    return asyncio.run(planned(None, given, deciders, submitted([wanted]), trying=trying))


def told(answer: Answer) -> list[Fix]:
    """Return the changes that are named for the one thing submitted."""
    (outcome,) = answer.outcomes
    assert outcome.verdict in (Verdict.WAITS, Verdict.NEVER_FITS), outcome
    assert outcome.diagnosis is not None
    return list(outcome.diagnosis.fixes)


@pytest.mark.parametrize(
    ("pods", "gpus", "there", "fix", "room", "too_little"),
    [
        (4, 1, [queue("cq", 2)], FEWER_PODS, [node("n", 2)], [node("n", 1)]),
        (1, 8, [queue("cq", 4)], FEWER_DEVICES, [node("n", 4)], [node("n", 2)]),
        (
            1,
            8,
            [*SPLIT, split("cq", "here", 0), split("far", "there", 8)],
            OTHER_QUEUE,
            [node("n", 8, disk="fast"), node("m", 8, disk="slow")],
            [node("n", 8, disk="fast")],
        ),
    ],
    ids=["fewer pods", "fewer devices", "another queue"],
)
def test_a_change_that_quota_would_admit_is_named_where_nodes_take_it_and_not_else(
    pods: int,
    gpus: int,
    there: list[Object],
    fix: Fix,
    room: list[Object],
    too_little: list[Object],
) -> None:
    wanted = job("mine", pods, gpus, "q", "low")
    assert told(answered(wanted, *there, *room)) == [fix]
    assert told(answered(wanted, *there, *too_little)) == []
    # The quota plane alone does not know of nodes, and names it in both cases.
    assert told(answered(wanted, *there, *too_little, controllers="quota")) == [fix]
    (changed,) = changed_by(fix, [wanted])
    starts = answered(changed, *there, *room)
    assert starts.verdict is Verdict.STARTS, starts


def test_how_many_make_way_then_is_what_all_planes_say() -> None:
    """In its quota nothing is preempted for it; on the node a pod of lower priority does."""
    deciders = deciders_of(BOTH, ("default-scheduler",), {})
    classes = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in (("small", 1), ("large", 1000))
    ]
    given = snapshot(deciders, *QUOTA, *classes, queue("cq", 2), node("n", 2))
    filler = job("filler", 1, 1)
    filler["spec"]["template"]["spec"]["priorityClassName"] = "small"
    full = settled(given, deciders, submitted([filler])).overlay.frozen()
    wanted = job("mine", 4, 1, "q", "low")
    wanted["spec"]["template"]["spec"]["priorityClassName"] = "large"
    answer = asyncio.run(planned(None, full, deciders, submitted([wanted]), trying=60.0))
    assert told(answer) == [replace(FEWER_PODS, victims=1)]


def test_what_there_was_no_time_to_try_is_never_named_first() -> None:
    """Of fewer pods, and another queue, the first is tried in any case."""
    there = [*SPLIT, split("cq", "here", 2), split("far", "there", 4)]
    wanted = job("mine", 4, 1, "q", "low")
    nodes = node("n", 2, disk="fast"), node("m", 4, disk="slow")
    given = [*there, *nodes]
    assert told(answered(wanted, *given)) == [FEWER_PODS, OTHER_QUEUE]
    untried = replace(OTHER_QUEUE, gain=Gain.QUOTA)
    assert told(answered(wanted, *given, trying=-1.0)) == [FEWER_PODS, untried]
    unfit = [*there, nodes[1]]
    assert told(answered(wanted, *unfit)) == [OTHER_QUEUE]
    assert told(answered(wanted, *unfit, trying=-1.0)) == []


def test_a_change_is_tried_with_everything_else_that_is_submitted() -> None:
    """In their quota two of its pods have room beside the other Job, and on the node one."""
    deciders = deciders_of(BOTH, ("default-scheduler",), {})
    given = snapshot(deciders, *QUOTA, queue("cq", 3), node("n", 2))
    both = [job("first", 1, 1, "q", "low"), job("mine", 3, 1, "q", "low")]
    wanted = [Submitted(JOBS, each) for each in both]
    answer = asyncio.run(planned(None, given, deciders, wanted, trying=60.0))
    first, mine = answer.outcomes
    assert (first.verdict, mine.verdict) == (Verdict.STARTS, Verdict.NEVER_FITS)
    assert mine.diagnosis is not None
    assert mine.diagnosis.fixes == ()


def busy(wanted: Object, *nodes: Object) -> Answer:
    """Return what is planned of a job whose quota, for nodes with a fast disk, is in use."""
    deciders = deciders_of(BOTH, ("default-scheduler",), {})
    given = snapshot(deciders, *QUOTA, *SPLIT, split("cq", "here", 4), *nodes)
    full = settled(given, deciders, submitted([job("holder", 1, 4, "q")])).overlay.frozen()
    return asyncio.run(planned(None, full, deciders, submitted([wanted]), trying=60.0))


def test_what_never_fits_has_the_reason_that_the_end_of_other_work_does_not_change() -> None:
    """Its queue's quota is in use and will be free again; the nodes of its flavor never appear."""
    wanted = job("mine", 1, 4, "q")
    (waits,) = busy(wanted, node("n", 4, disk="fast")).outcomes
    assert (waits.verdict, waits.reason) == (Verdict.WAITS, "HeldByOthers")
    (never,) = busy(wanted, node("n", 4, disk="slow")).outcomes
    assert (never.verdict, never.reason) == (Verdict.NEVER_FITS, "NoNodeMatches")
    assert never.diagnosis is not None and never.diagnosis.reason is Reason.NO_NODE_MATCHES
    assert "quota" not in never.message


def test_of_pods_that_differ_none_is_advised_to_be_submitted_without_the_others() -> None:
    """The pods of a Job may be fewer; a JobSet's driver without its workers is of no use."""
    quota = [*SPLIT, split("cq", "here", 8), node("n", 4, disk="fast")]
    alike = answered(job("mine", 2, 4, "q"), *quota)
    advice = "Submit 1 pod at most, request less, or add nodes."
    assert advice in "\n".join(plan_text(alike, BOTH.split(",")))
    (outcome,) = alike.outcomes
    different = alike.judged_again((replace(outcome, asks=replace(outcome.asks, pod=None)),))
    assert "Submit 1 pod" not in "\n".join(plan_text(different, BOTH.split(",")))
