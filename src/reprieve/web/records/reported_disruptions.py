"""A preemption whose record the viewer cannot read: what Disruptions report to his tenant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeworld.units.instants import instant_or_none
from reprieve.api.disruption import DisruptionDemand
from reprieve.web.mirror.reported import DisruptionRecord
from reprieve.web.tables import Cell, seconds
from reprieve.wording.demands import halves_text, rejection_text

__all__ = ["rows_of_disruptions", "values_of_disruptions"]


def values_of_disruptions(reported: Sequence[DisruptionRecord]) -> dict[str, Any]:
    """Return what the Disruptions of one plan state together, in the form of the page's values."""
    first = reported[0].disruption.spec
    ended = [instant_or_none(each.disruption.spec.ended_at) for each in reported]
    begun = [instant_or_none(each.disruption.spec.evicting_at) for each in reported]
    return {
        "address": first.plan_id,
        "record": None,
        "plan": first.plan_id,
        "plane": first.plane,
        "attempt": None,
        "dryRun": False,
        "state": None,
        "reason": "",
        "decided": seconds(instant_or_none(first.noticed_at)),
        "started": seconds(min(filter(None, begun), default=None)),
        "finished": seconds(max(filter(None, ended), default=None)),
        "preemptor": first.preemptor,
        "command": f"kubectl get disruptions -n {reported[0].namespace}",
        "totals": {
            "objects": sum(each.disruption.spec.objects for each in reported),
            "units": len(reported),
            "shown": len(reported),
            "gpus": None,
            "lost": sum(each.lost_device_seconds for each in reported),
            "states": {"Evicted": len(reported)},
            "complete": False,
        },
        "need": None,
        "reprieved": {},
        "proof": None,
        "again": None,
        "demand": _demand(first.demand),
    }


def _demand(reported: DisruptionDemand | None) -> dict[str, Any] | None:
    """Return what is reported of the demand; None where one plane decides alone."""
    if reported is None:
        return None
    return {
        "stages": [{"plane": plane, "preemption": ""} for plane in reported.stages],
        "proof": halves_text(reported.quota, reported.placement),
        "rejected": [
            {"plane": each.plane, "text": rejection_text(each.reason)} for each in reported.rejected
        ],
        "depth": reported.depth,
    }


def rows_of_disruptions(reported: Sequence[DisruptionRecord]) -> Mapping[str, tuple[Cell, ...]]:
    """Return the rows of the table `victims`."""
    return {
        each.unit: (
            each.unit,
            each.disruption.spec.objects,
            None,
            each.disruption.spec.rule,
            f"it would have been spared by {each.disruption.spec.spared_by}"
            if each.disruption.spec.spared_by
            else "",
            each.lost_device_seconds,
            "Evicted",
            seconds(each.ended or None),
            "",
            "",
            None,
        )
        for each in reported
    }
