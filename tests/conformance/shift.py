"""The shifted copy of a case: other times, uids and names, in input and expectation alike.

Instants move by one amount. uids get a prefix, so that their first eight characters change. Names
of objects and of namespaces get one prefix each, which keeps every order among them. An engine that
knows a case instead of the rule fails the copy.
"""

from __future__ import annotations

import re
from typing import Any

from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos, format_instant, parse_instant
from reprieve.engine.idle.discovery import gpu_workload_name
from tests.conformance.world import Json

DELTA = 9_679 * HOUR + 431 * SECOND
NAME, NAMESPACE, UID = "k-", "t-", "z9"

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_OBJECT = re.compile(r"\b([A-Z][A-Za-z]*/)(?=[a-z0-9])")
_QUOTED = re.compile(r'\b(reading|owner) ([A-Z][A-Za-z]*) "([^"]+)"')
_IN_NAMESPACE = re.compile(r'\b(in namespace ")([^"]+)"')
_DEPTH = re.compile(r"( for [A-Z][A-Za-z]*/\S+ in )(\S+)$")
_PENDING = re.compile(r"(pending workload )(\S+)")
_POD_LABELS = "pod|pod_name|kubernetes_pod_name|k8s_pod_name|k8s\\.pod\\.name"
_NAMESPACE_LABELS = "namespace|kubernetes_namespace|k8s_namespace_name|k8s\\.namespace\\.name"
_POD = re.compile(rf'(?<![\w.])("?(?:{_POD_LABELS})"?=")(?=[^"])')
_METRIC_NAMESPACE = re.compile(rf'(?<![\w.])("?(?:{_NAMESPACE_LABELS})"?=")(?=[^"])')
_TEXT_KEYS = ("message", "preemptionReason", "ownerChain", "chain", "error", "reason")
_BY_WORKLOAD = ("preempt", "other", "trackedPods", "aggregate")


def shifted(plane_format: str, given: Json, expected: Any) -> tuple[Json, Any]:
    """Return input and expectation of the copy."""
    shift = _Shift(_derived_names(given) if plane_format == "discovery" else {})
    copy = shift.value("", given)
    if plane_format == "naming":
        return _naming(given, expected)
    if plane_format == "controller_ref":
        return copy, None if expected is None else NAME + expected
    return copy, shift.value("expect", expected)


class _Shift:
    def __init__(self, derived: dict[str, str]) -> None:
        # Names of GpuWorkloads that follow from their root's name and uid.
        self.derived = derived

    def value(self, key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return self._mapping(key, value)
        if isinstance(value, list):
            if key == "deleted":
                return [self._deleted(each) for each in value]
            return [self.value(key, each) for each in value]
        if not isinstance(value, str) or not value:
            return value
        if _INSTANT.fullmatch(value):
            return format_instant(Nanos(parse_instant(value) + DELTA))
        if key == "uid":
            return UID + value
        if key == "namespace":
            return NAMESPACE + value
        if key in ("podName", "pod"):
            return NAME + value
        if key in ("preemptedFor", "for"):
            return self._name(value)
        if key in _TEXT_KEYS or key == "events":
            return _text(value)
        if key == "text":
            return _METRIC_NAMESPACE.sub(rf"\g<1>{NAMESPACE}", _POD.sub(rf"\g<1>{NAME}", value))
        return value

    def _mapping(self, key: str, value: Json) -> Json:
        copy = {name: self.value(name, each) for name, each in value.items()}
        if key in _BY_WORKLOAD and all("/" in name for name in value):
            return {self._key(name): each for name, each in copy.items()}
        if "metadata" in value:
            name = value["metadata"]["name"]
            is_namespace = value.get("kind") == "Namespace"
            copy["metadata"]["name"] = NAMESPACE + name if is_namespace else self._name(name)
        elif key in ("ownerReferences", "workloadRef", "start", "root", "gpuworkload"):
            copy["name"] = self._name(value["name"])
        return copy

    def _name(self, name: str) -> str:
        return self.derived.get(name, NAME + name)

    def _key(self, key: str) -> str:
        namespace, name = key.split("/")
        return f"{NAMESPACE}{namespace}/{self._name(name)}"

    def _deleted(self, text: str) -> str:
        kind, namespace, name = text.split("/")
        return f"{kind}/{NAMESPACE}{namespace}/{self._name(name)}"


def _text(text: str) -> str:
    text = _DEPTH.sub(rf"\g<1>{NAMESPACE}\g<2>", text)
    text = _OBJECT.sub(rf"\g<1>{NAME}", text)
    text = _QUOTED.sub(rf'\g<1> \g<2> "{NAME}\g<3>"', text)
    text = _IN_NAMESPACE.sub(rf'\g<1>{NAMESPACE}\g<2>"', text)
    return _PENDING.sub(rf"\g<1>{NAME}\g<2>", text)


def _naming(given: Json, expected: str) -> tuple[Json, str]:
    kind, name, uid = given["kind"], given["workload"], given["uid"]
    if expected != f"{kind.lower()}-{name}-{uid[:8]}":
        return given, expected  # shortened: not every name can be longer still
    copy = {**given, "workload": NAME + name, "uid": UID + uid}
    return copy, f"{kind.lower()}-{NAME}{name}-{(UID + uid)[:8]}"


def _derived_names(given: Json) -> dict[str, str]:
    names = {}
    for each in (*(given.get("objects") or ()), given["pod"]):
        kind, name, uid = each["kind"], each["metadata"]["name"], each["metadata"].get("uid", "")
        names[gpu_workload_name(kind, name, uid)] = gpu_workload_name(kind, NAME + name, UID + uid)
    return names
