"""The kinds that Reprieve reads and writes, and where the API server keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NewType
from urllib.parse import quote

__all__ = [
    "CONFIG_MAPS",
    "CUSTOM_RESOURCE_DEFINITIONS",
    "DEVICE_CLAIMS",
    "DEVICE_CLASSES",
    "DEVICE_SLICES",
    "DEVICE_TEMPLATES",
    "DISRUPTIONS",
    "ENDPOINT_SLICES",
    "EVENTS",
    "EVICTIONS",
    "GPU_WORKLOADS",
    "HARM_BUDGETS",
    "KAIWO_CONFIGS",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PODS",
    "PREEMPTIONS",
    "PREEMPTION_NOTICES",
    "PREEMPTION_PARTS",
    "SECRETS",
    "OwnResource",
    "Resource",
]


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind as the API serves it: `group` is empty for core, `plural` is lower case."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`v1`, `batch/v1`: what objects of the kind carry as `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`pods`, `jobs.batch`: the name under which RBAC and kubectl know the kind."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, of one object or of its subresource.

        Raises:
            ValueError: a subresource or a namespaced object without what it needs.
        """
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name} needs a namespace")
        if subresource and not name:
            raise ValueError(f"{self.kind} subresource {subresource} needs a name")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


#: A kind that planes may write: Reprieve is its controller, or keeps it for itself.
OwnResource = NewType("OwnResource", Resource)

PODS: Final = Resource("", "v1", "pods", "Pod")
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS: Final = OwnResource(Resource("", "v1", "secrets", "Secret"))
EVENTS: Final = Resource("", "v1", "events", "Event")
EVICTIONS: Final = Resource("lifecycle.k8s.io", "v1alpha1", "evictions", "Eviction")
LEASES: Final = OwnResource(Resource("coordination.k8s.io", "v1", "leases", "Lease"))
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
DEVICE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
DEVICE_TEMPLATES: Final = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"
)
DEVICE_SLICES: Final = Resource(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False
)
DEVICE_CLASSES: Final = Resource(
    "resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False
)
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
GPU_WORKLOADS: Final = OwnResource(
    Resource("kaiwo.silogen.ai", "v1alpha1", "gpuworkloads", "GpuWorkload")
)
KAIWO_CONFIGS: Final = OwnResource(
    Resource("config.kaiwo.silogen.ai", "v1alpha1", "kaiwoconfigs", "KaiwoConfig", namespaced=False)
)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
PREEMPTIONS: Final = OwnResource(Resource("reprieve.dev", "v1alpha1", "preemptions", "Preemption"))
PREEMPTION_PARTS: Final = OwnResource(
    Resource("reprieve.dev", "v1alpha1", "preemptionparts", "PreemptionPart")
)
HARM_BUDGETS: Final = OwnResource(
    Resource("reprieve.dev", "v1alpha1", "harmbudgets", "HarmBudget", namespaced=False)
)
PREEMPTION_NOTICES: Final = OwnResource(
    Resource("reprieve.dev", "v1alpha1", "preemptionnotices", "PreemptionNotice")
)
DISRUPTIONS: Final = OwnResource(Resource("reprieve.dev", "v1alpha1", "disruptions", "Disruption"))
