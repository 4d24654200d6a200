"""`matchLabelKeys` and `mismatchLabelKeys` of a new pod, as expressions of its selectors.

A scheduler knows selectors only, so the server writes `KEY in (VALUE)` and `KEY notin (VALUE)` for
each key that the pod has into the selectors of its topology spread constraints and of its pod
affinity terms. A term without a selector selects nothing and stays as it is. Source: the API's
documentation of both fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from kubelocal.server.types.kinds import Kind

__all__ = ["label_keys_in_selectors"]

Object = dict[str, Any]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def label_keys_in_selectors(kind: Kind, pod: Object) -> None:
    """Complete the selectors of a new pod; objects of other kinds are left alone."""
    if kind.resource != "pods":
        return
    labels, spec = pod["metadata"].get("labels") or {}, pod["spec"]
    if not any(_added(term, labels) for term in _terms(spec)):
        return
    # Pods of one template may share these.
    for word in ("affinity", "topologySpreadConstraints"):
        if word in spec:
            spec[word] = deepcopy(spec[word])
    for term in _terms(spec):
        added = _added(term, labels)
        if added:
            selector = term["labelSelector"]
            selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *added]


def _added(term: Object, labels: Mapping[str, str]) -> list[Object]:
    if term.get("labelSelector") is None:
        return []
    return [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for word, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(word) or ()
        if key in labels
    ]


def _terms(spec: Object) -> Iterator[Object]:
    yield from spec.get("topologySpreadConstraints") or ()
    affinity = spec.get("affinity") or {}
    for word in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(word) or {}
        yield from terms.get(_REQUIRED) or ()
        for weighted in terms.get(_PREFERRED) or ():
            yield weighted.get("podAffinityTerm") or {}
