"""The kinds that people query, by the names under which kubectl knows them.

`pod`, every kind of the table of jobs, pod groups of all their APIs, Workloads, GpuWorkloads and
records of preemptions. A kind may be served in one of several versions or groups: they are
requested in the order in which they stand here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from reprieve.api import kueue
from reprieve.api.gangs import DOORS
from reprieve.jobs.model import JobKind
from reprieve.jobs.table import BUILT_IN
from reprieve.kube.resource import GPU_WORKLOADS, PODS, PREEMPTIONS, Resource
from reprieve.planes.scheduling.served import GROUP_VERSIONS
from reprieve.units.errors import UsageError

__all__ = [
    "BETWEEN",
    "LOCAL_QUEUES",
    "POD_GROUPS",
    "WORKLOADS",
    "Asked",
    "asked_of",
    "job_kind_of",
    "nearest",
    "spelled",
]

_OLDER_GROUPS: Final = tuple(
    Resource(group, version, "podgroups", "PodGroup")
    for group, _, version in (door.api_version.partition("/") for door in DOORS)
)
LOCAL_QUEUES: Final = tuple(
    Resource(kueue.GROUP, version, "localqueues", "LocalQueue")
    for version in ("v1beta2", "v1beta1")
)
WORKLOADS: Final = tuple(
    Resource(kueue.GROUP, version, "workloads", "Workload") for version in ("v1beta2", "v1beta1")
)
POD_GROUPS: Final = (
    *(
        Resource(group, version, "podgroups", "PodGroup")
        for group, _, version in (each.partition("/") for each in GROUP_VERSIONS)
    ),
    *_OLDER_GROUPS,
)
_SHORT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "po": "pods",
        "pg": "podgroups",
        "wl": "workloads",
        "deploy": "deployments",
        "sts": "statefulsets",
        "rs": "replicasets",
        "cj": "cronjobs",
        "lws": "leaderworkersets",
    }
)
#: Kinds between a pod and those of the table; they are queried only where they are named.
BETWEEN: Final = (
    Resource("apps", "v1", "replicasets", "ReplicaSet"),
    Resource("apps", "v1", "daemonsets", "DaemonSet"),
    Resource("batch", "v1", "cronjobs", "CronJob"),
)
_NEAREST: Final = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user queries: where it may be served, the first place first, and its name.

    `namespace`: the one that the query names, empty for that of the command.
    """

    resources: tuple[Resource, ...]
    name: str
    namespace: str = ""

    @property
    def kind(self) -> str:
        """The kind as objects carry it."""
        return self.resources[0].kind


def asked_of(text: str) -> Asked:
    """Return what `KIND/NAME` or `KIND/NAMESPACE/NAME` refers to.

    Raises:
        UsageError: no such kind, or no name.
    """
    kind, *named = text.split("/")
    if len(named) not in (1, 2) or not all(named):
        raise UsageError(
            f"{text!r}; accepted: KIND/NAME or KIND/NAMESPACE/NAME, such as pod/train-3 or "
            "job/team-a/sweep-17"
        )
    known = _by_name()
    wanted = kind.lower()
    found = known.get(_SHORT.get(wanted, wanted))
    if found is None:
        near = nearest(
            wanted, {resource.kind.lower() for each in known.values() for resource in each}
        )
        raise UsageError(f"no kind {kind!r} can be explained; {near}")
    return Asked(found, named[-1], *named[:-1])


def spelled() -> list[str]:
    """Return the kinds that can be queried, in lower case."""
    return list(dict.fromkeys(resources[0].kind.lower() for resources in _all()))


def job_kind_of(obj: Mapping[str, object]) -> JobKind | None:
    """Return the row of the table that an object is of, whatever its version."""
    group = str(obj.get("apiVersion", "")).rpartition("/")[0]
    for row in BUILT_IN:
        if (row.group, row.kind) == (group, obj.get("kind")):
            return row
    return None


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the names that look like one, for a message; without any, some that there are."""
    names = sorted(set(known))
    near = difflib.get_close_matches(name, names, _NEAREST, 0.5)
    # What a name begins with is as good a memory as its letters.
    near += [each for each in names if each.startswith(name) and each not in near][:_NEAREST]
    if near:
        return f"nearest: {', '.join(near[:_NEAREST])}"
    if not names:
        return "there is none"
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"accepted: {', '.join(names[:20])}{more}"


def _by_name() -> dict[str, tuple[Resource, ...]]:
    """Return the kinds by singular, plural and plural with their group."""
    found: dict[str, tuple[Resource, ...]] = {}
    for resources in _all():
        first = resources[0]
        for name in (first.kind.lower(), first.plural):
            found.setdefault(name, resources)
        for resource in resources:
            alike = tuple(each for each in resources if each.group == resource.group)
            found.setdefault(resource.qualified, alike)
    return found


def _all() -> Iterator[tuple[Resource, ...]]:
    yield (PODS,)
    yield POD_GROUPS
    yield WORKLOADS
    yield (GPU_WORKLOADS,)
    yield (PREEMPTIONS,)
    for row in BUILT_IN:
        group, _, version = row.api_version.rpartition("/")
        yield (Resource(group, version, row.plural, row.kind),)
    for resource in BETWEEN:
        yield (resource,)
