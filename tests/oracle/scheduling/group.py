"""One scheduling cycle of a preemptor: a group (sections 4, 5, 7), a tree (13) or a pod (8).

`cycle(objects)` is the entry of the oracle. What comes out is plain data: who was bound where
without preemption, or what preemption decided, and the conditions that people see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.oracle.scheduling import filters, objects, placement, preemption, trees, units
from tests.oracle.scheduling.objects import Cluster, Object, key_of, name_of
from tests.oracle.scheduling.preemption import Choice
from tests.oracle.scheduling.selectors import SelectorFailed

Condition = tuple[str, str]


class Outcome(NamedTuple):
    """`bound` is what fits without preemption; `choice` is None when nothing was examined.

    Conditions are (reason, message); a member without one was held before the cycle. Of a tree
    `group_conditions` has one for each group that failed, by key.
    """

    bound: dict[str, str]
    choice: Choice | None
    pod_conditions: dict[str, Condition]
    group_condition: Condition | None
    group_conditions: Mapping[str, Condition] = {}


def cycle(cluster_objects: Object, imposed: Mapping[str, str] | None = None) -> Outcome:
    """The first cycle of `preemptor`; `imposed` is the placement once all victims are gone."""
    try:
        return _cycle(cluster_objects, imposed)
    except SelectorFailed as failed:
        error = ("SchedulerError", str(failed))
        pending = cluster_objects["pending"]
        grouped = "podGroup" in cluster_objects["preemptor"]
        return Outcome({}, None, {key_of(p): error for p in pending}, error if grouped else None)


def _cycle(cluster_objects: Object, imposed: Mapping[str, str] | None) -> Outcome:
    cluster = Cluster.of(cluster_objects)
    pending = list(cluster_objects["pending"])
    preemptor = cluster_objects["preemptor"]
    name = preemptor.get("podGroup") or next(iter(preemptor.get("podGroups") or ()), "")
    if not name or not cluster.gate("GenericWorkload"):
        pod = next(p for p in pending if name_of(p) == preemptor.get("pod", name_of(p)))
        return pod_cycle(pod, cluster)
    group = cluster.one("podGroups", name)
    if group is not None and units.parent_name(group, cluster):
        return tree_cycle(units.with_those_above(group, cluster)[-1], pending, cluster, imposed)
    return group_cycle(group, pending, cluster, imposed)


def pod_cycle(pod: Object, cluster: Cluster) -> Outcome:
    node, refusals = placement.place_pod(pod, cluster, cluster.nodes)
    if node is not None:
        return Outcome({key_of(pod): node}, None, {}, None)
    codes = {name: found.code for name, found in refusals.items()}
    choice = preemption.preempt_for_pod(pod, cluster, codes)
    choice = choice._replace(message=f"preemption: {choice.message}")
    text = f"{filters.fit_text(refusals, len(cluster.nodes))} {choice.message}"
    return Outcome({}, choice, {key_of(pod): ("Unschedulable", text)}, None)


def held(group: Object | None, pending: list[Object], cluster: Cluster) -> str | None:
    """Why the members do not even enter the queue (5.1)."""
    if group is None:
        name = units.group_name(pending[0])
        return f'waiting for pods\'s pod group "{name}" to appear in scheduling queue'
    known = len(units.members_placed(group, cluster)) + len(pending)
    if known < placement.min_count(group):
        return "waiting for minCount pods from a gang to appear in scheduling queue"
    return None


def uniformity(group: Object, pending: list[Object], cluster: Cluster) -> str | None:
    """The first failure of section 4.1, over queued and then placed pods."""
    prefix = "all pods in a single pod group should have the same"
    first = pending[0]["spec"]
    for pod in [*pending, *units.members_placed(group, cluster)]:
        spec = pod["spec"]
        mine, wanted = spec.get("schedulerName", ""), first.get("schedulerName", "")
        if mine != wanted:
            return f'{prefix} .spec.schedulerName set, got: "{mine}" and "{wanted}"'
        own, priority = objects.own_priority(pod), objects.own_priority(group)
        if units.composite(group, cluster):
            priority = units.named_priority(pod, cluster)
        if own != priority:
            return f"{prefix} priority as the pod group's priority, got {own} and {priority}"
        policy = spec.get("preemptionPolicy") or "PreemptLowerPriority"
        gate = cluster.gate("PodGroupPreemptionPolicy")
        reference = (group["spec"] if gate else first).get("preemptionPolicy")
        reference = reference or "PreemptLowerPriority"
        if policy != reference:
            middle = " as the pod group's preemption policy" if gate else ""
            return f"{prefix} preemption policy{middle}, got {policy} and {reference}"
        profiles = cluster.objects.get("profiles")
        if profiles is not None and mine not in profiles:
            return f'profile not found for scheduler name "{mine}"'
    return None


def group_cycle(
    group: Object | None,
    pending: list[Object],
    cluster: Cluster,
    imposed: Mapping[str, str] | None = None,
) -> Outcome:
    pending = [p for p in pending if not objects.terminating(p)]
    if not pending or held(group, pending, cluster):
        return Outcome({}, None, {}, None)
    assert group is not None
    if text := uniformity(group, pending, cluster):
        error = ("SchedulerError", text)
        return Outcome({}, None, {key_of(p): error for p in pending}, error)
    attempt = placement.place_group(group, pending, cluster)
    if attempt.code == "Success":
        return Outcome({key_of(p): node for p, node in attempt.placed}, None, {}, None)
    if attempt.code == "Error":
        error = ("SchedulerError", attempt.text)
        return Outcome({}, None, {key_of(p): error for p in pending}, error)
    choice = preemption.preempt_for_group(group, pending, cluster, imposed)
    choice = choice._replace(message=f"pod group preemption: {choice.message}")
    conditions = {
        key_of(p): ("Unschedulable", attempt.failures.get(key_of(p), attempt.text)) for p in pending
    }
    reasons = [attempt.text, choice.message]
    if choice.code == "Unschedulable":
        reasons.insert(1, "deallocation and deletion of ResourceClaims completed")
    return Outcome({}, choice, conditions, ("Unschedulable", ", ".join(reasons)))


def tree_cycle(
    root: Object,
    pending: list[Object],
    cluster: Cluster,
    imposed: Mapping[str, str] | None = None,
) -> Outcome:
    """A cycle of the tree below `root`, which is the topmost group that is there."""
    pending = [p for p in pending if not objects.terminating(p)]
    pending = trees.in_order(root, pending, cluster)
    missing = units.parent_name(root, cluster)
    if not pending or missing or not trees.quorum(root, pending, cluster):
        return Outcome({}, None, {}, None)
    if text := uniformity(root, pending, cluster):
        return _all_failed(root, pending, cluster, text)
    attempt = trees.place_tree(root, pending, cluster)
    if attempt.code == "Error":
        return _all_failed(root, pending, cluster, attempt.text)
    failed = {key: text for key, text in attempt.statuses.items() if text}
    if attempt.code == "Success":
        bound = {key_of(p): node for p, node in attempt.placed}
        texts = {key: ("Unschedulable", text) for key, text in failed.items()}
        return Outcome(bound, None, {}, None, texts)
    choice = preemption.preempt_for_group(root, pending, cluster, imposed)
    choice = choice._replace(message=f"pod group preemption: {choice.message}")
    conditions = {}
    for pod in pending:
        leaf = units.group_of(pod, cluster)
        assert leaf is not None
        text = attempt.failures.get(key_of(pod), attempt.statuses[key_of(leaf)])
        conditions[key_of(pod)] = ("Unschedulable", text)
    texts = {k: ("Unschedulable", f"{text}, {choice.message}") for k, text in failed.items()}
    return Outcome({}, choice, conditions, None, texts)


def _all_failed(root: Object, pending: list[Object], cluster: Cluster, text: str) -> Outcome:
    error = ("SchedulerError", text)
    groups = trees.place_tree(root, [], cluster).statuses
    return Outcome(
        {}, None, {key_of(p): error for p in pending}, None, dict.fromkeys(groups, error)
    )
