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
    "HarmCondition",
    "HarmExemptions",
    "HarmLimits",
    "HarmSelector",
    "HarmSpec",
    "HarmStatus",
    "HarmUse",
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
    """One budget; defaults and accepted values are those of the CustomResourceDefinition.

    `window` slides; a cron expression in `schedule` with `duration` is in its place.
    """

    limits: HarmLimits = HarmLimits()
    scope: str = "Suffered"
    selector: HarmSelector = HarmSelector()
    per: str = "Tenant"
    window: str | None = None
    schedule: str | None = None
    duration: str | None = None
    planes: list[str] | None = None
    when_exhausted: str = "Hold"
    exempt: HarmExemptions = HarmExemptions()


class HarmUse(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is used of one account; `free_at`: when one more displacement fits, if not now."""

    of: str
    displacements: int = 0
    lost_gpu_hours: str = "0.0"
    free_at: str | None = None


class HarmCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of a budget."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class HarmStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the operator reports; `used`: the accounts that are used the most, `accounts` of all."""

    window: str = ""
    accounts: int = 0
    exhausted: int = 0
    used: list[HarmUse] = []
    conditions: list[HarmCondition] = []


class HarmBudget(msgspec.Struct, frozen=True, rename="camel"):
    """One budget."""

    metadata: ObjectMeta
    spec: HarmSpec = HarmSpec()
    status: HarmStatus | None = None
    api_version: str = API_VERSION
    kind: str = "HarmBudget"
