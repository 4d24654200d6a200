"""Errors of fields in the words of the Kubernetes API: path, what is wrong, value, detail.

Source: `k8s.io/apimachinery/pkg/util/validation/field`, as its errors are printed; label and name
syntax of the API.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from kubeworld.units.names import DNS_SUBDOMAIN, LABEL
from kubeworld.units.untrusted import Form, cut

__all__ = [
    "IMMUTABLE",
    "aggregate",
    "duplicate",
    "forbidden",
    "immutable",
    "invalid",
    "label_selector",
    "labels",
    "not_found",
    "qualified_name",
    "required",
    "subdomain",
    "too_many",
    "unsupported",
]

IMMUTABLE: Final = "field is immutable"
_LONGEST: Final = 4_096

# A name that is too long is reported as that, and as ill-formed only where it is so too.
_SUBDOMAIN: Final = Form(DNS_SUBDOMAIN.pattern, _LONGEST)
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_NAME: Final = Form(LABEL.pattern, _LONGEST)
_NAME_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_QUALIFIED_TEXT: Final = (
    "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex "
    "used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS "
    "subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def aggregate(errors: Collection[str]) -> str:
    """Return the errors as one text: alone, or in brackets; each once."""
    found = list(dict.fromkeys(errors))
    return found[0] if len(found) == 1 else f"[{', '.join(found)}]"


def invalid(path: str, value: Any, why: str) -> str:
    """Return that a value is not acceptable."""
    return f"{path}: Invalid value: {_shown(value)}: {why}"


def immutable(path: str, value: Any) -> str:
    """Return that a field must not change."""
    return invalid(path, value, IMMUTABLE)


def duplicate(path: str, value: Any) -> str:
    """Return that a value stands twice."""
    return f"{path}: Duplicate value: {_shown(value)}"


def required(path: str, why: str = "") -> str:
    """Return that a field is missing."""
    return f"{path}: Required value{f': {why}' if why else ''}"


def forbidden(path: str, why: str) -> str:
    """Return that a field must not be there."""
    return f"{path}: Forbidden: {why}"


def not_found(path: str, value: Any) -> str:
    """Return that what a field names does not exist."""
    return f"{path}: Not found: {_shown(value)}"


def unsupported(path: str, value: Any, accepted: Collection[str]) -> str:
    """Return that a field accepts one of certain words."""
    words = ", ".join(f'"{word}"' for word in accepted)
    return f"{path}: Unsupported value: {_shown(value)}: supported values: {words}"


def too_many(path: str, count: int, most: int) -> str:
    """Return that a list is too long."""
    return f"{path}: Too many: {count}: must have at most {most} items"


def subdomain(name: str) -> list[str]:
    """Return what keeps `name` from being a DNS-1123 subdomain."""
    found = []
    if len(name) > 253:
        found.append("must be no more than 253 bytes")
    if not _SUBDOMAIN.fullmatch(name):
        found.append(_SUBDOMAIN_TEXT)
    return found


def qualified_name(name: str) -> list[str]:
    """Return what keeps `name` from being the key of a label or the name of a resource."""
    prefix, slash, rest = name.rpartition("/")
    found = []
    if "/" in prefix:
        return [_QUALIFIED_TEXT]
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash:
        found += [f"prefix part {each}" for each in subdomain(prefix)]
    if not rest:
        found.append("name part must be non-empty")
    elif len(rest) > 63:
        found.append("name part must be no more than 63 bytes")
    if not _NAME.fullmatch(rest):
        found.append(_NAME_TEXT)
    return found


def labels(given: Mapping[str, Any] | None, path: str) -> Iterator[str]:
    """Yield what is wrong with labels or a node selector."""
    for key, value in (given or {}).items():
        yield from (invalid(path, key, why) for why in qualified_name(key))
        yield from (invalid(path, value, why) for why in _label_value(str(value)))


def label_selector(given: Mapping[str, Any] | None, path: str) -> Iterator[str]:
    """Yield what is wrong with a label selector; None is none."""
    if given is None:
        return
    yield from labels(given.get("matchLabels"), f"{path}.matchLabels")
    for index, each in enumerate(given.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{index}]"
        operator, values = each.get("operator", ""), each.get("values") or []
        if operator in ("In", "NotIn") and not values:
            yield required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist") and values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden(f"{at}.values", why)
        elif operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            yield invalid(f"{at}.operator", operator, "not a valid selector operator")
        yield from (invalid(f"{at}.key", each.get("key"), w) for w in qualified_name(each["key"]))
        for place, value in enumerate(values):
            for why in _label_value(str(value)):
                yield invalid(f"{at}.values[{place}]", value, why)


def _label_value(value: str) -> list[str]:
    found = ["must be no more than 63 bytes"] if len(value) > 63 else []
    if value and not _NAME.fullmatch(value):
        found.append(_VALUE_TEXT)
    return found


def _shown(value: Any) -> str:
    return cut(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
