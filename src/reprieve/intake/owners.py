"""Objects on the way from a pod to its root owner, and what they state of their children.

Any user who may create a pod may name any object of the namespace as its controller. Kinds that
select their children by labels, and those that list them, are checked: ReplicaSets, Deployments,
StatefulSets, DaemonSets, Jobs, ReplicationControllers, Rollouts, and CronJobs for their Jobs. Other
kinds state nothing that the pod's author could not have written as well, and are believed.

Source: specification of the idle plane, section 7; the controllers' adoption of children.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Final, TypeVar

import msgspec

from reprieve.api.core import OwnedObject, Pod
from reprieve.api.scheduling import LabelSelector
from reprieve.engine.cluster.rows import Selector
from reprieve.engine.idle.discovery import Found, Owner, group_version
from reprieve.intake.cluster.selectors import equal_labels, label_selector
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["found"]

Read = TypeVar("Read")

# Groups all of whose controllers select their children, and kinds of other groups.
_SELECTING_GROUPS: Final = frozenset(("apps", "apps.kruise.io"))
_SELECTING: Final = frozenset(
    (("batch", "Job"), ("", "ReplicationController"), ("argoproj.io", "Rollout"))
)
_LISTING: Final = ("batch", "CronJob")


class _Spec(msgspec.Struct):
    selector: dict[str, Any] | None = None


class _Child(msgspec.Struct):
    uid: str = ""


class _Status(msgspec.Struct):
    active: list[_Child] | None = None


def found(thing: Pod | OwnedObject) -> Found:
    """Return an object as the walk to the root owner wants it."""
    metadata = thing.metadata
    ref = Reference(
        thing.api_version, thing.kind, metadata.namespace, metadata.name, Uid(metadata.uid)
    )
    # Interned, since many pods of a cluster have one owner.
    owners = tuple(
        Owner(
            intern(r.api_version),
            intern(r.kind),
            intern(r.name),
            Uid(intern(r.uid)),
            r.controller is True,
        )
        for r in metadata.owner_references or ()
    )
    selector, children = (None, None) if isinstance(thing, Pod) else _asked(thing)
    return Found(ref, owners, metadata.labels or {}, selector, children)


def _asked(thing: OwnedObject) -> tuple[Selector, frozenset[Uid] | None]:
    group, _ = group_version(thing.api_version)
    if group in _SELECTING_GROUPS or (group, thing.kind) in _SELECTING:
        return _selector(thing), None
    # The API server writes a status, be it an empty one.
    if (group, thing.kind) == _LISTING and bytes(thing.status):
        listed = _read(thing.status, _Status, _Status()).active or ()
        return None, frozenset(Uid(child.uid) for child in listed)
    return None, None


def _selector(thing: OwnedObject) -> Selector:
    """Return what the object selects; None where it has no selector that can be read."""
    given = _read(thing.spec, _Spec, _Spec()).selector
    if not given:
        return None
    if thing.kind == "ReplicationController":
        return equal_labels({key: str(value) for key, value in given.items()})
    try:
        return label_selector(msgspec.convert(given, LabelSelector))
    except msgspec.ValidationError:
        return None


def _read(raw: msgspec.Raw, kind: type[Read], absent: Read) -> Read:
    try:
        return msgspec.json.decode(raw, type=kind) if bytes(raw) else absent
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return absent
