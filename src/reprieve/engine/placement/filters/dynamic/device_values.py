"""The values of device selectors, and what functions and operators mean for them.

Quantities and versions are Kubernetes' additions to CEL. Values of different types are never equal
and have no order. Source: specification 21.9; the CEL language definition and the device
environment of resource.k8s.io/v1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import total_ordering
from typing import Final, TypeAlias

from kubeworld.units.quantities import InvalidQuantity, parse_milli
from reprieve.engine.cluster.devices import AttributeType, Device
from reprieve.engine.placement.filters.dynamic.device_costs import (
    LIST_COST,
    Budget,
    SelectorError,
    tenth,
)
from reprieve.engine.placement.filters.dynamic.device_patterns import InvalidPattern, pattern_of
from reprieve.engine.placement.filters.dynamic.device_tokens import shown

__all__ = [
    "ARITY",
    "MAKERS",
    "METHODS",
    "RELATIONS",
    "DeviceFacts",
    "Domains",
    "Method",
    "Quantity",
    "Relation",
    "Scalar",
    "SelectorError",
    "Semver",
    "Value",
    "among",
    "facts_of",
    "member_of",
    "quantity_of",
    "semver_of",
    "truth",
]


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """A resource quantity in thousandths of its base unit."""

    milli: int


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Semver:
    """A semantic version 2.0.0; build metadata plays no part in comparisons."""

    numbers: tuple[int, int, int]
    pre_release: tuple[str, ...] = ()

    def _key(self) -> tuple[object, ...]:
        parts = tuple(
            (0, len(p.lstrip("0")), p.lstrip("0")) if p.isdigit() else (1, 0, p)
            for p in self.pre_release
        )
        return (self.numbers, not self.pre_release, parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._key() == other._key()

    def __lt__(self, other: Semver) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, slots=True)
class Domains:
    """A map by domain; a domain that is not there is an empty map."""

    maps: Mapping[str, Mapping[str, Value]]


Scalar: TypeAlias = bool | int | str | Quantity | Semver
Value: TypeAlias = Scalar | Domains | Mapping[str, "Value"] | Sequence["Value"]
Relation: TypeAlias = Callable[[Value, Value, Budget], bool]
Method: TypeAlias = Callable[[Value, list[Value], Budget], Value]


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What an expression sees of a device."""

    driver: str
    attributes: Domains
    capacity: Domains
    shareable: bool = False


_SEMVER: Final = re.compile(
    r"(0|[1-9][0-9]{0,19})\.(0|[1-9][0-9]{0,19})\.(0|[1-9][0-9]{0,19})"
    r"(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)


_EMPTY: Final[Mapping[str, Value]] = {}


def facts_of(driver: str, device: Device) -> DeviceFacts:
    """Return what expressions see of a device; names without domain are the driver's."""
    attributes: dict[str, dict[str, Value]] = {}
    for name, attribute in device.attributes:
        value: Value = attribute.value
        if attribute.type is AttributeType.VERSION:
            value = semver_of(str(attribute.value))
        _set(attributes, driver, name, value)
    capacity: dict[str, dict[str, Value]] = {}
    for name, amount in device.capacity:
        _set(capacity, driver, name, Quantity(amount.value))
    return DeviceFacts(driver, Domains(attributes), Domains(capacity), device.shareable)


def _set(maps: dict[str, dict[str, Value]], driver: str, name: str, value: Value) -> None:
    domain, slash, own = name.partition("/")
    maps.setdefault(domain if slash else driver, {})[own if slash else name] = value


def quantity_of(text: str) -> Quantity:
    """Return the quantity that a text states.

    Raises:
        SelectorError: it states none.
    """
    try:
        return Quantity(parse_milli(text))
    except InvalidQuantity:
        raise SelectorError(f"{shown(text)} is not a quantity") from None


def semver_of(text: str) -> Semver:
    """Return the version that a text states.

    Raises:
        SelectorError: it states none.
    """
    found = _SEMVER.fullmatch(text)
    if found is None:
        raise SelectorError(f"{shown(text)} is not a semantic version")
    major, minor, patch, pre_release = found.groups()
    parts = tuple(pre_release.split(".")) if pre_release else ()
    return Semver((int(major), int(minor), int(patch)), parts)


def truth(value: Value) -> bool:
    """Return a boolean.

    Raises:
        SelectorError: it is something else.
    """
    if not isinstance(value, bool):
        raise SelectorError("no such overload")
    return value


def _equal(left: Value, right: Value, budget: Budget) -> bool:
    budget.spend(tenth(min(_size(left), _size(right))))
    return _same(left, right, budget)


def _same(left: Value, right: Value, budget: Budget) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        budget.spend(LIST_COST + len(left))
        return len(left) == len(right) and all(
            _same(one, other, budget) for one, other in zip(left, right, strict=True)
        )
    return type(left) is type(right) and left == right


def _size(value: Value) -> int:
    return len(value) if isinstance(value, (str, list, Mapping)) else 1


def _ordered(compare: Callable[[int], bool]) -> Relation:
    def relation(left: Value, right: Value, budget: Budget) -> bool:
        budget.spend(tenth(min(_size(left), _size(right))))
        return compare(_sign(left, right, (bool, int, str)))

    return relation


def _sign(left: Value, right: Value, kinds: tuple[type, ...]) -> int:
    if type(left) is not type(right) or type(left) not in kinds:
        raise SelectorError("no such overload")
    return int(left > right) - int(left < right)  # type: ignore[operator]  # of one kind


def among(left: Value, right: Value, budget: Budget) -> bool:
    """Return whether a value is in a list, or a key in a map.

    Raises:
        SelectorError: it is neither.
    """
    budget.spend(len(right) if isinstance(right, list) else 1)
    if isinstance(right, Domains):
        return isinstance(left, str) and left in right.maps
    if isinstance(right, Mapping):
        return isinstance(left, str) and left in right
    if isinstance(right, list):
        return any(_same(left, each, budget) for each in right)
    raise SelectorError("no such overload")


def member_of(value: Value, key: Value) -> Value:
    """Return the value of a key of a map, or at a place of a list.

    Raises:
        SelectorError: there is none.
    """
    if isinstance(value, Domains) and isinstance(key, str):
        return value.maps.get(key, _EMPTY)
    if isinstance(value, Mapping) and isinstance(key, str):
        if key in value:
            return value[key]
        raise SelectorError(f"no such key: {shown(key)}")
    if isinstance(value, list) and type(key) is int:
        if 0 <= key < len(value):
            found: Value = value[key]
            return found
        raise SelectorError(f"index out of bounds: {key}")
    raise SelectorError("no such overload")


RELATIONS: Final[Mapping[str, Relation]] = {
    "==": _equal,
    "!=": lambda left, right, budget: not _equal(left, right, budget),
    "<=": _ordered(lambda sign: sign <= 0),
    ">=": _ordered(lambda sign: sign >= 0),
    "<": _ordered(lambda sign: sign < 0),
    ">": _ordered(lambda sign: sign > 0),
    "in": among,
}


MAKERS: Final[Mapping[str, Callable[[str], Value]]] = {"quantity": quantity_of, "semver": semver_of}


def _text_method(function: Callable[[str, str], bool], cost: Callable[[int, int], int]) -> Method:
    def method(target: Value, arguments: list[Value], budget: Budget) -> Value:
        (argument,) = arguments
        if not isinstance(target, str) or not isinstance(argument, str):
            raise SelectorError("no such overload")
        budget.spend(cost(len(target), len(argument)))
        return function(target, argument)

    return method


def _matches(target: Value, arguments: list[Value], budget: Budget) -> Value:
    (pattern,) = arguments
    if not isinstance(target, str) or not isinstance(pattern, str):
        raise SelectorError("no such overload")
    try:
        return pattern_of(pattern).found_in(target, budget)
    except InvalidPattern as error:
        raise SelectorError(str(error)) from None


def _lower(target: Value, arguments: list[Value], budget: Budget) -> Value:
    if not isinstance(target, str):
        raise SelectorError("no such overload")
    budget.spend(tenth(len(target)))
    return "".join(c.lower() if c.isascii() else c for c in target)


def _comparison(function: Callable[[int], Value]) -> Method:
    def method(target: Value, arguments: list[Value], budget: Budget) -> Value:
        budget.spend(1)
        return function(_sign(target, arguments[0], (Quantity, Semver)))

    return method


METHODS: Final[Mapping[str, Method]] = {
    "startsWith": _text_method(str.startswith, lambda text, _: tenth(text)),
    "endsWith": _text_method(str.endswith, lambda text, _: tenth(text)),
    "contains": _text_method(
        lambda target, part: part in target, lambda text, part: tenth(text) * tenth(part)
    ),
    "matches": _matches,
    "lowerAscii": _lower,
    "compareTo": _comparison(lambda sign: sign),
    "isGreaterThan": _comparison(lambda sign: sign > 0),
    "isLessThan": _comparison(lambda sign: sign < 0),
}


ARITY: Final[Mapping[str, int]] = {"lowerAscii": 0}
