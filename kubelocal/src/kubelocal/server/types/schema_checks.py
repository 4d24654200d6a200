"""What keeps a CustomResourceDefinition's schema from being accepted.

A schema must be structural: every field has a type, and a field is described in one place only.
Defaults must be acceptable themselves, patterns and rules must compile. Source: the API's rules
for structural schemas; texts of a 1.37 server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubelocal.server.types.cel_types import message_problem, rule_problem
from kubelocal.server.types.structural import Schema, Validator, prune_and_default

__all__ = ["check_schema"]


def check_schema(schema: Schema, at: str) -> Iterator[Cause]:
    """Yield what is wrong with the schema at the field `at`."""
    found = list(_tuples(schema, at)) or list(_schema(schema, at))
    yield from found
    if not found:
        yield from _compiled(schema, at)


def _tuples(schema: Schema, at: str) -> Iterator[Cause]:
    """Yield lists of schemas for items; nothing else can be stated of what has them."""
    items, others = schema.get("items"), schema.get("additionalProperties")
    inner = {f"properties[{name}]": each for name, each in (schema.get("properties") or {}).items()}
    if isinstance(items, list):
        text = "items must be a schema object and not an array"
        yield causes.forbidden(f"{at}.items", text)
    for name, each in {**inner, "items": items, "additionalProperties": others}.items():
        if isinstance(each, Mapping):
            yield from _tuples(each, f"{at}.{name}")


def _compiled(schema: Schema, at: str) -> Iterator[Cause]:
    """Yield what only the compiler of schemas finds."""
    try:
        Validator(schema)
    except ValueError as error:
        yield causes.bad(at, "", str(error).splitlines()[0])


_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")


def _schema(schema: Schema, at: str, *, inside: str = "") -> Iterator[Cause]:
    """Yield what is not structural in `schema` and below; `inside`: the kind of holder."""
    kind = schema.get("type")
    if kind and kind not in _TYPES:
        yield causes.unsupported(f"{at}.type", kind, _TYPES)
    loose = schema.get("x-kubernetes-int-or-string") or schema.get(
        "x-kubernetes-preserve-unknown-fields"
    )
    if inside and not kind and not loose:
        yield causes.required(f"{at}.type", f"must not be empty for specified {inside}")
    if kind and schema.get("x-kubernetes-int-or-string"):
        yield causes.bad(f"{at}.type", kind, "must be empty if x-kubernetes-int-or-string is true")
    if kind == "array" and not isinstance(schema.get("items"), Mapping):
        yield causes.required(f"{at}.items", "must be specified")
    if schema.get("properties") and isinstance(schema.get("additionalProperties"), Mapping):
        yield causes.forbidden(
            f"{at}.additionalProperties", "additionalProperties and properties are mutual exclusive"
        )
    if "pattern" in schema and _is_bad_pattern(schema["pattern"]):
        yield causes.bad(f"{at}.pattern", schema["pattern"], "must be a valid regular expression")
    listed = schema.get("x-kubernetes-list-type")
    if listed and listed not in ("atomic", "set", "map"):
        yield causes.unsupported(f"{at}.x-kubernetes-list-type", listed, ("atomic", "map", "set"))
    if listed == "map" and not schema.get("x-kubernetes-list-map-keys"):
        yield causes.required(
            f"{at}.x-kubernetes-list-map-keys",
            "must not be empty if x-kubernetes-list-type is map",
        )
    if listed == "map":
        known = (schema.get("items") or {}).get("properties") or {}
        for place, key in enumerate(schema.get("x-kubernetes-list-map-keys") or ()):
            if key not in known:
                yield causes.bad(
                    f"{at}.x-kubernetes-list-map-keys[{place}]",
                    key,
                    "entries must all be names of item properties",
                )
    if schema.get("uniqueItems"):
        yield causes.forbidden(
            f"{at}.uniqueItems",
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        )
    if schema.get("$ref"):
        yield causes.forbidden(f"{at}.$ref", "$ref is not supported")
    if "default" in schema:
        yield from _default(schema, at)
    for place, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        yield from _rule(rule, schema, f"{at}.x-kubernetes-validations[{place}]")
    for name, inner in (schema.get("properties") or {}).items():
        yield from _schema(inner, f"{at}.properties[{name}]", inside="object fields")
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _schema(items, f"{at}.items", inside="array items")
    others = schema.get("additionalProperties")
    if isinstance(others, Mapping):
        yield from _schema(
            others, f"{at}.additionalProperties", inside="object fields via additionalProperties"
        )


def _is_bad_pattern(pattern: str) -> bool:
    try:
        Validator({"type": "string", "pattern": pattern})
    except ValueError:
        return True
    return False


def _default(schema: Schema, at: str) -> Iterator[Cause]:
    value = schema["default"]
    pruned = prune_and_default(schema, value, "", [])
    bare = {name: inner for name, inner in schema.items() if name != "x-kubernetes-validations"}
    try:
        validator = Validator(bare)
    except ValueError:
        # The schema itself is wrong, which is stated of it and not of the default.
        return
    for cause in validator.causes(pruned, rules=False):
        below = cause.field not in ("", "<nil>")
        field = f"{at}.default.{cause.field}" if below else f"{at}.default"
        yield Cause(cause.reason, cause.message, field)


def _rule(rule: Mapping[str, Any], schema: Schema, at: str) -> Iterator[Cause]:
    text = rule.get("rule") or ""
    if not text.strip():
        yield causes.required(f"{at}.rule")
        return
    optional_old = bool(rule.get("optionalOldSelf"))
    problem, where = rule_problem(text, schema, optional_old=optional_old), "rule"
    expression = rule.get("messageExpression")
    if problem is None and expression:
        problem, where = (
            message_problem(str(expression), schema, optional_old=optional_old),
            "messageExpression",
        )
    if problem is not None:
        shown = {
            "Rule": text,
            "Message": rule.get("message") or "",
            "MessageExpression": rule.get("messageExpression") or "",
            "Reason": rule.get("reason"),
            "FieldPath": rule.get("fieldPath") or "",
            "OptionalOldSelf": rule.get("optionalOldSelf"),
        }
        failed = problem.startswith("ERROR")
        yield causes.bad(
            f"{at}.{where}", shown, f"compilation failed: {problem}" if failed else problem
        )
