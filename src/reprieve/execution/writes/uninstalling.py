"""Removes what would hang, or fail closed, after the operator is removed.

1. Stop the operator: scale its Deployments to zero and wait until their pods have ended, so that it
   gives its lease back while it has its rights.
2. Delete pods that `helm test` left, which no release counts as its own.
3. Kueue's definitions that Reprieve installed convert by themselves no more (strategy None): an
   old version is served with the fields as they are stored; it would be refused.
4. Empty the webhook configurations, which else refuse the writes below.
5. Remove Reprieve's finalizers from Workloads, ClusterQueues, ResourceFlavors, AdmissionChecks,
   Topologies and queued pods. No workload is deleted, started or released: pending jobs stay
   suspended, pods gated.

Steps 3 to 5 are of the operator that has the quota plane. Kinds that another installation of Kueue
owns are left alone, and so are those that an operator of another namespace converts or judges.
Repeating it changes nothing.
Source: specification of the quota plane, section 12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.api.crds import KUEUE_NAMES
from reprieve.api.kueue import RESOURCE_IN_USE
from reprieve.kube.bodies import Json
from reprieve.kube.client import Client
from reprieve.kube.errors import Forbidden, NotFound
from reprieve.kube.own_objects import DEPLOYMENTS, OUR_SELECTOR, is_ours, operator_deployments
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, LEASES, PODS, Resource
from reprieve.units.errors import ClusterError

__all__ = [
    "CONFIGURATIONS",
    "MANAGED",
    "Uninstalling",
    "operator_namespaces",
]

#: The finalizer and the label of pods that are queued by themselves.
MANAGED: Final = "kueue.x-k8s.io/managed"
#: Name of both webhook configurations.
CONFIGURATIONS: Final = "reprieve-quota"
_GROUP: Final = "kueue.x-k8s.io"
_WEBHOOKS: Final = tuple(
    Resource("admissionregistration.k8s.io", "v1", f"{kind.lower()}s", kind, namespaced=False)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
)
_HELD: Final = (
    Resource(_GROUP, "v1beta2", "workloads", "Workload"),
    Resource(_GROUP, "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False),
    Resource(_GROUP, "v1beta2", "resourceflavors", "ResourceFlavor", namespaced=False),
    Resource(_GROUP, "v1beta2", "admissionchecks", "AdmissionCheck", namespaced=False),
    Resource(_GROUP, "v1beta2", "topologies", "Topology", namespaced=False),
)
_LONGEST_WAIT: Final = 120 * SECOND


class Uninstalling:
    """The steps, in the order in which they are to be made.

    `reported` gets one line for each thing that was done. With `dry_run` nothing is written.
    Without `quota` nothing of Kueue's kinds is read or written: the operator had no quota plane.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        namespace: str,
        reported: Callable[[str], None],
        *,
        dry_run: bool = False,
        quota: bool = True,
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._reported = reported
        self._dry_run = dry_run
        self._quota = quota
        self._would = "would be " if dry_run else ""

    async def run(self) -> None:
        """Make all steps.

        Raises:
            ApiError: the API server refused one.
            ClusterError: the operator does not end.
        """
        await self._stop_operator()
        await self._delete_tests()
        definitions = await self._definitions() if self._quota else []
        if not definitions:
            return
        configurations = await self._configurations()
        user = await self._user_elsewhere(definitions, configurations)
        if user:
            self._reported(
                f"kinds of {_GROUP} serve the operator in namespace {user}: left as they are"
            )
            return
        await self._end_conversion(definitions)
        await self._empty_webhooks(configurations)
        for resource in _HELD:
            await self._release(resource, RESOURCE_IN_USE)
        await self._release(PODS, MANAGED, f"{MANAGED}=true")

    async def _stop_operator(self) -> None:
        """Scale the operator's Deployments to zero, and wait for the end of their pods."""
        running = await operator_deployments(self._client, self._namespace)
        for deployment in running:
            name = deployment["metadata"]["name"]
            if deployment["spec"].get("replicas", 1):
                self._reported(f"deployment {self._namespace}/{name} {self._would}scaled to 0")
                if not self._dry_run:
                    await self._client.patch_scale(DEPLOYMENTS, self._namespace, name, 0)
        if not self._dry_run:
            for deployment in running:
                await self._until_gone(deployment)
            await self._until_released()

    async def _until_gone(self, deployment: Json) -> None:
        labels = deployment["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))

        async def pods() -> list[str]:
            page = await self._client.list(
                PODS, dict, namespace=self._namespace, label_selector=selector
            )
            return [pod["metadata"]["name"] for pod in page.items]

        until = self._clock.monotonic() + _LONGEST_WAIT
        while left := await pods():
            if self._clock.monotonic() > until:
                raise ClusterError(
                    f"the operator does not end: pods {', '.join(left)} in namespace "
                    f"{self._namespace} are still there after {_LONGEST_WAIT // SECOND} s"
                )
            await self._clock.sleep(SECOND)

    async def _until_released(self) -> None:
        """Return whether another process still holds the lease, an operator of another kind."""
        try:
            lease: Json = await self._client.get(LEASES, self._namespace, "reprieve", dict)
        except NotFound:
            return
        holder = (lease.get("spec") or {}).get("holderIdentity")
        if holder:
            self._reported(
                f"lease {self._namespace}/reprieve is held by {holder}: another operator runs, "
                "or one was killed; the next one waits until the lease runs out"
            )

    async def _delete_tests(self) -> None:
        """Delete what `helm test` made and keeps for its log."""
        page = await self._client.list(
            PODS, dict, namespace=self._namespace, label_selector=OUR_SELECTOR
        )
        for pod in page.items:
            metadata = pod["metadata"]
            if (metadata.get("annotations") or {}).get("helm.sh/hook") != "test":
                continue
            self._reported(
                f"pod {self._namespace}/{metadata['name']} of helm test {self._would}deleted"
            )
            if not self._dry_run:
                await self._client.delete(PODS, self._namespace, metadata["name"])

    async def _definitions(self) -> list[Json]:
        """Return our definitions of Kueue's kinds."""
        found = []
        for name in KUEUE_NAMES:
            try:
                crd: Json = await self._client.get(CUSTOM_RESOURCE_DEFINITIONS, "", name, dict)
            except NotFound:
                continue
            if is_ours(crd):
                found.append(crd)
        return found

    async def _configurations(self) -> list[tuple[Resource, Json]]:
        """Return the webhook configurations that are there."""
        found = []
        for resource in _WEBHOOKS:
            try:
                held: Json = await self._client.get(resource, "", CONFIGURATIONS, dict)
            except NotFound:
                continue
            found.append((resource, held))
        return found

    async def _user_elsewhere(
        self, definitions: list[Json], configurations: list[tuple[Resource, Json]]
    ) -> str:
        """Return the namespace of another operator whose Service these name, empty without any."""
        configs = [_conversion(crd) for crd in definitions]
        for _, held in configurations:
            configs += [each.get("clientConfig") or {} for each in held.get("webhooks") or ()]
        named = {(each.get("service") or {}).get("namespace") or "" for each in configs}
        for namespace in sorted(named - {"", self._namespace}):
            try:
                operators = await operator_deployments(self._client, namespace)
            except Forbidden:
                return namespace  # whose rights end at their own namespace cannot exclude it
            if operators:
                return namespace
        return ""

    async def _end_conversion(self, definitions: list[Json]) -> None:
        """Have definitions convert nothing."""
        for crd in definitions:
            name = crd["metadata"]["name"]
            if not _converts(crd):
                continue
            self._reported(f"conversion of {name} {self._would}set to None")
            if not self._dry_run:
                await self._client.modify(CUSTOM_RESOURCE_DEFINITIONS, "", name, _unconverted)

    async def _empty_webhooks(self, configurations: list[tuple[Resource, Json]]) -> None:
        for resource, held in configurations:
            if not held.get("webhooks"):
                continue
            self._reported(f"{resource.kind} {CONFIGURATIONS} {self._would}emptied")
            if not self._dry_run:
                await self._client.patch(resource, "", CONFIGURATIONS, {"webhooks": None}, dict)

    async def _release(self, resource: Resource, finalizer: str, labels: str = "") -> None:
        """Remove a finalizer from all objects of a kind that have it."""
        released: Counter[str] = Counter()
        try:
            async for page in self._client.list_pages(resource, dict, label_selector=labels):
                for obj in page.items:
                    if finalizer in (obj["metadata"].get("finalizers") or ()):
                        await self._release_one(resource, obj, finalizer)
                        released[resource.qualified] += 1
        except NotFound:
            return  # the kind is not served
        for kind, number in released.items():
            self._reported(f"finalizer {finalizer} {self._would}removed from {number} {kind}")

    async def _release_one(self, resource: Resource, obj: Json, finalizer: str) -> None:
        if self._dry_run:
            return
        metadata = obj["metadata"]
        try:
            await self._client.modify(
                resource,
                metadata.get("namespace", ""),
                metadata["name"],
                _without(metadata["uid"], finalizer),
            )
        except NotFound:
            return  # it was deleted meanwhile


async def operator_namespaces(client: Client) -> list[str]:
    """Return the namespaces with a Deployment of the operator, in order.

    Raises:
        ApiError: they may not be listed in all namespaces, or cannot be.
    """
    return sorted({each["metadata"]["namespace"] for each in await operator_deployments(client)})


def _converts(crd: Json) -> bool:
    return (crd["spec"].get("conversion") or {}).get("strategy") == "Webhook"


def _conversion(crd: Json) -> Json:
    """Return where a definition is converted, empty where it is not."""
    if not _converts(crd):
        return {}
    return (crd["spec"]["conversion"].get("webhook") or {}).get("clientConfig") or {}


def _unconverted(crd: Json) -> Json | None:
    if not _converts(crd):
        return None
    crd["spec"]["conversion"] = {"strategy": "None"}
    return crd


def _without(uid: str, finalizer: str) -> Callable[[Json], Json | None]:
    def change(current: Json) -> Json | None:
        metadata = current["metadata"]
        held = metadata.get("finalizers") or []
        if metadata["uid"] != uid or finalizer not in held:
            return None
        metadata["finalizers"] = [each for each in held if each != finalizer]
        return current

    return change
