"""What all objects have in common: uid, version, times, owner, claims made from templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sys import intern
from typing import Final

from kubeworld.units.durations import SECOND, InvalidDuration, parse_duration
from kubeworld.units.instants import parse_instant
from kubeworld.units.untrusted import INT64, integer_or_none
from reprieve.api.core import ObjectMeta, PodResourceClaim, ResourceClaimStatus
from reprieve.api.reprieve import (
    LAST_CHECKPOINT,
    NOTICE,
    NOTICE_FILE,
    NOTICE_MAX,
    NOTICE_SPEAKER,
    PREEMPT_MIN_RUNTIME,
    SAVE_COST,
)
from reprieve.units.ids import Uid

__all__ = [
    "DISRUPTION",
    "DISRUPTION_FLOOR",
    "LAST_CHECKPOINT",
    "PREEMPTION_PRIORITY_CLASS",
    "checkpoint_of",
    "claims_of",
    "controller_of",
    "created_of",
    "disruption_of",
    "floor_of",
    "min_runtime_of",
    "notice_in",
    "notice_max_in",
    "notice_of",
    "protection_of",
    "save_cost_in",
    "seconds_of",
    "speaks_of",
    "uid_of",
    "version_of",
]

#: The PriorityClass that counts for a PodGroup, or a pod in no group, as a victim.
PREEMPTION_PRIORITY_CLASS: Final = "reprieve.dev/preemption-priority-class"
#: On a pod: `with-group`, it is evicted only with all others of its group.
DISRUPTION: Final = "reprieve.dev/disruption"
#: On a PodGroup: of how many pods fewer are of no use.
DISRUPTION_FLOOR: Final = "reprieve.dev/disruption-floor"
#: Seconds after which a kubelet shows a changed annotation in a file at the latest.
_FILE_S: Final = 90


def uid_of(metadata: ObjectMeta) -> Uid:
    """Return the uid; an object that was never stored is known by its name."""
    return Uid(metadata.uid or f"{metadata.namespace}/{metadata.name}")


def version_of(metadata: ObjectMeta) -> int:
    """Return the resource version as a number, 0 where it is none."""
    return integer_or_none(metadata.resource_version, 0, INT64[1]) or 0


def seconds_of(text: str | None) -> int | None:
    """Return Unix seconds, None for no time or one that cannot be read."""
    try:
        return None if text is None else parse_instant(text) // 1_000_000_000
    except ValueError:
        return None


def created_of(metadata: ObjectMeta) -> int:
    """Return the time of creation in Unix seconds, 0 where it is missing."""
    return seconds_of(metadata.creation_timestamp) or 0


def protection_of(metadata: ObjectMeta) -> str:
    """Return the name of the PriorityClass that counts for it as a victim, empty for its own."""
    return (metadata.annotations or {}).get(PREEMPTION_PRIORITY_CLASS, "")


def checkpoint_of(metadata: ObjectMeta) -> int:
    """Return Unix seconds of the last checkpoint, 0 for none and one that cannot be read or be."""
    return max(0, seconds_of((metadata.annotations or {}).get(LAST_CHECKPOINT)) or 0)


def disruption_of(metadata: ObjectMeta) -> str:
    """Return whether a pod is evicted with its group, empty where it states nothing."""
    return (metadata.annotations or {}).get(DISRUPTION, "")


def floor_of(metadata: ObjectMeta) -> int:
    """Return the least number of pods of use, 0 where none is stated and -1 for no such number."""
    text = (metadata.annotations or {}).get(DISRUPTION_FLOOR, "")
    if not text:
        return 0
    return integer_or_none(text, least=1) or -1


def min_runtime_of(metadata: ObjectMeta) -> int | None:
    """Return seconds, rounded up, None where nothing is stated and -1 for no such duration."""
    text = (metadata.annotations or {}).get(PREEMPT_MIN_RUNTIME)
    if text is None:
        return None
    try:
        found = parse_duration(text)
    except InvalidDuration:
        return -1
    return -1 if found < 0 else -(-found // SECOND)


def notice_of(metadata: ObjectMeta) -> int:
    """Return seconds of notice that are requested, rounded up; 0 for none, -1 for no duration."""
    return notice_in(metadata.annotations or {})


def notice_in(annotations: Mapping[str, str]) -> int:
    """Return the same for annotations alone; a file comes later, which is granted on top."""
    found = _seconds_in(annotations, NOTICE, unreadable=-1)
    return found + _FILE_S if found > 0 and annotations.get(NOTICE_FILE) == "true" else found


def notice_max_in(annotations: Mapping[str, str]) -> int | None:
    """Return the longest notice that a class allows, None for none stated; unreadable: none."""
    return _seconds_in(annotations, NOTICE_MAX) if NOTICE_MAX in annotations else None


def save_cost_in(annotations: Mapping[str, str]) -> int:
    """Return the seconds of a save, rounded up; 0 for none and no such duration."""
    return _seconds_in(annotations, SAVE_COST)


def _seconds_in(annotations: Mapping[str, str], key: str, unreadable: int = 0) -> int:
    text = annotations.get(key)
    if text is None:
        return 0
    try:
        found = -(-parse_duration(text) // SECOND)
    except InvalidDuration:
        return unreadable
    return found if found >= 0 else unreadable


def speaks_of(metadata: ObjectMeta) -> bool:
    """Whether a pod states that it answers a notice for its unit."""
    return (metadata.annotations or {}).get(NOTICE_SPEAKER) == "true"


def controller_of(metadata: ObjectMeta) -> tuple[str, str, str]:
    """Return kind, name and uid of the controller, empty where there is none."""
    for reference in metadata.owner_references or ():
        if reference.controller:
            return reference.kind, reference.name, intern(reference.uid)
    return "", "", ""


def claims_of(
    entries: Sequence[PodResourceClaim] | None, statuses: Sequence[ResourceClaimStatus] | None
) -> tuple[tuple[str, str | None], ...]:
    """Return for each entry the name of its ResourceClaim.

    None where the entry turned out to need no claim, empty until one is made from the template.
    """
    if not entries:
        return ()
    made = {status.name: status.resource_claim_name for status in statuses or ()}
    found: list[tuple[str, str | None]] = []
    for entry in entries or ():
        if entry.resource_claim_name:
            found.append((entry.name, entry.resource_claim_name))
        else:
            found.append((entry.name, made.get(entry.name, "")))
    return tuple(found)
