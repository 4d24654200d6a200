"""Literal switches: where Reprieve's default is safer than the reference, and how to undo it.

Each hazard of the specification's section 17 whose recommended handling changes an outcome has one
switch, `gpuPreemption.literal.<name>`, off by default. H9 has no recommended handling (a demand
counts its whole total, as section 13 states) and H14 changes costs only, so neither has a switch.
`SWITCHES` is the one table: settings, documentation and tests read it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

__all__ = ["SWITCHES", "LiteralSwitches", "Switch"]


@dataclass(frozen=True, slots=True)
class LiteralSwitches:
    """True: do literally what the reference does. Field names are those of `SWITCHES`."""

    podless_idle_stays: bool = False
    missing_metrics_are_zero: bool = False
    delete_without_uid: bool = False
    preempted_not_in_flight: bool = False
    impossible_samples_refuse_all: bool = False
    partitions_collapse: bool = False
    owner_uid_unchecked: bool = False
    always_not_credited: bool = False
    podless_demand_stays: bool = False
    node_roots_tracked: bool = False
    partial_sets_marked: bool = False
    silence_counts_as_idle_time: bool = False
    annotations_read_once: bool = False
    sample_times_ignored: bool = False

    @classmethod
    def all(cls) -> LiteralSwitches:
        """Return every switch on: the reference, hazards included."""
        return cls(**{switch.field: True for switch in SWITCHES})

    def switched_on(self) -> tuple[str, ...]:
        """Return the written names of the switches that are on, in the table's order."""
        return tuple(switch.name for switch in SWITCHES if getattr(self, switch.field))


@dataclass(frozen=True, slots=True)
class Switch:
    """One row: the written name, the hazard's number in the specification, both behaviours."""

    name: str
    hazard: str
    default: str
    literal: str
    field: str


SWITCHES: Final[tuple[Switch, ...]] = (
    Switch(
        "podlessIdleStays",
        "H1",
        "An idle or active workload without a live pod becomes PendingOther; its timer is cleared.",
        "It keeps its phase and its GPUs count as capacity to free.",
        "podless_idle_stays",
    ),
    Switch(
        "missingMetricsAreZero",
        "H2",
        "Only fresh samples count; without them a workload keeps its phase (at first: Active).",
        "No sample counts as 0 %, and samples never grow old.",
        "missing_metrics_are_zero",
    ),
    Switch(
        "deleteWithoutUid",
        "H3",
        "A root is deleted only while it has the recorded uid.",
        "A root is deleted by name, also one that was created again.",
        "delete_without_uid",
    ),
    Switch(
        "preemptedNotInFlight",
        "H4",
        "GPUs of a Preempted workload count for its demand until its pods have ended and settled.",
        "They count only while the phase is Preempting.",
        "preempted_not_in_flight",
    ),
    Switch(
        "impossibleSamplesRefuseAll",
        "H5",
        "NaN, infinite and out-of-range samples are dropped, the others are kept.",
        "One of them keeps all samples of its workload from being stored (a NaN for a known GPU "
        "is ignored).",
        "impossible_samples_refuse_all",
    ),
    Switch(
        "partitionsCollapse",
        "H6",
        "Partitions of one GPU are kept apart by gpu_partition_id.",
        "The last partition in the text wins.",
        "partitions_collapse",
    ),
    Switch(
        "ownerUidUnchecked",
        "H7",
        "An owner whose uid differs from the reference counts as not found.",
        "An owner found under the name is accepted.",
        "owner_uid_unchecked",
    ),
    Switch(
        "alwaysNotCredited",
        "H8",
        "GPUs freed under policy Always are credited to demands, the oldest first.",
        "They are credited to no demand.",
        "always_not_credited",
    ),
    Switch(
        "podlessDemandStays",
        "H10",
        "A demand without a live pod becomes PendingOther.",
        "It stays PendingGpu.",
        "podless_demand_stays",
    ),
    Switch(
        "nodeRootsTracked",
        "H11",
        "A pod whose root is a Node (a static pod) is never tracked.",
        "It is tracked; preempting it would delete the Node.",
        "node_roots_tracked",
    ),
    Switch(
        "partialSetsMarked",
        "H12",
        "All victims are read again before the first is marked; one change spares them all.",
        "Victims that are still Idle are evicted although another one of the set is not.",
        "partial_sets_marked",
    ),
    Switch(
        "silenceCountsAsIdleTime",
        "H13",
        "After two freshness windows without a fresh sample the idle timer is cleared.",
        "Idle time passes while the exporter is silent or the operator is down.",
        "silence_counts_as_idle_time",
    ),
    Switch(
        "annotationsReadOnce",
        "section 4",
        "Annotations are followed; a value that is not accepted gives way to the next tier.",
        "They are read when the GpuWorkload is made; a bad value of the root hides the other one.",
        "annotations_read_once",
    ),
    Switch(
        "sampleTimesIgnored",
        "section 10",
        "A sample whose own time is farther from now than the freshness window is dropped.",
        "The time on a line is not read: a dead exporter's last value counts as of now.",
        "sample_times_ignored",
    ),
)

if {switch.field for switch in SWITCHES} != {field.name for field in fields(LiteralSwitches)}:
    raise AssertionError("SWITCHES and LiteralSwitches name different switches")
