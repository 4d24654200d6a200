"""The engine's first cycle of a case in the words of the oracle, so that both can be compared.

`cycle(case)` takes what `tests.oracle.scheduling.group.cycle` takes: a dict of API objects. It goes
the whole way: intake, cluster, snapshot, session, wording.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.forest import Forest
from reprieve.engine.cluster.rows import Labels, PodRow
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import RESOLVABLE, Code, Reason, Rejection
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.nominations import kept_for_others
from reprieve.engine.scheduling.nodes.placing import Choose, best_node
from reprieve.engine.scheduling.outcome import (
    Attempt,
    Explanation,
    Nominate,
    Preemption,
    Sentence,
    Unit,
)
from reprieve.engine.scheduling.pod_preemption import find_candidates
from reprieve.engine.scheduling.proofs.proof import faults_of
from reprieve.engine.scheduling.queueing.pre_enqueue import refusal
from reprieve.engine.scheduling.session import Session
from reprieve.engine.scheduling.victims.min_runtime import protected_until
from reprieve.engine.scheduling.victims.node_by_node import Candidates, Statuses
from reprieve.wording.kube_scheduler import (
    explanation_text,
    group_condition,
    pod_condition,
    preemption_text,
)
from reprieve.wording.rejections import reason_text
from tests.engine.api_objects import Json, cluster_of, key_of, policy_of
from tests.oracle.scheduling.group import Outcome
from tests.oracle.scheduling.preemption import Candidate, Choice


def imposed_by(placement: Mapping[str, str]) -> Choose:
    """The node that a placement names for the pod, by key; where that one does not pass, the best.

    Before the victims are gone the placement may not be possible yet.
    """

    def choose(simulation: Simulation, pending: Pending, nodes: I64) -> int:
        name = placement.get(f"{pending.row.namespace}/{pending.row.name}", "")
        wanted = simulation.snapshot.node_index.get(name, -1)
        return wanted if wanted in nodes.tolist() else best_node(simulation, pending, nodes)

    return choose


def unit_of(case: Json, snapshot: Snapshot) -> Unit:
    """The unit of the case's preemptor, its pods in the order of `pending`."""
    by_key = {
        f"{each.row.namespace}/{each.row.name}": uid for uid, each in snapshot.pending.items()
    }
    queued = [by_key[key_of(pod)] for pod in case["pending"] if key_of(pod) in by_key]
    preemptor = case["preemptor"]
    if "podGroup" in preemptor and case["features"].get("GenericWorkload"):
        group = f"default/{preemptor['podGroup']}"
        if case["features"].get("CompositePodGroup"):
            group = forest_of(snapshot).root(group)[1]
        return Unit(tuple(queued), group)
    name = preemptor.get("pod") or case["pending"][0]["metadata"]["name"]
    return Unit((by_key[f"default/{name}"],))


def cycle(
    case: Json,
    imposed: Mapping[str, str] | None = None,
    *,
    second_reprieve_pass: bool = False,
) -> Outcome:
    """The first cycle of the preemptor; nothing when PreEnqueue would hold it."""
    snapshot = cluster_of(case).snapshot()
    asked = policy_of(case, second_reprieve_pass=second_reprieve_pass)
    choose = best_node if imposed is None else imposed_by(imposed)
    attempt = attempt_of(case, snapshot, asked, choose)
    if attempt is None:
        return Outcome({}, None, {}, None)
    return told(case, snapshot, asked, attempt)


def attempt_of(
    case: Json, snapshot: Snapshot, policy: Policy, choose: Choose = best_node
) -> Attempt | None:
    """The attempt of the preemptor, None when it does not come into the queue."""
    unit = unit_of(case, snapshot)
    if unit.group and _held(unit, snapshot):
        return None
    return Session(snapshot, policy, choose=choose, now=case.get("now", 0)).attempt(unit)


def assert_proven(
    snapshot: Snapshot, policy: Policy, attempt: Attempt, now: int = 0, what: object = ""
) -> None:
    """Fail where the proof finds a fault in the attempt; a victim that could stay is one."""
    assert faults_of(snapshot, policy, attempt, now) == (), what


def _held(unit: Unit, snapshot: Snapshot) -> bool:
    index = snapshot.group_index.get(unit.group, -1)
    row = snapshot.group_rows[index] if index >= 0 else None
    if row is None:
        return True
    if row.composite:
        rows = [snapshot.pending[uid].row for uid in unit.pods]
        return refusal(_Known(snapshot), unit.group, rows, held=False) is not None
    placed = int(((snapshot.pod_group == index) & (snapshot.pod_node >= 0)).sum())
    return placed + len(unit.pods) < (row.min_count or 0)


def forest_of(snapshot: Snapshot) -> Forest:
    """The groups of the snapshot as the queue knows them."""
    forest = Forest(trees=True)
    for row in snapshot.group_rows:
        if row is not None:
            forest.apply(row)
    return forest


class _Known:
    """What PreEnqueue asks of a cluster that stands still."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._forest = forest_of(snapshot)
        self.group = self._forest.get
        self.root = self._forest.root
        self.children = self._forest.children
        placed = np.flatnonzero((snapshot.pod_node >= 0) & (snapshot.pod_group >= 0))
        self._known = Counter(snapshot.group_keys[g] for g in snapshot.pod_group[placed].tolist())
        self._known.update(
            f"{each.row.namespace}/{each.row.group}"
            for each in snapshot.pending.values()
            if not each.row.deleting
        )

    def known(self, key: str) -> int:
        return self._known[key]

    def claims(self, pod: PodRow) -> str:
        del pod
        return ""

    def namespace_labels(self, namespace: str) -> Labels:
        del namespace
        return ()

    def device_class(self, resource: str) -> str:
        del resource
        return ""

    def gang_key(self, pod: PodRow) -> str:
        del pod
        return ""


def told(case: Json, snapshot: Snapshot, policy: Policy, attempt: Attempt) -> Outcome:
    """An attempt in the words of the oracle."""
    rows = {uid: pending.row for uid, pending in snapshot.pending.items()}
    bound = {_key(rows[each.uid]): each.bind for each in attempt.members if each.bind}
    parts = {}
    for part in attempt.parts:
        if part.failure is not None:
            text = group_condition(attempt, part=part)
            parts[part.key] = (text.reason, text.message)
    if attempt.code is Code.SUCCESS:
        return Outcome(bound, None, {}, None, parts)
    conditions: dict[str, tuple[str, str]] = {}
    for each in attempt.members:
        text = pod_condition(attempt, each)
        conditions[_key(rows[each.uid])] = (text.reason, text.message)
    group = None
    if attempt.unit.group and not attempt.parts:
        text = group_condition(attempt)
        group = (text.reason, text.message)
    choice = None
    if attempt.preemption is not None and not attempt.scheduler_error:
        choice = _choice(case, snapshot, policy, attempt, attempt.preemption)
    return Outcome(bound, choice, conditions, group, parts)


def _choice(
    case: Json, snapshot: Snapshot, policy: Policy, attempt: Attempt, found: Preemption
) -> Choice:
    rows = {uid: pending.row for uid, pending in snapshot.pending.items()}
    nominated: dict[str, str] | None = None
    if found.explanation.sentence is Sentence.ONGOING:
        nominated = {_key(rows[m.uid]): rows[m.uid].nominated for m in attempt.members}
    elif found.code is Code.SUCCESS:
        nominated = {_key(rows[uid]): node for uid, node in found.nominated}
    elif not attempt.unit.group and attempt.members[0].nominate is Nominate.CLEAR:
        nominated = {_key(rows[attempt.members[0].uid]): ""}
    if attempt.unit.group:
        text = f"pod group preemption: {explanation_text(found.explanation)}"
    else:
        text = f"preemption: {preemption_text(found)}"
    choice = Choice(
        found.code.value,
        text,
        tuple(snapshot.pod_keys[slot] for unit in found.victims for slot in unit.pods),
        nominated,
        found.violating,
        found.group_disruptions,
        units=tuple(tuple(snapshot.pod_keys[slot] for slot in unit.pods) for unit in found.victims),
    )
    if attempt.unit.group or not found.evaluated:
        return choice
    pending = snapshot.pending[attempt.unit.pods[0]]
    candidates = candidates_of(snapshot, policy, pending, now=case.get("now", 0))
    return choice._replace(
        candidates=candidates_told(case, snapshot, candidates),
        refused_nodes=refusals_told(snapshot, pending, candidates.statuses()),
    )


def candidates_of(
    snapshot: Snapshot,
    policy: Policy,
    pending: Pending,
    refused: Mapping[str, str] | None = None,
    now: int = 0,
) -> Candidates:
    """All candidates of a pod; `refused` (a code by node) stands for its failed filters."""
    simulation = Simulation(snapshot, policy, policy.profiles[0])
    simulation.now = now
    until = protected_until(snapshot, policy, now)
    if until is not None:
        simulation.evictable = until == 0
    own, priority = frozenset({pending.row.uid}), pending.row.priority
    simulation.respect(kept_for_others(snapshot, snapshot.nominations, own, "", priority))
    if refused is None:
        codes = simulation.codes(pending)
        nodes = np.isin(codes, [int(each) for each in RESOLVABLE])
    else:
        names = [node.name for node in snapshot.nodes]
        nodes = np.array([refused.get(name) == "Unschedulable" for name in names], np.bool_)
    return find_candidates(simulation, pending, policy, nodes)


def candidates_told(case: Json, snapshot: Snapshot, found: Candidates) -> tuple[Candidate, ...]:
    """Candidates with the objects of their victims, sorted by node."""
    objects = {key_of(pod): pod for pod in case["pods"]}
    told = []
    for index, node in enumerate(found.nodes):
        units, violating = found.victims(index)
        slots = [s for unit in found.units.victims(units, violating) for s in unit.pods]
        victims = tuple(objects[snapshot.pod_keys[slot]] for slot in slots)
        disruptions = int((found.units.grouped[units] > 0).sum())
        name = snapshot.nodes[int(node)].name
        told.append(Candidate(name, victims, int(violating.sum()), disruptions))
    return tuple(sorted(told, key=lambda each: each.node))


def refusals_told(
    snapshot: Snapshot, pending: Pending, statuses: Statuses
) -> dict[str, tuple[str, str]]:
    """Code and text of each node that was examined and is no candidate."""
    entry = snapshot.classes[pending.pod_class]
    assert entry is not None
    found = {}
    for node, said in statuses.items():
        row = snapshot.nodes[node]
        too_big = any(row.allocatable.get(name, 0) < amount for name, amount in entry.requests)
        found[row.name] = _status(said, too_big)
    return found


def _status(said: Sequence[Reason | Explanation], too_big: bool) -> tuple[str, str]:
    texts = [explanation_text(s) if isinstance(s, Explanation) else reason_text(s) for s in said]
    first = said[0]
    code = Code.UNRESOLVABLE
    if isinstance(first, Reason):
        resolvable = first.rejection in RESOLVABLE
        if first.rejection in (Rejection.INSUFFICIENT, Rejection.TOO_MANY_PODS):
            resolvable = not too_big
        code = Code.UNSCHEDULABLE if resolvable else code
    elif first.sentence is Sentence.EXPECTED_VICTIM:
        code = Code.ERROR
    return code.value, ", ".join(texts)


def _key(row: PodRow) -> str:
    return f"{row.namespace}/{row.name}"
