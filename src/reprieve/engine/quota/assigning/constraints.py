"""What pods require of nodes, and nodes of pods: requirements on labels, taints, tolerations.

Their meaning is in `engine.selectors`. Source: specification of the quota plane, section 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprieve.engine.selectors import covers, requirement_holds

__all__ = ["LabelSelector", "NodeExpression", "Taint", "Toleration"]


@dataclass(frozen=True, slots=True)
class NodeExpression:
    """One requirement on labels: `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` satisfy it."""
        return requirement_holds(self.operator, self.values, labels.get(self.key))


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements that must all hold; none at all select everything."""

    expressions: tuple[NodeExpression, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` satisfy all of it."""
        return all(each.matches(labels) for each in self.expressions)


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a flavor's nodes."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{{{self.key} {self.value} {self.effect} <nil>}}"


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a pod or of a flavor; empty fields match everything.

    `lasting`: for as long as the taint is there, not for some seconds.
    """

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    lasting: bool = True

    def tolerates(self, taint: Taint) -> bool:
        """Return whether the taint does not keep the pod away."""
        return covers(self, taint)
