"""Reads the vectors of workload-aware preemption: one `Vector` per case, gates and times resolved.

What the folder's README leaves to the reader is done here: gates that a case does not name, pods
without a start time (later than all given ones, the earlier in the array the older), and which
cases cannot be run (fake plugins and extenders that are not described).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]

DEFAULT = Path(__file__).resolve().parents[2].parent / "shared" / "conformance"
FOLDER = "workload-aware"
GROUP_GATES = (
    "GenericWorkload",
    "PodGroupPreemptionPolicy",
    "TopologyAwareWorkloadScheduling",
    "CompositePodGroup",
)
REAL_FILTERS = frozenset(
    {
        "InterPodAffinity",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "NodeResourcesFit",
        "NodeUnschedulable",
        "NodeVolumeLimits",
        "PodTopologySpread",
        "TaintToleration",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
    }
)
IDLE_FAKES = frozenset({"skip-on-deferred"})  # has nothing to check wherever it is registered
LISTS = ("nodes", "pods", "podGroups", "compositePodGroups", "pdbs", "pending")


@dataclass(frozen=True, slots=True)
class Vector:
    """A case: `id` is `file.json::name`, `skip` a reason why it cannot be run, or empty."""

    id: str
    kind: str
    case: Json
    skip: str

    @property
    def expect(self) -> Json:
        expected: Json = self.case["expect"]
        return expected

    @property
    def features(self) -> dict[str, bool]:
        features: dict[str, bool] = self.case["features"]
        return features

    @property
    def imposed(self) -> dict[str, str] | None:
        """The placement to impose once all potential victims are gone, in its order."""
        placement = self.case.get("placement")
        if placement is None:
            return None
        return {key: placement[key] for key in self.case.get("placementOrder") or placement}


def folder(vectors: str | None = None) -> Path | None:
    """The folder with the files, under `--vectors` or the default; None where it is absent."""
    given = Path(vectors) if vectors else DEFAULT
    for each in (given / FOLDER, given):
        if (each / "victim_order.json").is_file():
            return each
    return None


def vectors_in(where: Path, *kinds: str) -> Iterator[Vector]:
    """All cases of these kinds (all kinds if none is given), file by file."""
    for path in sorted(where.glob("*.json")):
        for raw in json.loads(path.read_text(encoding="utf-8")):
            if not kinds or raw["kind"] in kinds:
                skip = _skip(raw)
                yield Vector(f"{path.name}::{raw['name']}", raw["kind"], _resolved(raw), skip)


def _skip(case: Json) -> str:
    if case.get("usesExtender"):
        return "a fake extender that is not described"
    if case.get("mockPlugins"):
        return "a fake plugin"
    unknown = set(case.get("plugins") or ()) - REAL_FILTERS - IDLE_FAKES
    expected = case.get("expect")
    fails = isinstance(expected, dict) and (expected.get("status") or {}).get("code") == "Error"
    if unknown or (fails and "TestPlugin" in case["name"]):
        return "a fake plugin"
    return ""


def _resolved(case: Json) -> Json:
    """Return a case, which nobody else has, with what it leaves to the reader."""
    given = case.get("features") or {}
    case["features"] = {
        **dict.fromkeys(GROUP_GATES, False),
        "SchedulerAsyncPreemption": True,
        **given,
    }
    for name in LISTS:
        case[name] = case.get(name) or []
    # Later than every given time, in the order of the array.
    for index, pod in enumerate(case["pods"]):
        status = pod.setdefault("status", {})
        if not status.get("startTime"):
            status["startTime"] = (
                f"2999-01-01T{index // 3600:02}:{index // 60 % 60:02}:{index % 60:02}Z"
            )
    return case
