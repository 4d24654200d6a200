"""HarmBudget objects to the budgets of decisions."""

from __future__ import annotations

from typing import Final

from kubeworld.units.durations import MINUTE, InvalidDuration, parse_duration
from reprieve.api import harm_budget as api
from reprieve.engine.harm_budgets.budget import (
    ALL_PLANES,
    Expression,
    HarmBudget,
    Per,
    Scope,
    Selector,
)
from reprieve.engine.harm_budgets.schedule import Schedule
from reprieve.engine.harm_budgets.sums import LONGEST_WINDOW
from reprieve.intake.cron import InvalidCron, schedule_of

__all__ = ["InvalidBudget", "budget_of", "window_text"]

_WINDOW: Final = "24h"
_SHORTEST_WINDOW: Final = 10 * MINUTE
_SECONDS: Final = 3_600  # of one device in a GPU-hour


class InvalidBudget(ValueError):
    """A HarmBudget has a value that is not accepted; the text states what is."""


def budget_of(found: api.HarmBudget) -> HarmBudget:
    """Return the budget of an object.

    Raises:
        InvalidBudget: a field has a value that the API server does not accept either.
    """
    spec, limits, exempt = found.spec, found.spec.limits, found.spec.exempt
    window, schedule = _window(spec)
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
        schedule,
    )


def window_text(spec: api.HarmSpec) -> str:
    """Return the window of a budget as its status shows it."""
    if spec.schedule is None:
        return spec.window or _WINDOW
    return f"{spec.schedule} UTC for {spec.duration}"


def _window(spec: api.HarmSpec) -> tuple[int, Schedule | None]:
    """Return how long a window is and, unless it slides, when windows begin."""
    if spec.schedule is None:
        if spec.duration is not None:
            raise InvalidBudget("spec.duration is for a schedule; accepted: window without one")
        return _length("window", spec.window or _WINDOW), None
    if spec.window is not None:
        raise InvalidBudget("spec has window and schedule; accepted: one of them")
    if spec.duration is None:
        raise InvalidBudget("spec.schedule has no duration; accepted: durations of 10m to 720h")
    try:
        schedule = schedule_of(spec.schedule)
    except InvalidCron as fault:
        raise InvalidBudget(f"spec.schedule: {fault}") from None
    return _length("duration", spec.duration), schedule


def _length(field: str, text: str) -> int:
    found = _duration(field, text)
    if not _SHORTEST_WINDOW <= found <= LONGEST_WINDOW:
        raise InvalidBudget(f"spec.{field} is {text!r}; accepted: durations of 10m to 720h")
    return found


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
