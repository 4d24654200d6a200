"""How values of a kind are composed, for patches that merge and for ownership of fields.

One view over two sources: layouts of built-in messages and structural schemas of custom kinds.
Where neither states anything, maps are owned key by key and lists as a whole, as
structured-merge-diff deduces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.layout import Field, Shape, message

__all__ = ["UNTYPED", "Structure", "structure_of"]


@dataclass(frozen=True, slots=True)
class Structure:
    """The composition of one value.

    `atomic`: owned and merged as a whole; `list_type`: set, map or atomic for lists;
    `list_keys`: keys of a list map; `merge_key`: see `layout.Field`; `declared`: False where
    a schema has no such field.
    """

    atomic: bool = False
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    merge_key: str | None = None
    retain_keys: bool = False
    declared: bool = True
    defaults: tuple[tuple[str, Any], ...] = ()
    _message: str = ""
    # Message of the values of a map or the items of a list.
    _values: str = ""
    _schema: Mapping[str, Any] | None = None

    def field(self, name: str) -> Structure:
        """Return the structure of the field or key `name` of a map."""
        if self._message:
            return _fields_of(self._message).get(name, UNDECLARED)
        if self._values:
            return _of_message(self._values)
        if self._schema is not None:
            return _of_property(self._schema, name)
        return UNTYPED

    def item(self) -> Structure:
        """Return the structure of the items of a list."""
        if self._values:
            return _of_message(self._values)
        if self._schema is not None:
            items = self._schema.get("items")
            return _of_schema(items) if isinstance(items, Mapping) else UNTYPED
        return UNTYPED


UNTYPED: Final = Structure()
UNDECLARED: Final = Structure(declared=False)


def structure_of(kind: Kind) -> Structure:
    """Return the structure of whole objects of `kind`."""
    if kind.custom is not None:
        return Structure(_schema={**kind.custom.schema, "x-kubelocal-root": True})
    return _of_message(kind.layout)


@cache
def _of_message(qualified: str) -> Structure:
    return Structure(atomic=message(qualified).atomic, _message=qualified)


@cache
def _fields_of(qualified: str) -> Mapping[str, Structure]:
    return {name: _of_field(spec) for name, spec in message(qualified).json.items()}


def _of_field(spec: Field) -> Structure:
    atomic = spec.list_type == "atomic"
    inner = spec.type if spec.is_message else ""
    if spec.shape is Shape.MAP:
        return Structure(atomic=atomic, _values=inner)
    if spec.shape is Shape.ONE:
        if not inner:
            return Structure(atomic=atomic)
        atomic = atomic or message(inner).atomic
        return Structure(atomic=atomic, retain_keys=spec.retain_keys, _message=inner)
    return Structure(
        list_type=spec.list_type or "atomic",
        list_keys=spec.list_keys,
        merge_key=spec.merge_key,
        retain_keys=spec.retain_keys,
        # ContainerPort and ServicePort: the protocol is part of the key and has a default.
        defaults=(("protocol", "TCP"),) if "protocol" in spec.list_keys else (),
        _values=inner,
    )


def _of_property(schema: Mapping[str, Any], name: str) -> Structure:
    if schema.get("x-kubelocal-root"):
        if name == "metadata":
            return _of_message("meta/v1.ObjectMeta")
        if name in ("apiVersion", "kind"):
            return UNTYPED
    properties = schema.get("properties") or {}
    if name in properties:
        return _of_schema(properties[name])
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        return _of_schema(additional)
    if additional is True or schema.get("x-kubernetes-preserve-unknown-fields"):
        return UNTYPED
    return UNDECLARED


def _of_schema(schema: Mapping[str, Any]) -> Structure:
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    properties = (schema.get("items") or {}).get("properties") or {} if keys else {}
    return Structure(
        atomic=schema.get("x-kubernetes-map-type") == "atomic",
        list_type=schema.get("x-kubernetes-list-type", "atomic"),
        list_keys=keys,
        defaults=tuple(
            (key, properties[key]["default"])
            for key in keys
            if "default" in properties.get(key, {})
        ),
        _schema=schema,
    )
