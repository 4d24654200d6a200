"""The part of CEL that selects devices: expressions over one device, compiled to functions.

`device` has `driver`, `attributes`, `capacity` and `allowMultipleAllocations`; the two maps are
keyed by domain, and a domain that the device lacks is an empty map. Accepted: literals, lists,
indexing and member access, `== != < <= > >= in`, `&& || !`, `c ? a : b`, `has`, `cel.bind`, string
functions, `quantity(...)` and `semver(...)` with their comparisons. As in CEL, `&&` and `||` ignore
an error on one side when the other side decides, and values of different types are never equal.

Anything else is `UnsupportedSelector` and named, never ignored. Patterns of `matches` are literals
and limited to what cannot take long on a short text. Source: specification 21.9; the CEL language
definition and the device environment of resource.k8s.io/v1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from reprieve.engine.placement.filters.device_values import (
    ARITY,
    MAKERS,
    METHODS,
    RELATIONS,
    DeviceFacts,
    SelectorError,
    Value,
    among,
    member_of,
    truth,
)

__all__ = ["Evaluate", "UnsupportedSelector", "compile_selector"]

_DEPTH: Final = 60  # of nested expressions


class UnsupportedSelector(ValueError):
    """The expression is not in the part of CEL that is evaluated here."""


@dataclass(frozen=True, slots=True)
class _Scope:
    device: DeviceFacts
    variables: Mapping[str, Value]


_Node: TypeAlias = Callable[[_Scope], Value]
Evaluate: TypeAlias = Callable[[DeviceFacts], bool]


def compile_selector(expression: str) -> Evaluate:
    """Return the function that evaluates an expression; it raises SelectorError.

    Raises:
        UnsupportedSelector: not in the accepted part of CEL.
    """
    parser = _Parser(_tokens(expression))
    node = parser.expression()
    parser.end()

    def evaluate(device: DeviceFacts) -> bool:
        value = node(_Scope(device, {}))
        if not isinstance(value, bool):
            raise SelectorError("the result is not a boolean")
        return value

    return evaluate


# Words of an expression.

_TOKEN: Final = re.compile(
    r"""(?P<space>[\s]+|//[^\n]*)
      | (?P<text>[rR]?(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"
          |'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))
      | (?P<number>0[xX][0-9a-fA-F]+|[0-9]+(?![0-9A-Za-z_.]))
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<mark>&&|\|\||==|!=|<=|>=|[<>!?:.,()\[\]-])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:([abfnrtv\\'\"`?])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))")
_ESCAPED: Final = dict(zip("abfnrtv\\'\"`?", "\a\b\f\n\r\t\v\\'\"`?", strict=True))


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def _tokens(expression: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(expression):
        found = _TOKEN.match(expression, at)
        if found is None or found.lastgroup is None:
            raise UnsupportedSelector(f"{expression[at : at + 12]!r} is not understood")
        if found.lastgroup != "space":
            tokens.append(_Token(found.lastgroup, found.group()))
        at = found.end()
    return tokens


def _unquoted(text: str) -> str:
    raw = text[0] in "rR"
    body = text[1:] if raw else text
    width = 3 if len(body) >= 6 and body[:3] in ("'''", '"""') else 1
    body = body[width:-width]
    return body if raw else _ESCAPE.sub(_unescaped, body)


def _unescaped(found: re.Match[str]) -> str:
    plain, two, four, other = found.groups()
    if other is not None:
        raise UnsupportedSelector(f"the escape \\{other} is not understood")
    return _ESCAPED[plain] if plain is not None else chr(int(two or four, 16))


# Sentences.


class _Parser:
    """Recursive descent over the tokens; each method returns the function of what it read."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._names: list[str] = []  # bound by cel.bind

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise UnsupportedSelector(f"{self._tokens[self._at].text!r} is not understood here")

    def expression(self) -> _Node:
        self._depth += 1
        if self._depth > _DEPTH:
            raise UnsupportedSelector("the expression is nested too deeply")
        condition = self._any()
        if self._take("?"):
            then = self._any()
            self._expect(":")
            condition = _choice(condition, then, self.expression())
        self._depth -= 1
        return condition

    def _any(self) -> _Node:
        parts = [self._all()]
        while self._take("||"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else _logical(parts, decides=True)

    def _all(self) -> _Node:
        parts = [self._relation()]
        while self._take("&&"):
            parts.append(self._relation())
        return parts[0] if len(parts) == 1 else _logical(parts, decides=False)

    def _relation(self) -> _Node:
        left = self._unary()
        for mark, compare in RELATIONS.items():
            if self._take(mark):
                return _relation(compare, left, self._unary())
        return left

    def _unary(self) -> _Node:
        if self._take("!"):
            self._depth += 1
            if self._depth > _DEPTH:
                raise UnsupportedSelector("the expression is nested too deeply")
            inner = self._unary()
            self._depth -= 1
            return _negation(inner)
        if self._take("-"):
            token = self._next()
            if token.kind != "number":
                raise UnsupportedSelector("arithmetic is not supported")
            return _constant(-int(token.text, 0))
        return self._member()

    def _member(self) -> _Node:
        node = self._primary()
        for _ in range(_DEPTH):
            if self._take("."):
                name = self._name()
                node = self._call(node, name) if self._take("(") else _select(node, name)
            elif self._take("["):
                node = _index(node, self.expression())
                self._expect("]")
            else:
                return node
        raise UnsupportedSelector("the expression is nested too deeply")

    def _primary(self) -> _Node:
        token = self._next()
        if token.kind == "text":
            return _constant(_unquoted(token.text))
        if token.kind == "number":
            return _constant(int(token.text, 0))
        if token.text == "(":
            inner = self.expression()
            self._expect(")")
            return inner
        if token.text == "[":
            return _list(self._arguments("]"))
        if token.kind == "name":
            return self._named(token.text)
        raise UnsupportedSelector(f"{token.text!r} is not understood here")

    def _named(self, name: str) -> _Node:
        if name in ("true", "false"):
            return _constant(name == "true")
        if name == "has" and self._take("("):
            return self._has()
        if name in MAKERS and self._take("("):
            arguments = self._arguments(")")
            if len(arguments) != 1:
                raise UnsupportedSelector(f"{name}() takes one argument here")
            return _made(MAKERS[name], arguments[0])
        if name in self._names:
            return lambda scope: scope.variables[name]
        if name == "cel" and self._take("."):
            if self._name() == "bind" and self._take("("):
                return self._bind()
            raise UnsupportedSelector("of cel only cel.bind is supported")
        if name == "device" and self._take("."):
            found = _DEVICE.get(member := self._name())
            if found is None:
                raise UnsupportedSelector(f"device.{member} is not supported")
            return found
        raise UnsupportedSelector(f"{name!r} is not supported")

    def _has(self) -> _Node:
        # The argument has to end in a member, whose presence is the answer.
        start = self._at
        depth, last = 0, -1
        while self._at < len(self._tokens):
            text, kind = self._tokens[self._at].text, self._tokens[self._at].kind
            if kind == "mark" and text in ("(", "["):
                depth += 1
            elif kind == "mark" and text in (")", "]"):
                depth -= 1
                if depth < 0:
                    break
            elif kind == "mark" and text == "." and not depth:
                last = self._at
            self._at += 1
        if last < 0 or self._at != last + 2 or self._tokens[last + 1].kind != "name":
            raise UnsupportedSelector("has() takes the name of a member")
        inner = _Parser(self._tokens[start:last])
        inner._names, inner._depth = self._names, self._depth + 1
        node = inner._member()
        inner.end()
        self._expect(")")
        return _present(node, self._tokens[last + 1].text)

    def _bind(self) -> _Node:
        name = self._name()
        self._expect(",")
        value = self.expression()
        self._expect(",")
        self._names.append(name)
        body = self.expression()
        self._names.pop()
        self._expect(")")
        return lambda scope: body(_Scope(scope.device, {**scope.variables, name: value(scope)}))

    def _call(self, target: _Node, name: str) -> _Node:
        if name == "matches":
            return self._matches(target)
        function = METHODS.get(name)
        if function is None:
            raise UnsupportedSelector(f"{name}() is not supported")
        arguments = self._arguments(")")
        if len(arguments) != ARITY.get(name, 1):
            raise UnsupportedSelector(f"{name}() with {len(arguments)} arguments is not supported")
        return lambda scope: function(target(scope), [each(scope) for each in arguments])

    def _matches(self, target: _Node) -> _Node:
        token = self._next()
        if token.kind != "text":
            raise UnsupportedSelector("matches() takes a literal pattern here")
        pattern = _pattern(_unquoted(token.text))
        self._expect(")")

        def node(scope: _Scope) -> Value:
            text = target(scope)
            if not isinstance(text, str):
                raise SelectorError("no such overload")
            return pattern.search(text) is not None

        return node

    def _arguments(self, closing: str) -> list[_Node]:
        found: list[_Node] = []
        if self._take(closing):
            return found
        while True:
            found.append(self.expression())
            if self._take(closing):
                return found
            self._expect(",")

    def _next(self) -> _Token:
        if self._at >= len(self._tokens):
            raise UnsupportedSelector("the expression ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _name(self) -> str:
        token = self._next()
        if token.kind != "name":
            raise UnsupportedSelector(f"{token.text!r} is not a name")
        return token.text

    def _take(self, text: str) -> bool:
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.text == text and token.kind != "text":
                self._at += 1
                return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise UnsupportedSelector(f"{text!r} is missing")


# What the parts mean.


def _constant(value: Value) -> _Node:
    return lambda scope: value


def _list(items: list[_Node]) -> _Node:
    return lambda scope: [each(scope) for each in items]


def _choice(condition: _Node, then: _Node, otherwise: _Node) -> _Node:
    return lambda scope: then(scope) if truth(condition(scope)) else otherwise(scope)


def _negation(inner: _Node) -> _Node:
    return lambda scope: not truth(inner(scope))


def _logical(parts: list[_Node], decides: bool) -> _Node:
    def node(scope: _Scope) -> Value:
        error: SelectorError | None = None
        for part in parts:
            try:
                if truth(part(scope)) is decides:
                    return decides
            except SelectorError as failed:
                error = error or failed
        if error is not None:
            raise error
        return not decides

    return node


def _relation(compare: Callable[[Value, Value], bool], left: _Node, right: _Node) -> _Node:
    return lambda scope: compare(left(scope), right(scope))


_DEVICE: Final[Mapping[str, _Node]] = {
    "driver": lambda scope: scope.device.driver,
    "attributes": lambda scope: scope.device.attributes,
    "capacity": lambda scope: scope.device.capacity,
    "allowMultipleAllocations": lambda scope: scope.device.shareable,
}


def _select(node: _Node, name: str) -> _Node:
    return lambda scope: member_of(node(scope), name)


def _index(node: _Node, key: _Node) -> _Node:
    return lambda scope: member_of(node(scope), key(scope))


def _present(node: _Node, name: str) -> _Node:
    return lambda scope: among(name, node(scope))


def _made(make: Callable[[str], Value], argument: _Node) -> _Node:
    def node(scope: _Scope) -> Value:
        text = argument(scope)
        if not isinstance(text, str):
            raise SelectorError("no such overload")
        return make(text)

    return node


_COSTLY: Final = re.compile(r"\)[*+?{]|\(\?|\\[1-9pPQCzZA]")
_QUANTIFIER: Final = re.compile(r"(?<!\\)[*+?{]")


def _pattern(text: str) -> re.Pattern[str]:
    # A tenant's pattern must not keep the scheduler busy: backtracking is bounded by the number
    # of quantifiers, and none may stand after a group.
    if len(text) > 256 or _COSTLY.search(text) or len(_QUANTIFIER.findall(text)) > 3:
        raise UnsupportedSelector(f"the pattern {text!r} of matches() is not supported")
    try:
        return re.compile(text, re.ASCII)
    except re.error:
        raise UnsupportedSelector(f"the pattern {text!r} of matches() is not readable") from None
