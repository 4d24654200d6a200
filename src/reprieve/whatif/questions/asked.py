"""What work requests altogether: its pods where they are there, else those that it describes.

Source: the API's defaulting of requests by limits; specification of the quota plane, section 10.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from kubeworld.objects.paths import Json
from reprieve.api.kueue import PodSpec
from reprieve.engine.lost_work import is_device
from reprieve.intake.cluster.requests import plain_requests
from reprieve.intake.pod_defaults import completed
from reprieve.intake.quota_limits import NO_LIMITS
from reprieve.jobs.model import JobKind
from reprieve.jobs.pod_sets import found_pod_sets

__all__ = ["Asks", "asks_of", "described", "requests_of_spec"]


@dataclass(frozen=True, slots=True)
class Asks:
    """Requests in base units by resource, `cpu` in milli units.

    `pods`: how many there are, or are described; `pod`: of each one, None where they differ;
    `total`: of all of them.
    """

    pods: int = 0
    pod: Mapping[str, int] | None = None
    total: Mapping[str, int] = field(default_factory=dict)

    @property
    def scarce(self) -> tuple[str, ...]:
        """The resources that count: devices, and cpu where no devices are requested."""
        devices = tuple(name for name in sorted(self.total) if is_device(name))
        return devices or tuple(name for name in ("cpu",) if name in self.total)


def asks_of(pods: Iterable[Json], kind: JobKind | None, obj: Json) -> Asks:
    """Return what these pods request; without any, what a job of this kind describes."""
    shapes = [(1, pod["spec"]) for pod in pods] or list(described(kind, obj))
    each = [requests_of_spec(spec) for _, spec in shapes]
    total: Counter[str] = Counter()
    for (count, _), requests in zip(shapes, each, strict=True):
        total.update({name: count * amount for name, amount in requests.items()})
    alike = bool(each) and all(requests == each[0] for requests in each)
    return Asks(sum(count for count, _ in shapes), each[0] if alike else None, dict(total))


def described(kind: JobKind | None, obj: Json) -> Iterable[tuple[int, Json]]:
    """Return how many pods of which specs a job describes; none for what is no job."""
    sets = found_pod_sets(kind, obj) if kind is not None else ()
    return [(each.count, each.template.get("spec") or {}) for each in sets]


def requests_of_spec(spec: Mapping[str, object]) -> dict[str, int]:
    """Return what a pod or template requests, with what the API server fills in by limits."""
    try:
        read = msgspec.convert(spec, PodSpec)
    except msgspec.ValidationError:
        return {}
    return plain_requests(completed(read, NO_LIMITS))
