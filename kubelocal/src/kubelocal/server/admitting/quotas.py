"""ResourceQuotas: what a namespace may hold, counted and added up when something is created.

`status.used` is what counts, as in a real cluster; the server itself keeps it, and counts it anew
from the objects with every write that changes it, so it cannot drift. `kubeworld.admission.quotas`
states what counts. Source: the ResourceQuota admission plugin; texts of a 1.37 server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubelocal.server.errors import forbidden
from kubelocal.server.state import State
from kubelocal.server.types.kinds import Kind
from kubeworld.admission.quotas import in_scope, source_of, unspecified, usage_of
from kubeworld.objects.pods import is_over
from kubeworld.units import canonical as amounts
from kubeworld.units.quantities import parse_milli

__all__ = ["check", "written"]

_QUOTAS: Final = "resourcequotas"


def check(api: State, kind: Kind, obj: dict[str, Any]) -> None:
    """Refuse a new object that exceeds a quota.

    Raises:
        StatusError: 403, exceeded, or not stated how much it needs.
    """
    metadata = obj["metadata"]
    for quota in _quotas(api, metadata.get("namespace", "")):
        if not (api.controllers or quota.get("status", {}).get("hard")):
            continue
        hard = _hard(quota)
        if not in_scope(quota["spec"], kind.resource, obj):
            continue
        name = quota["metadata"]["name"]
        if kind.resource == "pods":
            missing = unspecified(hard, obj["spec"])
            if missing:
                why = f"failed quota: {name}: must specify {missing}"
                raise forbidden(kind, metadata["name"], why)
        asked = {one: amount for one, amount in usage_of(kind.resource, obj).items() if one in hard}
        used = _known(quota, asked) or _used(api, quota, asked)
        over = sorted(one for one in asked if asked[one] and used[one] + asked[one] > hard[one])
        if over:
            raise forbidden(
                kind,
                metadata["name"],
                f"exceeded quota: {name}, requested: {_texts(asked, over)}, "
                f"used: {_texts(used, over)}, limited: {_texts(hard, over)}",
            )


def written(
    api: State, kind: Kind, new: Mapping[str, Any] | None, old: Mapping[str, Any] | None
) -> None:
    """Write the status of the quotas that a write or removal concerns."""
    if not api.controllers:
        return
    obj = new or old or {}
    if new is not None and old is not None and not _counts_otherwise(kind, new, old):
        return
    for quota in _quotas(api, obj["metadata"].get("namespace", "")):
        if kind.resource != _QUOTAS and not any(
            source_of(name) == kind.resource for name in _hard(quota)
        ):
            continue
        hard = _hard(quota)
        status = {
            "hard": quota["spec"]["hard"],
            "used": {name: _text(name, n) for name, n in sorted(_used(api, quota, hard).items())},
        }
        if quota.get("status") != status:
            api.store.put(_QUOTAS, {**quota, "status": status})


def _counts_otherwise(kind: Kind, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    if kind.resource == _QUOTAS:
        return bool(new.get("spec") != old.get("spec"))
    return kind.resource == "pods" and is_over(new) != is_over(old)


def _quotas(api: State, namespace: str) -> list[dict[str, Any]]:
    if not namespace or not api.store.count(_QUOTAS):
        return []
    found = [stored.decode() for stored in api.store.range(_QUOTAS, namespace)]
    return [quota for quota in found if (quota.get("spec") or {}).get("hard")]


def _hard(quota: Mapping[str, Any]) -> dict[str, int]:
    return {name: parse_milli(amount) for name, amount in quota["spec"]["hard"].items()}


def _known(quota: Mapping[str, Any], names: Iterable[str]) -> dict[str, int] | None:
    """Return what the status states is used, None if it is about something else."""
    status = quota.get("status") or {}
    used = status.get("used") or {}
    if status.get("hard") != quota["spec"]["hard"] or not all(name in used for name in names):
        return None
    return {name: parse_milli(used[name]) for name in names}


def _used(api: State, quota: Mapping[str, Any], names: Iterable[str]) -> Counter[str]:
    """Return what the objects of the quota's namespace use, in thousandths."""
    used: Counter[str] = Counter(dict.fromkeys(names, 0))
    for resource in {source_of(name) for name in used}:
        for stored in api.store.range(resource, quota["metadata"]["namespace"]):
            obj = stored.decode()
            if in_scope(quota["spec"], resource, obj):
                for name, amount in usage_of(resource, obj).items():
                    if name in used:
                        used[name] += amount
    return used


def _texts(values: Mapping[str, int], names: Iterable[str]) -> str:
    return ",".join(f"{name}={_text(name, values[name])}" for name in names)


def _text(name: str, milli: int) -> str:
    """Return an amount as it is written: bytes in binary units where they come out even."""
    if any(part in name for part in ("memory", "storage")) and milli and milli % 1_024_000 == 0:
        return amounts.canonical(f"{milli // 1_024_000}Ki")
    return amounts.canonical(f"{milli}m")
