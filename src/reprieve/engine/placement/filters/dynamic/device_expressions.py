"""What the parts of a device selector mean: a function of one device, and what that reads of it.

As in CEL, `&&` and `||` ignore an error on one side when the other side decides, and what
`cel.bind` names is evaluated once, when it is first needed. The value of an expression, its cost
and its error follow from the driver, from whether the device may be allocated several times, and
from what `reads` names: devices that are equal in these are selected alike. Source: specification
21.9; the CEL language definition and the device environment of resource.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from reprieve.engine.placement.filters.dynamic.device_costs import (
    LIST_COST,
    Budget,
    CostExceeded,
    SelectorError,
    tenth,
)
from reprieve.engine.placement.filters.dynamic.device_tokens import UnsupportedSelector
from reprieve.engine.placement.filters.dynamic.device_values import (
    DeviceFacts,
    Method,
    Relation,
    Value,
    among,
    member_of,
    truth,
)

__all__ = [
    "DEVICE",
    "Node",
    "Read",
    "Scope",
    "bind",
    "called",
    "choice",
    "constant",
    "indexed",
    "listed",
    "logical",
    "made",
    "negation",
    "present",
    "relation",
    "select",
    "variable",
]

#: `attributes` or `capacity`, then the domain, then the name in it; as many as are known.
Read: TypeAlias = tuple[str, ...]

_HEIGHT: Final = 100  # of evaluations inside each other; each uses up to three frames
_LEAF: Final = 3  # parts of a read that names one value
_NOTHING: Final[frozenset[Read]] = frozenset()


class _Bound:
    """What `cel.bind` named: evaluated when it is first requested, errors included."""

    __slots__ = ("_error", "_node", "_scope", "_value")

    def __init__(self, node: Node, scope: Scope) -> None:
        self._node: Node | None = node
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
class Scope:
    """What an expression is evaluated for."""

    device: DeviceFacts
    variables: Mapping[str, _Bound]
    budget: Budget


@dataclass(frozen=True, slots=True)
class Node:
    """A compiled part. `height`: of evaluations inside each other, its own included.

    `reads`: all that the value depends on. `path`: what of a device the part stands for as it is,
    so that a member of it reads no more than that member. `text`: its value, if that is written
    out.
    """

    value: Callable[[Scope], Value]
    height: int = 1
    reads: frozenset[Read] = _NOTHING
    path: Read | None = None
    text: str | None = None


def _over(
    value: Callable[[Scope], Value],
    *parts: Node,
    reads: frozenset[Read] | None = None,
    path: Read | None = None,
) -> Node:
    height = 1 + max(part.height for part in parts)
    if height > _HEIGHT:
        raise UnsupportedSelector("the expression is nested too deeply")
    if reads is None:
        reads = _NOTHING.union(*(part.reads for part in parts))
    return Node(value, height, reads, path)


def _member(value: Callable[[Scope], Value], key: str | None, node: Node, *others: Node) -> Node:
    """Return the part that is a member of another one; `key` None: known when it is evaluated."""
    path = None if key is None or node.path is None else (*node.path, key)
    if path is None or len(path) > _LEAF:
        return _over(value, node, *others)
    return _over(value, node, *others, reads=frozenset((path,)), path=path)


def constant(value: Value) -> Node:
    """Return the part that a literal is."""
    return Node(lambda scope: value, text=value if isinstance(value, str) else None)


def variable(name: str, bound: Node) -> Node:
    """Return the part that a name bound to another part is."""

    def value(scope: Scope) -> Value:
        scope.budget.spend(1)
        return scope.variables[name].value()

    return _over(value, bound, path=bound.path)


def bind(name: str, bound: Node, body: Node) -> Node:
    """Return `cel.bind(name, bound, body)`."""

    def value(scope: Scope) -> Value:
        scope.budget.spend(LIST_COST)
        inner = {**scope.variables, name: _Bound(bound, scope)}
        return body.value(Scope(scope.device, inner, scope.budget))

    # What is bound is evaluated for the body, which has what it reads of it.
    return _over(value, bound, body, reads=body.reads, path=body.path)


def listed(items: Sequence[Node]) -> Node:
    """Return a list of parts."""

    def value(scope: Scope) -> Value:
        scope.budget.spend(LIST_COST)
        return [each.value(scope) for each in items]

    return _over(value, *items) if items else Node(value)


def choice(condition: Node, then: Node, otherwise: Node) -> Node:
    """Return `condition ? then : otherwise`."""

    def value(scope: Scope) -> Value:
        return (then if truth(condition.value(scope)) else otherwise).value(scope)

    return _over(value, condition, then, otherwise)


def negation(inner: Node) -> Node:
    """Return `!inner`."""

    def value(scope: Scope) -> Value:
        scope.budget.spend(1)
        return not truth(inner.value(scope))

    return _over(value, inner)


def logical(parts: Sequence[Node], decides: bool) -> Node:
    """Return the parts with `||` between them if True decides, with `&&` if False does."""

    def value(scope: Scope) -> Value:
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


def relation(compare: Relation, left: Node, right: Node) -> Node:
    """Return two parts with a relation between them."""

    def value(scope: Scope) -> Value:
        return compare(left.value(scope), right.value(scope), scope.budget)

    inside = right.path if compare is among and left.text is not None else None
    if inside is not None and len(inside) < _LEAF and left.text is not None:
        return _over(value, left, right, reads=frozenset(((*inside, left.text),)))
    return _over(value, left, right)


def called(function: Method, target: Node, arguments: Sequence[Node]) -> Node:
    """Return a part's method, called."""

    def value(scope: Scope) -> Value:
        values = [each.value(scope) for each in (target, *arguments)]
        return function(values[0], values[1:], scope.budget)

    return _over(value, target, *arguments)


def select(node: Node, name: str) -> Node:
    """Return `node.name`."""

    def value(scope: Scope) -> Value:
        scope.budget.spend(1)
        return member_of(node.value(scope), name)

    return _member(value, name, node)


def indexed(node: Node, key: Node) -> Node:
    """Return `node[key]`."""

    def value(scope: Scope) -> Value:
        scope.budget.spend(1)
        return member_of(node.value(scope), key.value(scope))

    return _member(value, key.text, node, key)


def present(node: Node, name: str) -> Node:
    """Return `has(node.name)`."""

    def value(scope: Scope) -> Value:
        scope.budget.spend(1)
        return among(name, node.value(scope), scope.budget)

    asked = None if node.path is None or len(node.path) >= _LEAF else (*node.path, name)
    return _over(value, node, reads=None if asked is None else frozenset((asked,)))


def made(make: Callable[[str], Value], argument: Node) -> Node:
    """Return what a function makes of a text."""

    def value(scope: Scope) -> Value:
        text = argument.value(scope)
        if not isinstance(text, str):
            raise SelectorError("no such overload")
        scope.budget.spend(tenth(len(text)))
        return make(text)

    return _over(value, argument)


def _of_device(read: Callable[[DeviceFacts], Value], path: Read | None = None) -> Node:
    def value(scope: Scope) -> Value:
        scope.budget.spend(2)  # the name and its member
        return read(scope.device)

    return Node(value, reads=_NOTHING if path is None else frozenset((path,)), path=path)


DEVICE: Final[Mapping[str, Node]] = {
    "driver": _of_device(lambda device: device.driver),
    "attributes": _of_device(lambda device: device.attributes, ("attributes",)),
    "capacity": _of_device(lambda device: device.capacity, ("capacity",)),
    "allowMultipleAllocations": _of_device(lambda device: device.shareable),
}
