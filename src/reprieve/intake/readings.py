"""Samples of a poll -> readings per namespace and pod, as the engine merges them."""

from __future__ import annotations

from collections.abc import Iterable

from reprieve.engine.idle.samples import ImpossibleReading, Reading
from reprieve.intake.exposition import Defect, InvalidSample, Sample

__all__ = ["impossible_by_namespace", "readings_by_namespace"]


def readings_by_namespace(samples: Iterable[Sample]) -> dict[str, dict[str, list[Reading]]]:
    """Return namespace -> pod name -> readings in the text's order."""
    readings: dict[str, dict[str, list[Reading]]] = {}
    for sample in samples:
        readings.setdefault(sample.namespace, {}).setdefault(sample.pod, []).append(
            Reading(sample.gpu_id, sample.utilization, sample.partition or None)
        )
    return readings


def impossible_by_namespace(
    samples: Iterable[InvalidSample],
) -> dict[str, list[ImpossibleReading]]:
    """Return namespace -> readings that cannot be used."""
    readings: dict[str, list[ImpossibleReading]] = {}
    for sample in samples:
        readings.setdefault(sample.namespace, []).append(
            ImpossibleReading(
                sample.pod,
                sample.gpu_id,
                not_a_number=sample.defect is Defect.NAN,
                old=sample.defect is Defect.OLD,
            )
        )
    return readings
