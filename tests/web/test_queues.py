"""The page Queues tells who has what, who borrows from whom, and how shares come about."""

from __future__ import annotations

import pytest

from reprieve.web.mirror.mirror import Mirror
from reprieve.web.pages import queues
from reprieve.web.tables import NotFound, Viewer
from tests.web.cluster import (
    GPU,
    START,
    cluster_queue,
    local_queue,
    mirror,
    node,
    pod,
    rows,
    workload,
)

EVERYTHING = Viewer(sees_all=True)


def borrowing() -> Mirror:
    """Three queues of eight: one uses twelve, one lends, one is alone."""
    return mirror(
        node("n1", 64),
        cluster_queue("a", 8, cohort="all", weight="2"),
        cluster_queue("b", 8, cohort="all"),
        cluster_queue("alone", 8),
        local_queue("team-a", "a"),
        local_queue("team-b", "b"),
        workload("a-1", gpus=4, pods=2, admitted_to="a", priority=5),
        workload("a-2", gpus=4, admitted_to="a", priority=1, created=10),
        workload("a-3", gpus=4, created=20),
        workload("b-1", "team-b", gpus=1, admitted_to="b"),
    )


def test_usage_borrowing_and_lending_add_up() -> None:
    found = rows(queues.page(borrowing(), EVERYTHING, {}, START), "queues")

    assert [
        (
            each["queue"],
            each["depth"],
            each["nominal"],
            each["used"],
            each["borrowed"],
            each["lent"],
        )
        for each in found
    ] == [
        ("all", 0, 16, 13, 4, 4),
        ("a", 1, 8, 12, 4, 0),
        ("b", 1, 8, 1, 0, 4),
        ("alone", 0, 8, 0, 0, 0),
    ]


def test_shares_are_told_with_their_arithmetic() -> None:
    found = rows(queues.page(borrowing(), EVERYTHING, {}, START), "shares")

    shown = ("share", "arithmetic", "pending", "admitted")
    assert {each["queue"]: tuple(each[name] for name in shown) for each in found} == {
        "all": (None, "", None, None),
        "a": (125, "borrows 4 of 16 amd.com/gpu that can be lent: 250 / weight 2 = 125", 1, 2),
        "b": (0, "borrows nothing: 0", 0, 1),
        "alone": (None, "", 0, 0),
    }


def test_of_a_borrowing_queue_the_lowest_priority_could_be_reclaimed_first() -> None:
    found = rows(queues.page(borrowing(), EVERYTHING, {}, START), "reclaimable")

    assert [(each["unit"], each["amount"], each["borrowed"]) for each in found] == [
        ("job/team-a/a-2", 4, 4),
        ("job/team-a/a-1", 8, 4),
    ]


def test_one_cohort_is_shown_with_those_below_it() -> None:
    page = queues.page(borrowing(), EVERYTHING, {"name": ("all",)}, START)
    assert [each["queue"] for each in rows(page, "shares")] == ["all", "a", "b"]

    with pytest.raises(NotFound, match="there is no ClusterQueue or Cohort 'nobody'"):
        queues.page(borrowing(), EVERYTHING, {"name": ("nobody",)}, START)


def test_a_tenant_sees_the_queue_that_its_door_leads_to_with_its_own_work_alone() -> None:
    tenant = Viewer(sees_all=False, namespaces=frozenset({"team-b"}))

    page = queues.page(borrowing(), tenant, {}, START)

    assert [(each["queue"], each["nominal"], each["used"]) for each in rows(page, "queues")] == [
        ("b", None, 1)
    ]
    assert [
        (each["queue"], each["parent"], each["arithmetic"]) for each in rows(page, "shares")
    ] == [("b", "", "")]
    assert rows(page, "reclaimable") == []
    with pytest.raises(NotFound, match="there is no ClusterQueue or Cohort 'a'"):
        queues.page(borrowing(), tenant, {"name": ("a",)}, START)


@pytest.mark.parametrize("viewer", [EVERYTHING, Viewer(False, frozenset({"team-a"}))])
def test_a_queue_that_may_not_be_read_is_there_for_who_has_a_door_to_it(viewer: Viewer) -> None:
    """A tenant may list LocalQueues, and no ClusterQueues: his job waits in one all the same."""
    cluster = mirror(
        local_queue("team-a", "theirs"),
        pod("x-0", gpus=2, gated=True, job="x"),
        workload("x", gpus=2, why="no quota left"),
    )

    page = queues.page(cluster, viewer, {}, START)

    assert [(each["queue"], each["resource"], each["used"]) for each in rows(page, "queues")] == [
        ("theirs", GPU, 0)
    ]
    assert [(each["queue"], each["pending"]) for each in rows(page, "shares")] == [("theirs", 1)]
