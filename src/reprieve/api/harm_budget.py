"""`HarmBudget` (`reprieve.dev/v1alpha1`): what work may lose to others within a window.

Cluster-scoped and written by administrators; the operator writes the status alone.
"""

from __future__ import annotations

import msgspec

from reprieve.api.core import ObjectMeta
from reprieve.api.reprieve import API_VERSION
from reprieve.api.scheduling import LabelSelector

__all__ = [
    "HarmBudget",
    "HarmExemptions",
    "HarmLimits",
    "HarmSelector",
    "HarmSpec",
]


class HarmSelector(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """To which sides a budget applies; a field that is absent selects all."""

    namespaces: LabelSelector | None = None
    cluster_queues: list[str] | None = None
    priority_below: int | None = None


class HarmLimits(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What one account allows within the window."""

    displacements: int | None = None
    lost_gpu_hours: int | None = None


class HarmExemptions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Who passes; `nominal_reclaim_after` is a Go duration."""

    priority_from: int | None = None
    nominal_reclaim_after: str = "1h"


class HarmSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One budget; defaults and accepted values are those of the CustomResourceDefinition."""

    limits: HarmLimits = HarmLimits()
    scope: str = "Suffered"
    selector: HarmSelector = HarmSelector()
    per: str = "Tenant"
    window: str = "24h"
    planes: list[str] | None = None
    when_exhausted: str = "Hold"
    exempt: HarmExemptions = HarmExemptions()


class HarmBudget(msgspec.Struct, frozen=True, rename="camel"):
    """One budget; its status is written and not read."""

    metadata: ObjectMeta
    spec: HarmSpec = HarmSpec()
    api_version: str = API_VERSION
    kind: str = "HarmBudget"
