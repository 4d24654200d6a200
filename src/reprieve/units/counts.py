"""Numbers with the noun that they count: `1 pod`, `8 pods`, `1 pod` for one of the resource `pods`.

Texts for people count by these functions alone; `tests/wording/test_counts.py` finds the others.
"""

from __future__ import annotations

from typing import Final

__all__ = ["counted", "of_resource"]

#: Names of resources that are plural nouns, with their singular.
_PLURAL: Final = {"pods": "pod"}


def counted(number: int, one: str, many: str = "") -> str:
    """Return `1 pod`, `8 pods`, `18,204 pods`; `many` where the plural has no `s` at its end."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def of_resource(amount: str, resource: str) -> str:
    """Return an amount with the name of its resource: `4 cpu`, `1 pod`."""
    return f"{amount} {_PLURAL.get(resource, resource) if amount == '1' else resource}"
