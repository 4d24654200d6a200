"""What helps is told in each row of Waiting with the figures of the moment."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.web.pages import waiting
from reprieve.web.tables import Viewer
from tests.web.cluster import (
    GPU,
    START,
    cluster_queue,
    local_queue,
    mirror,
    node,
    pod,
    rows,
    waiting_event,
    workload,
)

EVERYTHING = Viewer(sees_all=True)


def steps(*objects: Any, viewer: Viewer = EVERYTHING) -> list[str]:
    """Return what helps each unit that waits."""
    return [
        each["step"] for each in rows(waiting.page(mirror(*objects), viewer, {}, START), "waiting")
    ]


def queued(nominal: int, used: int, asks: int) -> list[Any]:
    """Return a queue of which some is used, and a job that asks for some."""
    held = [workload("old", gpus=used, admitted_to="cq")] if used else []
    told = waiting_event("Job", "next", "HeldByOthers", "the quota is in use")
    queue = [cluster_queue("cq", nominal), local_queue("team-a", "cq")]
    return [*queue, *held, workload("next", gpus=asks, created=5, why="no"), told]


@pytest.mark.parametrize(
    ("nominal", "used", "asks", "said"),
    [
        (20, 12, 16, f"8 of the 16 {GPU} that it requests are left in cq: request at most 8"),
        (20, 20, 8, "cq uses all of its nominal quota of 20: it is admitted once 8 "),
        (20, 48, 8, "cq uses 28 over its nominal quota of 20: it is admitted once 36 "),
        (20, 4, 8, f"its own quota has 16 {GPU} left"),
    ],
)
def test_a_job_that_waits_for_quota_reads_what_its_queue_has_left(
    nominal: int, used: int, asks: int, said: str
) -> None:
    (step,) = steps(*queued(nominal, used, asks))
    assert step.startswith(said)


@pytest.mark.parametrize(
    ("reason", "asks", "said"),
    [
        ("Full", 8, f"a pod requests 8 {GPU}; the emptiest node has 6 free, all nodes 9: request"),
        ("NoVictimsSuffice", 16, f"a pod requests 16 {GPU}, and the largest node has 8"),
        ("NoNodeMatches", 16, f"a pod requests 16 {GPU}, and the largest node has 8"),
        ("NoNodeMatches", 4, "Change what it requires of a node"),
    ],
)
def test_a_pod_that_waits_for_nodes_reads_what_they_have(reason: str, asks: int, said: str) -> None:
    held = (pod("a-0", gpus=2, on="n1"), pod("b-0", gpus=5, on="n2"))
    told = waiting_event("Pod", "next", reason, "no")
    (step,) = steps(
        node("n1"), node("n2"), node("n3", cordoned=True), *held, pod("next", gpus=asks), told
    )
    assert step.startswith(said)


def test_pods_that_fit_one_by_one_read_how_many_are_missing_together() -> None:
    told = waiting_event("Job", "next", "Full", "no")
    pods = [pod(f"next-{n}", gpus=4, job="next") for n in range(3)]
    (step,) = steps(node("n1"), *pods, told)
    assert (
        step
        == f"8 of the 12 {GPU} that it requests are free: wait for 4 more, or request fewer pods"
    )


def test_who_sees_a_part_is_told_no_sums_over_others() -> None:
    tenant = Viewer(False, frozenset({"team-a"}))
    (step,) = steps(*queued(20, 12, 16), viewer=tenant)
    assert step == "Wait until some of it ends, or request less."
