"""Label and field selectors as clients write them.

Grammar and texts: k8s.io/apimachinery's `labels` and `fields` packages. Which fields may be asked
for depends on the kind: `SELECTABLE` lists the built-in ones beside name and namespace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any, Final

from reprieve.local.server.errors import StatusError, bad_request

__all__ = [
    "EVERYTHING",
    "SELECTABLE",
    "Selectors",
    "field_values",
    "matches_label_selector",
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
class _Label:
    key: str
    operator: str
    values: frozenset[str]

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        bound = int(next(iter(self.values)))
        if value is None or not re.fullmatch(r"-?[0-9]+", value):
            return False
        return int(value) > bound if self.operator == "gt" else int(value) < bound


@dataclass(frozen=True, slots=True)
class _Field:
    path: str
    equal: bool
    value: str


@dataclass(frozen=True, slots=True)
class Selectors:
    """What a list or watch is restricted to."""

    labels: tuple[_Label, ...] = ()
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
        """Return the name when the selectors ask for one object by name."""
        for wanted in self.fields:
            if wanted.path == "metadata.name" and wanted.equal:
                return wanted.value
        return None


EVERYTHING: Final = Selectors()


def parse_selectors(
    resource: str, labels: str, fields: str, custom: tuple[str, ...] | None = None
) -> Selectors:
    """Return the selectors of a request; `custom`: selectable fields of a custom kind.

    Raises:
        StatusError: 400, the text is no selector or names a field that cannot be asked for.
    """
    if not labels and not fields:
        return EVERYTHING
    return Selectors(_labels(labels), _fields(resource, fields, custom))


_TOKEN: Final = re.compile(r"\s*(?:(!=|==|=|!|,|\(|\)|>|<)|([^\s!=,()<>]+)|$)")
_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


def _labels(text: str) -> tuple[_Label, ...]:
    if not text.strip():
        return ()
    tokens: list[str] = []
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise _unparsable(text)
        position = token.end()
        if token.group(1) or token.group(2):
            tokens.append(token.group(1) or token.group(2))
    requirements: list[_Label] = []
    cursor = _Cursor(tokens, text)
    while True:
        requirements.append(_requirement(cursor))
        if cursor.done():
            return tuple(requirements)
        cursor.expect(",")


def _requirement(cursor: _Cursor) -> _Label:
    if cursor.accept("!"):
        return _Label(cursor.word(), "absent", frozenset())
    key = cursor.word()
    if not _valid_key(key):
        raise bad_request(
            f'unable to parse requirement: <nil>: Invalid value: "{key}": name part must consist '
            "of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
            "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )
    if cursor.done() or cursor.peek() == ",":
        return _Label(key, "exists", frozenset())
    operator = cursor.take()
    if operator in ("=", "=="):
        return _Label(key, "in", frozenset((cursor.value(),)))
    if operator == "!=":
        return _Label(key, "notin", frozenset((cursor.value(),)))
    if operator in (">", "<"):
        bound = cursor.word()
        if not re.fullmatch(r"-?[0-9]+", bound):
            raise _unparsable(bound)
        return _Label(key, "gt" if operator == ">" else "lt", frozenset((bound,)))
    if operator not in ("in", "notin"):
        raise bad_request(
            f"unable to parse requirement: found '{operator}', "
            "expected: in, notin, =, ==, !=, gt, lt"
        )
    cursor.expect("(")
    values = {cursor.value()}
    while cursor.accept(","):
        values.add(cursor.value())
    cursor.expect(")")
    return _Label(key, operator, frozenset(values))


class _Cursor:
    def __init__(self, tokens: list[str], text: str) -> None:
        self._tokens, self._text, self._position = tokens, text, 0

    def done(self) -> bool:
        return self._position >= len(self._tokens)

    def peek(self) -> str:
        return "" if self.done() else self._tokens[self._position]

    def take(self) -> str:
        if self.done():
            raise _unparsable(self._text)
        self._position += 1
        return self._tokens[self._position - 1]

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self._position += 1
            return True
        return False

    def expect(self, token: str) -> None:
        found = self.take()
        if found != token:
            raise bad_request(f"unable to parse requirement: found '{found}', expected: '{token}'")

    def word(self) -> str:
        found = self.take()
        if found in ("!", "=", "==", "!=", ",", "(", ")", "<", ">"):
            raise bad_request(f"unable to parse requirement: found '{found}', expected: identifier")
        return found

    def value(self) -> str:
        """A value may be empty: `key=`, `key=,other`, `key in (,a)`."""
        return "" if self.peek() in ("", ",", ")") else self.word()


def _valid_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(_NAME.fullmatch(name)) and len(name) <= 63 and (not slash or bool(prefix))


def _unparsable(text: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {text!r} is not a label selector")


def _fields(resource: str, text: str, custom: tuple[str, ...] | None) -> tuple[_Field, ...]:
    wanted: list[_Field] = []
    for term in re.split(r"(?<!\\),", text) if text else ():
        if not term:
            continue
        split = re.match(r"((?:[^=!\\]|\\.)*)(!=|==|=)(.*)", term, re.DOTALL)
        if split is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = split.groups()
        wanted.append(_Field(path, operator != "!=", re.sub(r"\\(.)", r"\1", value)))
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


def matches_label_selector(selector: Any, labels: Mapping[str, str]) -> bool:
    """Return whether an object's `LabelSelector` matches; a missing one matches nothing."""
    if not isinstance(selector, dict):
        return False
    exact = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in exact.items()):
        return False
    operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
    return all(
        _Label(
            one["key"], operators.get(one["operator"], "absent"), frozenset(one.get("values") or ())
        ).matches(labels)
        for one in selector.get("matchExpressions") or ()
    )
