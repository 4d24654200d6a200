"""What is known of roots goes with them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kubeworld.units.clock import VirtualClock
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.idle.model import PodRow
from reprieve.planes.idle.evaluating.displacements import IdleDisplacements
from reprieve.planes.idle.evaluating.lineages import RootLineages
from reprieve.planes.idle.records import PodRecord
from reprieve.units.ids import Uid
from reprieve.units.references import Reference


def _pod(number: int) -> PodRecord:
    row = PodRow(Uid(f"pod-{number}"), f"pod-{number}", "Failed")
    return PodRecord(f"pod-{number}", "team", f"pod-{number}", 1, row, (), None)


def test_of_roots_that_are_not_tracked_nothing_stays_once_their_pods_are_gone() -> None:
    governor, clock = Governor(), VirtualClock()
    there: dict[str, list[PodRecord]] = {}
    lineages = RootLineages(governor, lambda root: there.get(root.uid, []))
    workloads: Any = SimpleNamespace(of_root=lambda uid: ())
    plane = IdleDisplacements(governor, workloads, clock, lambda root: 0, lineages)
    for number in range(100):
        root = Reference("batch/v1", "Job", "team", f"job-{number}", Uid(f"job-{number}"))
        there[root.uid] = [_pod(number), _pod(number + 1_000)]
        plane.failed(root)
        assert len(lineages) == 1
        while there[root.uid]:
            there[root.uid].pop()
            plane.failed(root)
            plane.pod_ended(root)
        assert len(lineages) == 0
