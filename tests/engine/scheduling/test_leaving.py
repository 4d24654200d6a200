"""What several planes change in an attempt: nominated nodes are kept no longer than they help."""

from __future__ import annotations

from dataclasses import replace

from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.confirming import refusal
from reprieve.engine.scheduling.nodes.leaving import Delayed
from reprieve.engine.scheduling.outcome import Attempt, Nominate, Unit
from reprieve.engine.scheduling.session import Session
from tests.engine.builders import group, node, pod, snapshot_of


def attempted(*, patient: bool, ends: bool = False) -> Attempt:
    """Return the attempt of a gang whose nodes were kept, and of which others have taken one."""
    members = [
        pod(name, gpus=4, group="gang", nominated=on) for name, on in (("one", "n0"), ("two", "n1"))
    ]
    taken = pod("taken", node="n0", gpus=2, priority=1000)
    if ends:
        taken = replace(taken, deleting=True)
    snapshot = snapshot_of(
        node("n0", gpus=4), node("n1", gpus=4), taken, group("gang", min_count=2), *members
    )
    unit = Unit(tuple(each.uid for each in members), "default/gang")
    waits = Delayed(patient=frozenset([unit] if patient else []))
    attempt = Session(snapshot, Policy(), waits=waits).attempt(unit)
    assert attempt is not None
    return attempt


def test_no_member_of_a_gang_that_does_not_fit_any_more_keeps_its_node() -> None:
    found = attempted(patient=True)
    assert found.code is Code.UNSCHEDULABLE
    assert {each.nominate for each in found.members} == {Nominate.CLEAR}


def test_where_one_plane_decides_alone_members_that_were_not_tried_keep_theirs() -> None:
    found = attempted(patient=False)
    assert Nominate.KEEP in {each.nominate for each in found.members}


def test_nodes_stay_kept_while_what_ends_there_makes_the_room() -> None:
    found = attempted(patient=True, ends=True)
    assert [each.nominate for each in found.members] == ["n0", "n1"]


def test_idle_work_does_not_go_for_a_unit_whose_room_goes_to_a_higher_priority() -> None:
    idle = [pod(f"idle-{n}", node="n0", gpus=4, priority=1000) for n in range(2)]
    wide, high = pod("wide", gpus=8, priority=100), pod("high", gpus=4, priority=1000)
    snapshot = snapshot_of(node("n0", gpus=8), *idle, wide, high)
    gone = frozenset(each.uid for each in idle)
    wanted, first = Unit((wide.uid,)), Unit((high.uid,))

    def asked(*ahead: Unit) -> str:
        return refusal(snapshot, Policy(), [wanted], gone, gone, frozenset(), 0, {}, ahead)[0]

    assert asked() == ""
    assert asked(first) == "pending work of higher priority would use what is freed"
    # One that finds no node even then takes nothing.
    larger = pod("larger", gpus=16, priority=1000)
    snapshot = snapshot_of(node("n0", gpus=8), *idle, wide, larger)
    assert asked(Unit((larger.uid,))) == ""
