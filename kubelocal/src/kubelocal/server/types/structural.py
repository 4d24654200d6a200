"""Values against a structural schema: pruning, defaulting and validation of custom objects.

The validation itself is jsonschema-rs's; this module turns the dialect of CustomResourceDefinitions
into plain JSON Schema once per version, and the findings into the texts of the real server. Source:
the API's rules for structural schemas; answers of a 1.37 server.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import jsonschema_rs

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubeworld.units.durations import InvalidDuration, parse_duration

__all__ = ["Validator", "path_text", "prune_and_default"]

Schema = Mapping[str, Any]

_IMPLIED: Final = frozenset({"apiVersion", "kind", "metadata"})
_ANYTHING: Final[Schema] = {"x-kubernetes-preserve-unknown-fields": True}


def prune_and_default(
    schema: Schema, value: Any, path: str, unknown: list[str], *, root: bool = False
) -> Any:
    """Return a copy of `value` without fields that `schema` does not know, defaults filled in.

    Paths of the fields left out are added to `unknown`. `root`: `value` is a whole object, whose
    apiVersion, kind and metadata the schema need not name.
    """
    if isinstance(value, dict):
        return _prune_object(schema, value, path, unknown, root=root)
    if isinstance(value, list):
        items = schema.get("items")
        if not isinstance(items, Mapping):
            return copy.deepcopy(value)
        return [
            prune_and_default(items, item, f"{path}[{index}]", unknown)
            for index, item in enumerate(value)
        ]
    return value


def _prune_object(
    schema: Schema, value: dict[str, Any], path: str, unknown: list[str], *, root: bool
) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    if isinstance(others, Mapping):
        rest: Schema | None = others
    elif others or schema.get("x-kubernetes-preserve-unknown-fields"):
        rest = _ANYTHING
    else:
        rest = None
    whole = root or bool(schema.get("x-kubernetes-embedded-resource"))
    kept: dict[str, Any] = {}
    for name, item in value.items():
        here = f"{path}.{name}" if path else name
        if whole and name in _IMPLIED:
            kept[name] = copy.deepcopy(item)
            continue
        inner = properties.get(name, rest)
        if inner is None:
            unknown.append(here)
        elif item is None and not inner.get("nullable") and _is_as_good_as_absent(name, schema):
            continue
        else:
            kept[name] = prune_and_default(inner, item, here, unknown)
    for name, inner in properties.items():
        if name not in kept and "default" in inner:
            ignored: list[str] = []
            kept[name] = prune_and_default(inner, copy.deepcopy(inner["default"]), "", ignored)
    return kept


def _is_as_good_as_absent(name: str, schema: Schema) -> bool:
    """Whether a null there is dropped: the field has a default, or is then missed by name."""
    inner = (schema.get("properties") or {}).get(name) or {}
    return "default" in inner or name in (schema.get("required") or ())


class Validator:
    """One version's schema, compiled."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._compiled = jsonschema_rs.Draft202012Validator(
            plain_schema(schema),
            validate_formats=True,
            formats={"duration": _is_duration},
            pattern_options=jsonschema_rs.RegexOptions(),
        )

    def causes(self, value: Any, *, rules: bool) -> list[Cause]:
        """Return what is wrong with `value`, by field path.

        `rules`: the schema has CEL rules, which a value of the wrong shape keeps from being
        checked; the last cause states it then.
        """
        found: list[Cause] = []
        if not self._compiled.is_valid(value):
            findings = {
                (tuple(map(str, finding.instance_path)), cause)
                for finding in self._compiled.iter_errors(value)
                for cause in _texts(finding)
            }
            found = [cause for _, cause in sorted(findings, key=lambda each: each[1].field)]
        found += _duplicates(self._schema, value, "")
        if rules and any(cause.reason in _BLOCKING for cause in found):
            found.append(
                causes.bad(
                    "<nil>",
                    None,
                    "some validation rules were not checked because the object was invalid; "
                    "correct the existing errors to complete validation",
                )
            )
        return found


_BLOCKING: Final = frozenset(
    {
        "FieldValueRequired",
        "FieldValueTypeInvalid",
        "FieldValueNotSupported",
        "FieldValueTooMany",
        "FieldValueTooLong",
    }
)


def path_text(path: Sequence[str | int]) -> str:
    """Return `spec.steps[0].name`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


_COPIED: Final = (
    "enum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "minItems",
    "minLength",
    "minProperties",
    "multipleOf",
    "pattern",
    "required",
    "uniqueItems",
)
_FORMATS: Final = frozenset(
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"]
)


def plain_schema(schema: Schema) -> dict[str, Any]:
    """Return `schema` as JSON Schema 2020-12: nullable, int-or-string and exclusive bounds."""
    plain: dict[str, Any] = {name: schema[name] for name in _COPIED if name in schema}
    if plain.get("format") not in _FORMATS:
        plain.pop("format", None)
    kinds = [schema["type"]] if schema.get("type") else []
    if schema.get("x-kubernetes-int-or-string"):
        kinds = ["integer", "string"]
    if kinds:
        plain["type"] = [*kinds, "null"] if schema.get("nullable") else kinds
    if schema.get("nullable") and "enum" in plain:
        plain["enum"] = [*plain["enum"], None]
    for bound in ("minimum", "maximum"):
        if bound in schema:
            exclusive = f"exclusive{bound.capitalize()}"
            plain[exclusive if schema.get(exclusive) else bound] = schema[bound]
    if "properties" in schema:
        plain["properties"] = {
            name: plain_schema(inner) for name, inner in schema["properties"].items()
        }
    for name in ("items", "additionalProperties", "not"):
        if isinstance(schema.get(name), Mapping):
            plain[name] = plain_schema(schema[name])
    for name in ("allOf", "anyOf", "oneOf"):
        if schema.get(name):
            plain[name] = [plain_schema(inner) for inner in schema[name]]
    return plain


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except InvalidDuration:
        return False
    return True


_TYPE_NAMES: Final = {bool: "boolean", int: "integer", float: "number", str: "string"}
_BOUNDS: Final = {
    "minimum": "should be greater than or equal to",
    "maximum": "should be less than or equal to",
    "exclusiveMinimum": "should be greater than",
    "exclusiveMaximum": "should be less than",
    "multipleOf": "should be a multiple of",
}
_COMBINED: Final = {
    "allOf": "must validate all the schemas (allOf)",
    "anyOf": "must validate at least one schema (anyOf)",
    "not": "must not validate the schema (not)",
    "oneOf": "must validate one and only one schema (oneOf)",
}


def _texts(finding: jsonschema_rs.ValidationError) -> Iterator[Cause]:
    kind: Any = finding.kind
    field = path_text(finding.instance_path)
    value: Any = finding.instance
    body = f"{field} in body"
    word = kind.name
    if word == "required":
        yield causes.required(f"{field}.{kind.property}" if field else str(kind.property))
    elif word == "type":
        wanted = ",".join(sorted(name for name in kind.types if name != "null"))
        found = "null" if value is None else _TYPE_NAMES.get(type(value))
        found = found or ("array" if isinstance(value, list) else "object")
        yield Cause(
            "FieldValueTypeInvalid",
            f'Invalid value: "{found}": {body} must be of type {wanted}: "{found}"',
            field or "<nil>",
        )
    elif word == "enum":
        options = [option for option in kind.options if option is not None]
        yield causes.unsupported(
            field,
            value,
            [option if isinstance(option, str) else json.dumps(option) for option in options],
        )
    elif word in _BOUNDS:
        limit = kind.limit if word != "multipleOf" else kind.multiple_of
        yield causes.bad(field, value, f"{body} {_BOUNDS[word]} {_number(limit)}")
    elif word == "minLength":
        yield causes.bad(field, value, f"{body} should be at least {kind.limit} chars long")
    elif word == "maxLength":
        yield causes.too_long(field, kind.limit)
    elif word == "maxItems":
        yield causes.too_many(field, len(value), kind.limit)
    elif word == "minItems":
        yield causes.bad(field, len(value), f"{body} should have at least {kind.limit} items")
    elif word == "maxProperties":
        yield causes.too_many(field, len(value), kind.limit)
    elif word == "minProperties":
        yield causes.bad(field, len(value), f"{body} should have at least {kind.limit} properties")
    elif word == "pattern":
        yield causes.bad(field, value, f"{body} should match '{kind.pattern}'")
    elif word == "format":
        yield causes.bad(
            field, value, f"{body} must be of type {kind.format}: {causes.shown(value)}"
        )
    elif word == "uniqueItems":
        yield causes.bad(field, value, f"{body} shouldn't contain duplicates")
    elif word in _COMBINED:
        yield causes.bad(field or "<nil>", value, f"{body or '<nil>'} {_COMBINED[word]}")
    else:
        yield causes.bad(field or "<nil>", value, finding.message)


def _number(limit: Any) -> str:
    return str(int(limit)) if float(limit).is_integer() else str(limit)


def _duplicates(schema: Schema, value: Any, path: str) -> list[Cause]:
    """Return the repeated items of lists that are sets or maps."""
    found: list[Cause] = []
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        for name, item in value.items():
            inner = properties.get(name, others)
            if isinstance(inner, Mapping):
                found += _duplicates(inner, item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        items = schema.get("items") or {}
        kind = schema.get("x-kubernetes-list-type")
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        seen: set[str] = set()
        for index, item in enumerate(value):
            here = f"{path}[{index}]"
            if kind in ("set", "map"):
                identity = (
                    {key: item[key] for key in keys if key in item}
                    if kind == "map" and isinstance(item, dict)
                    else item
                )
                text = json.dumps(identity, sort_keys=True)
                if text in seen:
                    found.append(causes.duplicate(here, identity))
                seen.add(text)
            found += _duplicates(items, item, here)
    return found
