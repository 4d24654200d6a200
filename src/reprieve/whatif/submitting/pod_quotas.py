"""How many pods of a job the ResourceQuotas of its namespace allow.

The API server answers for one pod alone: of a job of eight it accepts each, one after the other,
until the quota is used up, and refuses the others. So each pod of what is submitted is counted
against what its namespace has left, in the order of the submission:

What a quota counts of a pod is defined by `kubeworld.admission.quotas`, of the pod as the API
server's admission leaves it, with defaults. What is left is `status.hard` less `status.used`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kubeworld.admission.quotas import in_scope, usage_of
from kubeworld.objects.paths import Json
from kubeworld.units.quantities import InvalidQuantity, parse_milli
from reprieve.kube.resource import Resource
from reprieve.whatif.snapshots.partial import Partial

__all__ = ["RESOURCE_QUOTAS", "Left", "Quota", "QuotaObject", "Short", "left_of", "subtracted"]

RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota")


class _Metadata(Partial, frozen=True):
    name: str = ""


class _Status(Partial, frozen=True):
    hard: dict[str, str] | None = None
    used: dict[str, str] | None = None


class QuotaObject(Partial, frozen=True):
    """A ResourceQuota, as far as it is read."""

    metadata: _Metadata = _Metadata()
    spec: Json = msgspec.field(default_factory=dict)
    status: _Status = _Status()


@dataclass(frozen=True, slots=True)
class Quota:
    """One quota: whom it counts, and how much of each name it grants, in thousandths."""

    name: str
    spec: Json
    hard: Mapping[str, int]


@dataclass(slots=True)
class Left:
    """What is left of a quota for those that come next, in thousandths, by name."""

    quota: Quota
    amounts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Short:
    """Which quota allows so few: `fits` now, `at_most` if no other used it."""

    quota: str
    resource: str
    fits: int
    at_most: int


def left_of(objects: Iterable[QuotaObject]) -> list[Left]:
    """Return what quotas have left; those whose amounts cannot be read count nothing."""
    found = []
    for each in sorted(objects, key=lambda one: one.metadata.name):
        try:
            hard = {name: parse_milli(text) for name, text in (each.status.hard or {}).items()}
            used = {name: parse_milli(text) for name, text in (each.status.used or {}).items()}
        except InvalidQuantity:
            continue
        quota = Quota(each.metadata.name, each.spec, hard)
        found.append(Left(quota, {name: hard[name] - used.get(name, 0) for name in hard}))
    return found


def subtracted(pod: Json, count: int, quotas: Sequence[Left]) -> Short | None:
    """Subtract so many pods from what is left, as many as fit; return what allows fewer."""
    counting = [each for each in quotas if in_scope(each.quota.spec, "pods", pod)]
    usage = usage_of("pods", pod)
    shorts = [
        Short(
            each.quota.name,
            name,
            max(0, left // usage[name]),
            max(0, each.quota.hard[name] // usage[name]),
        )
        for each in counting
        for name, left in each.amounts.items()
        if usage.get(name)
    ]
    tightest = min(shorts, key=lambda short: short.fits, default=None)
    made = count if tightest is None else min(count, tightest.fits)
    for each in counting:
        for name in each.amounts:
            each.amounts[name] -= made * usage.get(name, 0)
    return tightest if tightest is not None and tightest.fits < count else None
