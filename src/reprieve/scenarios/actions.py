"""The steps that do something: people's and administrators' actions, and the controls."""

from __future__ import annotations

from typing import Any, Final

from kubelocal.machines.objects import Changed, Gone
from kubeworld.writes.merging import merge_patch
from reprieve.scenarios.observer import CLUSTER_QUEUES, GPUWORKLOADS
from reprieve.scenarios.play import Play, StepFailed, StepSkipped
from reprieve.scenarios.steps import (
    AnnotateNamespace,
    Apply,
    CreateGpuWorkload,
    Delete,
    Exporter,
    Grant,
    KueueClusterQueue,
    Remember,
    Requires,
    Revoke,
    SetUtilization,
)

__all__ = [
    "annotate_namespace",
    "apply",
    "change_rights",
    "create_gpuworkload",
    "delete",
    "kueue_cluster_queue",
    "remember",
    "require",
    "set_utilization",
    "switch_exporter",
]


_SEEN_S: Final = 5.0
_ACTIVE_S: Final = 60.0


async def apply(play: Play, step: Apply) -> None:
    """Create or update an object in the scenario's namespace."""
    manifest = dict(step.object)
    metadata = dict(manifest["metadata"])
    play.api_versions[manifest["kind"]] = manifest["apiVersion"]
    if play.stage.objects.namespaced(manifest["apiVersion"], manifest["kind"]):
        metadata.setdefault("namespace", play.namespace)
    if step.controller_owner is not None:
        owner = await play.root(step.controller_owner)
        metadata["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    manifest["metadata"] = metadata
    await play.write(manifest)


async def annotate_namespace(play: Play, step: AnnotateNamespace) -> None:
    """Set annotations on the scenario's namespace."""
    await play.write(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": play.namespace, "annotations": dict(step.annotations)},
        }
    )


async def set_utilization(play: Play, step: SetUtilization) -> None:
    """Have the exporter report a value for the pods below a root."""
    play.stage.exporter.set_utilization(
        play.namespace,
        step.pods_of,
        step.value,
        gpu=None if step.gpu is None else int(step.gpu),
        pod_index=step.pod_index,
    )


async def switch_exporter(play: Play, step: Exporter) -> None:
    """Have the exporter refuse connections, or answer again."""
    if step.state == "down":
        await play.stage.exporter.down()
    else:
        await play.stage.exporter.up()


async def delete(play: Play, step: Delete) -> None:
    """Delete an object in the background, as a person would."""
    if await play.find(step.kind, step.name) is None:
        raise StepFailed(f"{step.kind}/{step.name} does not exist")
    await play.stage.objects.delete(play.resource_of(step.kind), play.namespace, step.name)


async def create_gpuworkload(play: Play, step: CreateGpuWorkload) -> None:
    """Write a GpuWorkload by hand; the reference and the name come from the live root."""
    root = await play.root(step.root)
    kind, name = root["kind"], root["metadata"]["name"]
    uid = root["metadata"]["uid"]
    created = await play.write(
        {
            "apiVersion": "kaiwo.silogen.ai/v1alpha1",
            "kind": "GpuWorkload",
            "metadata": {
                "name": f"{kind.lower()}-{name}-{uid[:8]}",
                "namespace": play.namespace,
            },
            "spec": {
                **step.spec,
                "workloadRef": {
                    "apiVersion": root["apiVersion"],
                    "kind": kind,
                    "name": name,
                    "uid": uid,
                },
            },
        }
    )
    if step.status:
        wanted = merge_patch(created, {"status": step.status})
        try:
            await play.stage.objects.update(GPUWORKLOADS, wanted, subresource="status")
        except (Changed, Gone) as error:
            raise StepFailed(
                f"the status of the new GpuWorkload was not accepted: {error}"
            ) from None


async def remember(play: Play, step: Remember) -> None:
    """Keep a field of a GpuWorkload, given by its path such as `status.idleSince`."""
    value: Any = await play.gpuworkload(step.root)
    for part in step.field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        raise StepFailed(f"the GpuWorkload of {step.root} has no {step.field}")
    play.remembered[step.key] = value


async def change_rights(play: Play, step: Revoke | Grant) -> None:
    """Remove a right of the operator or return it."""
    if play.stage.rights is None:
        raise StepSkipped("the rights of the operator cannot be changed on this cluster")
    if isinstance(step, Revoke):
        await play.stage.rights.deny(step.verb, step.group, step.resource)
    else:
        await play.stage.rights.allow(step.verb, step.group, step.resource)


async def require(play: Play, step: Requires) -> None:
    """Skip the scenario where a system is not installed."""
    if play.stage.objects.resource_named("ClusterQueue") is None:
        raise StepSkipped(f"requires {step.what}, which is not installed")


async def kueue_cluster_queue(play: Play, step: KueueClusterQueue) -> None:
    """Make a flavor, a ClusterQueue with one quota, and a LocalQueue of the same name.

    Where the ClusterQueue is watched, wait until it is active: a job that comes before its webhook
    is there would run first and be suspended later.
    """
    known = play.stage.objects.resource_of("kueue.x-k8s.io/v1beta2", "ClusterQueue")
    version = f"kueue.x-k8s.io/{'v1beta1' if known is None else 'v1beta2'}"
    quota = {"name": step.resource, "nominalQuota": step.nominal_quota}
    manifests: list[dict[str, Any]] = [
        {
            "apiVersion": version,
            "kind": "ResourceFlavor",
            "metadata": {"name": step.name},
            "spec": {},
        },
        {
            "apiVersion": version,
            "kind": "ClusterQueue",
            "metadata": {"name": step.name},
            "spec": {
                "namespaceSelector": {},
                "resourceGroups": [
                    {
                        "coveredResources": [step.resource],
                        "flavors": [{"name": step.name, "resources": [quota]}],
                    }
                ],
            },
        },
        {
            "apiVersion": version,
            "kind": "LocalQueue",
            "metadata": {"name": step.name, "namespace": play.namespace},
            "spec": {"clusterQueue": step.name},
        },
    ]
    for manifest in manifests:
        await play.write(manifest)
    observer = play.stage.observer

    def active() -> bool | None:
        found = observer.get(CLUSTER_QUEUES, "", step.name)
        said = ((found or {}).get("status") or {}).get("conditions") or ()
        return any((each["type"], each["status"]) == ("Active", "True") for each in said) or None

    seen = await observer.until(lambda: observer.get(CLUSTER_QUEUES, "", step.name), _SEEN_S)
    if seen is not None and await observer.until(active, _ACTIVE_S) is None:
        raise StepFailed(f"ClusterQueue {step.name} is not active after {_ACTIVE_S:g} s")
