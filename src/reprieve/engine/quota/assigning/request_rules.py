"""What a pod set's requests become before they are counted: prefixes left out, transformations.

1. resources whose name starts with an excluded prefix are dropped
2. each transformation of a resource with amount q gives every output `q' * factor`, where q' is q
   times the amount of `multiply_by`, if that is requested; outputs of all inputs are summed, a
   negative sum counts as 0, and is added to what is requested of that resource anyway
3. the resource itself stays (Retain) or is removed (Replace)

Outputs are not transformed again. Amounts that are multiplied are whole units, rounded up.

Source: specification of the quota plane, section 1.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from reprieve.engine.quota.holdings.amounts import clamp

__all__ = ["NO_RULES", "RequestRules", "Transformation"]


@dataclass(frozen=True, slots=True)
class Transformation:
    """What one resource stands for; `outputs` are factors in units of the output resource."""

    outputs: Mapping[str, Fraction] = field(default_factory=dict)
    multiply_by: str = ""
    retain: bool = True


@dataclass(frozen=True, slots=True)
class RequestRules:
    """Rules for all workloads; transformations by the resource that they are for.

    `device_classes`: as which resource devices of claims are counted, by the name of their class.
    """

    excluded_prefixes: tuple[str, ...] = ()
    transformations: Mapping[str, Transformation] = field(default_factory=dict)
    device_classes: Mapping[str, str] = field(default_factory=dict)

    def apply(self, requests: Mapping[str, int]) -> dict[str, int]:
        """Return what is counted of one pod's `requests`, both in engine units."""
        asked = {
            name: amount
            for name, amount in requests.items()
            if not name.startswith(self.excluded_prefixes)
        }
        if not any(name in self.transformations for name in asked):
            return asked
        found, outputs = {}, dict[str, Fraction]()
        for name, amount in asked.items():
            rule = self.transformations.get(name)
            if rule is None or rule.retain:
                found[name] = amount
            if rule is None:
                continue
            times = _units(name, amount)
            if rule.multiply_by in asked:
                times *= _units(rule.multiply_by, asked[rule.multiply_by])
            for output, factor in rule.outputs.items():
                outputs[output] = outputs.get(output, Fraction(0)) + factor * times
        for output, total in outputs.items():
            amount = ceil(max(total, Fraction(0)) * (1_000 if output == "cpu" else 1))
            found[output] = clamp(found.get(output, 0) + amount)
        return found


NO_RULES = RequestRules()


def _units(name: str, amount: int) -> int:
    return -(-amount // 1_000) if name == "cpu" else amount
