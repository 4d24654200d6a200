"""Requests of a whole pod that has limits of its own and leaves requests out.

What its containers request by then, LimitRanges included, is what the pod requests; where none of
them requests a resource, the pod's limit stands in.

Source: KEP-2837; pods as an API server of 1.37 stores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubelocal.server.admitting.amounts import canonical
from kubeworld.units.quantities import parse_milli

__all__ = ["complete"]

_SUMMED: Final = ("cpu", "memory")


def complete(spec: dict[str, Any]) -> None:
    """Fill in the requests of the whole pod."""
    own = spec.get("resources") or {}
    limits = own.get("limits") or {}
    if not limits:
        return
    requests = {**(own.get("requests") or {})}
    for name in _SUMMED:
        asked = _asked(spec, name)
        if asked is not None:
            requests.setdefault(name, canonical(f"{asked}m"))
    for name, limit in limits.items():
        if name in _SUMMED or name.startswith("hugepages-"):
            requests.setdefault(name, limit)
    spec["resources"] = {**own, "requests": requests}


def _asked(spec: Mapping[str, Any], name: str) -> int | None:
    """Return thousandths that the containers request together, None where none requests any."""
    running = [_milli(each, name) for each in spec.get("containers") or ()]
    beside, most = list[int](), list[int]()
    for each in spec.get("initContainers") or ():
        amount = _milli(each, name)
        if amount is None:
            continue
        if each.get("restartPolicy") == "Always":
            beside.append(amount)
            most.append(sum(beside))
        else:
            most.append(amount + sum(beside))
    known = [amount for amount in running if amount is not None]
    if not known and not most:
        return None
    return max(sum(known) + sum(beside), *most, 0)


def _milli(container: Mapping[str, Any], name: str) -> int | None:
    amount = ((container.get("resources") or {}).get("requests") or {}).get(name)
    return None if amount is None else parse_milli(amount)
