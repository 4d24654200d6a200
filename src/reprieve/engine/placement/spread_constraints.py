"""Which topology spread constraints a pod has: its own, else the profile's defaults.

Defaults are for pods without any constraint of their own. Their selector is that of all Services
that select the pod, and of its ReplicaSet, StatefulSet or ReplicationController, ANDed; where these
request nothing there are no defaults. Source: specification 21.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from reprieve.engine.cluster.rows import Kind, Requirement, SelectorRow, SpreadConstraint
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.filtering import View
from reprieve.engine.selectors import selects

__all__ = ["HOSTNAME", "SYSTEM_DEFAULTS", "by_system_defaults", "constraints_of"]

HOSTNAME: Final = "kubernetes.io/hostname"
SYSTEM_DEFAULTS: Final = (
    SpreadConstraint(HOSTNAME, 3, hard=False, selector=None),
    SpreadConstraint("topology.kubernetes.io/zone", 5, hard=False, selector=None),
)
_SHARED: Final = "services"
_OWNERS: Final = frozenset((Kind.REPLICA_SET, Kind.STATEFUL_SET, Kind.REPLICATION_CONTROLLER))


def constraints_of(view: View, pending: Pending) -> tuple[SpreadConstraint, ...]:
    """Return the constraints of a pending pod, hard and soft ones."""
    entry = view.snapshot.classes[pending.pod_class]
    assert entry is not None
    if entry.spread:
        return entry.spread
    defaults = view.profile.default_spread
    if defaults is None:
        defaults = SYSTEM_DEFAULTS
    if not defaults:
        return ()
    selector = tuple(dict.fromkeys(_asked_by_owners(view, pending)))
    if not selector:
        return ()
    return tuple(replace(each, selector=selector) for each in defaults)


def by_system_defaults(view: View, pending: Pending) -> bool:
    """Return whether the pod's constraints are the built-in ones, which no node has to satisfy."""
    entry = view.snapshot.classes[pending.pod_class]
    return entry is not None and not entry.spread and view.profile.default_spread is None


def _asked_by_owners(view: View, pending: Pending) -> Iterator[Requirement]:
    row = pending.row
    labels = dict(row.labels)
    for service in _services(view).get(row.namespace, ()):
        if selects(service.selector, labels):
            yield from service.selector or ()
    kind, name = row.owner
    if kind in _OWNERS:
        table = view.snapshot.tables.get(Kind.SELECTOR, {})
        owner = table.get((row.namespace, f"{kind}/{name}"))
        if owner is not None:
            yield from owner.selector or ()


def _services(view: View) -> dict[str, list[SelectorRow]]:
    known = view.shared.get(_SHARED)
    if known is None:
        found: dict[str, list[SelectorRow]] = {}
        for (namespace, name), row in view.snapshot.tables.get(Kind.SELECTOR, {}).items():
            if name.startswith(f"{Kind.SERVICE}/"):
                found.setdefault(namespace, []).append(row)
        known = view.shared[_SHARED] = found
    services: dict[str, list[SelectorRow]] = known  # type: ignore[assignment]  # ours alone
    return services
