"""What requirements on labels, and tolerations of taints, mean: the only place that states it.

Every plane uses this module, so that a pod that one of them sends to a node is not refused there by
another, nor by kube-scheduler. Numbers are decimal digits with an optional sign, in 64 bits:
`1_000`, which Python would read, is none. Source: the label selectors, node selectors and
tolerations of the Kubernetes API; specification of the scheduling plane, 21.2, 21.3 and 21.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kubeworld.units.untrusted import INT64, integer_or_none

__all__ = ["covers", "requirement_holds", "requirement_text", "selects"]


class _Requirement(Protocol):
    """One expression of a selector."""

    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def values(self) -> Sequence[str]: ...


class _Taint(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def effect(self) -> str: ...


class _Toleration(_Taint, Protocol):
    @property
    def operator(self) -> str: ...


def requirement_holds(operator: str, values: Sequence[str], value: str | None) -> bool:
    """Return whether a label with this value (None: no such label) satisfies a requirement.

    In and NotIn without values, Gt and Lt without exactly one, and operators that are none of the
    API's cannot be read and hold nowhere.
    """
    match operator:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "In":
            return value is not None and value in values
        case "NotIn":
            return bool(values) and value not in values
        case "Gt" | "Lt" if value is not None and len(values) == 1:
            return _compares(operator, value, values[0])
    return False


def requirement_text(key: str, operator: str, values: Sequence[str]) -> str:
    """Return a requirement as people write it: `tier=gold`, `gpu in a, b`, `zone exists`."""
    match operator:
        case "In" if len(values) == 1:
            return f"{key}={values[0]}"
        case "In":
            return f"{key} in {', '.join(values)}"
        case "NotIn":
            return f"{key} not in {', '.join(values)}"
        case "Exists":
            return f"{key} exists"
        case "DoesNotExist":
            return f"{key} does not exist"
        case "Gt" | "Lt":
            return f"{key} {'>' if operator == 'Gt' else '<'} {', '.join(values)}"
    return f"{key} {operator} {', '.join(values)}".rstrip()


def selects(selector: Iterable[_Requirement] | None, labels: Mapping[str, str]) -> bool:
    """Return whether a selector means an object with these labels; an absent one means none."""
    if selector is None:
        return False
    return all(requirement_holds(e.operator, e.values, labels.get(e.key)) for e in selector)


def covers(toleration: _Toleration, taint: _Taint) -> bool:
    """Return whether a toleration covers a taint; an empty operator is `Equal`.

    `Gt` and `Lt` compare the taint's value with the toleration's, both integers; while their gate
    is off no toleration has them.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt":
            return _compares(toleration.operator, taint.value, toleration.value)
    return False


def _compares(operator: str, value: str, bound: str) -> bool:
    left, right = integer_or_none(value, *INT64), integer_or_none(bound, *INT64)
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right
