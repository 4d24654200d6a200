"""A recorded scheduling decision, made again: the same plan, and why each pod is in it or not.

A pod is an answer's subject: a member of the preemptor, a victim, a candidate that was reprieved,
or one that could never be a victim. Source: promises "Deterministic" and "Explained" of the design;
specification 7 and 8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import numpy as np

from kubeworld.units.durations import SECOND
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.disruptions.questions import budget_of
from reprieve.engine.placement.filtering import PlacementScorer
from reprieve.engine.plan import Plan
from reprieve.engine.scheduling.nodes.leaving import Delayed
from reprieve.engine.scheduling.outcome import Attempt, UnitVictim
from reprieve.engine.scheduling.plugins import PostFilter
from reprieve.engine.scheduling.session import Session
from reprieve.engine.scheduling.victims.held import held_until
from reprieve.engine.scheduling.victims.hierarchy import as_preemptor, effective_priority
from reprieve.engine.scheduling.victims.min_runtime import protected_until
from reprieve.records.idle.replay import SpoiltInput, unpacked
from reprieve.records.scheduling.record import SchedulingInput, holds_of, restored
from reprieve.records.scheduling.refusals import refusals
from reprieve.units.errors import ReprieveError
from reprieve.units.ids import Uid

__all__ = [
    "Part",
    "PluginMissing",
    "PodAnswer",
    "SchedulingReplay",
    "decide_scheduling_again",
    "decide_scheduling_input",
    "pod_answers",
]


class PluginMissing(ReprieveError):
    """A plugin that was part of it is not installed here."""


class Part(StrEnum):
    """What a pod was to a decision."""

    MEMBER = "Member"  # it gets a node, or waits on
    VICTIM = "Victim"
    REPRIEVED = "Reprieved"
    OVERDUE = "Overdue"  # an earlier victim that did not end: not counted on again
    PROTECTED = "Protected"  # within its minimum runtime
    HELD = "Held"  # by the governor of disruptions, from this preemptor
    ELSEWHERE = "Elsewhere"  # on another node than the one that a single pod was given
    NOT_LOWER = "NotLower"  # its priority is not below the preemptor's


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """What became of one pod. `priority`: the one that decides, a group's for its members.

    `unit`: of a victim. `refused`: the filter that refused its reprieve, empty where unknown.
    `node`: where it runs, or where a member is to run. `until`: Unix seconds at which its minimum
    runtime ends, for one that is protected; or the hold, by `rule`, for one that is held.
    """

    key: str  # namespace/name
    uid: str
    part: Part
    node: str
    priority: int
    group: str = ""
    unit: UnitVictim | None = None
    refused: str = ""
    until: int = 0
    rule: str = ""


@dataclass(frozen=True, slots=True)
class SchedulingReplay:
    """A decision made again from its input."""

    decided_on: SchedulingInput
    snapshot: Snapshot
    attempt: Attempt

    @property
    def plan(self) -> Plan | None:
        """The plan, None without victims."""
        return self.attempt.plan

    @property
    def priority(self) -> int:
        """The preemptor's priority."""
        index = self.snapshot.group_index.get(self.decided_on.unit.group, -1)
        group = self.snapshot.group_rows[index] if index >= 0 else None
        if group is not None:
            waiting = self.snapshot.pending
            queued = [waiting[uid] for uid in self.decided_on.unit.pods if uid in waiting]
            return as_preemptor(self.snapshot, self.decided_on.policy, group, queued).priority
        pending = self.snapshot.pending.get(self.decided_on.unit.pods[0])
        return 0 if pending is None else pending.row.priority


def decide_scheduling_again(
    recorded: Mapping[str, Any],
    plugins: Mapping[str, PostFilter],
    scorers: Mapping[str, PlacementScorer] = MappingProxyType({}),
) -> SchedulingReplay:
    """Return the decision that the stored input gives.

    Raises:
        InputOmitted: it was left out when it was recorded.
        SpoiltInput: it cannot be read.
        PluginMissing: a plugin of the profile is not installed.
    """
    return decide_scheduling_input(unpacked(recorded, SchedulingInput), plugins, scorers)


def decide_scheduling_input(
    decided_on: SchedulingInput,
    plugins: Mapping[str, PostFilter],
    scorers: Mapping[str, PlacementScorer] = MappingProxyType({}),
) -> SchedulingReplay:
    """Return the decision that an input gives.

    Raises:
        SpoiltInput: it contradicts itself.
        PluginMissing: a plugin of the profile is not installed.
    """
    policy = decided_on.policy
    for profile in policy.profiles:
        missing = [name for name in profile.pod_group_post_filters if name not in plugins]
        missing += [name for name, _ in profile.placement_scorers if name not in scorers]
        if missing:
            raise PluginMissing(f"the plugin {missing[0]} is not installed here")
    try:
        snapshot = restored(decided_on)
        overdue, now = decided_on.overdue, decided_on.now
        session = Session(
            snapshot,
            policy,
            plugins=plugins,
            overdue=overdue,
            now=now,
            scorers=scorers,
            holds={decided_on.unit: holds_of(decided_on)},
            waits=_waits_of(decided_on),
        )
        attempt = session.attempt(decided_on.unit)
    except (AssertionError, LookupError, TypeError, ValueError) as failure:
        # Well-formed JSON that no operator wrote: numbers that lead nowhere.
        raise SpoiltInput(f"spec.input.data contradicts itself: {failure}") from None
    assert attempt is not None, "nothing was placed before it"
    return SchedulingReplay(decided_on, snapshot, attempt)


def _waits_of(decided_on: SchedulingInput) -> Delayed:
    among = decided_on.tables.among
    return Delayed(among={decided_on.unit: frozenset(among)}) if among else Delayed()


def pod_answers(replay: SchedulingReplay) -> Iterator[PodAnswer]:
    """Yield what became of each pod: members, victims by importance, all others by name."""
    yield from _members(replay)
    snapshot, found = replay.snapshot, replay.attempt.preemption
    priorities = effective_priority(snapshot, replay.decided_on.policy).tolist()
    refused = refusals(snapshot, replay.decided_on.policy, replay.attempt)
    victims = found.victims if found is not None else ()
    reported = set()
    for unit in victims:
        for slot in unit.pods:
            reported.add(slot)
            why = refused.get(unit.pods[0], "")
            yield _placed(replay, slot, Part.VICTIM, priorities[slot], unit, why)
    target = None if replay.decided_on.unit.group or found is None else found.nominated
    node = snapshot.node_index.get(target[0][1], -1) if target else -1
    overdue = frozenset(replay.decided_on.overdue)
    policy, now = replay.decided_on.policy, replay.decided_on.now
    until = protected_until(snapshot, policy, now)
    holds = holds_of(replay.decided_on)
    held = held_until(snapshot, policy, holds)
    slots = np.flatnonzero(snapshot.pod_node >= 0).tolist()
    for slot in sorted(slots, key=lambda each: snapshot.pod_keys[each]):
        if slot in reported:
            continue
        part = Part.REPRIEVED
        if priorities[slot] >= replay.priority:
            part = Part.NOT_LOWER
        elif snapshot.pod_uids[slot] in overdue:
            part = Part.OVERDUE
        elif until is not None and until[slot]:
            answer = _placed(replay, slot, Part.PROTECTED, priorities[slot])
            yield replace(answer, until=int(until[slot]))
            continue
        elif held is not None and held[slot]:
            answer = _placed(replay, slot, Part.HELD, priorities[slot])
            hold = holds.get(Uid(snapshot.pod_uids[slot])) or next(iter(holds.values()))
            rule = f"{hold.rule} {budget_of(hold)}".rstrip()
            yield replace(answer, until=-(-int(held[slot]) // SECOND), rule=rule)
            continue
        elif node >= 0 and snapshot.pod_node[slot] != node:
            part = Part.ELSEWHERE
        yield _placed(replay, slot, part, priorities[slot])


def _members(replay: SchedulingReplay) -> Iterator[PodAnswer]:
    found = replay.attempt.preemption
    nodes = dict(found.nominated) if found is not None else {}
    for uid in replay.decided_on.unit.pods:
        pending = replay.snapshot.pending.get(uid)
        if pending is not None:
            row = pending.row
            group = f"{row.namespace}/{row.group}" if row.group else ""
            yield PodAnswer(
                f"{row.namespace}/{row.name}",
                uid,
                Part.MEMBER,
                nodes.get(uid, ""),
                replay.priority,
                group,
            )


def _placed(
    replay: SchedulingReplay,
    slot: int,
    part: Part,
    priority: int,
    unit: UnitVictim | None = None,
    refused: str = "",
) -> PodAnswer:
    snapshot = replay.snapshot
    group = int(snapshot.pod_group[slot])
    return PodAnswer(
        snapshot.pod_keys[slot],
        snapshot.pod_uids[slot],
        part,
        snapshot.nodes[int(snapshot.pod_node[slot])].name,
        priority,
        snapshot.group_keys[group] if group >= 0 else "",
        unit,
        refused,
    )
