"""What evaluating a device selector may cost: Kubernetes' budget, counted as its CEL library does.

A unit is about one access to a member. A text costs a tenth of a unit per character that is
traversed, a match the tenth of the text times a quarter of the pattern, membership the length of
the list, making a list 10, any other call 1; constants, `&&`, `||` and `? :` are free. Beyond
that, each list inside a list is counted when lists are compared, since lists of lists can be
exponentially larger than the text that states them. Source: `CELSelectorExpressionMaxCost` and
`CELSelectorExpressionMaxLength` of resource.k8s.io/v1; cost model of the CEL library for Go.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "LIST_COST",
    "MAX_COST",
    "MAX_LENGTH",
    "Budget",
    "CostExceeded",
    "SelectorError",
    "tenth",
]

MAX_COST: Final = 1_000_000  # of one expression for one device
MAX_LENGTH: Final = 10 * 1024  # bytes of an expression
LIST_COST: Final = 10


class SelectorError(ValueError):
    """The expression has no value for this device; the text is CEL's."""


class CostExceeded(SelectorError):
    """The evaluation was ended; nothing in the expression can turn this into a value."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class Budget:
    """What is left for one evaluation."""

    __slots__ = ("left",)

    def __init__(self, limit: int = MAX_COST) -> None:
        self.left = limit

    def spend(self, cost: int) -> None:
        """Add a cost.

        Raises:
            CostExceeded: more than is left.
        """
        self.left -= cost
        if self.left < 0:
            raise CostExceeded


def tenth(length: int) -> int:
    """Return what traversing a text of this many characters costs."""
    return -(-length // 10)
