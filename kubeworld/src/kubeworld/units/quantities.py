"""Kubernetes quantities as integers: `2`, `500m`, `1k`, `2Gi`, `1e3`.

Source: the API's quantity grammar (decimal and binary suffixes, exponents). Fractions of the base
unit round up, as the API's `Value()` does.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final

from kubeworld.units.untrusted import LONGEST_VALUE, Form, Unreadable, shown

__all__ = ["InvalidQuantity", "parse_exact", "parse_milli", "parse_quantity", "quantity_text"]

_FORM: Final = Form(
    r"([+-]?+)([0-9]++\.?+[0-9]*+|\.[0-9]++)([KMGTPE]i|[eE][+-]?+[0-9]++|[numkMGTPE])?+"
)
_BINARY: Final = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
_DECIMAL: Final = ("E", "P", "T", "G", "M", "k")
_HUGE: Final = 10**LONGEST_VALUE
_SUFFIXES: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    **{suffix: Fraction(10 ** (3 * power)) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(2 ** (10 * power)) for power, suffix in enumerate("KMGTPE", start=1)},
}


class InvalidQuantity(Unreadable):
    """The text is not a Kubernetes quantity."""


def parse_quantity(text: str | int | float) -> int:
    """Return the amount in base units, rounded up.

    Raises:
        InvalidQuantity: not a quantity.
    """
    if type(text) is str and len(text) <= LONGEST_VALUE and text.isascii() and text.isdigit():
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
    # A number of more digits than Python writes would raise an error of Python's own.
    huge = isinstance(text, int) and not -_HUGE < text < _HUGE
    form = None if huge else _FORM.fullmatch(str(text))
    if form is None:
        what = "a number of many digits" if huge else _named(text)
        raise InvalidQuantity(f"{what} is not a quantity; accepted: such as 4, 500m, 1.5, 2Gi, 1e3")
    sign, number, suffix = form.group(1), form.group(2), form.group(3) or ""
    amount = Fraction(f"0{number}0" if "." in number else number)
    scale = _SUFFIXES.get(suffix)
    if scale is None:
        exponent = int(suffix[1:])
        if abs(exponent) > 30:
            raise InvalidQuantity(f"{_named(text)} has an exponent beyond 30")
        scale = Fraction(10) ** exponent
    return -amount * scale if sign == "-" else amount * scale


def quantity_text(resource: str, amount: int) -> str:
    """Return an amount as people write it: `3200`, `500m` of cpu, `25Ti` of memory, `8k` of others.

    `cpu` counts milli units, every other resource whole units.
    """
    if resource == "cpu" and amount % 1_000:
        return f"{amount}m"
    whole = amount // 1_000 if resource == "cpu" else amount
    binary = resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
    base, suffixes = (1_024, _BINARY) if binary else (1_000, _DECIMAL)
    for power, suffix in zip(range(len(suffixes), 0, -1), suffixes, strict=True):
        if whole and whole % base**power == 0:
            return f"{whole // base**power}{suffix}"
    return str(whole)


def _named(text: str | int | float) -> str:
    return shown(text) if isinstance(text, str) else repr(text)
