"""Pods that are queued by themselves, or as a group, get places in a topology, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve.jobs.table import BUILT_IN
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import PODS
from tests.quota_plane.gated_site import QUEUE, gated_site
from tests.quota_plane.kind_stories import GROUP, ROWS, TOTAL, manifest, resource
from tests.quota_plane.site import NAMESPACE, Object, Site
from tests.quota_plane.test_topologies import HOST, RACK, REQUIRED, queues, racks

KINDS = tuple(kind for kind in BUILT_IN if kind.kind == "Pod")
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"


def pod(name: str, group: str = "", of: int = 0, **asked: str) -> Object:
    """Return a queued pod of 2 cpus; `asked` are annotations."""
    labels, notes = {QUEUE: "q"}, dict(asked)
    if group:
        labels[GROUP] = group
        notes[TOTAL] = str(of)
    requests = {"requests": {"cpu": "2"}}
    container = {"name": "main", "image": "example/main:1", "resources": requests}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": labels,
            "annotations": notes,
        },
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }


async def nodes_of(cluster: Site) -> dict[str, str]:
    """Return the node of each pod, empty for those without."""
    page = await cluster.client.list(PODS, dict, namespace=NAMESPACE)
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in page.items}


async def test_a_pod_and_a_group_of_pods_are_let_go_with_their_places(tmp_path: Path) -> None:
    nodes = racks(a="r1", b="r2", c="r2")
    async with gated_site(tmp_path, *queues(), kinds=KINDS, nodes=nodes) as cluster:
        for number in range(3):
            asked = {REQUIRED: RACK}
            await cluster.client.create(PODS, pod(f"g-{number}", "g", 3, **asked), dict)

        async def together() -> bool:
            found = await nodes_of(cluster)
            return all(found.values()) and set(found.values()) <= {"b", "c"} and len(found) == 3

        await cluster.until("the group runs in the rack that holds it", together)
        await cluster.client.create(PODS, pod("alone", "", 0, **{REQUIRED: HOST}), dict)

        async def bound() -> bool:
            return bool((await nodes_of(cluster))["alone"])

        await cluster.until("the pod runs", bound)
        page = await cluster.client.list(PODS, dict, namespace=NAMESPACE)
        for each in page.items:
            assert each["spec"]["nodeSelector"][HOST] == each["spec"]["nodeName"]
            assert not each["spec"].get("schedulingGates")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({REQUIRED: RACK, PREFERRED: RACK}, "must not contain more than one topology annotation"),
        ({REQUIRED: "no level"}, f"metadata.annotations[{REQUIRED}]: Invalid value"),
        (
            {REQUIRED: RACK, "kueue.x-k8s.io/podset-slice-size": "1"},
            "may not be set when 'kueue.x-k8s.io/podset-slice-required-topology' is not specified",
        ),
    ],
    ids=["two", "odd", "a size alone"],
)
async def test_what_a_pod_cannot_ask_for_is_refused(
    asked: dict[str, str], said: str, tmp_path: Path
) -> None:
    async with gated_site(tmp_path, *queues(), kinds=KINDS, nodes=racks(a="r1")) as cluster:
        with pytest.raises(ApiError) as refused:
            await cluster.client.create(PODS, pod("odd", "", 0, **asked), dict)
        assert said in str(refused.value)


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment", "Job"])
async def test_what_a_template_asked_before_refuses_no_other_change(
    kind: str, tmp_path: Path
) -> None:
    away = [True]
    kinds = (*KINDS, ROWS[kind])
    nodes = racks(a="r1")
    async with gated_site(
        tmp_path, *queues(), kinds=kinds, nodes=nodes, away=lambda: away[0]
    ) as cluster:
        odd = manifest(kind, "odd")
        odd["metadata"]["labels"] = {QUEUE: "q"}
        metadata = odd["spec"]["template"].setdefault("metadata", {})
        metadata["annotations"] = {REQUIRED: "no level"}
        await cluster.client.create(resource(ROWS[kind]), odd, dict)
        away[0] = False

        def told(obj: Object) -> Object:
            obj["metadata"].setdefault("annotations", {})["about"] = "something else"
            return obj

        def asks(obj: Object) -> Object:
            obj["spec"]["template"]["metadata"]["annotations"] |= {PREFERRED: RACK}
            return obj

        where = (resource(ROWS[kind]), NAMESPACE, "odd")
        assert await cluster.client.modify(*where, told)
        if kind != "Job":  # whose template never changes
            with pytest.raises(ApiError) as refused:
                await cluster.client.modify(*where, asks)
            assert "must not contain more than one topology annotation" in str(refused.value)
