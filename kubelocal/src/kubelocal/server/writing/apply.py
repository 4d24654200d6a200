"""Server-side apply: merge what a manager states, find conflicts, remove what it no longer states.

Source: KEP-555. In order: the sets of the applied configuration; the merge with the live object;
conflicts, which are changed fields that others own (with `force` they change hands); removal of
fields that this manager applied before, does not now, and no other work owns.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

from kubelocal.server.errors import StatusError, bad_request, conflict, not_found
from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.structure import Structure, structure_of
from kubelocal.server.wire.negotiation import check_depth, read_yaml
from kubelocal.server.writing.options import WriteOptions
from kubelocal.server.writing.ownership import (
    Fields,
    Manager,
    changed_fields,
    children,
    difference,
    element,
    fields_of,
    intersection,
    managers_of,
    owned_paths,
    stripped,
    union,
    write_managers,
)
from kubeworld.units.clock import Clock
from kubeworld.units.instants import format_instant

__all__ = ["apply"]


class Writer(Protocol):
    """What stores the applied object."""

    clock: Clock

    def created_by_apply(
        self, kind: Kind, namespace: str, obj: dict[str, Any], owner: Manager, options: WriteOptions
    ) -> dict[str, Any]:
        """Create what was not found."""
        ...

    def applied(
        self,
        kind: Kind,
        old: dict[str, Any],
        new: dict[str, Any],
        options: WriteOptions,
        subresource: str,
    ) -> dict[str, Any]:
        """Store what was found and changed."""
        ...


def apply(
    api: Writer,
    kind: Kind,
    namespace: str,
    name: str,
    old: dict[str, Any] | None,
    patch: bytes,
    options: WriteOptions,
    subresource: str,
) -> dict[str, Any]:
    """Apply the configuration in `patch` (YAML or JSON) as `options.field_manager`.

    Raises:
        StatusError: 400 no configuration, or a field that the schema does not have (the real
            server answers 500), 409 conflicts that name their managers, 422 the result is invalid.
    """
    applied = _configuration(kind, namespace, name, patch)
    structure = structure_of(kind)
    body = {name: value for name, value in applied.items() if name not in ("apiVersion", "kind")}
    undeclared = _undeclared(structure, body, "")
    if undeclared:
        raise StatusError(
            400,
            "",
            f"failed to create typed patch object ({namespace}/{name}; {kind.group}/{kind.version}"
            f", Kind={kind.kind}): {undeclared}: field not declared in schema",
        )
    if old is None and subresource:
        raise not_found(kind, name)
    stated = stripped(fields_of(structure, applied))
    managers = [] if old is None else managers_of(old)
    this = Manager(
        options.field_manager,
        "Apply",
        kind.api_version,
        subresource,
        format_instant(api.clock.wall()),
        stated,
    )
    previous = next((one for one in managers if one.key == this.key), None)
    others = [one for one in managers if one.key != this.key]
    live = {} if old is None else old
    version = applied["metadata"].get("resourceVersion")
    if version and old is not None and version != old["metadata"]["resourceVersion"]:
        raise conflict(kind, name)
    result = _merged(structure, copy.deepcopy(live), applied)
    changed, _ = changed_fields(structure, live, result)
    _settle(others, stripped(changed), options.force)
    if previous is not None:
        kept = stated
        for one in others:
            kept = union(kept, one.fields)
        _remove(structure, result, difference(previous.fields, kept), kept)
    if old is None:
        return _create(api, kind, namespace, result, this, options)
    if previous is not None and previous.fields == stated:
        this.time = previous.time
    write_managers(result, [*others, this])
    return api.applied(kind, old, result, options, subresource)


def _create(
    api: Writer,
    kind: Kind,
    namespace: str,
    obj: dict[str, Any],
    this: Manager,
    options: WriteOptions,
) -> dict[str, Any]:
    if obj["metadata"].get("uid"):
        raise conflict(
            kind,
            obj["metadata"]["name"],
            f"uid mismatch: the provided object specified uid {obj['metadata']['uid']}, "
            "and no existing object was found",
        )
    return api.created_by_apply(kind, namespace, obj, this, options)


def _configuration(kind: Kind, namespace: str, name: str, patch: bytes) -> dict[str, Any]:
    applied = read_yaml(patch)
    if not isinstance(applied, dict):
        raise bad_request("error decoding YAML: the body is not an object")
    check_depth(applied)
    if applied.get("apiVersion") != kind.api_version or applied.get("kind") != kind.kind:
        raise bad_request(
            f"Incorrect version specified in apply patch. Specified patch version: "
            f"{applied.get('apiVersion')}, expected: {kind.api_version}"
        )
    metadata = applied.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise bad_request(f"{kind.kind}.metadata is not an object")
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if metadata.setdefault("name", name) != name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL "
            f"({name})"
        )
    if kind.namespaced and metadata.setdefault("namespace", namespace) != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return applied


def _undeclared(structure: Structure, value: Any, path: str) -> str:
    """Return the path of the first field that the schema does not have."""
    for key, (inner, part) in (children(structure, value) or {}).items():
        here = f"{path}.{key[2:]}" if key.startswith("f:") else f"{path}[]"
        if not inner.declared:
            return here
        found = _undeclared(inner, part, here)
        if found:
            return found
    return ""


def _merged(structure: Structure, live: Any, applied: Any) -> Any:
    """Return `live` with what `applied` states; whole lists and atomic values are replaced."""
    if structure.atomic or type(live) is not type(applied):
        return applied
    if isinstance(applied, dict):
        for key, value in applied.items():
            live[key] = _merged(structure.field(key), live[key], value) if key in live else value
        return live
    if isinstance(applied, list) and structure.list_type in ("map", "set"):
        return _merged_list(structure, live, applied)
    return applied


def _merged_list(structure: Structure, live: list[Any], applied: list[Any]) -> list[Any]:
    kept = {element(structure, item): item for item in live}
    stated = {element(structure, item): item for item in applied}
    result = []
    for name, item in kept.items():
        result.append(_merged(structure.item(), item, stated[name]) if name in stated else item)
    result += [item for name, item in stated.items() if name not in kept]
    # The applied order rules among the items that it names.
    order = iter(
        sorted(
            (one for one in result if element(structure, one) in stated),
            key=lambda one: list(stated).index(element(structure, one)),
        )
    )
    return [next(order) if element(structure, one) in stated else one for one in result]


def _settle(others: list[Manager], changed: Fields, force: bool) -> None:
    """Raise the conflicts, or with `force` remove the fields from their owners."""
    found = [
        (one, path) for one in others for path in owned_paths(intersection(one.fields, changed))
    ]
    if not found:
        return
    if force:
        for one in others:
            one.fields = difference(one.fields, changed)
        return
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {_who(one)}",
            "field": path,
        }
        for one, path in found
    ]
    raise StatusError(409, "Conflict", _conflict_text(found), {"causes": causes})


def _who(manager: Manager) -> str:
    text = f'"{manager.name}"'
    if manager.subresource:
        text += f' with subresource "{manager.subresource}"'
    if manager.operation == "Update":
        text += f" using {manager.api_version}"
    return text


def _conflict_text(found: list[tuple[Manager, str]]) -> str:
    count = len(found)
    head = f"Apply failed with {count} conflict{'s' if count > 1 else ''}: "
    by_manager: dict[str, list[str]] = {}
    for one, path in found:
        by_manager.setdefault(_who(one), []).append(path)
    if count == 1:
        ((who, paths),) = by_manager.items()
        return f"{head}conflict with {who}: {paths[0]}"
    parts = []
    for who, paths in sorted(by_manager.items()):
        if len(paths) == 1:
            parts.append(f"conflict with {who}: {paths[0]}")
        else:
            parts.append(f"conflicts with {who}:\n" + "\n".join(f"- {path}" for path in paths))
    return head + "\n".join(parts)


def _remove(structure: Structure, value: Any, abandoned: Fields, kept: Fields) -> None:
    """Remove the `abandoned` parts of `value`; a container is removed if none of it is kept."""
    if isinstance(value, dict):
        for key in list(value):
            node = abandoned.get(f"f:{key}")
            if node is None:
                continue
            inner = structure.field(key)
            if f"f:{key}" not in kept and (not node or "." in node):
                del value[key]
            else:
                _remove(inner, value[key], node, kept.get(f"f:{key}") or {})
    elif isinstance(value, list):
        for item in list(value):
            name = element(structure, item) or ""
            node = abandoned.get(name)
            if node is None:
                continue
            if name not in kept and (not node or "." in node):
                value.remove(item)
            else:
                _remove(structure.item(), item, node, kept.get(name) or {})
