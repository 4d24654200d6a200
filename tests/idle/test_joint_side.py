"""What the idle plane answers to others of its process about demands that it evicts for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reprieve.engine.idle.model import Phase
from reprieve.planes.common.joint import Verdict
from reprieve.planes.idle.joint.joint_side import JointSide
from reprieve.units.ids import GpuWorkloadKey, Uid
from tests.engine.rows import workload

DEMAND, VICTIM = GpuWorkloadKey("team/demand"), Uid("victim-uid")


def side(phase: Phase, pods: list[bool], *, mixed: bool = True) -> JointSide:
    """A demand for which one root goes; `pods`: whether each pod of that is terminating."""
    row = workload("victim")
    root = row.root
    held = SimpleNamespace(status=SimpleNamespace(phase=phase), root=root, key="team/victim")
    demand = SimpleNamespace(key=DEMAND, over=False)
    known = {VICTIM: [held], Uid("demand-uid"): [demand]}
    made: Any = JointSide.__new__(JointSide)
    made._workloads = SimpleNamespace(of_root=lambda uid: known.get(uid, []))
    made._ownership = SimpleNamespace(
        pods_of=lambda ref: [
            SimpleNamespace(uid=f"pod-{n}", row=SimpleNamespace(terminating=ends))
            for n, ends in enumerate(pods)
        ]
    )
    made._mixed = lambda: {DEMAND: frozenset({VICTIM})} if mixed else {}
    made._queued = SimpleNamespace(
        pods=lambda uid: [], asks=lambda uid: (workload("demand").root, {"gpu": 4})
    )
    found: JointSide = made
    return found


@pytest.mark.parametrize(
    ("phase", "pods", "mixed", "expected"),
    [
        (Phase.IDLE, [False], True, Verdict.SERVED),
        (Phase.PREEMPTING, [True, False], True, Verdict.SERVED),
        (Phase.PREEMPTING, [True, True], True, Verdict.HELPED),
        (Phase.PREEMPTED, [False], True, Verdict.HELPED),
        (Phase.DELETED, [], True, Verdict.HELPED),
        (Phase.PREEMPTED, [], False, Verdict.SERVED),
    ],
)
def test_a_demand_is_helped_only_once_no_pod_of_the_idle_work_stays(
    phase: Phase, pods: list[bool], mixed: bool, expected: Verdict
) -> None:
    asked = side(phase, pods, mixed=mixed)
    root = workload("demand").root
    assert asked._verdict_of_root(root, frozenset({DEMAND}), for_quota=False) is expected


def test_what_was_said_of_a_demand_that_waited_for_quota_says_nothing_of_its_nodes() -> None:
    asked, root = side(Phase.PREEMPTED, []), workload("demand").root
    asked._answered = frozenset({(DEMAND, True)})
    found = [asked._verdict_of_root(root, frozenset(), for_quota=on) for on in (True, False)]
    assert found == [Verdict.DECLINED, Verdict.UNDECIDED]


def test_the_quota_plane_preempts_nobody_for_a_demand_that_is_helped() -> None:
    asked = side(Phase.PREEMPTED, [])
    assert asked._queued_verdict(Uid("w"), frozenset({DEMAND})) is Verdict.SERVED
