"""Reading an object of a built-in kind by its layout, as the real server's decoder does.

Unknown fields are left out and reported; a value of the wrong type ends the decoding with the
decoder's own text. What is stored has no zero values that the API's types do not show, so that two
spellings of one object are equal. Source: the JSON rules of the public API types (`omitempty`,
pointers) and answers of a 1.37 server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from kubelocal.server.types.layout import Field, Message, Shape, message
from kubelocal.server.types.scalars import REFUSED, SCALARS, WrongType

__all__ = ["Decoded", "WrongType", "decode", "decode_message"]


@dataclass(slots=True)
class Decoded:
    """The object with known fields only, and the paths of the others in order."""

    object: dict[str, Any]
    unknown: list[str] = field(default_factory=list)


def decode(layout: str, sent: Mapping[str, Any]) -> Decoded:
    """Return `sent` as the message `layout` holds it.

    Raises:
        WrongType: a value does not fit its field.
    """
    decoded = Decoded({})
    body = {name: value for name, value in sent.items() if name not in ("apiVersion", "kind")}
    decoded.object = {"apiVersion": sent.get("apiVersion"), "kind": sent.get("kind")}
    try:
        decoded.object.update(reader_of(layout)(body))
    except Unexpected:
        # What is unknown or wrong is named with its path.
        decoded.object.update(_message(message(layout), body, "", "", decoded.unknown))
    return decoded


def decode_message(layout: str, sent: Any, path: str, unknown: list[str]) -> dict[str, Any]:
    """Return the part of an object at `path` as the message `layout` holds it.

    Raises:
        WrongType: a value does not fit its field.
    """
    known = message(layout)
    if sent is None:
        return {}
    if type(sent) is not dict:
        raise WrongType(
            f"json: cannot unmarshal {_WORDS.get(type(sent), 'object')} into Go struct field "
            f".{path} of type v1.{known.name}"
        )
    try:
        return reader_of(layout)(sent)
    except Unexpected:
        return _message(known, sent, path, path, unknown)


class Unexpected(Exception):
    """Something that is unknown or wrong, found by a reader that knows no paths."""


Reader = Callable[[Any], Any]
MessageReader = Callable[[Any], dict[str, Any]]


@cache
def reader_of(layout: str) -> MessageReader:
    """Return what `_message` does for good input, without its paths, in a third of its time."""
    plan: dict[str, tuple[Reader | None, bool]] = {}
    shown = _shown(layout)

    def read(sent: Any) -> dict[str, Any]:
        if type(sent) is not dict:
            raise Unexpected
        kept: dict[str, Any] = {}
        for name, value in sent.items():
            found = plan.get(name)
            if found is None:
                raise Unexpected
            if value is None:
                continue
            inner, always = found
            if inner is not None:
                value = inner(value)
            elif type(value) is not str:
                raise Unexpected
            if value or always:
                kept[name] = value
        for name, zero in shown:
            if name not in kept:
                kept[name] = zero()
        return kept

    for spec in message(layout).json.values():
        always = spec.optional or (spec.is_message and spec.shape is Shape.ONE and spec.shown)
        plan[spec.name] = (_field_reader(spec), always)
    return read


def _field_reader(spec: Field) -> Reader | None:
    """Return the reader of one field, None for a text that is used as it is."""
    if spec.type in _SCHEMA_UNIONS:
        return _unexpected
    if not spec.is_message:
        item = _PLAIN.get(spec.type) or _strict(SCALARS[spec.type])
        if spec.shape is Shape.ONE and spec.type == "string":
            return None
    else:
        layout = spec.type

        # Looked up when it is needed: messages hold themselves.
        def item(value: Any) -> Any:
            return reader_of(layout)(value)

    if spec.shape is Shape.LIST:

        def read_list(value: Any) -> Any:
            if type(value) is not list:
                raise Unexpected
            return [item(one) for one in value]

        return read_list
    if spec.shape is Shape.MAP:

        def read_map(value: Any) -> Any:
            if type(value) is not dict:
                raise Unexpected
            return {key: item(one) for key, one in value.items()}

        return read_map
    return item


def _plain_integer(bits: int) -> Reader:
    limit = 1 << (bits - 1)

    def read(value: Any) -> Any:
        if type(value) is int and -limit <= value < limit:
            return value
        raise Unexpected

    return read


def _plain(wanted: type) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is wanted:
            return value
        raise Unexpected

    return read


# What nearly all values are; others are read by their rules.
_PLAIN: Final[Mapping[str, Reader]] = {
    "string": _plain(str),
    "bool": _plain(bool),
    "int32": _plain_integer(32),
    "int64": _plain_integer(64),
    "RawExtension": _plain(dict),
    "FieldsV1": _plain(dict),
}


def _strict(scalar: Reader) -> Reader:
    def read(value: Any) -> Any:
        result = scalar(value)
        if result is REFUSED:
            raise Unexpected
        return result

    return read


def _unexpected(value: Any) -> Any:
    raise Unexpected


def _message(
    known: Message, sent: Mapping[str, Any], path: str, trail: str, unknown: list[str]
) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    fields = known.json
    for name, value in sent.items():
        spec = fields.get(name)
        if spec is None:
            unknown.append(f"{path}.{name}" if path else str(name))
        elif value is not None:
            read = _field(known, spec, value, path, trail, unknown)
            if spec.optional or not _is_zero(spec, read):
                kept[name] = read
    for name, zero in _shown(known.qualified):
        if name not in kept:
            kept[name] = zero()
    return kept


def _is_zero(spec: Field, value: Any) -> bool:
    if spec.is_message and spec.shape is Shape.ONE:
        return not spec.shown and not value
    return (not value and not isinstance(value, (list, dict))) or value in ([], {})


def _field(
    holder: Message, spec: Field, value: Any, path: str, trail: str, unknown: list[str]
) -> Any:
    here = f"{path}.{spec.name}" if path else spec.name
    # The decoder's own paths have no list positions.
    trail = f"{trail}.{spec.name}" if trail else spec.name
    if spec.shape is Shape.LIST:
        if type(value) is not list:
            raise _mismatch(holder, trail, value, f"[]{_type_name(spec)}")
        if not spec.is_message:
            return [_scalar(holder, spec, item, trail) for item in value]
        inner = message(spec.type)
        return [
            _inner(holder, spec, inner, item, f"{here}[{index}]", trail, unknown)
            for index, item in enumerate(value)
        ]
    if spec.shape is Shape.MAP:
        if type(value) is not dict:
            raise _mismatch(
                holder,
                trail,
                value,
                (spec.go_type and f"v1.{spec.go_type}") or f"map[string]{_type_name(spec)}",
            )
        if spec.type in _SCHEMA_UNIONS:
            return {
                key: _schema_union(holder, spec, item, f"{here}[{key}]", trail, unknown)
                for key, item in value.items()
            }
        if not spec.is_message:
            return {key: _scalar(holder, spec, item, trail) for key, item in value.items()}
        inner = message(spec.type)
        return {
            key: _inner(holder, spec, inner, item, f"{here}[{key}]", trail, unknown)
            for key, item in value.items()
        }
    if spec.is_message:
        return _inner(holder, spec, message(spec.type), value, here, trail, unknown)
    if spec.type in _SCHEMA_UNIONS:
        return _schema_union(holder, spec, value, here, trail, unknown)
    return _scalar(holder, spec, value, trail)


_SCHEMA_UNIONS: Final[Mapping[str, type]] = {
    "JSONSchemaPropsOrArray": list,
    "JSONSchemaPropsOrBool": bool,
    "JSONSchemaPropsOrStringArray": list,
}
"""Fields that hold a schema or something else, with the type of the latter."""


def _schema_union(
    holder: Message, spec: Field, value: Any, path: str, trail: str, unknown: list[str]
) -> Any:
    schema = message("apiextensions/v1.JSONSchemaProps")
    if type(value) is dict:
        return _message(schema, value, path, trail, unknown)
    if type(value) is not _SCHEMA_UNIONS[spec.type]:
        raise _mismatch(holder, trail, value, f"v1.{spec.type}")
    if spec.type != "JSONSchemaPropsOrArray":
        return value
    items: Any = value
    return [
        _inner(holder, spec, schema, item, f"{path}[{index}]", trail, unknown)
        for index, item in enumerate(items)
    ]


def _inner(
    holder: Message,
    spec: Field,
    inner: Message,
    value: Any,
    path: str,
    trail: str,
    unknown: list[str],
) -> dict[str, Any]:
    if value is None:
        value = {}
    if type(value) is not dict:
        raise _mismatch(holder, trail, value, _type_name(spec))
    return _message(inner, value, path, trail, unknown)


def _scalar(holder: Message, spec: Field, value: Any, trail: str) -> Any:
    if type(value) is str and spec.type == "string":
        return value
    read = SCALARS[spec.type](value)
    if read is REFUSED:
        raise _mismatch(holder, trail, value, _type_name(spec))
    return read


_GO_NAMES: Final = {
    "double": "float64",
    "bytes": "[]uint8",
    "Quantity": "resource.Quantity",
    "IntOrString": "intstr.IntOrString",
    "RawExtension": "runtime.RawExtension",
    "FieldsV1": "v1.FieldsV1",
    "Strings": "[]string",
    "Time": "string",
    "MicroTime": "string",
}
_WORDS: Final = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}


def _type_name(spec: Field) -> str:
    if spec.type in _SCHEMA_UNIONS:
        return "v1.JSONSchemaProps"
    if spec.is_message:
        package, _, name = spec.type.partition(".")
        return f"{package.partition('/')[2]}.{name}"
    if spec.go_type and spec.shape is not Shape.MAP:
        return f"v1.{spec.go_type}"
    return _GO_NAMES.get(spec.type, spec.type)


def _mismatch(holder: Message, trail: str, value: Any, wanted: str) -> WrongType:
    word = _WORDS.get(type(value), "object")
    if word == "number" and wanted in ("int32", "int64"):
        word = f"number {value}"
    return WrongType(
        f"json: cannot unmarshal {word} into Go struct field {holder.name}.{trail} of type {wanted}"
    )


def _nothing() -> None:
    return None


_ZEROS: Final[Mapping[str, Callable[[], Any]]] = {
    "string": str,
    "int32": int,
    "int64": int,
    "bool": bool,
    "double": int,
    "bytes": str,
    "IntOrString": int,
}


@cache
def _shown(layout: str) -> list[tuple[str, Callable[[], Any]]]:
    """Return the fields that are written even where they are not set, and what is written."""
    return [(spec.name, _zero(spec)) for spec in message(layout).json.values() if spec.shown]


def _zero(spec: Field) -> Callable[[], Any]:
    if spec.optional:
        return _nothing
    if spec.is_message:
        layout = spec.type
        return lambda: {name: zero() for name, zero in _shown(layout)}
    return _ZEROS.get(spec.type, _nothing)
