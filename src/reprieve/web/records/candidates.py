"""Who could have been preempted in a recorded decision: each candidate, what became of it, and why.

The text about a candidate names no other object, so that a page may show those that its viewer sees
and count the others. Places are counted from 1, in the order in which the plane tries candidates:

1. quota: evicted first, then other ClusterQueues, lower priority, later reservation (of work that
   has saved since the later save, where the policy states so), uid; with fair sharing within each
   ClusterQueue
2. scheduling: lower priority first, then less lost work where the policy states so, later start
3. idle: idle for the longest first

Pure: its input is a decision made again. Source: promise "Explained" of the design.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Final

from kubeworld.units.durations import SECOND
from reprieve.answers.preemptions.recorded import Replays
from reprieve.answers.quantities import amounts, duration
from reprieve.engine.cluster.snapshot import NO_START
from reprieve.engine.idle.flights import idle_for
from reprieve.engine.idle.outcome import Reason as IdleReason
from reprieve.engine.quota.holdings.holders import Holder, Row, row_of
from reprieve.engine.quota.targets.candidates import by_local_queue, order_holders
from reprieve.engine.scheduling.victims.harm import lost_work
from reprieve.records.idle.replay import Answer, Replay, Role, answers
from reprieve.records.quota.replay import QuotaReplay, Standing, quota_answers
from reprieve.records.scheduling.replay import Part, PodAnswer, SchedulingReplay, pod_answers
from reprieve.records.sums import pool_of
from reprieve.web.records.judged import Candidate, Fate
from reprieve.wording.kaiwo import declined_text

__all__ = ["candidates_of", "order_of"]


def candidates_of(replay: Replays) -> Iterator[Candidate]:
    """Yield everybody but the preemptor, in the order of the record's story."""
    if isinstance(replay, QuotaReplay):
        return _of_quota(replay)
    if isinstance(replay, SchedulingReplay):
        return _of_scheduling(replay)
    return _of_idle(replay)


def order_of(replay: Replays) -> str:
    """Return in which order candidates are chosen, in words."""
    if isinstance(replay, QuotaReplay):
        settings = replay.decided_on.settings
        last = "later save, or admission without one" if settings.harm_order else "later admission"
        if any(holder.workload.rank for holder in replay.holders):
            last = f"{_RANK}, then {last}"
        if settings.fair_sharing is not None:
            return (
                f"within its ClusterQueue, which shares choose: lower priority first, then {last}"
            )
        return f"other ClusterQueues first, then lower priority, then {last}"
    if isinstance(replay, SchedulingReplay):
        policy = replay.decided_on.policy
        cost = " less lost work, then" if policy.harm_order else ""
        cost = " fewer devices, then" if policy.fewest_devices else cost
        return f"lower priority first, then{cost} a later start"
    ranked = any(each.workload.rank for each in answers(replay))
    return f"{_RANK}, then idle for the longest" if ranked else "idle for the longest first"


# Quota.

_QUOTA_FATES: Final[Mapping[Standing, tuple[Fate, str]]] = {
    Standing.VICTIM: (Fate.MADE_WAY, ""),
    Standing.GOING: (Fate.LEAVING, "on its way out already"),
    Standing.ANOTHERS: (Fate.MADE_WAY, "is preempted for work that came first in the cycle"),
    Standing.UNRELATED: (Fate.SPARED, "holds nothing of what is lacking"),
    Standing.POLICY: (Fate.SPARED, "the policy of the preemptor's ClusterQueue does not allow it"),
    Standing.WITHIN_QUOTA: (Fate.SPARED, "within nominal: its queue uses no more than its own"),
    Standing.PROTECTED: (Fate.SPARED, "within its minimum runtime, or held as one of a pair"),
    Standing.REPRIEVED: (Fate.REPRIEVED, "reprieved: the preemptor fits with it in place"),
    Standing.HEAD: (Fate.WAITED, "waited in the same cycle"),
}
_RANK: Final = "the lower rank by the installed order"
_CHOSEN: Final = (Standing.VICTIM, Standing.REPRIEVED)


def _of_quota(replay: QuotaReplay) -> Iterator[Candidate]:
    reported = [each for each in quota_answers(replay) if each.standing is not Standing.PREEMPTOR]
    holders = {holder.key: holder for holder in replay.holders}
    chosen = [
        holders[each.key] for each in reported if each.standing in _CHOSEN and each.key in holders
    ]
    places = _quota_places(replay, chosen)
    among = Counter(holder.queue for holder in chosen)
    fair = replay.decided_on.settings.fair_sharing is not None
    borrowed = _Borrowed(replay)
    for each in reported:
        fate, text = _QUOTA_FATES[each.standing]
        holder = holders.get(each.key)
        namespace, _, name = each.key.partition("/")
        reserved = None if holder is None else holder.workload.reserved_at
        above = borrowed.by(holder.queue) if holder is not None else {}
        if each.standing is Standing.VICTIM and above:
            text = f"its ClusterQueue used {amounts(above)} above its nominal quota"
        yield Candidate(
            kind="Workload",
            namespace=namespace,
            name=name,
            uid=each.uid,
            fate=fate,
            rule=each.detail if each.standing is Standing.VICTIM else str(each.standing),
            text=text,
            amounts=dict(each.amounts),
            priority=each.priority,
            place=places.get(each.key, 0),
            among=among[holder.queue] if fair and holder is not None else len(chosen),
            queue=each.cluster_queue,
            since=reserved or 0,
            borrowed=above,
        )


def _quota_places(replay: QuotaReplay, chosen: Iterable[Holder]) -> dict[str, int]:
    """Return the places by key; with fair sharing, where shares choose the queue, within each."""
    if replay.decided_on.settings.fair_sharing is not None:
        by_queue: dict[int, list[Holder]] = {}
        for holder in chosen:
            by_queue.setdefault(holder.queue, []).append(holder)
        return {
            key: place
            for alike in by_queue.values()
            for key, place in _in_order(replay, alike).items()
        }
    return _in_order(replay, chosen)


def _in_order(replay: QuotaReplay, chosen: Iterable[Holder]) -> dict[str, int]:
    rows: list[Row] = [row_of(holder) for holder in chosen]
    usage = replay.snapshot.local_queue_usage if by_local_queue(replay.snapshot) else None
    own = replay.entry.queue

    def compare(one: Row, other: Row) -> int:
        return order_holders(one, other, own, usage)

    ordered = sorted(rows, key=cmp_to_key(compare))
    return {row[3]: place for place, row in enumerate(ordered, start=1)}


@dataclass(slots=True)
class _Borrowed:
    """What ClusterQueues used above their nominal quota before the cycle, by resource."""

    replay: QuotaReplay
    known: dict[int, dict[str, int]] = field(default_factory=dict)

    def by(self, queue: int) -> dict[str, int]:
        """Return it for one queue, by its index; nothing without a cohort."""
        if queue not in self.known:
            self.known[queue] = self._work_out(queue)
        return self.known[queue]

    def _work_out(self, queue: int) -> dict[str, int]:
        snapshot = self.replay.snapshot
        tree = snapshot.tree
        if tree.parent[queue] < 0:
            return {}
        found: dict[str, int] = {}
        row = snapshot.configuration.cluster_queues[tree.names[queue]]
        quotas = {
            (flavor.flavor, resource): quota.nominal
            for group in row.groups
            for flavor in group.flavors
            for resource, quota in flavor.resources.items()
        }
        for column, pair in enumerate(tree.flavor_resources):
            over = snapshot.usage[column][queue] - quotas.get((pair.flavor, pair.resource), 0)
            if over > 0:
                found[pair.resource] = found.get(pair.resource, 0) + over
        return found


# Scheduling.

_PARTS: Final[Mapping[Part, tuple[Fate, str]]] = {
    Part.VICTIM: (Fate.MADE_WAY, ""),
    Part.REPRIEVED: (Fate.REPRIEVED, "reprieved: the preemptor fits with it in place"),
    Part.OVERDUE: (Fate.LEAVING, "was to be preempted earlier and has not ended"),
    Part.PROTECTED: (Fate.SPARED, "within its minimum runtime"),
    Part.ELSEWHERE: (Fate.SPARED, "on another node than the one chosen"),
    Part.NOT_LOWER: (Fate.SPARED, "its priority is not below the preemptor's"),
}


def _of_scheduling(replay: SchedulingReplay) -> Iterator[Candidate]:
    reported = [each for each in pod_answers(replay) if each.part is not Part.MEMBER]
    snapshot, policy, now = replay.snapshot, replay.decided_on.policy, replay.decided_on.now
    slots = {str(uid): slot for slot, uid in enumerate(snapshot.pod_uids)}
    # Without an instant in the input what would be lost is not known.
    lost = lost_work(snapshot, now, policy.max_lost_work).tolist() if now else None
    starts = snapshot.pod_start.tolist()
    pools = {node.name: pool_of(node.labels) for node in snapshot.nodes}
    places = _pod_places(reported, slots, starts, lost if policy.harm_order else None)
    for each in reported:
        fate, text = _PARTS[each.part]
        slot = slots[each.uid]
        namespace, _, name = each.key.partition("/")
        start = starts[slot]
        yield Candidate(
            kind="Pod",
            namespace=namespace,
            name=name,
            uid=each.uid,
            fate=fate,
            rule=str(each.part),
            text=text or _refusal_text(each),
            amounts=_requests(replay, slot),
            priority=each.priority,
            place=places.get(each.uid, 0),
            among=len(places),
            node=each.node,
            pool=pools.get(each.node, ""),
            group=each.group,
            since=0 if start == NO_START else start * SECOND,
            lost=-1 if lost is None else max(0, lost[slot]),
        )


def _pod_places(
    reported: Iterable[PodAnswer],
    slots: Mapping[str, int],
    starts: Sequence[int],
    lost: Sequence[int] | None,
) -> dict[str, int]:
    chosen = [each for each in reported if each.part in (Part.VICTIM, Part.REPRIEVED)]

    def order(each: PodAnswer) -> tuple[int, int, int, str]:
        slot = slots[each.uid]
        return (each.priority, 0 if lost is None else lost[slot], -starts[slot], each.uid)

    return {each.uid: place for place, each in enumerate(sorted(chosen, key=order), start=1)}


def _refusal_text(answer: PodAnswer) -> str:
    refused = answer.refused
    reason = f"{refused} refuses its reprieve" if refused else "the preemptor does not fit with it"
    whole = answer.unit is not None and answer.unit.whole_group
    return f"its group is evicted as a whole; {reason}" if whole else reason


def _requests(replay: SchedulingReplay, slot: int) -> dict[str, int]:
    snapshot = replay.snapshot
    entry = snapshot.classes[int(snapshot.pod_class[slot])]
    return {} if entry is None else dict(entry.requests)


# Idle.

_KEPT: Final = (IdleReason.REPRIEVED, IdleReason.NO_DEMAND)


def _of_idle(replay: Replay) -> Iterator[Candidate]:
    reported = answers(replay)
    chosen = [each for each in reported if _is_chosen(each)]
    chosen.sort(
        key=lambda each: (
            each.workload.rank,
            each.workload.status.idle_since or 0,
            each.workload.key,
        )
    )
    places = {each.workload.key: place for place, each in enumerate(chosen, start=1)}
    for each in reported:
        if each.role is Role.PREEMPTOR:
            continue
        row = each.workload
        fate, rule, text = _idle_fate(each)
        if fate is Fate.MADE_WAY and row.status.idle_since is not None:
            text = f"idle for {duration(idle_for(row, replay.decided_on.now))}"
        yield Candidate(
            kind=row.root.kind,
            namespace=row.root.namespace,
            name=row.root.name,
            uid=row.ref.uid,
            fate=fate,
            rule=rule,
            text=text,
            amounts=dict(row.gpus),
            place=places.get(row.key, 0),
            among=len(places),
            since=max((pod.started or 0 for pod in row.pods), default=0),
            idle_since=row.status.idle_since or 0,
        )


def _is_chosen(answer: Answer) -> bool:
    if answer.role is Role.VICTIM:
        return answer.plan is not None and answer.plan.preemptor is not None
    return answer.declined is not None and answer.declined.reason in _KEPT


def _idle_fate(answer: Answer) -> tuple[Fate, str, str]:
    match answer.role:
        case Role.VICTIM:
            assert answer.victim is not None
            return Fate.MADE_WAY, answer.victim.rule, ""
        case Role.IN_FLIGHT:
            return Fate.LEAVING, str(answer.role), "on its way out already"
    assert answer.declined is not None
    reason = answer.declined.reason
    if answer.workload.status.idle_since is None and reason not in _KEPT:
        return Fate.WAITED, str(reason), "waited for GPUs in the same run"
    if reason is IdleReason.REPRIEVED:
        return Fate.REPRIEVED, str(reason), "reprieved: the preemptor fits with it in place"
    return Fate.SPARED, str(reason), declined_text(answer.declined)
