"""The words of a device selector: names, marks, and literals with their values.

Reading is linear: no token is tried twice at a place, and what begins none ends the reading.
Integers have 64 bits, texts no surrogates. Source: the lexis of the CEL language definition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kubeworld.units.untrusted import Unreadable
from reprieve.engine.placement.filters.dynamic.device_costs import MAX_LENGTH

__all__ = ["Token", "UnsupportedSelector", "integer_of", "shown", "text_of", "tokens_of"]


class UnsupportedSelector(Unreadable):
    """The expression is not in the part of CEL that is evaluated here."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word. `kind`: text, number, name or mark."""

    kind: str
    text: str


_TOKEN: Final = re.compile(
    r"""(?P<space>[\s]+|//[^\n]*)
      | (?P<text>[rR]?(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"
          |'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))
      | (?P<number>0[xX][0-9a-fA-F]+|[0-9]+(?![0-9A-Za-z_.]))
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<mark>&&|\|\||==|!=|<=|>=|[<>!?:.,()\[\]-])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\\'\"`?])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(?s:(.)))"
)
_ESCAPED: Final = dict(zip("abfnrtv\\'\"`?", "\a\b\f\n\r\t\v\\'\"`?", strict=True))
_LARGEST: Final = 2**63 - 1


def tokens_of(expression: str) -> list[Token]:
    """Return the words of an expression.

    Raises:
        UnsupportedSelector: it is too long, or something in it is no word.
    """
    if len(expression.encode("utf-8", "replace")) > MAX_LENGTH:
        raise UnsupportedSelector(f"the expression is longer than {MAX_LENGTH} bytes")
    tokens: list[Token] = []
    at = 0
    while at < len(expression):
        found = _TOKEN.match(expression, at)
        if found is None or found.lastgroup is None:
            raise UnsupportedSelector(f"{expression[at : at + 12]!r} is not understood")
        if found.lastgroup != "space":
            tokens.append(Token(found.lastgroup, found.group()))
        at = found.end()
    return tokens


def integer_of(text: str, sign: int = 1) -> int:
    """Return the value of a number, negative with sign -1.

    Raises:
        UnsupportedSelector: it does not fit into 64 bits.
    """
    hexadecimal = text[:2] in ("0x", "0X")
    digits = (text[2:] if hexadecimal else text).lstrip("0") or "0"
    value = int(digits, 16 if hexadecimal else 10) if len(digits) <= 19 else _LARGEST + 2
    if not -_LARGEST - 1 <= sign * value <= _LARGEST:
        raise UnsupportedSelector(f"the number {shown(text)} has more than 64 bits")
    return sign * value


def text_of(literal: str) -> str:
    """Return the value of a text as it is written.

    Raises:
        UnsupportedSelector: it contains an escape that is not understood.
    """
    raw = literal[0] in "rR"
    body = literal[1:] if raw else literal
    width = 3 if len(body) >= 6 and body[:3] in ("'''", '"""') else 1
    body = body[width:-width]
    return body if raw else _ESCAPE.sub(_unescaped, body)


def _unescaped(found: re.Match[str]) -> str:
    plain, two, four, other = found.groups()
    if plain is not None:
        return _ESCAPED[plain]
    if other is not None:
        raise UnsupportedSelector(f"the escape \\{other} is not understood")
    value = int(two or four, 16)
    if 0xD800 <= value <= 0xDFFF:
        raise UnsupportedSelector(f"the escape \\u{four} is no character")
    return chr(value)


def shown(text: str) -> str:
    """Return a text as messages show it, cut where it is long."""
    return text if len(text) <= 60 else f"{text[:57]}..."
