"""Harm budgets of a policy: by name, each as the `spec` of a HarmBudget.

    harmBudgets:
      batch-day: {limits: {displacements: 2}, window: 24h}

A tenant is a namespace with the label `kubernetes.io/metadata.name`, and a ClusterQueue of its
name. A replay begins on Thursday 1970-01-01, 0:00 UTC, to which schedules refer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from reprieve.api import harm_budget as api
from reprieve.api.core import ObjectMeta
from reprieve.engine.harm_budgets.budget import HarmBudget
from reprieve.intake.harm_budgets import InvalidBudget, budget_of
from reprieve.simulation.document import Part
from reprieve.units.errors import UsageError

__all__ = ["SECTION", "namespace_labels", "read_harm_budgets"]

SECTION: Final = "harmBudgets"
_PARTS: Final[Mapping[str, type]] = {
    "selector": api.HarmSelector,
    "limits": api.HarmLimits,
    "exempt": api.HarmExemptions,
}


def read_harm_budgets(given: Part) -> tuple[HarmBudget, ...]:
    """Return the budgets that a policy states.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    section = given.part(SECTION)
    return tuple(
        _read(str(name), section.part(name, _keys(api.HarmSpec))) for name in section.value
    )


def namespace_labels(tenant: str) -> dict[str, str]:
    """Return the labels of a tenant's namespace."""
    return {"kubernetes.io/metadata.name": tenant}


def _read(name: str, spec: Part) -> HarmBudget:
    for key, type in _PARTS.items():
        spec.part(key, _keys(type))
    try:
        said = msgspec.convert(dict(spec.value), api.HarmSpec)
        return budget_of(api.HarmBudget(ObjectMeta(name), said))
    except (msgspec.ValidationError, InvalidBudget) as fault:
        raise UsageError(f"{spec.where()}: {fault}") from None


def _keys(type: Any) -> list[str]:
    return [each.encode_name for each in msgspec.structs.fields(type)]
