"""The table of kinds that are queued, and how users add rows to it.

Source: specification of the quota plane, sections 10.2 and 10.4.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from reprieve.jobs.model import JobKind
from reprieve.jobs.pod_rows import GATED
from reprieve.jobs.suspendable_rows import SUSPENDABLE
from reprieve.units.errors import UsageError

__all__ = ["BUILT_IN", "gated_off", "job_kinds", "queued_kinds"]

BUILT_IN: Final = (*SUSPENDABLE, *GATED)


def job_kinds(more: Sequence[Any] = (), where: str = "quota.jobKinds") -> tuple[JobKind, ...]:
    """Return the built-in kinds and those of configuration; one of these replaces its namesake.

    Raises:
        UsageError: a row cannot be read; it states where, and what is wrong.
    """
    kinds = {kind.key: kind for kind in BUILT_IN}
    for index, row in enumerate(more):
        try:
            kind = msgspec.convert(row, JobKind)
        except msgspec.ValidationError as error:
            raise UsageError(f"{where}[{index}]: {error}") from None
        if not kind.suspend or not kind.pod_sets:
            raise UsageError(f"{where}[{index}]: suspend and podSets must be given")
        kinds[kind.key] = kind
    return tuple(kinds.values())


def gated_off(
    frameworks: Collection[str], gates: Mapping[str, bool]
) -> tuple[tuple[str, str], ...]:
    """Return the frameworks that are listed and not queued, each with the gate that is off."""
    return tuple(
        (kind.framework, kind.feature)
        for kind in BUILT_IN
        if kind.framework in frameworks and kind.feature and not gates.get(kind.feature, False)
    )


def queued_kinds(
    frameworks: Collection[str], gates: Mapping[str, bool], more: Sequence[Any] = ()
) -> tuple[JobKind, ...]:
    """Return the kinds that are queued: those that are listed, and those of configuration.

    A kind whose pods are gated brings pods with it; where these are not listed themselves, others
    stay gated.

    Raises:
        UsageError: a row of configuration cannot be read.
    """
    built_in = {kind.key: kind for kind in BUILT_IN}
    found = [
        kind
        for kind in job_kinds(more)
        if kind != built_in.get(kind.key)
        or (kind.framework in frameworks and (not kind.feature or gates.get(kind.feature, False)))
    ]
    if any(kind.passes_on for kind in found) and not any(kind.gate for kind in found):
        found += [replace(kind, children_only=True) for kind in GATED if kind.gate]
    return tuple(found)
