"""Label and field selectors as clients write them.

Grammar and texts of field selectors: k8s.io/apimachinery's package `fields`. Which fields may be
requested depends on the kind: `SELECTABLE` lists the built-in ones beside name and namespace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any, Final

from kubelocal.server.errors import bad_request
from kubelocal.server.label_requirements import Requirement, parse_requirements

__all__ = [
    "EVERYTHING",
    "SELECTABLE",
    "Selectors",
    "field_values",
    "parse_selectors",
]

_POD: Final = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT: Final = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
SELECTABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "pods": _POD,
    "events": _EVENT,
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "jobs.batch": ("status.successful",),
    "replicasets.apps": ("status.replicas",),
    "replicationcontrollers": ("status.replicas",),
    "certificatesigningrequests.certificates.k8s.io": ("spec.signerName",),
}
# Kinds whose unknown field labels are answered in the short form.
_CONVERTED: Final = frozenset(SELECTABLE)
_BOOLEAN_OR_NUMBER: Final = {
    "spec.hostNetwork": "false",
    "spec.unschedulable": "false",
    "status.successful": "0",
    "status.replicas": "0",
}


def field_values(
    resource: str, obj: Mapping[str, Any], custom: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the values of the selectable fields of `obj`, beside name and namespace."""
    values: dict[str, str] = {}
    for path in SELECTABLE.get(resource, ()) or custom:
        value: Any = obj
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if path == "source" and isinstance(value, dict):
            value = value.get("component") or obj.get("reportingComponent")
        if path == "spec.hostNetwork" and isinstance(value, bool):
            value = str(value).lower()
        # Kept for each object, and the same text for most of them.
        text = _text(value) if value is not None else _BOOLEAN_OR_NUMBER.get(path, "")
        values[path] = intern(text)
    return values


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class _Field:
    path: str
    equal: bool
    value: str


@dataclass(frozen=True, slots=True)
class Selectors:
    """What a list or watch is restricted to."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[_Field, ...] = ()

    def matches(
        self, namespace: str, name: str, labels: Mapping[str, str], fields: Mapping[str, str]
    ) -> bool:
        for wanted in self.fields:
            if wanted.path == "metadata.name":
                found = name
            elif wanted.path == "metadata.namespace":
                found = namespace
            else:
                found = fields.get(wanted.path, "")
            if (found == wanted.value) is not wanted.equal:
                return False
        return all(requirement.matches(labels) for requirement in self.labels)

    def single_name(self) -> str | None:
        """Return the name when the selectors request one object by name."""
        for wanted in self.fields:
            if wanted.path == "metadata.name" and wanted.equal:
                return wanted.value
        return None


EVERYTHING: Final = Selectors()
_TERM: Final = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL)


def parse_selectors(
    resource: str, labels: str, fields: str, custom: tuple[str, ...] | None = None
) -> Selectors:
    """Return the selectors of a request; `custom`: selectable fields of a custom kind.

    Raises:
        StatusError: 400, the text is no selector or names a field that cannot be requested.
    """
    if not labels and not fields:
        return EVERYTHING
    return Selectors(parse_requirements(labels), _fields(resource, fields, custom))


def _fields(resource: str, text: str, custom: tuple[str, ...] | None) -> tuple[_Field, ...]:
    wanted: list[_Field] = []
    # As the field selector's own parser does: in the order of the terms' texts.
    for term in sorted(_terms(text)):
        if not term:
            continue
        split = _TERM.fullmatch(term)
        if split is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = split.groups()
        wanted.append(_Field(path, operator != "!=", _unescaped(value)))
    known = {"metadata.name", "metadata.namespace", *SELECTABLE.get(resource, ()), *(custom or ())}
    for one in wanted:
        if one.path not in known:
            if resource in _CONVERTED or custom is not None:
                raise bad_request(f"field label not supported: {one.path}")
            raise bad_request(
                f'"{one.path}" is not a known field selector: '
                'only "metadata.name", "metadata.namespace"'
            )
    return tuple(wanted)


def _terms(text: str) -> list[str]:
    """Return the parts between commas that no backslash stands before."""
    terms, escaped = [""], False
    for character in text:
        if character == "," and not escaped:
            terms.append("")
        else:
            terms[-1] += character
        escaped = character == "\\" and not escaped
    return terms


def _unescaped(value: str) -> str:
    if not re.search(r"[\\,=]", value):
        return value
    found, escaped = [], False
    for character in value:
        if escaped:
            if character not in "\\,=":
                raise bad_request(f"invalid field selector: invalid escape sequence: \\{character}")
            found.append(character)
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in ",=":
            raise bad_request(
                f"invalid field selector: unescaped character in value: {ord(character)}"
            )
        else:
            found.append(character)
    if escaped:
        raise bad_request("invalid field selector: invalid escape sequence: \\")
    return "".join(found)
