"""HarmBudget objects into budgets that decisions go by."""

from __future__ import annotations

from typing import Final

from reprieve.api import harm_budget as api
from reprieve.engine.harm_budgets.budget import (
    ALL_PLANES,
    Expression,
    HarmBudget,
    Per,
    Scope,
    Selector,
)
from reprieve.engine.harm_budgets.sums import LONGEST_WINDOW
from reprieve.units.durations import MINUTE, InvalidDuration, parse_duration

__all__ = ["InvalidBudget", "budget_of"]

_SHORTEST_WINDOW: Final = 10 * MINUTE
_SECONDS: Final = 3_600  # of one device in a GPU-hour


class InvalidBudget(ValueError):
    """A HarmBudget says what is not accepted; the text says what is."""


def budget_of(found: api.HarmBudget) -> HarmBudget:
    """Return the budget of an object.

    Raises:
        InvalidBudget: a field has a value that the API server does not accept either.
    """
    spec, limits, exempt = found.spec, found.spec.limits, found.spec.exempt
    window = _duration("window", spec.window)
    if not _SHORTEST_WINDOW <= window <= LONGEST_WINDOW:
        raise InvalidBudget(f"spec.window is {spec.window!r}; accepted: durations of 10m to 720h")
    if limits.displacements is None and limits.lost_gpu_hours is None:
        raise InvalidBudget("spec.limits has neither displacements nor lostGpuHours")
    hours = limits.lost_gpu_hours
    try:
        scope, per = Scope(spec.scope), Per(spec.per)
    except ValueError as unknown:
        raise InvalidBudget(f"spec.scope or spec.per: {unknown}") from None
    if scope is Scope.CAUSED and per is Per.WORK:
        raise InvalidBudget("spec.per is 'Work' with scope Caused; accepted: the other values")
    return HarmBudget(
        found.metadata.name,
        scope,
        _selector(spec.selector),
        per,
        window,
        limits.displacements,
        None if hours is None else hours * _SECONDS,
        ALL_PLANES if spec.planes is None else frozenset(spec.planes),
        spec.when_exhausted == "Hold",
        exempt.priority_from,
        _duration("exempt.nominalReclaimAfter", exempt.nominal_reclaim_after),
    )


def _selector(found: api.HarmSelector) -> Selector:
    namespaces = None
    if found.namespaces is not None:
        equal = found.namespaces.match_labels or {}
        others = found.namespaces.match_expressions or ()
        namespaces = (
            *(Expression(key, "In", (value,)) for key, value in sorted(equal.items())),
            *(Expression(each.key, each.operator, tuple(each.values or ())) for each in others),
        )
    queues = None if found.cluster_queues is None else frozenset(found.cluster_queues)
    return Selector(namespaces, queues, found.priority_below)


def _duration(field: str, text: str) -> int:
    try:
        return parse_duration(text)
    except InvalidDuration as fault:
        raise InvalidBudget(f"spec.{field}: {fault}") from None
