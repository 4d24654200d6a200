"""A priority class, a LocalQueue and its ClusterQueue for the idle plane, and work in them."""

from __future__ import annotations

from tests.idle.site import NAMESPACE, Object, Site

GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"
CLASS = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 0}


def crd(kind: str, scope: str) -> Object:
    """Return the definition of a kind of Kueue that takes any content."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": VERSION, "served": True, "storage": True}
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": names,
            "versions": [{**version, "schema": {"openAPIV3Schema": anything}}],
        },
    }


async def limited(site: Site, key: str, *, of_class: str | None, of_queue: str | None) -> None:
    """Create the class `urgent`, and the queue `door` of the ClusterQueue `team`.

    The class and the ClusterQueue have the annotation where a value is given.
    """
    api = f"{GROUP}/{VERSION}"
    await site.create(crd("LocalQueue", "Namespaced"), crd("ClusterQueue", "Cluster"))
    said = [{} if value is None else {key: value} for value in (of_class, of_queue)]
    queue = {"name": "team", "annotations": said[1]}
    await site.create(
        {**CLASS, "metadata": {"name": "urgent", "annotations": said[0]}},
        {"apiVersion": api, "kind": "ClusterQueue", "metadata": queue, "spec": {}},
        {
            "apiVersion": api,
            "kind": "LocalQueue",
            "metadata": {"name": "door", "namespace": NAMESPACE},
            "spec": {"clusterQueue": "team"},
        },
    )


def bound(job: Object) -> Object:
    """Return a Job whose pods are of that class and queue."""
    template = job["spec"]["template"]
    labels = {"labels": {f"{GROUP}/queue-name": "door"}}
    spec = {**template["spec"], "priorityClassName": "urgent"}
    return {**job, "spec": {**job["spec"], "template": {"metadata": labels, "spec": spec}}}
