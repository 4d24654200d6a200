"""Which version of the PodGroup API the server has: the newest that is served, if any.

Queried at the start and again from time to time, as CRDs and feature gates appear and disappear
with restarts of the API server. Source: specification 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubeworld.units.clock import Clock
from reprieve.kube.discovery import NotServed, RestMapper
from reprieve.kube.reader import Reader
from reprieve.kube.resource import Resource

__all__ = ["COMPOSITE_GROUPS", "GROUP_VERSIONS", "newest_served", "pod_groups"]

COMPOSITE_GROUPS: Final = Resource(
    "scheduling.k8s.io", "v1alpha3", "compositepodgroups", "CompositePodGroup"
)

GROUP_VERSIONS: Final = (
    "scheduling.k8s.io/v1beta1",
    "scheduling.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1alpha2",
)


async def newest_served(
    client: Reader, clock: Clock, versions: Sequence[str], kind: str
) -> Resource | None:
    """Return the resource of the first version under which the kind is served, None without any.

    Raises:
        ApiError: the server did not answer the question.
    """
    mapper = RestMapper(client, clock)
    for version in versions:
        try:
            return await mapper.resource_for(version, kind)
        except NotServed:
            continue
    return None


async def pod_groups(client: Reader, clock: Clock) -> Resource | None:
    """Return the resource of PodGroups, None where none are served.

    Raises:
        ApiError: the server did not answer the question.
    """
    return await newest_served(client, clock, GROUP_VERSIONS, "PodGroup")
