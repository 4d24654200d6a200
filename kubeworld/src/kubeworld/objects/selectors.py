"""Label selectors, node selector terms and taints, as far as the machines read them.

Source: the API's `LabelSelector`, `NodeSelectorTerm`, `Taint` and `Toleration`. A selector that
cannot be read matches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeworld.units.untrusted import INT64, integer_or_none

__all__ = ["matches_labels", "matches_node_terms", "tolerates", "tolerates_one"]


def matches_labels(selector: Mapping[str, Any] | None, labels: Mapping[str, str] | None) -> bool:
    """Whether a LabelSelector selects these labels. None selects nothing, an empty one all."""
    if selector is None:
        return False
    present = labels or {}
    if any(present.get(k) != v for k, v in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(e, present) for e in selector.get("matchExpressions") or ())


def matches_node_terms(
    terms: Sequence[Mapping[str, Any]], labels: Mapping[str, str] | None, name: str
) -> bool:
    """Whether one of the terms selects the node; a term without requirements selects none."""
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(_holds(e, labels or {}) for e in term.get("matchExpressions") or ())
        and all(_holds(e, {"metadata.name": name}) for e in term.get("matchFields") or ())
        for term in terms
    )


def tolerates(tolerations: Sequence[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    """Whether one of the tolerations matches the taint."""
    return any(tolerates_one(toleration, taint) for toleration in tolerations)


def tolerates_one(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether this toleration matches the taint."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    operator = toleration.get("operator") or "Equal"
    if not toleration.get("key"):
        return bool(operator == "Exists")
    if toleration["key"] != taint.get("key"):
        return False
    if operator == "Exists":
        return True
    return operator == "Equal" and (toleration.get("value") or "") == (taint.get("value") or "")


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    present = labels.get(expression["key"])
    values = expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return present in values
        case "NotIn":
            return present not in values
        case "Exists":
            return present is not None
        case "DoesNotExist":
            return present is None
        case "Gt" | "Lt" as operator:
            left = integer_or_none(present, *INT64)
            right = integer_or_none(values[0], *INT64) if values else None
            if left is None or right is None:
                return False
            return left > right if operator == "Gt" else left < right
        case _:
            return False
