"""Label selectors inside objects: what they may state, and whether they match labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubelocal.server.types.metadata import check_labels, qualified_name_problems

__all__ = ["label_selector", "selects"]


def label_selector(selector: Mapping[str, Any], field: str) -> Iterator[Cause]:
    """Yield what is wrong with a LabelSelector."""
    yield from check_labels(selector.get("matchLabels") or {}, f"{field}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        here = f"{field}.matchExpressions[{index}]"
        operator, values = expression.get("operator", ""), expression.get("values") or ()
        if operator in ("In", "NotIn"):
            if not values:
                yield causes.required(
                    f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'"
                )
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                yield causes.forbidden(
                    f"{here}.values",
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                )
        else:
            yield causes.bad(f"{here}.operator", operator, "not a valid selector operator")
        for problem in qualified_name_problems(expression.get("key", "")):
            yield causes.bad(f"{here}.key", expression.get("key", ""), problem)


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector matches `labels`."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for expression in selector.get("matchExpressions") or ():
        key, values = expression.get("key"), expression.get("values") or ()
        match expression.get("operator"):
            case "In":
                holds = key in labels and labels[key] in values
            case "NotIn":
                holds = key not in labels or labels[key] not in values
            case "Exists":
                holds = key in labels
            case "DoesNotExist":
                holds = key not in labels
            case _:
                holds = False
        if not holds:
            return False
    return True
