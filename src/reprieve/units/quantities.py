"""Kubernetes quantities as integers: `2`, `500m`, `1k`, `2Gi`, `1e3`.

Source: the API's quantity grammar (decimal and binary suffixes, exponents). Fractions of the base
unit round up, as the API's `Value()` does.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final

__all__ = ["InvalidQuantity", "parse_exact", "parse_milli", "parse_quantity"]

_FORM: Final = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?", re.ASCII
)
_SUFFIXES: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    **{suffix: Fraction(10 ** (3 * power)) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(2 ** (10 * power)) for power, suffix in enumerate("KMGTPE", start=1)},
}


class InvalidQuantity(ValueError):
    """The text is not a Kubernetes quantity."""


def parse_quantity(text: str | int | float) -> int:
    """Return the amount in base units, rounded up.

    Raises:
        InvalidQuantity: not a quantity.
    """
    if type(text) is str and text.isascii() and text.isdigit():
        return int(text)
    return ceil(parse_exact(text))


# The same few amounts are compared again and again.
@lru_cache(maxsize=4096, typed=True)
def parse_milli(text: str | int | float) -> int:
    """Return the amount in thousandths of the base unit, rounded up.

    Raises:
        InvalidQuantity: not a quantity.
    """
    return ceil(parse_exact(text) * 1_000)


def parse_exact(text: str | int | float) -> Fraction:
    """Return the amount in base units as it is written.

    Raises:
        InvalidQuantity: not a quantity.
    """
    form = _FORM.fullmatch(str(text))
    if form is None:
        raise InvalidQuantity(
            f"{text!r} is not a quantity; accepted: such as 4, 500m, 1.5, 2Gi, 1e3"
        )
    sign, number, suffix = form.group(1), form.group(2), form.group(3) or ""
    amount = Fraction(f"0{number}0" if "." in number else number)
    scale = _SUFFIXES.get(suffix)
    if scale is None:
        exponent = int(suffix[1:])
        if abs(exponent) > 30:
            raise InvalidQuantity(f"{text!r} has an exponent beyond 30")
        scale = Fraction(10) ** exponent
    return -amount * scale if sign == "-" else amount * scale
