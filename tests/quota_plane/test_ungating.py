"""Pods that come by and by get each domain only so often, also before the writes are seen."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import msgspec

from reprieve.api.kueue import Workload
from reprieve.engine.cluster.rows import PodClass, PodRow
from reprieve.jobs.pods import TOPOLOGY_GATE
from reprieve.planes.quota.pod_reconcilers import ungating
from reprieve.planes.quota.pod_reconcilers.ungating import TopologyUngater
from reprieve.units.ids import Uid

HOST = "kubernetes.io/hostname"
PLACES = {
    "levels": [HOST],
    "slices": [
        {
            "domainCount": 2,
            "podCounts": {"universal": 2},
            "valuesPerLevel": [{"individual": {"roots": ["a", "b"]}}],
        }
    ],
}
ADMITTED = {
    "type": "Admitted",
    "status": "True",
    "reason": "Admitted",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
WORKLOAD = {
    "metadata": {"name": "w", "namespace": "n", "uid": "u"},
    "spec": {"podSets": [{"name": "main", "count": 4, "template": {}}]},
    "status": {
        "admission": {
            "clusterQueue": "cq",
            "podSetAssignments": [{"name": "main", "count": 4, "topologyAssignment": PLACES}],
        },
        "conditions": [ADMITTED],
    },
}


def row(name: str) -> PodRow:
    labels = (("kueue.x-k8s.io/podset", "main"),)
    gates = (TOPOLOGY_GATE,)
    return PodRow(Uid(name), "n", name, 1, PodClass(()), labels=labels, gates=gates)


class Writer:
    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    async def place(self, pod: Any, gate: str, selector: dict[str, str]) -> bool:
        name = pod["metadata"]["name"]
        assert gate == TOPOLOGY_GATE
        if name in self.given:
            return False  # it has lost its gate
        self.given[name] = selector[HOST]
        return True


async def test_a_pod_that_comes_before_the_last_writes_are_seen_gets_what_is_left(
    monkeypatch: Any,
) -> None:
    rows: dict[str, PodRow] = {}
    nodes = SimpleNamespace(pods_of=lambda key: list(rows), row=rows.get)
    workload = msgspec.convert(WORKLOAD, Workload)
    state = SimpleNamespace(workload=lambda key: workload, holdings=SimpleNamespace(places=None))
    context: Any = SimpleNamespace(full_client=None, fence=None, clock=None)
    monkeypatch.setattr(ungating, "count_ungated", lambda *given: None)
    keeping: Any = SimpleNamespace(needed=lambda workload: {})
    ungater = TopologyUngater(
        context,
        state,  # type: ignore[arg-type]
        nodes,  # type: ignore[arg-type]
        lambda key: (),
        keeping,
    )
    writer: Any = Writer()
    ungater._writer = writer
    # By name each comes before all that were there, and none of them is seen to be placed.
    for name in ("d", "c", "b", "a"):
        rows[name] = row(name)
        await ungater.reconcile("n/w")
    assert Counter(writer.given.values()) == {"a": 2, "b": 2}
