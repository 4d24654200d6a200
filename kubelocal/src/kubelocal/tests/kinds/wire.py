"""An encoder of the API's protobuf bodies, from the layouts; the tests' counterpart of `decode`."""

from __future__ import annotations

import base64
from typing import Any

import orjson

from kubelocal.server.types.layout import Field, Message, Shape, message
from kubeworld.units.instants import parse_instant

_VARINTS = ("int32", "int64", "bool")


def envelope(layout: str, obj: dict[str, Any]) -> bytes:
    """Return `obj` in its envelope."""
    known = message(layout)
    body = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
    identity = _bytes(1, obj["apiVersion"].encode()) + _bytes(2, obj["kind"].encode())
    return b"k8s\x00" + _bytes(1, identity) + _bytes(2, _message(known, body))


def _message(known: Message, obj: dict[str, Any]) -> bytes:
    encoded = b""
    for field in known.numbered.values():
        if field.inline:
            inner = message(field.type)
            mine = {name: obj[name] for name in inner.json if name in obj}
            encoded += _bytes(field.number, _message(inner, mine))
        elif field.name in obj:
            value = obj[field.name]
            if field.shape is Shape.MAP:
                for key, item in value.items():
                    entry = _bytes(1, key.encode()) + _value(field, 2, item)
                    encoded += _bytes(field.number, entry)
            elif field.shape is Shape.LIST:
                for item in value:
                    encoded += _value(field, field.number, item)
            else:
                encoded += _value(field, field.number, value)
        elif field.type == "string" and field.shape is Shape.ONE and not field.optional:
            encoded += _bytes(field.number, b"")
    return encoded


def _value(field: Field, number: int, value: Any) -> bytes:
    if field.is_message:
        return _bytes(number, _message(message(field.type), value))
    if field.type in _VARINTS:
        return _varint(number << 3) + _varint(int(value) % 2**64)
    match field.type:
        case "bytes":
            return _bytes(number, base64.b64decode(value))
        case "Quantity":
            return _bytes(number, _bytes(1, value.encode()))
        case "IntOrString":
            if isinstance(value, int):
                return _bytes(number, _varint(8) + _varint(0) + _varint(16) + _varint(value))
            return _bytes(number, _varint(8) + _varint(1) + _bytes(3, value.encode()))
        case "Time" | "MicroTime":
            seconds = parse_instant(value) // 1_000_000_000
            return _bytes(number, _varint(8) + _varint(seconds))
        case "JSON" | "RawExtension" | "FieldsV1":
            return _bytes(number, _bytes(1, orjson.dumps(value)))
        case _:
            return _bytes(number, value.encode())


def _bytes(number: int, raw: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _varint(value: int) -> bytes:
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])
