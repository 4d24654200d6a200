"""The text about a reason with several causes once the cause is known, and what to do about it.

The first step that has all of its values is reported; the last one needs those that the finder of
the cause always knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reprieve.engine.diagnosis.causes import Cause
from reprieve.engine.diagnosis.reasons import Reason

__all__ = ["CAUSES", "CauseWords"]


@dataclass(frozen=True, slots=True)
class CauseWords:
    """The text about a cause: always, where the values are there, and what to do."""

    reason: Reason
    sentence: str
    steps: tuple[str, ...]
    details: tuple[str, ...] = ()


_LACKS: Final = ("it lacks {lacks}", "that is of its {pod_sets}")
_OPEN: Final = "have `borrowWithinCohort.policy: LowerPriority` set in ClusterQueue {cluster_queue}"
_OWN: Final = "Request no more than {own}, or "
_OTHERWISE: Final = "Wait until some of it ends, request less, or "
_POLICIES: Final = "have `preemption` of ClusterQueue {cluster_queue} set to {setting}"
_ABOVE: Final = " and use a priority above {above}"

_SELECT: Final = "Have its pods select the nodes of these flavors by their labels ({selected})"
_CHOICE: Final = "have ClusterQueue {cluster_queue} with {setting}"
_SHORT: Final = ("{short}",)
_FREE: Final = "Its quota is free, and its places are those of work that"
_WIDER: Final = "Require {wider}, which has capacity now, "

CAUSES: Final[Mapping[Cause, CauseWords]] = {
    Cause.DEACTIVATED: CauseWords(
        Reason.STOPPED,
        "Its Workload is deactivated",
        ("Activate Workload {workload}: `spec.active: true`.",),
        ("the Workload is {workload}",),
    ),
    Cause.DEACTIVATED_BY_OPERATOR: CauseWords(
        Reason.STOPPED,
        "Its Workload was deactivated by the operator",
        ("Mend what led to it, then activate Workload {workload}: `spec.active: true`.",),
        ("the Workload is {workload}", "the reason is {why}", "its pods were refused: {said}"),
    ),
    Cause.NOT_COVERED: CauseWords(
        Reason.NO_FLAVOR_MATCHES,
        "Its queue has no quota for a resource that its pods request",
        (
            (
                "Have {resources} added to `coveredResources` of ClusterQueue {cluster_queue}, set "
                "`resources.quotaCheckStrategy: IgnoreUndeclared`, or do not request it."
            ),
        ),
        (
            "ClusterQueue {cluster_queue} has none for {resources}",
            "they request it by {implied_by}",
        ),
    ),
    Cause.LEVEL_MISSING: CauseWords(
        Reason.NO_FLAVOR_MATCHES,
        "No topology of its queue's flavors has the level that its pods request",
        ("Request a level that a topology has: {levels}.",),
        ("they request {level}", "topology {topologies}"),
    ),
    Cause.NO_TOPOLOGY: CauseWords(
        Reason.NO_FLAVOR_MATCHES,
        "Its pods request a topology, and no flavor of its queue has one",
        (
            (
                "Drop the annotation, use another queue, or have `topologyName` set in a flavor of "
                "ClusterQueue {cluster_queue}."
            ),
        ),
        ("they request {level}",),
    ),
    Cause.WIDER_LEVEL: CauseWords(
        Reason.NO_PLACES,
        "No part of its topology has capacity for all of its pods, even without all work that "
        "topologies placed",
        ("Require {wider}, request fewer pods or smaller slices, or have nodes added there.",),
        _SHORT,
    ),
    Cause.PLACES_PROTECTED: CauseWords(
        Reason.PLACES_TAKEN,
        f"{_FREE} is left alone for a while",
        (f"{_WIDER}wait until that ends.", "Wait until that ends, or require a wider level."),
        _SHORT,
    ),
    Cause.PLACES_BY_PRIORITY: CauseWords(
        Reason.PLACES_TAKEN,
        f"{_FREE} is preempted for a higher priority only",
        (
            f"{_WIDER}use a priority above {{above}}, or wait until some of it ends.",
            "Use a priority above {above}, or wait until some of it ends.",
        ),
        _SHORT,
    ),
    Cause.PLACES_BY_POLICY: CauseWords(
        Reason.PLACES_TAKEN,
        f"{_FREE} its queue's preemption policies leave alone",
        (
            f"{_WIDER}wait until some of it ends, or {_POLICIES}{_ABOVE}.",
            f"{_WIDER}wait until some of it ends, or {_POLICIES}.",
            f"Wait until some of it ends, or {_POLICIES}{_ABOVE}.",
            f"Wait until some of it ends, or {_POLICIES}.",
        ),
        _SHORT,
    ),
    Cause.PLACES_NOT_RECLAIMABLE: CauseWords(
        Reason.PLACES_TAKEN,
        f"{_FREE} it may not preempt",
        (
            f"{_WIDER}wait until some of it ends.",
            "Wait until some of it ends: no priority and no policy of the queue changes it.",
        ),
        _SHORT,
    ),
    Cause.PROTECTION: CauseWords(
        Reason.HELD_BY_OTHERS,
        "The quota is in use by work that is left alone for a while",
        ("Wait until that ends, or request less.",),
        _LACKS,
    ),
    Cause.PRIORITY: CauseWords(
        Reason.HELD_BY_OTHERS,
        "The quota is in use by work that is preempted for a higher priority only",
        ("Use a priority above {above}, request less, or wait until some of it ends.",),
        _LACKS,
    ),
    Cause.BORROWING: CauseWords(
        Reason.HELD_BY_OTHERS,
        "It would borrow, and work that borrows preempts no other work here",
        (
            f"{_OWN}{_OPEN}{_ABOVE}.",
            f"{_OWN}{_OPEN}.",
            f"{_OTHERWISE}{_OPEN}{_ABOVE}.",
            f"{_OTHERWISE}{_OPEN}.",
        ),
        (
            *_LACKS,
            "it would borrow {borrows}",
            "ClusterQueue {cluster_queue} has borrowWithinCohort {setting}",
        ),
    ),
    Cause.POLICY: CauseWords(
        Reason.HELD_BY_OTHERS,
        "The quota is in use by work that its queue's preemption policies leave alone",
        (f"{_OTHERWISE}{_POLICIES}{_ABOVE}.", f"{_OTHERWISE}{_POLICIES}."),
        _LACKS,
    ),
    Cause.FLAVORS: CauseWords(
        Reason.HELD_BY_OTHERS,
        "With the flavors that its queue chooses it does not get its quota, with others it would",
        (
            f"{_SELECT}{_ABOVE}.",
            f"{_SELECT}.",
            f"{_OTHERWISE}{_CHOICE}{_ABOVE}.",
            f"{_OTHERWISE}{_CHOICE}.",
        ),
        _LACKS,
    ),
    Cause.NEVER_WITH_FLAVORS: CauseWords(
        Reason.NEVER_FITS,
        "With the flavors that its queue chooses it can never have its quota, with others it could",
        (f"{_SELECT}.", f"Request less, or {_CHOICE}."),
    ),
    Cause.NOT_RECLAIMABLE: CauseWords(
        Reason.HELD_BY_OTHERS,
        "The quota is in use, and what may be reclaimed from others is not enough",
        (
            (
                "Wait until some of it ends, request less, or have the quota raised: no priority "
                "and no policy of the queue changes it."
            ),
        ),
        _LACKS,
    ),
    Cause.DELAYED: CauseWords(
        Reason.HELD_BY_OTHERS,
        "The quota is in use by work that it may preempt, once it has waited for long enough",
        ("Wait until {until}, or have its `preemptionDelay` shortened.",),
        ("no work is preempted for it before {until}",),
    ),
    Cause.KEPT_FOR_HEADS: CauseWords(
        Reason.HELD_BY_OTHERS,
        "The quota that is free in its cohort is kept for work of other queues that waits for more",
        (
            (
                "Wait until that work starts, or have its queue set to `queueingStrategy: "
                "BestEffortFIFO`."
            ),
        ),
        ("it is kept for {heads}",),
    ),
    Cause.NOT_YET: CauseWords(
        Reason.VICTIMS_PROTECTED,
        "It does not fit without victims, and has not waited for long enough",
        ("Wait until {until}, or have its `preemptionDelay` shortened.",),
        ("nothing is evicted for it before {until}",),
    ),
    Cause.SPACED: CauseWords(
        Reason.VICTIMS_PROTECTED,
        "Other work uses the capacity that plans for it freed, and the next plan is due later",
        (
            (
                "Wait until {until}, or set the `schedulerName` of its pods to Reprieve's, which "
                "reserves freed capacity for them."
            ),
        ),
        ("other work uses what plans for it freed; nothing is evicted for it before {until}",),
    ),
    Cause.NODE_REFUSES: CauseWords(
        Reason.NOMINATED_WAITING,
        "Capacity is kept for it on a node that does not accept it any more",
        (
            (
                "Have {nodes} accept it again; else it is tried elsewhere once the pods that are "
                "evicted for it have ended."
            ),
            "Nothing: it is tried elsewhere once the pods that are evicted for it have ended.",
        ),
        ("{why}",),
    ),
    Cause.DEVICES: CauseWords(
        Reason.FULL,
        "No node that it accepts has the devices that its claims request free, and no preemption "
        "frees them",
        (
            (
                "Wait until work that holds such devices ends, request fewer of them, or have "
                "`simulateClaims` set, with which work of lower priority is preempted for them."
            ),
        ),
    ),
    Cause.OWN_PODS: CauseWords(
        Reason.FULL,
        "Its own pods use the nodes that it accepts, and there are more of them than fit there",
        ("Submit fewer pods, request less, or add nodes.",),
        ("it lacks {lacks}",),
    ),
    Cause.TOO_MANY_PODS: CauseWords(
        Reason.NO_NODE_MATCHES,
        "Its pods do not fit the nodes together, however empty these are",
        ("Request less, lower the group's minimum, or add nodes.",),
        ("it lacks {lacks}", "{why}"),
    ),
}
