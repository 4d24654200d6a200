"""CustomResourceDefinitions become effective: checked, installed in the registry, conditions.

A definition whose names another kind of its group uses is stored with NamesAccepted False and not
served. Source: the naming controller of k8s.io/apiextensions-apiserver.
"""

from __future__ import annotations

from typing import Any, Final

from kubelocal.server.errors import invalid
from kubelocal.server.state import State
from kubelocal.server.types.crds import kinds_of
from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.schema import Invalid
from kubeworld.units.instants import format_instant

__all__ = ["check", "install_stored", "removed", "written"]

_DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"


def check(api: State, kind: Kind, obj: dict[str, Any]) -> None:
    """Refuse a definition that cannot be served, and give a good one its status.

    Raises:
        StatusError: 422 with the reasons.
    """
    if kind.resource != _DEFINITIONS:
        return
    try:
        kinds_of(obj)
    except Invalid as error:
        raise invalid(kind, obj["metadata"]["name"], error.causes) from None
    _write_status(api, obj)


def written(api: State, kind: Kind, obj: dict[str, Any]) -> None:
    """Serve the stored definition."""
    if kind.resource == _DEFINITIONS and _accepted(obj):
        api.registry.install(obj)


def removed(api: State, kind: Kind, obj: dict[str, Any]) -> None:
    """Stop serving what the definition defined."""
    if kind.resource == _DEFINITIONS:
        api.registry.remove(obj["metadata"]["name"])


def install_stored(api: State) -> None:
    """Serve the definitions that were in the store at start."""
    for stored in api.store.range(_DEFINITIONS, None):
        obj = stored.decode()
        if _accepted(obj):
            api.registry.install(obj)


def _accepted(obj: dict[str, Any]) -> bool:
    return any(
        condition["type"] == "NamesAccepted" and condition["status"] == "True"
        for condition in obj.get("status", {}).get("conditions", ())
    )


def _write_status(api: State, obj: dict[str, Any]) -> None:
    spec, status = obj["spec"], obj.setdefault("status", {})
    chosen = _conflict(api, obj)
    now = format_instant(api.clock.wall())
    if chosen:
        wanted = {
            "NamesAccepted": ("False", *chosen),
            "Established": ("False", "NotAccepted", "not all names are accepted"),
        }
    else:
        status["acceptedNames"] = spec["names"]
        wanted = {
            "NamesAccepted": ("True", "NoConflicts", "no conflicts found"),
            "Established": ("True", "InitialNamesAccepted", "the initial names have been accepted"),
        }
    before = {one["type"]: one for one in status.get("conditions") or ()}
    for name, (value, reason, message) in wanted.items():
        known = before.get(name)
        if known is None or known["status"] != value:
            before[name] = {
                "type": name,
                "status": value,
                "lastTransitionTime": now,
                "reason": reason,
                "message": message,
            }
    status["conditions"] = list(before.values())
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    versions = status.setdefault("storedVersions", [])
    if storage not in versions:
        versions.append(storage)


def _conflict(api: State, obj: dict[str, Any]) -> tuple[str, str] | None:
    """Return reason and message when a name belongs to another kind of the group."""
    spec = obj["spec"]
    names = spec["names"]
    for kind in api.registry.all():
        if kind.group != spec["group"] or kind.resource == obj["metadata"]["name"]:
            continue
        used = {kind.plural, kind.singular, *kind.short_names}
        for reason, name in (
            ("PluralConflict", names["plural"]),
            ("SingularConflict", names.get("singular", "")),
            *(("ShortNamesConflict", short) for short in names.get("shortNames") or ()),
        ):
            if name in used:
                return reason, f'"{name}" is already in use'
        if names["kind"] in (kind.kind, kind.list_kind):
            return "KindConflict", f'"{names["kind"]}" is already in use'
    return None
