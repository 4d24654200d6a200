"""Work of which some pods wait since others of its own use the nodes: no other work keeps them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from reprieve.engine.diagnosis.causes import CAUSE, Cause
from reprieve.engine.diagnosis.model import Change, Diagnosis
from reprieve.engine.diagnosis.reasons import Reason

__all__ = ["of_own_pods", "with_own_cause"]


def of_own_pods(found: Diagnosis, uids: Collection[str]) -> Diagnosis:
    """Return the diagnosis of work with these uids, with this cause where all holders are its own.

    Holders that are too many to be listed are not known to be its own.
    """
    holders = found.blockers
    listed = len(holders) == sum(found.refused.values())
    if not holders or not listed or not all(each.holder.uid in uids for each in holders):
        return found
    return with_own_cause(found)


def with_own_cause(found: Diagnosis) -> Diagnosis:
    """Return the diagnosis of what waits for full nodes, for its own pods; others as they are.

    A higher priority is that of all of its pods, so that none is preempted for another one.
    """
    if found.reason is not Reason.FULL or found.cause is not None:
        return found
    fixes = tuple(each for each in found.fixes if each.change is not Change.HIGHER_PRIORITY)
    values = {**found.values, CAUSE: Cause.OWN_PODS}
    return replace(found, values=values, refused={}, fixes=fixes)
