"""What a tenant reads of his displaced work, by the rule that chose it.

Rules of records are words of the engine and of compatible systems; a tenant gets a sentence, and
what would have spared the work. Nothing here names anything of another namespace. Source:
specification of disruptions, section 6.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from kubeworld.units.durations import format_duration
from reprieve.engine.disruptions.questions import Enforcement
from reprieve.engine.notice.granting import Withheld
from reprieve.units.counts import counted

__all__ = [
    "EVICTION",
    "NOBODY",
    "REPEATED",
    "known_as",
    "notice_reason",
    "repeated_text",
    "requested_by",
    "rule_text",
    "spared_by",
    "withheld_text",
]

#: For whom work was preempted where capacity was freed for no work.
NOBODY: Final = "nobody"
#: What stands in place of a plane where others request an eviction through the Eviction API.
EVICTION: Final = "eviction"
_MOST_REQUESTERS: Final = 3  # that are named
#: Reason of the event on work that is displaced again and again.
REPEATED: Final = "DisplacedRepeatedly"
_DIGITS: Final = 4
_REPEATED: Final = {
    Enforcement.TOLD: "that is reported, and does not protect it",
    Enforcement.EQUALS: "for a time it is not preempted for work without a higher priority",
    Enforcement.ALL: "for a time it is preempted for emergencies alone",
}

_WITHHELD: Final[Mapping[str, str]] = {
    Withheld.NOT_ALLOWED: "its queue or priority class allows none",
    Withheld.NO_PATIENCE: "the operator allows no preemptor to wait for one",
    Withheld.EMERGENCY: "the preemptor has emergency priority and does not wait",
    Withheld.NOT_WORTH_IT: "it had less to save than the wait for it was expected to cost",
}

_QUOTA_RULES: Final = {
    "InClusterQueue": (
        "lower priority, or later, in the same ClusterQueue",
        "a higher priority than the work that wanted its quota, or free quota in the ClusterQueue",
    ),
    "InCohortReclamation": (
        "it used quota that another queue has lent and reclaims",
        "staying within the nominal quota of its own ClusterQueue",
    ),
    "InCohortFairSharing": (
        "its queue had the larger share of the cohort",
        "a smaller share of the cohort, or a higher weight of its queue",
    ),
    "InCohortReclaimWhileBorrowing": (
        "it used quota that another queue has lent, for work of a higher priority",
        "a higher priority, or staying within the nominal quota of its own ClusterQueue",
    ),
}
_IDLE_RULES: Final = {
    "OldestIdle": (
        "its devices were idle for the longest, and others waited for them",
        "using its devices, a longer grace period, or a policy that never preempts it",
    ),
    "FewestIdle": (
        "its devices were idle, and no other idle work with so few would have sufficed",
        "using its devices, a longer grace period, or a policy that never preempts it",
    ),
    "BesidePriority": (
        "its devices were idle, and sufficed together with work of lower priority",
        "using its devices, a longer grace period, or a policy that never preempts it",
    ),
    "HoldsQuota": (
        "its devices were idle, and it held the quota that others waited for",
        "using its devices, a longer grace period, or a policy that never preempts it",
    ),
    "Always": (
        "its devices were idle for longer than its policy allows",
        "using its devices, or a longer grace period",
    ),
    "FoundPreempting": (
        "its GpuWorkload was found marked for preemption",
        "using its devices",
    ),
}
_SCHEDULING: Final = (
    "a higher priority than the work that needed its node, or a minimum running time "
    "(reprieve.dev/preempt-min-runtime), where the operator allows one"
)


def notice_reason(plane: str) -> str:
    """Return the reason that a notice gives its pods; it does not name the preemptor."""
    if plane == EVICTION:
        return "its eviction was requested"
    return "another workload needs the capacity"


def requested_by(requesters: Sequence[str]) -> str:
    """Return the rule of an eviction that others requested."""
    named = ", ".join(requesters[:_MOST_REQUESTERS])
    more = len(requesters) - _MOST_REQUESTERS
    others = f" and {more} more" if more > 0 else ""
    return (
        f"its eviction was requested by {named}{others}" if named else "its eviction was requested"
    )


def rule_text(plane: str, rule: str) -> str:
    """Return why work was chosen; a rule that is not known here is stated as it is."""
    if plane in ("scheduling", EVICTION):
        return rule
    return _of(plane, rule)[0]


def spared_by(plane: str, rule: str) -> str:
    """Return what would have spared it."""
    if plane == "scheduling":
        return _SCHEDULING
    return _of(plane, rule)[1]


def repeated_text(times: int, window: int, enforcement: Enforcement) -> str:
    """Return the text about work that was displaced so often; `window` in nanoseconds."""
    return (
        f"this lineage was displaced {counted(times, 'time')} within {format_duration(window)}: "
        f"{_REPEATED[enforcement]}"
    )


def known_as(key: bytes, namespace: str, lineage: str) -> str:
    """Return what people of a namespace may know of work of another one.

    The number is the same whenever that work is meant, and another one in each namespace: without
    the key no one can determine that two numbers are the same work. An empty key gives none.
    """
    if not key:
        return "another tenant's work"
    said = f"{namespace}\0{lineage}".encode()
    return f"another tenant's work #{hmac.new(key, said, hashlib.sha256).hexdigest()[:_DIGITS]}"


def _of(plane: str, rule: str) -> tuple[str, str]:
    known = _QUOTA_RULES if plane == "quota" else _IDLE_RULES
    return known.get(rule, (rule, ""))


def withheld_text(reason: str) -> str:
    """Return why work that requests notice got none, empty where it did not lack it."""
    return _WITHHELD.get(reason, reason)
