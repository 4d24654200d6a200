"""Names, labels, annotations, owners and finalizers: the checks that every kind shares.

Source: the API machinery's validation of object metadata and its published patterns; texts of a
1.37 server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause

__all__ = [
    "NameForm",
    "check_labels",
    "check_metadata",
    "check_metadata_update",
    "label_problem",
    "name_problem",
    "qualified_name_problems",
    "subdomain_problem",
]

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*", re.ASCII)
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_ANNOTATIONS_LIMIT: Final = 256 * 1024
_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})

NameForm = str
"""`subdomain`, `label`, `label1035` or `path`: what a kind's names may look like."""

_FORMS: Final[Mapping[tuple[str, str], NameForm]] = {
    ("", "namespaces"): "label",
    ("", "services"): "label",
    ("batch", "cronjobs"): "subdomain",
    ("rbac.authorization.k8s.io", "roles"): "path",
    ("rbac.authorization.k8s.io", "rolebindings"): "path",
    ("rbac.authorization.k8s.io", "clusterroles"): "path",
    ("rbac.authorization.k8s.io", "clusterrolebindings"): "path",
}


def name_problem(group: str, plural: str, name: str) -> str | None:
    """Return why `name` is no name for that resource, or None."""
    form = _FORMS.get((group, plural), "subdomain")
    if form == "path":
        if name in (".", ".."):
            return f"may not be '{name}'"
        for character in "/%":
            if character in name:
                return f"may not contain '{character}'"
        return None
    return label_problem(name) if form == "label" else subdomain_problem(name)


def label_problem(text: str) -> str | None:
    """Return why `text` is no RFC 1123 label, or None."""
    if len(text) > 63:
        return "must be no more than 63 characters"
    if not _LABEL.fullmatch(text):
        return (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
            "and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', "
            f"regex used for validation is '{_LABEL.pattern}')"
        )
    return None


def subdomain_problem(text: str) -> str | None:
    """Return why `text` is no RFC 1123 subdomain, or None."""
    if len(text) > 253:
        return "must be no more than 253 characters"
    if not _SUBDOMAIN.fullmatch(text):
        return (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
            "'-' or '.', and must start and end with an alphanumeric character (e.g. "
            f"'example.com', regex used for validation is '{_SUBDOMAIN.pattern}')"
        )
    return None


@lru_cache(maxsize=4096)
def qualified_name_problems(text: str) -> tuple[str, ...]:
    """Return why `text` is no qualified name, such as a label's key."""
    return tuple(_qualified_name_problems(text))


def _qualified_name_problems(text: str) -> Iterator[str]:
    parts = text.split("/")
    if len(parts) > 2:
        yield (
            "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or "
            f"'123-abc', regex used for validation is '{_QUALIFIED.pattern}') with an optional DNS "
            "subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
        return
    name = parts[-1]
    if len(parts) == 2:
        if not parts[0]:
            yield "prefix part must be non-empty"
        elif (problem := subdomain_problem(parts[0])) is not None:
            yield f"prefix part {problem}"
    if not name:
        yield "name part must be non-empty"
    elif len(name) > 63:
        yield "name part must be no more than 63 characters"
    if not _QUALIFIED.fullmatch(name):
        yield (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start "
            "and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', "
            f"regex used for validation is '{_QUALIFIED.pattern}')"
        )


def check_labels(labels: Mapping[str, str], field: str) -> Iterator[Cause]:
    """Yield the keys and values that no label may have."""
    for key, value in labels.items():
        for problem in qualified_name_problems(key):
            yield causes.bad(field, key, problem)
        if (why := label_value_problem(value)) is not None:
            yield causes.bad(field, value, why)


def label_value_problem(value: str) -> str | None:
    """Return why `value` is no label's value, or None."""
    if len(value) > 63:
        return "must be no more than 63 characters"
    if value and not _QUALIFIED.fullmatch(value):
        return (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', "
            "'_' or '.', and must start and end with an alphanumeric character (e.g. "
            "'MyValue',  or 'my_value',  or '12345', regex used for validation is "
            f"'({_QUALIFIED.pattern})?')"
        )
    return None


def check_metadata(group: str, plural: str, metadata: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield what is wrong with an object's metadata."""
    name, prefix = metadata.get("name") or "", metadata.get("generateName") or ""
    if prefix and not name:
        stem = prefix.rstrip("-.")
        if (problem := name_problem(group, plural, stem)) is not None:
            yield causes.bad("metadata.generateName", prefix, problem)
    if not name and not prefix:
        yield causes.required("metadata.name", "name or generateName is required")
    elif name and (problem := name_problem(group, plural, name)) is not None:
        yield causes.bad("metadata.name", name, problem)
    yield from check_labels(metadata.get("labels") or {}, "metadata.labels")
    yield from _annotations(metadata.get("annotations") or {}, "metadata.annotations")
    yield from _owners(metadata.get("ownerReferences") or ())
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        field = f"metadata.finalizers[{index}]"
        for problem in qualified_name_problems(finalizer):
            yield causes.bad(field, finalizer, problem)
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            yield causes.bad(
                field,
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            )


def _annotations(annotations: Mapping[str, str], field: str) -> Iterator[Cause]:
    for key in annotations:
        for problem in qualified_name_problems(key.lower()):
            yield causes.bad(field, key, problem)
    size = sum(len(key) + len(value) for key, value in annotations.items())
    if size > _ANNOTATIONS_LIMIT:
        yield causes.too_long(field, _ANNOTATIONS_LIMIT)


def _owners(owners: Any) -> Iterator[Cause]:
    controllers: list[str] = []
    for index, owner in enumerate(owners):
        field = f"metadata.ownerReferences[{index}]"
        if not owner.get("apiVersion"):
            yield causes.bad(f"{field}.apiVersion", "", "version must not be empty")
        for word in ("kind", "name", "uid"):
            if not owner.get(word):
                yield causes.required(f"{field}.{word}", "must not be empty")
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        yield causes.bad(
            "metadata.ownerReferences",
            list(owners),
            "Only one reference can have Controller set to true. Found "
            f'"true" in references for {controllers[0]} and {controllers[1]}',
        )


_IMMUTABLE: Final = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp")


def check_metadata_update(metadata: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield what no update may change; fields left out keep their value and are fine."""
    for word in _IMMUTABLE:
        value, former = metadata.get(word), old.get(word)
        if value is not None and former is not None and value != former:
            yield causes.bad(f"metadata.{word}", value, "field is immutable")
    if old.get("deletionTimestamp"):
        added = [
            each
            for each in metadata.get("finalizers") or ()
            if each not in (old.get("finalizers") or ())
        ]
        if added:
            listed = "".join(f'"{each}"' for each in added)
            yield causes.forbidden(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, found new "
                f"finalizers []string{{{listed}}}",
            )
