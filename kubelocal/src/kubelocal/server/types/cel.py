"""CEL rules of custom schemas (`x-kubernetes-validations`), transition rules included.

A rule sees the value at its place as `self` and, when an object is updated, the value that was
there before as `oldSelf`; a rule that names `oldSelf` is skipped where there was none. Evaluation
is bounded by the runtime's iteration budget: a rule that runs over it fails like any other error.
Source: the API's documentation of validation rules; answers of a 1.37 server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause

__all__ = ["STRING_LITERAL", "InvalidRule", "Rules", "compiled", "condition_holds", "unescape"]

Schema = Mapping[str, Any]


class InvalidRule(ValueError):
    """The text is no CEL expression; the message is the compiler's."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One compiled rule and its message when it does not hold."""

    text: str
    expression: Any
    message: str
    message_expression: Any
    reason: str
    field_path: str
    transition: bool
    optional_old: bool
    escaped: bool


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """The rules at one place of a schema and those below it."""

    own: tuple[Rule, ...]
    properties: Mapping[str, Rules]
    others: Rules | None
    items: Rules | None
    list_keys: tuple[str, ...] | None

    @staticmethod
    def of(schema: Schema) -> Rules:
        """Compile the rules of `schema`.

        Raises:
            InvalidRule: one of them does not compile.
        """
        items, others = schema.get("items"), schema.get("additionalProperties")
        keyed = schema.get("x-kubernetes-list-type") == "map"
        inner = {
            name: rules
            for name, value in (schema.get("properties") or {}).items()
            if (rules := Rules.of(value))
        }
        return Rules(
            own=tuple(_rule(spec) for spec in schema.get("x-kubernetes-validations") or ()),
            properties=inner,
            others=_or_none(others),
            items=_or_none(items),
            list_keys=tuple(schema["x-kubernetes-list-map-keys"]) if keyed else None,
        )

    def __bool__(self) -> bool:
        return bool(self.own or self.properties or self.others or self.items)

    def broken(self, value: Any, old: Any, *, transitions: bool) -> list[Cause]:
        """Return the rules that `value` breaks: transition rules against `old`, or the others."""
        if not self:
            return []
        return list(self._broken(value, old, "", transitions))

    def _broken(self, value: Any, old: Any, path: str, transitions: bool) -> Iterator[Cause]:
        for rule in self.own:
            if rule.transition != transitions or (
                rule.transition and old is None and not rule.optional_old
            ):
                continue
            yield from _judge(rule, value, old, path)
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            for name, item in value.items():
                inner = self.properties.get(name) or self.others
                if inner is not None and item is not None:
                    here = f"{path}.{name}" if path else name
                    yield from inner._broken(item, before.get(name), here, transitions)
        elif isinstance(value, list) and self.items is not None:
            for index, item in enumerate(value):
                was = self._counterpart(item, old)
                yield from self.items._broken(item, was, f"{path}[{index}]", transitions)

    def _counterpart(self, item: Any, old: Any) -> Any:
        """Return the former item with the same keys; items of other lists have no past."""
        if self.list_keys is None or not isinstance(old, list) or not isinstance(item, dict):
            return None
        for former in old:
            if isinstance(former, dict) and all(
                former.get(key) == item.get(key) for key in self.list_keys
            ):
                return former
        return None


STRING_LITERAL: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_RESERVED: Final = frozenset(
    {"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for"}
    | {"function", "if", "import", "let", "loop", "package", "namespace", "return", "var"}
    | {"void", "while"}
)


def _or_none(schema: Any) -> Rules | None:
    if not isinstance(schema, Mapping):
        return None
    return Rules.of(schema) or None


def _rule(spec: Mapping[str, Any]) -> Rule:
    text = str(spec["rule"])
    expression = spec.get("messageExpression")
    return Rule(
        text=text,
        expression=compiled(text),
        message=str(spec.get("message") or ""),
        message_expression=compiled(str(expression)) if expression else None,
        reason=str(spec.get("reason") or "FieldValueInvalid"),
        field_path=str(spec.get("fieldPath") or ""),
        transition=re.search(r"\boldSelf\b", STRING_LITERAL.sub("", text)) is not None,
        optional_old=bool(spec.get("optionalOldSelf")),
        escaped="__" in text or "__" in str(expression),
    )


_VALUES: Final = (("self", "DYN"), ("oldSelf", "DYN"))
_REQUEST: Final = (("object", "DYN"), ("oldObject", "DYN"), ("request", "DYN"))


@lru_cache(maxsize=256)
def _environment(variables: tuple[tuple[str, str], ...]) -> Any:
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_math, ext_optional, ext_strings

    return cel.NewEnv(
        variables={name: _type(cel.Type, text) for name, text in variables},
        extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional(), ext_math.ExtMath()],
    )


def _type(types: Any, text: str) -> Any:
    word, _, inner = text.partition(" ")
    if word == "LIST":
        return types.List(_type(types, inner))
    return types.Map(types.STRING, _type(types, inner)) if word == "MAP" else getattr(types, word)


@lru_cache(maxsize=1024)
def _condition(text: str) -> Any:
    return _environment(_REQUEST).compile(text)


def condition_holds(text: str, values: Mapping[str, Any]) -> bool:
    """Return what a match condition states of `object`, `oldObject` and `request`.

    Raises:
        ValueError: it does not compile, or gives no answer.
    """
    try:
        value, problem = _evaluate(_condition(text), values)
    except RuntimeError as error:
        raise ValueError(str(error)) from None
    if problem or not isinstance(value, bool):
        raise ValueError(problem or "the expression gives no bool")
    return value


def compiled(text: str, types: Mapping[str, str] | None = None) -> Any:
    """Return the compiled expression; `types`: of variables other than `self` and `oldSelf`.

    Types are words such as `INT`, `DYN`, `LIST STRING` and `MAP LIST INT` (keys are texts).

    Raises:
        InvalidRule: it does not compile.
    """
    try:
        return _environment((*_VALUES, *(types or {}).items())).compile(text)
    except RuntimeError as error:
        message = str(error).removeprefix("INVALID_ARGUMENT: ")
        raise InvalidRule(message.removesuffix(" [INVALID_ARGUMENT]")) from None


def _judge(rule: Rule, value: Any, old: Any, path: str) -> Iterator[Cause]:
    bindings = {"self": value, "oldSelf": old}
    if rule.escaped:
        bindings = {name: _escape(bound) for name, bound in bindings.items()}
    outcome, problem = _evaluate(rule.expression, bindings)
    if outcome is True:
        return
    if problem:
        text = f"{problem} evaluating rule: {rule.message or rule.text}"
    else:
        text = rule.message or f"failed rule: {rule.text.strip()}"
        if rule.message_expression is not None:
            own, _ = _evaluate(rule.message_expression, bindings)
            text = own.strip() if isinstance(own, str) and own.strip() else text
    yield _cause(rule, value, f"{path}{rule.field_path}".lstrip("."), text)


def _evaluate(expression: Any, bindings: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the value and, where there is none, why."""
    from cel_expr_python import cel

    try:
        result = expression.eval(data=dict(bindings))
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        return None, str(error)
    if result.type() == cel.Type.ERROR:
        return None, str(result.value())
    return result.value(), ""


def _cause(rule: Rule, value: Any, field: str, text: str) -> Cause:
    field = field or "<nil>"
    if rule.reason == "FieldValueRequired":
        return causes.required(field, text)
    if rule.reason == "FieldValueForbidden":
        return causes.forbidden(field, text)
    if rule.reason == "FieldValueDuplicate":
        return causes.duplicate(field, value)
    # Objects and lists are not printed.
    shown = "" if isinstance(value, (dict, list)) else f"{json.dumps(value)}: "
    return Cause("FieldValueInvalid", f"Invalid value: {shown}{text}", field)


_ESCAPES: Final = (
    ("__", "__underscores__"),
    (".", "__dot__"),
    ("-", "__dash__"),
    ("/", "__slash__"),
)


def _escape(value: Any) -> Any:
    """Rename fields as rules spell those that are no CEL identifiers."""
    if isinstance(value, dict):
        return {_escaped(name): _escape(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_escape(item) for item in value]
    return value


def _escaped(name: str) -> str:
    if name in _RESERVED:
        return f"__{name}__"
    for plain, spelled in _ESCAPES:
        name = name.replace(plain, spelled)
    return name


def unescape(name: str) -> str:
    """Return a field's own name for the one that rules give it."""
    if name.startswith("__") and name[2:-2] in _RESERVED:
        return name[2:-2]
    for plain, spelled in reversed(_ESCAPES):
        name = name.replace(spelled, plain)
    return name
