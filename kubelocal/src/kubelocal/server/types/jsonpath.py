r"""The simple JSONPath of printer columns, scale paths and selectable fields.

`.a.b`, `.a['b.c']`, `.a\.b`, `.list[0]`, `.list[*]` and `.list[?(@.type=="Ready")].status`.
Source: the API's documentation of JSONPath; whatever is not understood is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import orjson

__all__ = ["InvalidPath", "find"]

Step = Callable[[Any], Iterator[Any]]


class InvalidPath(ValueError):
    """The text is no path in this dialect."""


_TOKEN: Final = re.compile(
    r"""\.(?P<name>(?:[^.\[\]'"\\]|\\.)+)
      | \['(?P<quoted>(?:[^'\\]|\\.)*)'\]
      | \[(?P<index>-?\d+)\]
      | (?P<all>\[\*\]|\.\*)
      | \[\?\(\s*@(?P<left>[^=!<>\s]*)\s*
        (?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>[^)]+?)\s*)?\)\]
    """,
    re.VERBOSE,
)


def find(path: str, value: Any) -> list[Any]:
    """Return what `path` finds in `value`; nothing is an empty list.

    Raises:
        InvalidPath: not in this dialect.
    """
    found = [value]
    for step in _steps(path):
        found = [inner for each in found for inner in step(each)]
    return found


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[Step, ...]:
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = text.removeprefix("$")
    if text and not text.startswith((".", "[")):
        text = f".{text}"
    steps: list[Step] = []
    position = 0
    while position < len(text) and text != ".":
        token = _TOKEN.match(text, position)
        if token is None:
            raise InvalidPath(f"{path!r} is no path at {text[position:]!r}")
        steps.append(_step(token))
        position = token.end()
    return tuple(steps)


def _step(token: re.Match[str]) -> Step:
    if token["all"]:
        return _all
    if token["index"] is not None:
        return _at(int(token["index"]))
    if token["left"] is not None:
        return _filter(token["left"], token["operator"], token["right"])
    name = token["name"] if token["name"] is not None else token["quoted"]
    return _named(re.sub(r"\\(.)", r"\1", name))


def _named(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _all(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _at(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}


def _filter(left: str, operator: str | None, right: str | None) -> Step:
    wanted = _literal(right) if right is not None else None

    def holds(item: Any) -> bool:
        found = find(left, item) if left else [item]
        if operator is None:
            return bool(found)
        try:
            return bool(found) and _COMPARE[operator](found[0], wanted)
        except TypeError:
            return False

    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from (item for item in value if holds(item))

    return step


def _literal(text: str) -> Any:
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        return text[1:-1]
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
