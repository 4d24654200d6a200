"""The rows of evidence: what is requested, where it stands, since when, who was preempted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kubeworld.objects.pods import is_over
from kubeworld.units.durations import InvalidDuration, parse_duration
from kubeworld.units.instants import Nanos, instant_or_none, parse_instant
from reprieve.answers.conditions import minimum_of
from reprieve.answers.document import Displaced, State
from reprieve.answers.findings import Findings
from reprieve.answers.kinds import job_kind_of
from reprieve.answers.overridden import overridden_of
from reprieve.answers.preemptions.demand import demand_text
from reprieve.answers.quantities import ago, amounts, device_time, duration, instant, listed, summed
from reprieve.answers.sources import Json
from reprieve.answers.unit import Unit, name_of
from reprieve.engine.idle.debts import WITHIN
from reprieve.engine.plan import Plane
from reprieve.units.counts import counted
from reprieve.whatif.questions.asked import described, requests_of_spec
from reprieve.wording.blockers import place_holders_text
from reprieve.wording.estimates import estimate_text
from reprieve.wording.plans import object_text

__all__ = ["MOST_TIMES", "evidence_of"]

#: Displacements that are reported without a question.
MOST_TIMES: Final = 1
_MOST_BLOCKERS: Final = 3


def evidence_of(found: Findings) -> Iterator[tuple[str, str]]:
    """Yield the names of the rows and their texts, which may be empty."""
    unit, standing, now = found.unit, found.standing, found.now
    pods, asks = _asks(unit)
    yield "requests", f"{counted(pods, 'pod')}, {amounts(asks)}" if asks else ""
    if unit.owners and unit.asked["kind"] not in ("PodGroup",):
        yield "belongs to", " -> ".join(f"{each['kind']} {name_of(each)}" for each in unit.owners)
    if unit.group_name:
        yield "group", _group_text(unit)
    if unit.workload is not None:
        yield "queue", _queue_text(unit.workload, unit.cluster_queue)
    elif found.ignored_queue:
        yield "queue", f"LocalQueue {found.ignored_queue} is ignored: no Workload stands for it"
    yield "overridden", overridden_of(unit)
    reported = standing.reported
    if reported is not None:
        since = reported.since
        yield "waits since", ago(since, now) if since is not None else ""
        yield "demand", demand_text(found)
        # What the sentence of the reason does not state stands in the message.
        yield f"{reported.plane} reports", reported.message
        yield "refused", standing.refused
        yield "failed", standing.failed
        yield "held by", _blockers_text(found)
        yield from _decided_facts(found)
    elif standing.nodes and standing.text and standing.state is State.LEAVES:
        yield "where", listed(standing.nodes)
    yield from _idle_facts(found)
    most = len(found.displaced) if found.history else MOST_TIMES
    for index, each in enumerate(found.displaced[:most]):
        yield "preempted" if index == 0 else "before that", _displaced_text(each, now)
    if len(found.displaced) > most:
        yield "in all", _all_text(found)
    for index, each in enumerate(found.others[: most if found.history else 1]):
        yield "for it" if index == 0 else "and before", _others_text(each, now)


def _asks(unit: Unit) -> tuple[int, dict[str, int]]:
    """Return how many pods there are, or are described, and what they request together."""
    there = [pod for pod in unit.pods if pod["metadata"].get("deletionTimestamp") is None]
    # Of one whose pods are all over it is what they requested.
    live = [pod for pod in there if not is_over(pod)] or there
    if live:
        return len(live), summed(requests_of_spec(pod["spec"]) for pod in live)
    shapes: list[tuple[int, Mapping[str, object]]] = []
    if unit.workload is not None:
        for each in unit.workload["spec"].get("podSets") or ():
            shapes.append((int(each.get("count", 1)), (each["template"].get("spec") or {})))
    else:
        shapes += described(job_kind_of(unit.asked), unit.asked)
    total = summed(
        {name: count * amount for name, amount in requests_of_spec(spec).items()}
        for count, spec in shapes
    )
    return sum(count for count, _ in shapes), total


def _group_text(unit: Unit) -> str:
    members = unit.members or unit.pods
    live = [pod for pod in members if not is_over(pod)]
    placed = sum(1 for pod in live if pod["spec"].get("nodeName"))
    there = f"{unit.group_name}, {counted(len(live), 'pod')}, {placed} with a node"
    if over := len(members) - len(live):
        there += f", {over} finished or failed"
    if unit.group is None:
        return f"{there}; no PodGroup of that name was found"
    minimum = minimum_of(unit.group)
    return there if minimum is None else f"{there}, minimum {minimum}"


def _queue_text(workload: Json, cluster_queue: str) -> str:
    spec, status = workload["spec"], workload.get("status") or {}
    queue = f"LocalQueue {spec.get('queueName', '')}"
    admission = status.get("admission") or {}
    cluster_queue = str(admission.get("clusterQueue") or cluster_queue)
    queue += f" -> ClusterQueue {cluster_queue}" if cluster_queue else ""
    flavors = {
        flavor
        for each in admission.get("podSetAssignments") or ()
        for flavor in (each.get("flavors") or {}).values()
    }
    queue += f", flavor {listed(flavors)}" if flavors else ""
    priority = spec.get("priority")
    return queue if priority is None else f"{queue}, priority {priority}"


def _blockers_text(found: Findings) -> str:
    """Return who holds what it lacks: up to three by name, else counted by namespace."""
    decided = found.decided
    if decided is None or decided.diagnosis is None or not decided.diagnosis.blockers:
        return ""
    if places := place_holders_text(decided.diagnosis):
        return places
    blockers = decided.diagnosis.blockers
    if len(blockers) <= _MOST_BLOCKERS:
        named = (
            f"{object_text(each.holder)} {amounts(each.amounts)}".rstrip() for each in blockers
        )
        return "; ".join(named)
    kinds = {each.holder.kind for each in blockers}
    what = counted(len(blockers), kinds.pop() if len(kinds) == 1 else "object")
    spaces = listed(filter(None, (each.holder.namespace for each in blockers)))
    held = amounts(summed(each.amounts for each in blockers))
    return f"{what}{f' in {spaces}' if spaces else ''}{f', {held}' if held else ''}"


def _decided_facts(found: Findings) -> Iterator[tuple[str, str]]:
    """Yield why no idle work is preempted, and when it starts."""
    decided, now = found.decided, found.now
    if decided is not None and decided.idle is not None:
        yield "idle work", f"{decided.idle.reason}: {decided.idle.text}"
    if decided is not None and decided.estimate is not None:
        yield "start", estimate_text(decided.estimate, lambda at: ago(at, now), duration)


def _idle_facts(found: Findings) -> Iterator[tuple[str, str]]:
    gpu = found.unit.gpu_workload
    if gpu is None:
        return
    status = gpu.get("status") or {}
    text = str(status.get("phase", "")) or "not looked at yet"
    percent = status.get("aggregatedUtilization")
    if percent is not None and text in ("Active", "Idle"):
        text += f", GPUs used {percent:g}%"
    idle = instant_or_none(status.get("idleSince"))
    if idle is not None and text.startswith("Idle"):
        text += f", idle for {duration(found.now - idle)}"
    others = found.decided is not None and found.decided.owner not in (None, Plane.IDLE)
    if text == "PendingGpu" and not others:
        text += ": idle work on GPUs that it needs is preempted for it"
    elif text == "PendingGpu" and _is_return(found):
        text += "; idle work stays that could have been preempted in its place"
    yield "idle reports", text


def _is_return(found: Findings) -> bool:
    """Whether work waits again that was displaced for as long as its debt is bounded."""
    return any(found.now - parse_instant(each.at) < WITHIN for each in found.displaced)


def _displaced_text(each: Displaced, now: Nanos) -> str:
    at = instant_or_none(each.at)
    when = ago(at, now) if at is not None else each.at
    for_whom = f" for {each.preemptor}" if each.preemptor else ""
    what = f", {amounts(each.amounts)}" if each.amounts else ""
    lost = _lost_text(each.lost_device_seconds or 0)
    done = "" if each.outcome == "evicted" else f", {each.outcome}"
    often = f", time {each.times} within {_window(each.window)}" if each.times > 1 else ""
    back = instant_or_none(each.back_at)
    again = "" if back is None else f", back again {ago(back, now)}"
    no_notice = f", without notice: {each.notice_withheld}" if each.notice_withheld else ""
    saving = f"{no_notice}{_saving(each, now)}"
    return f"{when}{for_whom}: {each.rule}{what}{lost}{done}{saving}{often}{again}"


def _saving(each: Displaced, now: Nanos) -> str:
    """Return until when victims with notice may save, and how many pods have; empty for others."""
    until = instant_or_none(each.saves_until) if each.saves_until else None
    if until is None:
        return ""
    left = f" (in {duration(until - now)})" if until > now else ""
    saved = f", {each.saved} of {counted(each.requested, 'pod')} saved" if each.requested else ""
    return f", may save until {instant(until, now)}{left}{saved}"


def _all_text(found: Findings) -> str:
    """Return how often it was preempted since when, and what was lost together."""
    oldest = instant_or_none(found.displaced[-1].at)
    since = f" since {instant(oldest, found.now)}" if oldest is not None else ""
    lost = _lost_text(sum(each.lost_device_seconds or 0 for each in found.displaced))
    return f"{counted(len(found.displaced), 'time')}{since}{lost}; --history lists each"


def _lost_text(device_seconds: int) -> str:
    return f", {device_time(device_seconds)} lost" if device_seconds else ""


def _window(text: str) -> str:
    try:
        return duration(parse_duration(text))
    except InvalidDuration:
        return text


def _others_text(each: Displaced, now: Nanos) -> str:
    at = instant_or_none(each.at)
    when = ago(at, now) if at is not None else each.at
    what = f", {amounts(each.amounts)}" if each.amounts else ""
    if each.outcome == "leaving":
        return f"{each.subject} being preempted since {when}: {each.rule}{what}{_saving(each, now)}"
    done = "" if each.outcome == "evicted" else f", {each.outcome}"
    return f"{each.subject} preempted at {when}: {each.rule}{what}{done}"
