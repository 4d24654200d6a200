"""What a CEL rule may not state about the values that its schema allows.

The runtime of rules has no types, so a copy of each rule is compiled with them: every chain of
fields that starts at `self` or `oldSelf` becomes a variable of the type at its end, as long as what
it stands for, so that columns stay right. Objects, dates and numbers that need not be whole have no
type there; what is wrong inside an object that a macro iterates over is found when there is a
value. Source: the API's documentation of validation rules and their types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kubelocal.server.types.cel import STRING_LITERAL, InvalidRule, compiled, unescape

__all__ = ["message_problem", "rule_problem"]

Schema = Mapping[str, Any]

_CHAIN: Final = re.compile(r"(?<![\w.])(self|oldSelf)\b((?:\.\w+)*)(?=(\s*\())?")
_HAS: Final = re.compile(r"\bhas\(\s*(self|oldSelf)((?:\.\w+)+)\s*\)")
# Fields that every object of a kind has, whether or not its schema names them.
_IMPLIED: Final = ("apiVersion", "kind", "metadata")
_UNTYPED_FORMATS: Final = ("byte", "date", "date-time", "duration")
# Whole and other numbers may be compared, which the compiler here does not know.
_COMPARED: Final = re.compile(r"applied to '\((?:int, double|double, int)\)'")


def rule_problem(text: str, schema: Schema, *, optional_old: bool = False) -> str | None:
    """Return the compiler's complaint about a rule for values of `schema`, or None."""
    return _problem(text, schema, optional_old, "BOOL", "cel expression must evaluate to a bool")


def message_problem(text: str, schema: Schema, *, optional_old: bool = False) -> str | None:
    """Return the compiler's complaint about a message expression, or None."""
    reported = "messageExpression must evaluate to a string"
    return _problem(text, schema, optional_old, "STRING", reported)


class _Undefined(Exception):
    def __init__(self, name: str, before: int) -> None:
        super().__init__(name)
        self.name, self.before = name, before


def _problem(
    text: str, schema: Schema, optional_old: bool, wanted: str, otherwise: str
) -> str | None:
    quiet = STRING_LITERAL.sub(lambda found: " " * len(found.group()), text)
    types: dict[str, str] = {}
    typed = text
    try:
        for pattern, replacement in ((_HAS, _known), (_CHAIN, _variable)):
            for found in list(pattern.finditer(quiet)):
                root = {} if optional_old and found.group(1) == "oldSelf" else schema
                instead = replacement(found, root, types)
                start, end = found.start(), found.start() + len(instead)
                typed = typed[:start] + instead + typed[end:]
                quiet = quiet[:start] + instead + quiet[end:]
    except _Undefined as undefined:
        line = text.count("\n", 0, undefined.before) + 1
        column = undefined.before - (text.rfind("\n", 0, undefined.before) + 1)
        shown, pointer = text.split("\n")[line - 1], "." * column + "^"
        where = f"<input>:{line}:{column + 1}"
        return f"ERROR: {where}: undefined field '{undefined.name}'\n | {shown}\n | {pointer}"
    try:
        compiled(text)
        result = str(compiled(typed, types).return_type().name())
    except InvalidRule as error:
        reported = str(error)
        if _COMPARED.search(reported):
            return None
        for ours, theirs in zip(typed.split("\n"), text.split("\n"), strict=True):
            reported = reported.replace(f" | {ours}\n", f" | {theirs}\n")
        return reported
    return None if result in (wanted, "DYN") else otherwise


def _known(found: re.Match[str], schema: Schema, types: dict[str, str]) -> str:
    """Return `true` in place of `has(self.a)`, whose argument must stay a field."""
    del types
    _at(schema, found.group(2), found.start(2))
    return "true".ljust(len(found.group()))


def _variable(found: re.Match[str], schema: Schema, types: dict[str, str]) -> str:
    path = found.group(2)
    if found.group(3) is not None:  # the last name is a method
        path = path.rpartition(".")[0]
    end = _at(schema, path, found.start(2))
    name = f"v{len(types)}".ljust(len(found.group(1)) + len(path), "_")
    types[name] = _type(end)
    return name + found.group()[len(name) :]


def _at(schema: Schema, path: str, start: int) -> Schema:
    """Return the schema at the end of `.a.b`, empty where nothing is known of it."""
    for found in re.finditer(r"\.(\w+)", path):
        properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
        name = unescape(found.group(1))
        if name in properties:
            schema = properties[name]
        elif isinstance(others, Mapping):
            schema = others
        elif (
            name in _IMPLIED
            or others
            or schema.get("type") != "object"
            or schema.get("x-kubernetes-preserve-unknown-fields")
            or schema.get("x-kubernetes-embedded-resource")
        ):
            return {}
        else:
            raise _Undefined(name, start + found.start())
    return schema


def _type(schema: Schema) -> str:
    """Return the type of values of `schema` as `cel.compiled` reads it."""
    if schema.get("nullable") or schema.get("x-kubernetes-int-or-string"):
        return "DYN"
    match schema.get("type"):
        case "integer":
            return "INT"
        case "boolean":
            return "BOOL"
        case "string" if schema.get("format") not in _UNTYPED_FORMATS:
            return "STRING"
        case "array" if isinstance(schema.get("items"), Mapping):
            return f"LIST {_type(schema['items'])}"
        case "object" if isinstance(schema.get("additionalProperties"), Mapping):
            return f"MAP {_type(schema['additionalProperties'])}"
    return "DYN"
