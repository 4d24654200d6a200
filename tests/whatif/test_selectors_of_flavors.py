"""What the quota plane put into pods is nothing that whoever submits them could leave out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reprieve.cli.sessions.deciding import deciders_of
from reprieve.engine.diagnosis.model import Change
from reprieve.whatif.questions.answer import Verdict
from reprieve.whatif.questions.planning import planned
from tests.quota_plane.site import cluster_queue, flavor, local_queue, priority_class
from tests.whatif.test_kinds import manifest, snapshot


def node(name: str, cpu: str, disk: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"disk": disk}},
        "spec": {},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


@pytest.mark.parametrize("controllers", ["scheduling", "scheduling,quota"])
def test_only_a_node_selector_of_ones_own_is_told_to_be_left_out(controllers: str) -> None:
    deciders = deciders_of(controllers, ("default-scheduler",), {})
    cluster = snapshot(
        deciders,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        node("node-0", "4", "fast"),
        node("node-1", "64", "slow"),
        flavor(nodeLabels={"disk": "fast"}),
        cluster_queue("cq", 100),
        local_queue("q", "cq"),
        priority_class("low", 100),
    )
    queued = "quota" in controllers
    wanted = manifest("Job" if queued else "Pod", "wanted", "low")
    spec = wanted.object["spec"]
    if queued:
        spec = spec["template"]["spec"]
    else:
        wanted.object["metadata"]["labels"] = {}
        spec["nodeSelector"] = {"disk": "fast"}
    spec["containers"][0]["resources"] = {"requests": {"cpu": "32"}}
    answer = asyncio.run(planned(None, cluster, deciders, [wanted]))
    (outcome,) = answer.outcomes
    assert outcome.verdict is Verdict.NEVER_FITS and outcome.diagnosis is not None
    assert dict(outcome.diagnosis.filters)["NodeAffinity"] == 1
    changes = [(each.change, each.field) for each in outcome.diagnosis.fixes]
    own = [(Change.WITHOUT_CONSTRAINT, "spec.nodeSelector[disk]")]
    assert changes == ([] if queued else own)
