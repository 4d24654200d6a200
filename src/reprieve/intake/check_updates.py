"""What admission checks change of the pods of a workload that holds quota.

A check that is ready may add node selectors and tolerations to pods. They are counted wherever
nodes are chosen for these pods: for places that wait for the checks, and for those of a failed
node. Of two values for one key the first counts here; the job then cannot start, and its Workload
states why.

Source: specification of topology-aware scheduling, sections 2.6 and 6.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from reprieve.api import core, kueue
from reprieve.engine.quota.model import PodSet
from reprieve.intake.quota import toleration_row

__all__ = ["updated_pod_sets"]


class _Update(msgspec.Struct, rename="camel"):
    name: str = ""
    node_selector: dict[str, str] | None = None
    tolerations: list[core.Toleration] | None = None


def updated_pod_sets(
    pod_sets: Sequence[PodSet], checks: Sequence[kueue.AdmissionCheckState]
) -> tuple[PodSet, ...]:
    """Return pod sets with the node selectors and tolerations of checks that are ready."""
    found = {each.name: each for each in pod_sets}
    for check in checks:
        for given in (check.pod_set_updates or ()) if check.state == "Ready" else ():
            try:
                update = msgspec.convert(given, _Update)
            except msgspec.ValidationError:
                continue  # webhooks refuse it, and the job's start fails by it
            row = found.get(update.name)
            if row is not None:
                more = tuple(toleration_row(each) for each in update.tolerations or ())
                found[row.name] = replace(
                    row,
                    node_selector={**(update.node_selector or {}), **row.node_selector},
                    tolerations=(*row.tolerations, *more),
                )
    return tuple(found.values())
