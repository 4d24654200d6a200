"""Kueue Workloads into the rows that the quota plane decides on.

A pending workload requests what its pods request, after the rules for requests; an admitted one
holds what its admission records. A workload whose requests cannot be read has a row that states why
(`invalid`), and is never considered. `PodSetRows` returns one row for pod sets with the same
content, found by their encoded form, since thousands of workloads are made from a few templates.

Source: specification of the quota plane, sections 1.3, 1.6 and 2.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeGuard

import msgspec

from kubeworld.units.durations import HOUR, InvalidDuration, parse_duration
from kubeworld.units.instants import Nanos, instant_or_none
from kubeworld.units.quantities import InvalidQuantity
from kubeworld.units.untrusted import integer_or_none
from reprieve.api import core, kueue
from reprieve.api.devices import ResourceClaimTemplate
from reprieve.engine.disruptions.lineage import Participant
from reprieve.engine.notice.expected import NO_TERMS, Terms, counts_from
from reprieve.engine.quota.assigning.request_rules import NO_RULES, RequestRules
from reprieve.engine.quota.holdings.amounts import clamp
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    Check,
    Eviction,
    NodeExpression,
    PodSet,
    Workload,
)
from reprieve.engine.topology.encoding import TopologyEncodingError, decoded
from reprieve.engine.topology.model import Layer, PreferredTerm, TopologyRequest
from reprieve.intake.check_updates import updated_pod_sets
from reprieve.intake.cluster.metadata import LAST_CHECKPOINT
from reprieve.intake.pod_defaults import completed
from reprieve.intake.quota import toleration_row
from reprieve.intake.quota_devices import Uncountable, claimed_devices
from reprieve.intake.quota_limits import (
    NO_LIMITS,
    ContainerLimits,
    Fault,
    faults_of,
    message_of,
)
from reprieve.intake.quota_requests import UnreadableRequest, amounts_of, pod_requests

__all__ = [
    "ADMISSION_GATED_BY",
    "CHECKPOINT_INTERVAL",
    "JOB_UID",
    "LACKS_PODS",
    "ON_HOLD",
    "PRIORITY_BOOST",
    "REPLACES",
    "PodSetRows",
    "condition_of",
    "is_condition_true",
    "is_place_delayed",
    "is_true",
    "queue_key",
    "workload_row",
]

JOB_UID: Final = "kueue.x-k8s.io/job-uid"
#: Reason of `QuotaReserved=False` of a workload that requests nothing now.
ON_HOLD: Final = "OnHold"
#: Condition of a group of pods some of which are to be made again before it can run.
LACKS_PODS: Final = "WaitingForReplacementPods"
PRIORITY_BOOST: Final = "kueue.x-k8s.io/priority-boost"
ADMISSION_GATED_BY: Final = "kueue.x-k8s.io/admission-gated-by"
#: The interval from a save to the next one, as a Go duration.
CHECKPOINT_INTERVAL: Final = "reprieve.dev/checkpoint-interval"
REPLACES: Final = "kueue.x-k8s.io/workload-slice-replacement-for"

IS_GROUP_WORKLOAD: Final = "kueue.x-k8s.io/is-group-workload"

_LONGEST_INTERVAL: Final = 168 * HOUR
_NOTHING: Final = Nanos(0)
_KEPT: Final = 20_000  # pod sets; more than that many at once are read again


@dataclass(slots=True)
class PodSetRows:
    """Rows of pod sets, one object for each that is different.

    `overheads` are those of runtime classes by name, `limits` and `templates` (of claims, by name)
    those of the workloads' namespace; a change of any needs a new `PodSetRows`.
    """

    rules: RequestRules = NO_RULES
    limits: ContainerLimits = NO_LIMITS
    overheads: Mapping[str, kueue.Amounts] = field(default_factory=dict)
    templates: Mapping[str, ResourceClaimTemplate] = field(default_factory=dict)
    _encoder: msgspec.msgpack.Encoder = field(
        default_factory=lambda: msgspec.msgpack.Encoder(order="deterministic")
    )
    _found: dict[bytes, tuple[PodSet, tuple[Fault, ...]]] = field(default_factory=dict)

    def of(self, pod_set: kueue.PodSet) -> tuple[PodSet, tuple[Fault, ...]]:
        """Return the row of a pod set, and what limits forbid of it.

        Raises:
            UnreadableRequest: a quantity of its pods cannot be read.
            Uncountable: devices of its claims cannot be counted.
        """
        key = self._encoder.encode(pod_set)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _KEPT:
                self._found.clear()
            found = self._found[key] = self._row(pod_set)
        return found

    def _row(self, pod_set: kueue.PodSet) -> tuple[PodSet, tuple[Fault, ...]]:
        spec = completed(pod_set.template.spec, self.limits)
        topology = pod_set.topology_request
        asked = pod_requests(spec, self.overheads.get(spec.runtime_class_name or ""))
        requests = self.rules.apply(asked)
        # As in the reference, where no class is mapped nothing is requested of claims.
        if self.rules.device_classes:
            devices = claimed_devices(pod_set, self.templates, self.rules.device_classes)
            for name, count in devices.items():
                amount = count * (1_000 if name == "cpu" else 1)
                requests[name] = clamp(requests.get(name, 0) + amount)
        row = PodSet(
            name=pod_set.name,
            count=pod_set.count,
            requests=requests,
            min_count=pod_set.min_count,
            node_selector=dict(spec.node_selector or {}),
            affinity=_required_nodes(spec.affinity),
            tolerations=tuple(toleration_row(each) for each in spec.tolerations or ()),
            group=(topology.pod_set_group_name or "") if topology is not None else "",
            topology=None if topology is None else _topology(topology),
            preferred=_preferred_nodes(spec.affinity),
            pod_requests=None if asked == requests else asked,
        )
        return row, faults_of(spec, self.limits, asked)


def workload_row(
    workload: kueue.Workload,
    pod_sets: PodSetRows,
    *,
    waits_for_pods: bool = False,
    min_runtimes_s: tuple[int, int] = (0, 0),
    idle: bool = False,
    participant: Participant | None = None,
    delay: int = 0,
    terms: Terms = NO_TERMS,
    now: int = 0,
) -> Workload:
    """Return the row of a Workload.

    Args:
        workload: as it is stored.
        pod_sets: the rows of pod sets so far.
        waits_for_pods: admitted workloads count as ready only with the condition `PodsReady`.
        min_runtimes_s: for which it is not preempted in its queue, and not reclaimed by others.
        idle: the idle plane knows it to hold GPUs without using them.
        participant: its lineage.
        delay: nanoseconds for which it waits before it preempts.
        terms: of a notice that would change what it is expected to lose.
        now: the instant of the query.
    """
    metadata, spec, status = workload.metadata, workload.spec, workload.status
    annotations, namespace = metadata.annotations or {}, metadata.namespace
    conditions = {each.type: each for each in status.conditions or ()}
    reserved, requeued = conditions.get("QuotaReserved"), conditions.get("Requeued")
    rows, invalid = _pod_sets(spec.pod_sets, pod_sets)
    admission = None
    if status.admission is not None:
        admission, unreadable = _admission(status.admission, rows)
        invalid = invalid or unreadable
        rows = updated_pod_sets(rows, status.admission_checks or ())
    since = instant_or_none(reserved.last_transition_time) if is_true(reserved) else None
    checkpoint = instant_or_none(annotations.get(LAST_CHECKPOINT))
    opened = {each.name for each in status.preemption_gates or () if each.position == "Open"}
    requeue = status.requeue_state
    created = instant_or_none(metadata.creation_timestamp) or _NOTHING
    evicted = _eviction(conditions.get("Evicted"))
    return Workload(
        namespace=namespace,
        name=metadata.name,
        uid=metadata.uid,
        queue=queue_key(workload),
        priority=spec.priority or 0,
        boost=_boost(annotations),
        created=created,
        pod_sets=rows,
        reclaimable={each.name: each.count for each in status.reclaimable_pods or ()},
        admission=admission,
        reserved_at=since,
        evicted=evicted,
        preempted=_eviction(conditions.get("Preempted")),
        active=spec.active,
        requeued=(requeued is None or requeued.status != "False")
        and (reserved is None or reserved.reason != ON_HOLD)
        and not is_true(conditions.get(LACKS_PODS)),
        requeue_at=instant_or_none(requeue.requeue_at) if requeue is not None else None,
        checks={each.name: _check(each.state) for each in status.admission_checks or ()},
        admission_gated=bool(annotations.get(ADMISSION_GATED_BY)),
        closed_gates=tuple(
            gate.name for gate in spec.preemption_gates or () if gate.name not in opened
        ),
        pods_ready=not waits_for_pods or is_true(conditions.get("PodsReady")),
        finished=is_true(conditions.get("Finished")),
        invalid=invalid,
        job_uid=(metadata.labels or {}).get(JOB_UID, ""),
        replaces=annotations.get(REPLACES, ""),
        preempt_min_runtime_s=min_runtimes_s[0],
        reclaim_min_runtime_s=min_runtimes_s[1],
        idle=idle,
        participant=participant,
        checkpoint=checkpoint,
        next_checkpoint=_next_checkpoint(annotations, since, checkpoint),
        unhealthy_nodes=tuple(
            each["name"]
            for each in status.unhealthy_nodes or ()
            if isinstance(each.get("name"), str)
        ),
        of_one_pod=_of_one_pod(workload),
        preempts_from=_preempts_from(delay, created, evicted),
        counts_from=_counts_from(terms, now, since, checkpoint),
    )


def _of_one_pod(workload: kueue.Workload) -> bool:
    """Return whether one plain pod is all that a Workload is."""
    owners = workload.metadata.owner_references or ()
    if (workload.metadata.annotations or {}).get(IS_GROUP_WORKLOAD) == "true":
        return False
    return [(each.api_version, each.kind) for each in owners] == [("v1", "Pod")]


def _counts_from(
    terms: Terms, now: int, reserved: Nanos | None, checkpoint: Nanos | None
) -> Nanos | None:
    if reserved is None or not terms.time:
        return None
    return Nanos(counts_from(max(reserved, checkpoint or reserved), now, terms))


def _preempts_from(delay: int, created: Nanos, evicted: Eviction | None) -> Nanos:
    """Return when a workload has waited for long enough since it was made, or evicted last."""
    if not delay:
        return _NOTHING
    return Nanos((created if evicted is None else max(created, evicted.at)) + delay)


def _next_checkpoint(
    annotations: Mapping[str, str], reserved: Nanos | None, checkpoint: Nanos | None
) -> Nanos | None:
    """Return when work with quota is to have saved again, None where nothing usable states so."""
    given = annotations.get(CHECKPOINT_INTERVAL)
    if given is None or reserved is None:
        return None
    try:
        interval = parse_duration(given)
    except InvalidDuration:
        return None
    if not 0 < interval <= _LONGEST_INTERVAL:
        return None
    return Nanos(max(reserved, checkpoint or reserved) + interval)


def _topology(given: kueue.TopologyRequest) -> TopologyRequest:
    layers = tuple(
        Layer(each.topology, each.size)
        for each in given.podset_slice_required_topology_constraints or ()
    )
    if given.pod_set_slice_required_topology:
        layers = (Layer(given.pod_set_slice_required_topology, given.pod_set_slice_size or 0),)
    return TopologyRequest(given.required or "", given.preferred or "", given.unconstrained, layers)


def queue_key(workload: kueue.Workload) -> str:
    """Return the key of a Workload's LocalQueue, one string for all that name it."""
    return sys.intern(f"{workload.metadata.namespace}/{workload.spec.queue_name}")


def condition_of(conditions: Sequence[kueue.Condition] | None, kind: str) -> kueue.Condition | None:
    """Return the condition of that type, if there is one."""
    for condition in conditions or ():
        if condition.type == kind:
            return condition
    return None


def is_condition_true(workload: kueue.Workload, kind: str) -> bool:
    """Return whether a Workload's condition of that type is True."""
    return is_true(condition_of(workload.status.conditions, kind))


def is_true(condition: kueue.Condition | None) -> TypeGuard[kueue.Condition]:
    """Return whether there is such a condition and it is True."""
    return condition is not None and condition.status == "True"


def _pod_sets(given: Sequence[kueue.PodSet], rows: PodSetRows) -> tuple[tuple[PodSet, ...], str]:
    found, faults = [], list[tuple[str, Fault]]()
    for index, each in enumerate(given):
        at = f"spec.podSets[{index}].template.spec"
        try:
            row, wrong = rows.of(each)
        except UnreadableRequest as error:
            return (), f"{at}.{error}"
        except Uncountable as error:
            return (), str(error) if error.whole else f"{at}.{error}"
        found.append(row)
        faults += ((at, fault) for fault in wrong)
    return tuple(found), message_of(faults)


def _admission(given: kueue.Admission, pod_sets: Sequence[PodSet]) -> tuple[Admission, str]:
    counts = {each.name: each.count for each in pod_sets}
    found, invalid = [], ""
    for index, each in enumerate(given.pod_set_assignments):
        try:
            usage = amounts_of(each.resource_usage)
        except InvalidQuantity as error:
            usage = {}
            invalid = f"status.admission.podSetAssignments[{index}].resourceUsage: {error}"
        count = counts.get(each.name, 0) if each.count is None else each.count
        places = None
        if each.topology_assignment is not None:
            try:
                places = decoded(each.topology_assignment)
            except TopologyEncodingError as error:
                at = f"status.admission.podSetAssignments[{index}].topologyAssignment"
                invalid = f"{at}: {error}"
        flavors, delayed = dict(each.flavors or {}), is_place_delayed(each)
        found.append(AdmittedPodSet(each.name, count, flavors, usage, places, delayed))
    return Admission(given.cluster_queue, tuple(found)), invalid


def is_place_delayed(given: kueue.PodSetAssignment) -> bool:
    """Return whether a pod set gets its places once the checks are ready."""
    return given.delayed_topology_request == "Pending" and given.topology_assignment is None


def _boost(annotations: Mapping[str, str]) -> int:
    return integer_or_none(annotations.get(PRIORITY_BOOST)) or 0


def _check(state: str) -> Check:
    try:
        return Check(state)
    except ValueError:
        return Check.PENDING


def _eviction(condition: kueue.Condition | None) -> Eviction | None:
    if condition is None or condition.status != "True":
        return None
    return Eviction(condition.reason, instant_or_none(condition.last_transition_time) or _NOTHING)


def _required_nodes(
    affinity: core.Affinity | None,
) -> tuple[tuple[NodeExpression, ...], ...] | None:
    nodes = affinity.node_affinity if affinity is not None else None
    if nodes is None or nodes.required_during_scheduling_ignored_during_execution is None:
        return None
    required = nodes.required_during_scheduling_ignored_during_execution
    return tuple(map(_expressions, required.node_selector_terms or ()))


def _preferred_nodes(affinity: core.Affinity | None) -> tuple[PreferredTerm, ...]:
    nodes = affinity.node_affinity if affinity is not None else None
    if nodes is None:
        return ()
    return tuple(
        PreferredTerm(each.weight, _expressions(each.preference))
        for each in nodes.preferred_during_scheduling_ignored_during_execution or ()
    )


def _expressions(term: core.NodeSelectorTerm) -> tuple[NodeExpression, ...]:
    return tuple(
        NodeExpression(each.key, each.operator, tuple(each.values or ()))
        for each in term.match_expressions or ()
    )
