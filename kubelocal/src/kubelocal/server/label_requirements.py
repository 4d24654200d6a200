"""Label selectors as text, as `-l` and `labelSelector=` have them.

Grammar, order of checks and texts: k8s.io/apimachinery's package `labels`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kubelocal.server.errors import StatusError, bad_request
from kubelocal.server.types.metadata import label_value_problem, qualified_name_problems

__all__ = ["Requirement", "parse_requirements"]

_TOKEN: Final = re.compile(r"[ \t\r\n]*(?:(!=|==|=|!|,|\(|\)|>|<)|([^ \t\r\n!=,()<>]+))")
_OPERATORS: Final = {
    "in": "in",
    "notin": "notin",
    "=": "in",
    "==": "in",
    "!=": "notin",
    ">": "gt",
    "<": "lt",
}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_END: Final = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one label has to be; `operator`: in, notin, exists, absent, gt or lt."""

    key: str
    operator: str
    values: frozenset[str]

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
        bound = int(next(iter(self.values)))
        if value is None or not _INTEGER.fullmatch(value):
            return False
        return int(value) > bound if self.operator == "gt" else int(value) < bound


def parse_requirements(text: str) -> tuple[Requirement, ...]:
    """Return what `text` requires.

    Raises:
        StatusError: 400, the text is no label selector.
    """
    tokens = _Tokens(text)
    requirements: list[Requirement] = []
    while not tokens.at_end():
        if not (tokens.at_word() or tokens.peek() == "!"):
            raise bad_request(
                f"found '{tokens.peek()}', expected: !, identifier, or 'end of string'"
            )
        requirements.append(_requirement(tokens))
        if tokens.at_end():
            break
        found = tokens.next_token()
        if found != ",":
            raise bad_request(f"found '{found}', expected: ',' or 'end of string'")
        if not (tokens.at_word() or tokens.peek() == "!"):
            raise bad_request(f"found '{tokens.peek()}', expected: identifier after ','")
    return tuple(requirements)


def _requirement(tokens: _Tokens) -> Requirement:
    absent = tokens.accept("!")
    if not tokens.at_word():
        raise _unparsable(f"found '{tokens.peek()}', expected: identifier")
    key = tokens.next_token()
    problems = qualified_name_problems(key)
    if problems:
        raise _unparsable(f"<nil>: Invalid value: {_quoted(key)}: {'; '.join(problems)}")
    if absent:
        return Requirement(key, "absent", frozenset())
    if tokens.at_end() or tokens.peek() == ",":
        return Requirement(key, "exists", frozenset())
    sign = tokens.next_token()
    operator = _OPERATORS.get(sign)
    if operator is None:
        raise _unparsable(f"found '{sign}', expected: in, notin, =, ==, !=, gt, lt")
    values = _values(tokens) if sign in ("in", "notin") else {_exact_value(tokens)}
    wrong = list(_wrong_values(key, operator, sorted(values)))
    if wrong:
        raise _unparsable(wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")
    return Requirement(key, operator, frozenset(values))


def _exact_value(tokens: _Tokens) -> str:
    if tokens.at_end() or tokens.peek() == ",":
        return ""
    if not tokens.at_word():
        raise _unparsable(f"found '{tokens.peek()}', expected: identifier")
    return tokens.next_token()


def _values(tokens: _Tokens) -> set[str]:
    """Return what stands in parentheses; a value may be empty, as in `(,a)`."""
    if not tokens.accept("("):
        raise _unparsable(f"found '{tokens.peek()}' expected: '('")
    if tokens.accept(")"):
        return {""}
    if not (tokens.at_word() or tokens.peek() == ","):
        raise _unparsable(f"found '{tokens.peek()}', expected: ',', ')' or identifier")
    values: set[str] = set()
    while not tokens.accept(")"):
        if tokens.at_word():
            values.add(tokens.next_token())
            if tokens.at_end() or tokens.peek() not in (",", ")"):
                raise _unparsable(f"found '{tokens.peek()}', expected: ',' or ')'")
        elif tokens.accept(","):
            if not values or tokens.peek() == ")":
                values.add("")
            if tokens.accept(","):
                values.add("")
        else:
            raise _unparsable(f"found '{tokens.peek()}', expected: ',', or identifier")
    return values


def _wrong_values(key: str, operator: str, values: list[str]) -> Iterator[str]:
    if operator in ("gt", "lt"):
        for index, value in enumerate(values):
            if not _INTEGER.fullmatch(value):
                yield (
                    f"values[{index}]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, "
                    "the value must be an integer"
                )
    for index, value in enumerate(values):
        problem = label_value_problem(value)
        if problem is not None:
            yield f"values[{index}][{key}]: Invalid value: {_quoted(value)}: {problem}"


class _Tokens:
    """The signs and words of a text, with a place in it."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._place = 0

    def at_end(self) -> bool:
        return self._place >= len(self._tokens)

    def at_word(self) -> bool:
        return not self.at_end() and bool(self._tokens[self._place][1])

    def peek(self) -> str:
        """Return the next sign or word, an empty text at the end."""
        return _END if self.at_end() else "".join(self._tokens[self._place])

    def next_token(self) -> str:
        found = self.peek()
        self._place += 1
        return found

    def accept(self, sign: str) -> bool:
        found = not self.at_end() and self._tokens[self._place][0] == sign
        self._place += found
        return found


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _unparsable(detail: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {detail}")
