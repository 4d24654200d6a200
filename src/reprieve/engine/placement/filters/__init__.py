"""All filters of a pending pod, in the order in which they look at a node (specification 21.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import Filter, Refusal, View
from reprieve.engine.placement.filters.disks import compile_volume_restrictions
from reprieve.engine.placement.filters.dynamic.devices import compile_devices
from reprieve.engine.placement.filters.interpod import compile_interpod
from reprieve.engine.placement.filters.ports import compile_ports
from reprieve.engine.placement.filters.resources import compile_resources
from reprieve.engine.placement.filters.spread import compile_spread
from reprieve.engine.placement.filters.static import (
    compile_features,
    compile_narrowing,
    compile_node_affinity,
    compile_taints,
    compile_unschedulable,
)
from reprieve.engine.placement.filters.volume_binding import compile_volume_binding
from reprieve.engine.placement.filters.volume_limits import compile_volume_limits
from reprieve.engine.placement.filters.volume_zone import compile_volume_zone
from reprieve.engine.placement.profile import FilterName
from reprieve.engine.placement.reasons import Reason, Rejection

__all__ = ["compile_filters"]

Compile: TypeAlias = Callable[[View, Pending], Filter | Refusal | None]

_COMPILE: Final[Mapping[FilterName, Compile]] = MappingProxyType(
    {
        FilterName.NODE_UNSCHEDULABLE: compile_unschedulable,
        FilterName.TAINT_TOLERATION: compile_taints,
        FilterName.NODE_AFFINITY: compile_node_affinity,
        FilterName.NODE_PORTS: compile_ports,
        FilterName.NODE_RESOURCES_FIT: compile_resources,
        FilterName.VOLUME_RESTRICTIONS: compile_volume_restrictions,
        FilterName.NODE_VOLUME_LIMITS: compile_volume_limits,
        FilterName.VOLUME_BINDING: compile_volume_binding,
        FilterName.VOLUME_ZONE: compile_volume_zone,
        FilterName.POD_TOPOLOGY_SPREAD: compile_spread,
        FilterName.INTER_POD_AFFINITY: compile_interpod,
        FilterName.DYNAMIC_RESOURCES: compile_devices,
        FilterName.NODE_DECLARED_FEATURES: compile_features,
    }
)


def compile_filters(view: View, pending: Pending) -> tuple[Filter, ...] | Refusal:
    """Return the filters that have something to check, or why every node is refused.

    What NodeName and NodeAffinity leave of the nodes comes before all filters. A filter of the
    profile that is not known here refuses every node and names itself.
    """
    entry = view.snapshot.classes[pending.pod_class]
    if entry is not None and entry.unsupported:
        return Refusal(Reason(Rejection.UNSUPPORTED, entry.unsupported))
    filters: list[Filter] = []
    steps: list[Compile] = [compile_narrowing]
    for name in FilterName:
        if name in view.profile.filters and name is not FilterName.NODE_NAME:
            if name not in _COMPILE:
                return Refusal(Reason(Rejection.UNSUPPORTED, name))
            steps.append(_COMPILE[name])
    for compile_step in steps:
        found = compile_step(view, pending)
        if isinstance(found, Refusal):
            return found
        if found is not None:
            filters.append(found)
    return tuple(filters)
