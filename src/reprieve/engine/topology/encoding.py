"""The compact form in which an assignment is written into a Workload, and back.

One slice of domains has, for each level, one value for all or a common prefix and suffix with what
is left of each. With host names that share prefixes several slices may be shorter: the shorter form
is used.

Source: specification of topology-aware scheduling, section 1.5.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from reprieve.engine.topology.model import HOSTNAME, Domain, TopologyAssignment

__all__ = ["TopologyEncodingError", "decoded", "encoded"]

#: So many domains are in one slice at most, and so many slices in one assignment.
_MOST_DOMAINS: Final = 100_000
_MOST_SLICES: Final = 1_000

Encoded = dict[str, Any]


class TopologyEncodingError(ValueError):
    """A written assignment whose parts do not agree."""


def encoded(assignment: TopologyAssignment, by_prefix: bool = True) -> Encoded:
    """Return an assignment as it is written; without domains it has no slices.

    Args:
        assignment: what is to be written.
        by_prefix: whether host names that share prefixes may have slices of their own.
    """
    levels, domains = [*assignment.levels], assignment.domains
    if not domains:
        return {"levels": levels}
    one = _form(levels, [domains])
    if not by_prefix or levels[-1] != HOSTNAME or len(domains) < 2:
        return one
    runs = _runs([each.values[-1] for each in domains])
    if len(runs) == 1:
        return one
    many = _form(levels, [domains[begin:end] for begin, end in runs])
    if len(domains) <= _MOST_DOMAINS and _length(one) < _length(many):
        return one
    return many


def decoded(form: Mapping[str, Any]) -> TopologyAssignment:
    """Return the assignment that a form states, in the order of its parts.

    Raises:
        TopologyEncodingError: it is not of that form, or its lists have other lengths than stated.
    """
    try:
        return _decoded(form)
    except (AttributeError, KeyError, TypeError) as fault:
        raise TopologyEncodingError(f"not a topology assignment: {fault}") from None


def _decoded(form: Mapping[str, Any]) -> TopologyAssignment:
    levels = tuple(form.get("levels") or ())
    domains: list[Domain] = []
    for part in form.get("slices") or ():
        count = part.get("domainCount") or 0
        columns = [_column(each, count) for each in part.get("valuesPerLevel") or ()]
        pods = part.get("podCounts") or {}
        counts = pods.get("individual")
        if counts is None:
            counts = [pods.get("universal")] * count
        if len(counts) != count or len(columns) != len(levels) or None in counts:
            raise TopologyEncodingError("lists of a slice differ from its domainCount")
        for position in range(count):
            values = tuple(column[position] for column in columns)
            domains.append(Domain(values, counts[position]))
    return TopologyAssignment(levels, tuple(domains))


def _column(values: Mapping[str, Any], count: int) -> list[str]:
    universal = values.get("universal")
    if universal is not None:
        return [universal] * count
    each = values.get("individual") or {}
    roots = each.get("roots") or []
    if len(roots) != count:
        raise TopologyEncodingError("roots of a slice differ from its domainCount")
    prefix, suffix = each.get("prefix") or "", each.get("suffix") or ""
    return [f"{prefix}{root}{suffix}" for root in roots]


def _form(levels: list[str], parts: Sequence[Sequence[Domain]]) -> Encoded:
    return {"levels": levels, "slices": [_slice(len(levels), part) for part in parts]}


def _slice(depth: int, domains: Sequence[Domain]) -> Encoded:
    counts = [each.count for each in domains]
    same = len(set(counts)) == 1
    return {
        "domainCount": len(domains),
        "podCounts": {"universal": counts[0]} if same else {"individual": counts},
        "valuesPerLevel": [_values([each.values[at] for each in domains]) for at in range(depth)],
    }


def _values(values: Sequence[str]) -> Encoded:
    if len(set(values)) == 1:
        return {"universal": values[0]}
    shortest = min(map(len, values))
    prefix = _shared(values)
    suffix = _shared([each[::-1] for each in values])[::-1]
    prefix = prefix[: shortest - len(suffix)]
    found: Encoded = {}
    if prefix:
        found["prefix"] = prefix
    if suffix:
        found["suffix"] = suffix
    end = -len(suffix) or None
    found["roots"] = [each[len(prefix) : end] for each in values]
    return {"individual": found}


def _shared(values: Sequence[str]) -> str:
    """Return the longest common beginning."""
    first, last = min(values), max(values)
    for at, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return first[:at]
    return min(first, last, key=len)


def _runs(names: Sequence[str]) -> list[tuple[int, int]]:
    """Return where neighbours with a common prefix begin and end, few enough to be written."""
    prefixes = [_prefixes(name) for name in names]
    times: dict[str, int] = {}
    for each in prefixes:
        for prefix in each:
            times[prefix] = times.get(prefix, 0) + 1
    deepest = max(map(len, prefixes), default=0)
    for depth in range(deepest, 0, -1):
        keys = [next((p for p in reversed(each[:depth]) if times[p] > 1), "") for each in prefixes]
        runs: list[tuple[int, int]] = []
        begin = 0
        for position in range(1, len(keys) + 1):
            goes_on = position < len(keys) and keys[position] == keys[begin]
            if goes_on and position - begin < _MOST_DOMAINS:
                continue
            runs.append((begin, position))
            begin = position
        if len(runs) <= _MOST_SLICES:
            return runs
    return [(0, len(names))]


def _prefixes(name: str) -> list[str]:
    """Return the prefixes of a name that end with a `-` which is not its last character."""
    return [name[: at + 1] for at, sign in enumerate(name[:-1]) if sign == "-"]


def _length(form: Encoded) -> int:
    return len(json.dumps(form, separators=(",", ":")))
