"""Resource names and amounts of containers, claims and quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubelocal.server.types.metadata import qualified_name_problems
from kubeworld.units.quantities import parse_milli

__all__ = ["container_resources", "is_native", "non_negative"]

_STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


def is_native(name: str) -> bool:
    """Whether the name belongs to the system: no prefix, or one below kubernetes.io."""
    return "/" not in name or name.partition("/")[0].endswith("kubernetes.io")


def container_resources(resources: Mapping[str, Any], field: str) -> Iterator[Cause]:
    """Yield what is wrong with a container's limits and requests."""
    limits: Mapping[str, str] = resources.get("limits") or {}
    requests: Mapping[str, str] = resources.get("requests") or {}
    for name, amount in sorted(limits.items()):
        here = f"{field}.limits[{name}]"
        yield from _name(name, here)
        yield from _amount(name, amount, here)
    for name, amount in sorted(requests.items()):
        here = f"{field}.requests[{name}]"
        yield from _name(name, here)
        yield from _amount(name, amount, here)
        limit = limits.get(name)
        if limit is None:
            if not _may_overcommit(name):
                yield causes.required(
                    f"{field}.limits", "Limit must be set for non overcommitable resources"
                )
        elif not _may_overcommit(name) and parse_milli(amount) != parse_milli(limit):
            yield causes.bad(
                f"{field}.requests", amount, f"must be equal to {name} limit of {limit}"
            )
        elif parse_milli(amount) > parse_milli(limit):
            yield causes.bad(
                f"{field}.requests",
                amount,
                f"must be less than or equal to {name} limit of {limit}",
            )


def non_negative(amount: str, field: str) -> Iterator[Cause]:
    """Yield a cause where the amount is below zero."""
    if amount.startswith("-") and parse_milli(amount) < 0:
        yield causes.bad(field, amount, "must be greater than or equal to 0")


def _may_overcommit(name: str) -> bool:
    return is_native(name) and not name.startswith("hugepages-")


def _name(name: str, field: str) -> Iterator[Cause]:
    problems = list(qualified_name_problems(name))
    for problem in problems:
        yield causes.bad(field, name, problem)
    if problems or "/" in name:
        return
    if name not in _STANDARD and not name.startswith("hugepages-"):
        yield causes.bad(field, name, "must be a standard resource type or fully qualified")
        yield causes.bad(field, name, "must be a standard resource for containers")


def _amount(name: str, amount: str, field: str) -> Iterator[Cause]:
    yield from non_negative(amount, field)
    if not is_native(name) and parse_milli(amount) % 1000:
        yield causes.bad(field, amount, "must be an integer")
