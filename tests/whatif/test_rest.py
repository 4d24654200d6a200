"""When a what-if is at rest."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from kubeworld.time import LoopClock, run_virtually
from kubeworld.units.durations import MINUTE
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.questions import GovernorPolicy
from reprieve.kube.resource import Resource
from reprieve.planes.common.disruptions.loop_notices import LoopNotices
from reprieve.whatif.copy.overlay import Overlay
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.questions.answer import Verdict
from reprieve.whatif.questions.judging import answer_of
from reprieve.whatif.rest import Quiet
from reprieve.whatif.run import settled
from reprieve.whatif.stage import Stage
from reprieve.whatif.submitting.submission import Submitted
from tests.quota_plane.site import cluster_queue, flavor, local_queue
from tests.whatif.test_kinds import NOON, deciding, snapshot

Object = dict[str, Any]
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")


def replicated(name: str, requests: dict[str, str], **spec: Any) -> Object:
    container = {"name": "c", "resources": {"requests": requests}}
    pods = {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}
    inner = {"parallelism": 1, "completions": 1, "template": pods}
    return {"name": name, "replicas": 1, "template": {"spec": inner}}


def test_who_is_refused_for_another_flavor_each_time_is_at_rest(tmp_path: Path) -> None:
    """The head's next scan begins behind the flavor that it got, and tells the same of all."""
    amounts = [{"name": "cpu", "nominalQuota": "4"}]
    flavors = [{"name": each, "resources": amounts} for each in ("slow", "fast")]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    strict: Object = {"resourceGroups": groups, "queueingStrategy": "StrictFIFO"}
    deciders = deciding("quota", tmp_path)
    cluster = snapshot(
        deciders,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        *(flavor(each, nodeLabels={"disk": each}) for each in ("slow", "fast")),
        cluster_queue("cq", 4, **strict),
        local_queue("q", "cq"),
    )
    jobs = [
        replicated("first", {"cpu": "1"}, nodeSelector={"disk": "slow"}),
        replicated("then", {"cpu": "1", "memory": "1Gi"}),
    ]
    wanted = {
        "apiVersion": JOB_SETS.api_version,
        "kind": "JobSet",
        "metadata": {
            "name": "work",
            "namespace": "team",
            "labels": {"kueue.x-k8s.io/queue-name": "q"},
        },
        "spec": {"replicatedJobs": jobs},
    }
    run = settled(cluster, deciders, [Submitted(JOB_SETS, wanted)])
    said = {
        each["message"]
        for change in run.history
        if change.new is not None and change.new["kind"] == "Workload"
        for each in (change.new.get("status") or {}).get("conditions") or ()
        if each["type"] == "QuotaReserved"
    }
    assert len(said) == 1, said
    assert run.rest and run.ended_at - run.submitted_at < MINUTE
    assert answer_of(run).verdict is Verdict.WAITS


async def _stage(deciders: Deciders) -> Stage:
    clock = LoopClock(asyncio.get_running_loop(), NOON)
    return await Stage.over(Overlay(snapshot(deciders), clock), clock, deciders)


def test_planes_of_a_plan_hold_pairs_as_the_operators_file_states(tmp_path: Path) -> None:
    """One governor and one place that names what is held, for all planes."""
    deciders = deciding("scheduling,quota", tmp_path)
    policy = GovernorPolicy(loop_window=4 * MINUTE)
    settings = replace(deciders.settings, governor=policy)

    async def main() -> dict[str, tuple[Governor, LoopNotices | None]]:
        stage = await _stage(replace(deciders, settings=settings))
        try:
            contexts = {name: plane.context for name, plane in stage.planes.items()}  # type: ignore[attr-defined]
            return {name: (each.governor, each.loops) for name, each in contexts.items()}
        finally:
            await stage.end()

    found = run_virtually(main)
    assert set(found) == {"scheduling", "quota"}
    (governor, loops), other = found["scheduling"], found["quota"]
    assert governor is other[0] and governor.policy == policy
    assert loops is other[1] and loops is not None


def test_a_run_reports_each_text_once_and_no_pair_of_before() -> None:
    pairs = logging.getLogger("reprieve.disruptions")
    others = logging.getLogger("reprieve.quota")
    with Quiet() as said:
        pairs.warning("a and %s are held", "b")
        others.warning("a queue is not read")
        said.discard(pairs.name)
        others.warning("a queue is not read")
        pairs.warning("c and d are held")
    assert said.lines == ("a queue is not read", "c and d are held")
