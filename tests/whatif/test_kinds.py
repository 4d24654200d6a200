"""Every kind of the table of jobs starts in a what-if, makes way for another, and has its pods.

No cluster: snapshots are made here, and of the end of one run comes the snapshot of the next.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from reprieve.cli.deciding import deciders_of
from reprieve.jobs.table import job_kinds
from reprieve.kube.resource import NAMESPACES, NODES, PODS, Resource
from reprieve.units.instants import Nanos
from reprieve.whatif.answer import Verdict, answer_of
from reprieve.whatif.run import Deciders, Run, settled
from reprieve.whatif.snapshot import KindKey, Listed, Snapshot
from reprieve.whatif.submission import Submitted
from tests.quota_plane.kind_stories import MANIFESTS
from tests.quota_plane.site import cluster_queue, flavor, local_queue, priority_class
from tests.quota_plane.test_jobs import LOWER

Object = dict[str, Any]
NOON = Nanos(1_790_000_000_000_000_000)
SUSPENDED = [kind for kind in job_kinds() if kind.suspend and kind.kind in MANIFESTS]
# Of a kind with a runtime another object describes the pods; others are not queued by default.
KINDS = [kind.kind for kind in SUSPENDED if kind.runtime is None and not kind.feature]
CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": sorted({kind.framework for kind in SUSPENDED})},
}


def snapshot(deciders: Deciders, *objects: Object) -> Snapshot:
    """Return a cluster that serves all kinds and holds these objects."""
    found: dict[KindKey, dict[tuple[str, str], bytes]] = {}
    kinds: dict[KindKey, Resource] = {}
    for resource in deciders.kinds():
        if kinds.setdefault((resource.group, resource.plural), resource) == resource:
            found[resource.group, resource.plural] = {}
    for obj in objects:
        group = obj["apiVersion"].rpartition("/")[0]
        (key,) = (k for k, r in kinds.items() if (k[0], r.kind) == (group, obj["kind"]))
        metadata = {"uid": f"{obj['kind']}-{obj['metadata']['name']}", **obj["metadata"]}
        metadata |= {"resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
        place = (metadata.get("namespace", ""), metadata["name"])
        found[key][place] = msgspec.json.encode({**obj, "metadata": metadata})
    return Snapshot(NOON, {key: Listed(kinds[key], found[key], 5) for key in kinds})


def cluster(deciders: Deciders) -> Snapshot:
    """Return a cluster with one node and a queue for two cpus."""
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    node = {"spec": {}, "status": {"allocatable": amounts, "capacity": amounts}}
    return snapshot(
        deciders,
        {**node, "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        flavor(),
        cluster_queue("cq", 2, preemption=LOWER),
        local_queue("q", "cq"),
        priority_class("low", 100),
        priority_class("high", 1000),
    )


def manifest(kind: str, name: str, priority: str) -> Submitted:
    """Return what is submitted of a kind."""
    obj = copy.deepcopy(MANIFESTS[kind])
    labels = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": priority}
    obj["metadata"] = {**obj["metadata"], "name": name, "namespace": "team", "labels": labels}
    (row,) = (each for each in SUSPENDED if each.kind == kind)
    group, _, version = row.api_version.rpartition("/")
    return Submitted(Resource(group, version, row.plural, kind), obj)


def pods_of(run: Run, name: str) -> list[Object]:
    """Return the pods of a job that do not leave."""
    return [
        pod
        for pod in run.overlay.all(PODS)
        if any(owner["name"] == name for owner in pod["metadata"]["ownerReferences"])
    ]


def test_the_kinds_are_nearly_all_that_can_be_suspended() -> None:
    assert len(KINDS) >= 10 and {NODES.kind, NAMESPACES.kind}.isdisjoint(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_starts_makes_way_and_has_its_pods(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "configuration.yaml"
    file.write_text(yaml.safe_dump(CONFIGURATION))
    deciders = deciders_of("scheduling,quota", ("default-scheduler",), {"quota_config": file})
    first = settled(cluster(deciders), deciders, [manifest(kind, "first", "low")])
    answer = answer_of(first)
    assert answer.verdict is Verdict.STARTS, answer
    made = pods_of(first, "first")
    assert made and len(answer.placement) == len(made)
    second = settled(first.overlay.frozen(), deciders, [manifest(kind, "second", "high")])
    answer = answer_of(second)
    assert answer.verdict is Verdict.STARTS_WITH_VICTIMS, answer
    assert [(each.kind, each.name) for each in answer.victims] == [(kind, "first")]
    assert pods_of(second, "first") == []
    assert len(pods_of(second, "second")) == len(made)
