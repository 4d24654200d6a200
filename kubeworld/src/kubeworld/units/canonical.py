"""The canonical spelling of quantities: `1024Mi` is stored as `1Gi`, `0.5` as `500m`.

Source: the API's rules for canonical quantities: no fraction, the largest suffix that leaves an
integer, binary suffixes only from 1024 up; never finer than a billionth, rounded up.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final

__all__ = ["NotAQuantity", "canonical"]

# No repetition gives back what it matched, so that long texts are read in linear time.
_FORM: Final = re.compile(
    r"([+-]?+)([0-9]++\.?+[0-9]*+|\.[0-9]++)([KMGTPE]i|[eE][+-]?+[0-9]++|[numkMGTPE]?+)", re.ASCII
)
_LOOSE: Final = re.compile(r"([+-]?+[0-9.]++)([eEinumkKMGTP]*+[-+]?+[0-9]*+)", re.ASCII)
_LONGEST: Final = 4_000  # characters; Python makes no number of many more digits
_DECIMAL: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_NANO: Final = 10**9


class NotAQuantity(ValueError):
    """The text is no quantity; the message is the API's."""


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """Return the canonical spelling of `text`.

    Raises:
        NotAQuantity: not a quantity.
    """
    form = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if form is None:
        if _LOOSE.fullmatch(text):
            raise NotAQuantity("unable to parse quantity's suffix")
        raise NotAQuantity(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    sign, digits, suffix = form.groups()
    number = Fraction(f"0{digits}0" if "." in digits else digits)
    if suffix in _BINARY[1:]:
        amount = number * 1024 ** _BINARY.index(suffix)
        if amount >= 1024 and amount.denominator == 1:
            return f"{_minus(sign, amount)}{_scaled(int(amount), 1024, _BINARY)}"
    elif suffix[:1] in ("e", "E") and len(suffix) > 1:
        exponent = max(-30, min(30, int(suffix[1:])))
        return _exponent(sign, number * Fraction(10) ** exponent)
    else:
        amount = number * Fraction(1000) ** (_DECIMAL.index(suffix) - 3)
    return f"{_minus(sign, amount)}{_scaled(ceil(amount * _NANO), 1000, _DECIMAL)}"


def _minus(sign: str, amount: Fraction) -> str:
    return "-" if sign == "-" and amount else ""


def _scaled(units: int, base: int, suffixes: tuple[str, ...]) -> str:
    """Return `units` of the first suffix with the largest suffix that leaves an integer."""
    if units == 0:
        return "0"
    place = 0
    while units % base == 0 and place < len(suffixes) - 1:
        units //= base
        place += 1
    return f"{units}{suffixes[place]}"


def _exponent(sign: str, amount: Fraction) -> str:
    units = ceil(amount * _NANO)
    if units == 0:
        return "0"
    power = -9
    while units % 1000 == 0:
        units //= 1000
        power += 3
    return f"{_minus(sign, amount)}{units}{f'e{power}' if power else ''}"
