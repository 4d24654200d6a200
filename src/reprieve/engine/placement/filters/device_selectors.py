"""The part of CEL that selects devices: expressions over one device, compiled to functions.

`device` has `driver`, `attributes`, `capacity` and `allowMultipleAllocations`; the two maps are
keyed by domain, and a domain that the device lacks is an empty map. Accepted: literals, lists,
indexing and member access, `== != < <= > >= in`, `&& || !`, `c ? a : b`, `has`, `cel.bind`, string
functions, `quantity(...)` and `semver(...)` with their comparisons. As in CEL, `&&` and `||` ignore
an error on one side when the other side decides, values of different types are never equal, and
what `cel.bind` names is evaluated once, when it is first needed.

Anything else is `UnsupportedSelector` and named, never ignored. Nothing that an expression says can
take long: its length, its nesting and the depth of its evaluation are bounded, and each evaluation
has Kubernetes' budget. Source: specification 21.9; the CEL language definition and the device
environment of resource.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from reprieve.engine.placement.filters.device_costs import (
    LIST_COST,
    Budget,
    CostExceeded,
    SelectorError,
    tenth,
)
from reprieve.engine.placement.filters.device_patterns import InvalidPattern, pattern_of
from reprieve.engine.placement.filters.device_tokens import (
    Token,
    UnsupportedSelector,
    integer_of,
    text_of,
    tokens_of,
)
from reprieve.engine.placement.filters.device_values import (
    ARITY,
    MAKERS,
    METHODS,
    RELATIONS,
    DeviceFacts,
    Relation,
    Value,
    among,
    member_of,
    truth,
)

__all__ = ["Evaluate", "UnsupportedSelector", "compile_selector"]

_DEPTH: Final = 60  # of nested expressions
_HEIGHT: Final = 100  # of evaluations inside each other; each takes up to three frames


class _Bound:
    """What `cel.bind` named: evaluated when it is first asked for, errors included."""

    __slots__ = ("_error", "_node", "_scope", "_value")

    def __init__(self, node: _Node, scope: _Scope) -> None:
        self._node: _Node | None = node
        self._scope = scope
        self._error: SelectorError | None = None

    def value(self) -> Value:
        if self._node is not None:
            try:
                self._value = self._node.value(self._scope)
            except CostExceeded:
                raise
            except SelectorError as error:
                self._error = error
            self._node = None
        if self._error is not None:
            raise self._error
        return self._value


@dataclass(frozen=True, slots=True)
class _Scope:
    device: DeviceFacts
    variables: Mapping[str, _Bound]
    budget: Budget


@dataclass(frozen=True, slots=True)
class _Node:
    """A compiled part. `height`: of evaluations inside each other, its own included."""

    value: Callable[[_Scope], Value]
    height: int = 1


class Evaluate(Protocol):
    """What a selector says of a device; it takes from `budget`, by default Kubernetes' own."""

    def __call__(self, device: DeviceFacts, budget: Budget | None = None) -> bool: ...


def compile_selector(expression: str) -> Evaluate:
    """Return the function that evaluates an expression; it raises SelectorError.

    Raises:
        UnsupportedSelector: not in the accepted part of CEL.
    """
    parser = _Parser(tokens_of(expression))
    node = parser.expression()
    parser.end()

    def evaluate(device: DeviceFacts, budget: Budget | None = None) -> bool:
        value = node.value(_Scope(device, {}, budget or Budget()))
        if not isinstance(value, bool):
            raise SelectorError("the result is not a boolean")
        return value

    return evaluate


def _over(value: Callable[[_Scope], Value], *parts: _Node) -> _Node:
    height = 1 + max(part.height for part in parts)
    if height > _HEIGHT:
        raise UnsupportedSelector("the expression is nested too deeply")
    return _Node(value, height)


# Sentences.


class _Parser:
    """Recursive descent over the tokens; each method returns the function of what it read."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._names: dict[str, _Node] = {}  # bound by cel.bind

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
            return _constant(integer_of(token.text, -1))
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
            return _constant(text_of(token.text))
        if token.kind == "number":
            return _constant(integer_of(token.text))
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
            return _variable(name, self._names[name])
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
        if inner._depth > _DEPTH:
            raise UnsupportedSelector("the expression is nested too deeply")
        node = inner._member()
        inner.end()
        self._expect(")")
        return _present(node, self._tokens[last + 1].text)

    def _bind(self) -> _Node:
        name = self._name()
        self._expect(",")
        value = self.expression()
        self._expect(",")
        outer = self._names
        self._names = {**outer, name: value}
        body = self.expression()
        self._names = outer
        self._expect(")")
        return _bind(name, value, body)

    def _call(self, target: _Node, name: str) -> _Node:
        start = self._at
        function = METHODS.get(name)
        if function is None:
            raise UnsupportedSelector(f"{name}() is not supported")
        arguments = self._arguments(")")
        if len(arguments) != ARITY.get(name, 1):
            raise UnsupportedSelector(f"{name}() with {len(arguments)} arguments is not supported")
        if name == "matches" and self._at == start + 2 and self._tokens[start].kind == "text":
            try:
                pattern_of(text_of(self._tokens[start].text))
            except InvalidPattern as error:
                raise UnsupportedSelector(str(error)) from None

        def value(scope: _Scope) -> Value:
            values = [each.value(scope) for each in (target, *arguments)]
            return function(values[0], values[1:], scope.budget)

        return _over(value, target, *arguments)

    def _arguments(self, closing: str) -> list[_Node]:
        found: list[_Node] = []
        if self._take(closing):
            return found
        while True:
            found.append(self.expression())
            if self._take(closing):
                return found
            self._expect(",")

    def _next(self) -> Token:
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
    return _Node(lambda scope: value)


def _variable(name: str, bound: _Node) -> _Node:
    def value(scope: _Scope) -> Value:
        scope.budget.spend(1)
        return scope.variables[name].value()

    return _over(value, bound)


def _bind(name: str, bound: _Node, body: _Node) -> _Node:
    def value(scope: _Scope) -> Value:
        scope.budget.spend(LIST_COST)
        inner = {**scope.variables, name: _Bound(bound, scope)}
        return body.value(_Scope(scope.device, inner, scope.budget))

    return _over(value, bound, body)


def _list(items: list[_Node]) -> _Node:
    def value(scope: _Scope) -> Value:
        scope.budget.spend(LIST_COST)
        return [each.value(scope) for each in items]

    return _over(value, *items) if items else _Node(value)


def _choice(condition: _Node, then: _Node, otherwise: _Node) -> _Node:
    def value(scope: _Scope) -> Value:
        return (then if truth(condition.value(scope)) else otherwise).value(scope)

    return _over(value, condition, then, otherwise)


def _negation(inner: _Node) -> _Node:
    def value(scope: _Scope) -> Value:
        scope.budget.spend(1)
        return not truth(inner.value(scope))

    return _over(value, inner)


def _logical(parts: list[_Node], decides: bool) -> _Node:
    def value(scope: _Scope) -> Value:
        error: SelectorError | None = None
        for part in parts:
            try:
                if truth(part.value(scope)) is decides:
                    return decides
            except CostExceeded:
                raise
            except SelectorError as failed:
                error = error or failed
        if error is not None:
            raise error
        return not decides

    return _over(value, *parts)


def _relation(compare: Relation, left: _Node, right: _Node) -> _Node:
    def value(scope: _Scope) -> Value:
        return compare(left.value(scope), right.value(scope), scope.budget)

    return _over(value, left, right)


def _of_device(read: Callable[[DeviceFacts], Value]) -> _Node:
    def value(scope: _Scope) -> Value:
        scope.budget.spend(2)  # the name and its member
        return read(scope.device)

    return _Node(value)


_DEVICE: Final[Mapping[str, _Node]] = {
    "driver": _of_device(lambda device: device.driver),
    "attributes": _of_device(lambda device: device.attributes),
    "capacity": _of_device(lambda device: device.capacity),
    "allowMultipleAllocations": _of_device(lambda device: device.shareable),
}


def _select(node: _Node, name: str) -> _Node:
    def value(scope: _Scope) -> Value:
        scope.budget.spend(1)
        return member_of(node.value(scope), name)

    return _over(value, node)


def _index(node: _Node, key: _Node) -> _Node:
    def value(scope: _Scope) -> Value:
        scope.budget.spend(1)
        return member_of(node.value(scope), key.value(scope))

    return _over(value, node, key)


def _present(node: _Node, name: str) -> _Node:
    def value(scope: _Scope) -> Value:
        scope.budget.spend(1)
        return among(name, node.value(scope), scope.budget)

    return _over(value, node)


def _made(make: Callable[[str], Value], argument: _Node) -> _Node:
    def value(scope: _Scope) -> Value:
        text = argument.value(scope)
        if not isinstance(text, str):
            raise SelectorError("no such overload")
        scope.budget.spend(tenth(len(text)))
        return make(text)

    return _over(value, argument)
