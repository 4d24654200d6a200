"""The part of CEL that selects devices: expressions over one device, compiled to functions.

`device` has `driver`, `attributes`, `capacity` and `allowMultipleAllocations`; the two maps are
keyed by domain, and a domain that the device lacks is an empty map. Accepted: literals, lists,
indexing and member access, `== != < <= > >= in`, `&& || !`, `c ? a : b`, `has`, `cel.bind`, string
functions, `quantity(...)` and `semver(...)` with their comparisons. What the parts mean is in
`device_expressions`.

Anything else is `UnsupportedSelector` and named, never ignored. No expression can run for long: its
length, its nesting and the depth of its evaluation are bounded, and each evaluation has Kubernetes'
budget. Source: specification 21.9; the CEL language definition and the device environment of
resource.k8s.io/v1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from reprieve.engine.placement.filters.dynamic.device_costs import Budget, SelectorError
from reprieve.engine.placement.filters.dynamic.device_expressions import (
    DEVICE,
    Node,
    Read,
    Scope,
    bind,
    called,
    choice,
    constant,
    indexed,
    listed,
    logical,
    made,
    negation,
    present,
    relation,
    select,
    variable,
)
from reprieve.engine.placement.filters.dynamic.device_patterns import InvalidPattern, pattern_of
from reprieve.engine.placement.filters.dynamic.device_tokens import (
    Token,
    UnsupportedSelector,
    integer_of,
    text_of,
    tokens_of,
)
from reprieve.engine.placement.filters.dynamic.device_values import (
    ARITY,
    MAKERS,
    METHODS,
    RELATIONS,
    DeviceFacts,
)

__all__ = ["Evaluate", "Selector", "UnsupportedSelector", "compile_selector"]

_DEPTH: Final = 60  # of nested expressions


class Evaluate(Protocol):
    """The result of a selector for a device; its cost is that of `budget`, or Kubernetes' own."""

    def __call__(self, device: DeviceFacts, budget: Budget | None = None) -> bool: ...


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled expression. `reads`: what its answer depends on, besides driver and sharing."""

    node: Node

    @property
    def reads(self) -> frozenset[Read]:
        return self.node.reads

    def __call__(self, device: DeviceFacts, budget: Budget | None = None) -> bool:
        value = self.node.value(Scope(device, {}, budget or Budget()))
        if not isinstance(value, bool):
            raise SelectorError("the result is not a boolean")
        return value


def compile_selector(expression: str) -> Selector:
    """Return the function that evaluates an expression; it raises SelectorError.

    Raises:
        UnsupportedSelector: not in the accepted part of CEL.
    """
    parser = _Parser(tokens_of(expression))
    node = parser.expression()
    parser.end()
    return Selector(node)


class _Parser:
    """Recursive descent over the tokens; each method returns the function of what it read."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._names: dict[str, Node] = {}  # bound by cel.bind

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise UnsupportedSelector(f"{self._tokens[self._at].text!r} is not understood here")

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > _DEPTH:
            raise UnsupportedSelector("the expression is nested too deeply")
        condition = self._any()
        if self._consume("?"):
            then = self._any()
            self._expect(":")
            condition = choice(condition, then, self.expression())
        self._depth -= 1
        return condition

    def _any(self) -> Node:
        parts = [self._all()]
        while self._consume("||"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else logical(parts, decides=True)

    def _all(self) -> Node:
        parts = [self._relation()]
        while self._consume("&&"):
            parts.append(self._relation())
        return parts[0] if len(parts) == 1 else logical(parts, decides=False)

    def _relation(self) -> Node:
        left = self._unary()
        for mark, compare in RELATIONS.items():
            if self._consume(mark):
                return relation(compare, left, self._unary())
        return left

    def _unary(self) -> Node:
        if self._consume("!"):
            self._depth += 1
            if self._depth > _DEPTH:
                raise UnsupportedSelector("the expression is nested too deeply")
            inner = self._unary()
            self._depth -= 1
            return negation(inner)
        if self._consume("-"):
            token = self._next()
            if token.kind != "number":
                raise UnsupportedSelector("arithmetic is not supported")
            return constant(integer_of(token.text, -1))
        return self._member()

    def _member(self) -> Node:
        node = self._primary()
        for _ in range(_DEPTH):
            if self._consume("."):
                name = self._name()
                node = self._call(node, name) if self._consume("(") else select(node, name)
            elif self._consume("["):
                node = indexed(node, self.expression())
                self._expect("]")
            else:
                return node
        raise UnsupportedSelector("the expression is nested too deeply")

    def _primary(self) -> Node:
        token = self._next()
        if token.kind == "text":
            return constant(text_of(token.text))
        if token.kind == "number":
            return constant(integer_of(token.text))
        if token.text == "(":
            inner = self.expression()
            self._expect(")")
            return inner
        if token.text == "[":
            return listed(self._arguments("]"))
        if token.kind == "name":
            return self._named(token.text)
        raise UnsupportedSelector(f"{token.text!r} is not understood here")

    def _named(self, name: str) -> Node:
        if name in ("true", "false"):
            return constant(name == "true")
        if name == "has" and self._consume("("):
            return self._has()
        if name in MAKERS and self._consume("("):
            arguments = self._arguments(")")
            if len(arguments) != 1:
                raise UnsupportedSelector(f"{name}() takes one argument here")
            return made(MAKERS[name], arguments[0])
        if name in self._names:
            return variable(name, self._names[name])
        if name == "cel" and self._consume("."):
            if self._name() == "bind" and self._consume("("):
                return self._bind()
            raise UnsupportedSelector("of cel only cel.bind is supported")
        if name == "device" and self._consume("."):
            found = DEVICE.get(member := self._name())
            if found is None:
                raise UnsupportedSelector(f"device.{member} is not supported")
            return found
        raise UnsupportedSelector(f"{name!r} is not supported")

    def _has(self) -> Node:
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
        return present(node, self._tokens[last + 1].text)

    def _bind(self) -> Node:
        name = self._name()
        self._expect(",")
        value = self.expression()
        self._expect(",")
        outer = self._names
        self._names = {**outer, name: value}
        body = self.expression()
        self._names = outer
        self._expect(")")
        return bind(name, value, body)

    def _call(self, target: Node, name: str) -> Node:
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

        return called(function, target, arguments)

    def _arguments(self, closing: str) -> list[Node]:
        found: list[Node] = []
        if self._consume(closing):
            return found
        while True:
            found.append(self.expression())
            if self._consume(closing):
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

    def _consume(self, text: str) -> bool:
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.text == text and token.kind != "text":
                self._at += 1
                return True
        return False

    def _expect(self, text: str) -> None:
        if not self._consume(text):
            raise UnsupportedSelector(f"{text!r} is missing")
