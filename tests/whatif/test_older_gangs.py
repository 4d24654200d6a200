"""Older gangs in a what-if: their groups are read with the rest."""

from __future__ import annotations

from typing import Any

import pytest

from kubeworld.units.durations import SECOND
from reprieve.api.gangs import KOORDINATOR, SCHEDULER_PLUGINS, Door
from reprieve.cli.sessions.deciding import deciders_of
from reprieve.kube.resource import PODS
from reprieve.whatif.questions.answer import Verdict
from reprieve.whatif.questions.judging import answer_of
from reprieve.whatif.run import settled
from reprieve.whatif.submitting.submission import Submitted
from tests.whatif.test_displaced import node, pod, spec
from tests.whatif.test_kinds import snapshot

Object = dict[str, Any]


@pytest.mark.parametrize("door", [KOORDINATOR, SCHEDULER_PLUGINS], ids=lambda door: door.label)
def test_members_of_a_group_that_the_cluster_holds_start_at_once(door: Door) -> None:
    deciders = deciders_of("scheduling", ("default-scheduler",), {})
    head = {
        "apiVersion": door.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "team"},
        "spec": {"minMember": 2},
    }
    cluster = snapshot(deciders, node("node-0"), node("node-1"), head)
    members = [pod(f"m-{i}", spec("low"), labels={door.label: "gang"}) for i in range(2)]
    run = settled(cluster, deciders, [Submitted(PODS, each) for each in members])
    assert answer_of(run).verdict is Verdict.STARTS
    bound = [
        each.at - run.submitted_at
        for each in run.history
        if each.new is not None and (each.new.get("spec") or {}).get("nodeName")
    ]
    assert min(bound) < SECOND
