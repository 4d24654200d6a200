"""Follows the owners of Workloads upwards as far as the watches know them, for their lineage.

The last uid that is named counts, be its object watched or not: a Job that a CronJob made belongs
to the CronJob. What stands above an owner that is not watched is not known, so that the pods of a
Deployment belong to their ReplicaSet. Source: specification of disruptions, section 1.
"""

from __future__ import annotations

from typing import Final

from kubeworld.objects.paths import Json
from reprieve.api import kueue
from reprieve.engine.disruptions.lineage import Participant
from reprieve.intake.lineage import (
    controller_uid,
    lineage_label,
    workload_participant,
    workload_template,
)
from reprieve.intake.quota_workloads import JOB_UID
from reprieve.planes.quota.watches import Watches

__all__ = ["Lineages"]

_DEEPEST: Final = 10
_KEPT: Final = 50_000  # templates


class Lineages:
    """Reads owners in the caches."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches
        # By uid: of a Workload's spec its generation, and its digest, which is slow to make.
        self._templates: dict[str, tuple[int, str]] = {}

    def of(self, workload: kueue.Workload) -> Participant:
        """Return the lineage of a Workload."""
        metadata, label = workload.metadata, ""
        references = metadata.owner_references or ()
        owner = next((each.uid for each in references if each.controller), "")
        owner = owner or (metadata.labels or {}).get(JOB_UID, "")
        for _ in range(_DEEPEST):
            job = self._job(owner)
            if job is None:
                break
            label = lineage_label(job) or label
            above = controller_uid(job)
            if not above:
                break
            owner = above
        return workload_participant(workload, owner, label, self._template(workload))

    def _template(self, workload: kueue.Workload) -> str:
        uid, generation = workload.metadata.uid, workload.metadata.generation
        if not generation:
            return ""  # no server counts it: it may be another spec the next time
        known = self._templates.get(uid)
        if known is not None and known[0] == generation:
            return known[1]
        if len(self._templates) >= _KEPT:
            self._templates.clear()
        template = workload_template(workload)
        self._templates[uid] = generation, template
        return template

    def _job(self, uid: str) -> Json | None:
        if not uid:
            return None
        for watch in self._watches.jobs.values():
            held = watch.cache.get(uid)
            if held is not None:
                return held.object
        return None
