"""Reading one value of a built-in kind: texts, numbers, instants, quantities and the like.

Each reader returns the value as it is stored, or `REFUSED` where the type is wrong; `null` is the
type's zero value. Source: the JSON rules of the public API types and answers of a 1.37 server.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from kubeworld.units.canonical import NotAQuantity, canonical
from kubeworld.units.instants import format_instant, format_micro, parse_instant

__all__ = ["REFUSED", "SCALARS", "WrongType"]


class WrongType(Exception):
    """A value that the field's type cannot hold; the text is the decoder's."""


REFUSED: Final = object()


def _string(value: Any) -> Any:
    return "" if value is None else value if type(value) is str else REFUSED


def _integer(bits: int) -> Callable[[Any], Any]:
    limit = 1 << (bits - 1)

    def read(value: Any) -> Any:
        if value is None:
            return 0
        if type(value) is float and value.is_integer():
            value = int(value)
        return value if type(value) is int and -limit <= value < limit else REFUSED

    return read


def _boolean(value: Any) -> Any:
    return False if value is None else value if type(value) is bool else REFUSED


def _double(value: Any) -> Any:
    return value if type(value) in (int, float) else REFUSED


def _bytes(value: Any) -> Any:
    if value is None:
        return ""
    if type(value) is not str:
        return REFUSED
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        at = re.match(r"[A-Za-z0-9+/]*", value)
        raise WrongType(f"illegal base64 data at input byte {at.end() if at else 0}") from None
    return value


def _time(write: Callable[[Any], str]) -> Callable[[Any], Any]:
    # An object states the same few instants many times.
    @lru_cache(maxsize=4096)
    def normal(text: str) -> str:
        return write(parse_instant(text))

    def read(value: Any) -> Any:
        if type(value) is not str:
            return REFUSED
        if not value:
            return None
        try:
            return normal(value)
        except ValueError:
            raise WrongType(
                f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" '
                'as "2006"'
            ) from None

    return read


def _quantity(value: Any) -> Any:
    if type(value) in (int, float):
        value = repr(value)
    if type(value) is not str:
        return REFUSED
    try:
        return canonical(value)
    except NotAQuantity as wrong:
        raise WrongType(str(wrong)) from None


def _int_or_string(value: Any) -> Any:
    return value if type(value) in (int, str) else REFUSED


def _anything(value: Any) -> Any:
    return value


def _object(value: Any) -> Any:
    return value if type(value) is dict else REFUSED


def _strings(value: Any) -> Any:
    if type(value) is list and all(type(item) is str for item in value):
        return value
    return REFUSED


SCALARS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "string": _string,
    "int32": _integer(32),
    "int64": _integer(64),
    "bool": _boolean,
    "double": _double,
    "bytes": _bytes,
    "Time": _time(format_instant),
    "MicroTime": _time(format_micro),
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "RawExtension": _object,
    "JSON": _anything,
    "FieldsV1": _object,
    "Strings": _strings,
}
