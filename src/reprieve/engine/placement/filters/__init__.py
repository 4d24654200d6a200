"""All filters of a pending pod, in the order in which they look at a node (specification 21.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Filter, Refusal, View
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.reasons import Reason, Rejection

__all__ = ["compile_filters"]

Compile: TypeAlias = Callable[[View, Pending], Filter | Refusal | None]

_COMPILE: Final[Mapping[FilterName, Compile]] = MappingProxyType({})


def compile_filters(view: View, pending: Pending) -> tuple[Filter, ...] | Refusal:
    """Return the filters that have something to check, or why every node is refused.

    A filter of the profile that is not known here refuses every node and names itself.
    """
    entry = view.snapshot.classes[pending.pod_class]
    if entry is not None and entry.unsupported:
        return Refusal(Reason(Rejection.UNSUPPORTED, entry.unsupported))
    filters: list[Filter] = []
    for name in FilterName:
        if name not in view.profile.filters:
            continue
        compile_filter = _COMPILE.get(name)
        if compile_filter is None:
            return Refusal(Reason(Rejection.UNSUPPORTED, name))
        found = compile_filter(view, pending)
        if isinstance(found, Refusal):
            return found
        if found is not None:
            filters.append(found)
    return tuple(filters)
