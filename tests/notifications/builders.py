"""Disruptions as the operator writes them."""

from __future__ import annotations

from reprieve.api.disruption import Disruption, DisruptionSpec
from reprieve.api.reprieve import Metadata, ObjectRef

__all__ = ["disruption"]


def disruption(
    number: int = 1, space: str = "team", name: str = "train", preemptor: str = "Pod/urgent"
) -> Disruption:
    return Disruption(
        Metadata(f"train-{number}", space),
        DisruptionSpec(
            subject=ObjectRef("batch/v1", "Job", name, "uid", space),
            lineage="owner/train",
            plan_id="plan",
            plane="scheduling",
            rule="lower priority",
            preemptor=preemptor,
            noticed_at="2026-05-02T03:12:00Z",
            evicting_at="2026-05-02T03:12:01Z",
            ended_at="2026-05-02T03:12:04Z",
            objects=1,
            lost_device_seconds=7200,
            times=1,
            window="1h0m0s",
            spared_by="a higher priority",
        ),
    )
