"""When a what-if is at rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeworld.units.durations import MINUTE
from reprieve.kube.resource import Resource
from reprieve.whatif.questions.answer import Verdict
from reprieve.whatif.questions.judging import answer_of
from reprieve.whatif.run import settled
from reprieve.whatif.submitting.submission import Submitted
from tests.quota_plane.site import cluster_queue, flavor, local_queue
from tests.whatif.test_kinds import deciding, snapshot

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
