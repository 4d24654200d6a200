"""What may be stored: decoding, defaulting and validation of one object, built-in or custom.

`decode` reads an object as it was sent; `validate` checks whether it may be stored, also in the
place of another one. Admission changes objects in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kubelocal.server.causes import Cause, Invalid, StrictDecoding, bad
from kubelocal.server.types import crds, decoding, gates
from kubelocal.server.types.defaults import set_defaults
from kubelocal.server.types.jsonpath import find
from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.metadata import check_metadata, check_metadata_update
from kubelocal.server.types.structural import prune_and_default
from kubelocal.server.validation import check, check_update

__all__ = [
    "Admitted",
    "Cause",
    "FieldValidation",
    "Invalid",
    "StrictDecoding",
    "decode",
    "problems",
    "update_problems",
    "validate",
]


class FieldValidation(StrEnum):
    """What becomes of fields that the kind does not have."""

    STRICT = "Strict"
    WARN = "Warn"
    IGNORE = "Ignore"


@dataclass(slots=True)
class Admitted:
    """An object as it may be stored, and what to report to the client."""

    obj: dict[str, Any]
    warnings: list[str] = field(default_factory=list)


def decode(kind: Kind, obj: Mapping[str, Any], validation: FieldValidation) -> Admitted:
    """Return `obj` without unknown fields and with its defaults.

    Raises:
        StrictDecoding: unknown fields under STRICT, or a value of the wrong type (HTTP 400).
    """
    try:
        return _decode(kind, obj, validation)
    except RecursionError:
        raise StrictDecoding(
            kind.kind, kind.version, ["the object is nested too deeply"], strict=False
        ) from None


def _decode(kind: Kind, obj: Mapping[str, Any], validation: FieldValidation) -> Admitted:
    try:
        decoded = _decode_custom(kind, obj) if kind.custom else decoding.decode(kind.layout, obj)
    except decoding.WrongType as wrong:
        raise StrictDecoding(kind.kind, kind.version, [str(wrong)], strict=False) from None
    messages = [f'unknown field "{path}"' for path in decoded.unknown]
    if messages and validation is FieldValidation.STRICT:
        raise StrictDecoding(kind.kind, kind.version, messages, strict=True)
    if kind.custom is None:
        set_defaults(kind, decoded.object)
    if kind.resource == "customresourcedefinitions.apiextensions.k8s.io":
        crds.complete(decoded.object)
    return Admitted(decoded.object, messages if validation is FieldValidation.WARN else [])


def validate(kind: Kind, obj: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> None:
    """Raise Invalid with everything that is wrong with a decoded `obj`.

    `old`: the object that `obj` replaces; changes to its immutable fields are reported as well.
    """
    try:
        found = problems(kind, obj, old)
    except RecursionError:
        raise Invalid([Cause("FieldValueInvalid", "nested too deeply", "<nil>")]) from None
    if old is not None:
        found += update_problems(kind, obj, old)
    if found:
        raise Invalid(found)


def problems(
    kind: Kind, obj: Mapping[str, Any], old: Mapping[str, Any] | None = None
) -> list[Cause]:
    """Return everything that is wrong with a decoded `obj` on its own, or in the place of `old`."""
    found = list(check_metadata(kind.group, kind.plural, obj.get("metadata") or {}))
    if kind.custom is not None:
        wrong = kind.custom.validator.causes(obj, rules=bool(kind.custom.rules))
        wrong += _scale_problems(kind.custom.scale, obj)
        # What could not be checked is stated last.
        wrong.sort(key=lambda cause: cause.field == "<nil>")
        found += wrong
        if not wrong:
            found += kind.custom.rules.broken(obj, None, transitions=False)
    else:
        found += check(kind, obj)
        found += gates.problems(kind, obj, old)
    if kind.resource == "customresourcedefinitions.apiextensions.k8s.io":
        found += crds.problems(obj)
    return list(dict.fromkeys(found))


def _scale_problems(scale: tuple[str, str, str] | None, obj: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield a cause where the wanted replicas of a scalable kind are no number."""
    if scale is None:
        return
    for value in find(scale[0], dict(obj)):
        if type(value) is not int:
            text = f"{scale[0]} accessor error: {value} is of the type {_go_name(value)}"
            yield bad(scale[0], 0, f"{text}, expected int64")


def _go_name(value: Any) -> str:
    names = {str: "string", bool: "bool", float: "float64", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}")


def update_problems(kind: Kind, obj: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    """Return what `obj` changes in `old` that may not change."""
    found = list(check_metadata_update(obj.get("metadata") or {}, old.get("metadata") or {}))
    if kind.custom is not None:
        found += kind.custom.rules.broken(obj, old, transitions=True)
    else:
        found += check_update(kind, obj, old)
    if kind.resource == "customresourcedefinitions.apiextensions.k8s.io":
        found += crds.update_problems(obj, old)
    return found


def _decode_custom(kind: Kind, obj: Mapping[str, Any]) -> decoding.Decoded:
    assert kind.custom is not None
    decoded = decoding.Decoded({})
    identity = {"apiVersion": kind.api_version, "kind": kind.kind}
    metadata = decoding.decode_message(
        "meta/v1.ObjectMeta", obj.get("metadata"), "metadata", decoded.unknown
    )
    pruned = prune_and_default(kind.custom.schema, dict(obj), "", decoded.unknown, root=True)
    decoded.object = {**identity, **pruned, "metadata": metadata}
    return decoded
