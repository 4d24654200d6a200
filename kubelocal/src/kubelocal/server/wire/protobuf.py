"""Request bodies in protobuf, which kubectl sends for typed commands, as JSON objects.

The bytes are an envelope (four magic bytes, then `runtime.Unknown`: type and raw message) around
one message of a built-in kind, decoded by its layout. Source: the API's protobuf encoding; the
wire format of protocol buffers.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

from kubelocal.server.types.layout import GROUPS, Field, Message, Shape, message
from kubeworld.units.instants import Nanos, format_instant, format_micro

__all__ = ["UnsupportedProtobuf", "decode"]

_MAGIC: Final = b"k8s\x00"
_DEEPEST: Final = 100


class UnsupportedProtobuf(ValueError):
    """The body is no such envelope, is cut short, or holds a kind without a layout."""


def decode(body: bytes) -> dict[str, Any]:
    """Return the object in `body` with its apiVersion and kind.

    Raises:
        UnsupportedProtobuf: see the class.
    """
    if not body.startswith(_MAGIC):
        raise UnsupportedProtobuf("provided data does not appear to be a protobuf message")
    envelope = dict(_records(body[len(_MAGIC) :]))
    identity = {number: _text(raw) for number, raw in _records(_raw(envelope.get(1, b"")))}
    api_version, kind = identity.get(1, ""), identity.get(2, "")
    layout = _layout(api_version, kind)
    return {
        "apiVersion": api_version,
        "kind": kind,
        **_message(layout, _raw(envelope.get(2, b"")), 0),
    }


def _layout(api_version: str, kind: str) -> Message:
    group, _, version = api_version.rpartition("/")
    if kind in ("DeleteOptions", "Status"):
        return message(f"meta/v1.{kind}")
    holder = next((name for name, known in GROUPS.items() if known == group), None)
    try:
        return message(f"{holder}/{version}.{kind}")
    except (KeyError, FileNotFoundError):
        raise UnsupportedProtobuf(
            f'no protobuf layout for kind "{kind}" in version "{api_version}"'
        ) from None


def _message(layout: Message, raw: bytes, depth: int) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise UnsupportedProtobuf("the message is nested too deeply")
    values: dict[str, Any] = {}
    for number, value in _records(raw):
        field = layout.numbered.get(number)
        if field is None:
            continue
        if field.inline:
            values.update(_message(message(field.type), _raw(value), depth + 1))
        elif field.shape is Shape.MAP:
            entry = dict(_records(_raw(value)))
            key = _text(entry.get(1, b""))
            default: bytes | int = 0 if field.type in _VARINTS else b""
            values.setdefault(field.name, {})[key] = _value(field, entry.get(2, default), depth)
        elif field.shape is Shape.LIST:
            items = values.setdefault(field.name, [])
            if field.type in _VARINTS and isinstance(value, bytes):
                items.extend(_value(field, each, depth) for each in _packed(value))
            else:
                items.append(_value(field, value, depth))
        else:
            read = _value(field, value, depth)
            # The encoding spells zeros out that JSON leaves away.
            if read or field.optional:
                values[field.name] = read
    return values


def _value(field: Field, value: bytes | int, depth: int) -> Any:
    if field.is_message:
        return _message(message(field.type), _raw(value), depth + 1)
    read = _READERS.get(field.type)
    if read is None:
        raise UnsupportedProtobuf(f'field "{field.name}" has no protobuf form here')
    return read(value)


def _records(raw: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield field number and value: bytes, or the number of a varint or fixed field."""
    position, end = 0, len(raw)
    while position < end:
        tag, position = _varint(raw, position)
        number, wire = tag >> 3, tag & 7
        value: bytes | int
        if wire == 0:
            value, position = _varint(raw, position)
        elif wire == 2:
            length, position = _varint(raw, position)
            value = raw[position : position + length]
            position += length
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
            value = int.from_bytes(raw[position : position + length], "little")
            position += length
        else:
            raise UnsupportedProtobuf(f"wire type {wire} does not occur in the API")
        if position > end:
            raise UnsupportedProtobuf("the message ends in the middle of a field")
        yield number, value


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(raw) or shift > 63:
            raise UnsupportedProtobuf("the message ends in the middle of a number")
        byte = raw[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value & (2**64 - 1), position


def _packed(raw: bytes) -> Iterator[int]:
    position = 0
    while position < len(raw):
        value, position = _varint(raw, position)
        yield value


def _raw(value: bytes | int) -> bytes:
    if not isinstance(value, bytes):
        raise UnsupportedProtobuf("a number stands where a message or text belongs")
    return value


def _number(value: bytes | int) -> int:
    if isinstance(value, bytes):
        raise UnsupportedProtobuf("bytes stand where a number belongs")
    return value - 2**64 if value >= 2**63 else value


def _text(value: bytes | int) -> str:
    try:
        return _raw(value).decode()
    except UnicodeDecodeError:
        raise UnsupportedProtobuf("a text is not UTF-8") from None


def _base64(value: bytes | int) -> str:
    return base64.b64encode(_raw(value)).decode()


def _double(value: bytes | int) -> float:
    return float(struct.unpack("<d", (_number(value) % 2**64).to_bytes(8, "little"))[0])


def _instant(value: bytes | int) -> Nanos | None:
    parts = {number: _number(part) for number, part in _records(_raw(value))}
    if not parts:
        return None
    return Nanos(parts.get(1, 0) * 1_000_000_000 + parts.get(2, 0))


def _time(value: bytes | int) -> str | None:
    instant = _instant(value)
    return None if instant is None else format_instant(instant)


def _micro_time(value: bytes | int) -> str | None:
    instant = _instant(value)
    return None if instant is None else format_micro(instant)


def _quantity(value: bytes | int) -> str:
    return _text(dict(_records(_raw(value))).get(1, b"0"))


def _int_or_string(value: bytes | int) -> int | str:
    parts = dict(_records(_raw(value)))
    return _text(parts.get(3, b"")) if parts.get(1) else _number(parts.get(2, 0))


def _strings(value: bytes | int) -> list[str]:
    return [_text(item) for number, item in _records(_raw(value)) if number == 1]


def _json(value: bytes | int) -> Any:
    raw = _raw(dict(_records(_raw(value))).get(1, b"null"))
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise UnsupportedProtobuf("an embedded object is not JSON") from None


_READERS: Final[Mapping[str, Callable[[bytes | int], Any]]] = {
    "string": _text,
    "int32": _number,
    "int64": _number,
    "bool": lambda value: bool(_number(value)),
    "double": _double,
    "bytes": _base64,
    "Time": _time,
    "MicroTime": _micro_time,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "Strings": _strings,
    "FieldsV1": _json,
    "RawExtension": _json,
    "JSON": _json,
}
_VARINTS: Final = frozenset({"int32", "int64", "bool"})
