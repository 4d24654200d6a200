"""Changes with which a waiting pod or group would start, found by deciding again.

The engine that decides is called on changed input, at most `MOST_DECISIONS` times, each time about
one change, and in the end about pairs of constraints. A unit starts that is placed, or for which
others can become victims. In the order of what is tried, which is that of the answer:

1. waiting: who leaves has ended; the first end of a minimum runtime that is enough;
2. a lower minimum count of its gang, the highest that does;
3. fewer devices for each pod, the most that do;
4. one constraint less: those whose filter refuses nodes first;
5. the next priority classes;
6. two constraints less, where nothing else was found.

Halving assumes that less is never harder. What is returned was decided so; that nothing
is returned states that no such change was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import Final

import numpy as np

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.diagnosis.model import Change, Diagnosis, Fix
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.diagnosis.scheduling_changes import (
    Constraint,
    constraints_of,
    higher_classes,
    with_group,
    with_priority,
    with_requests,
    without_leaving,
)
from reprieve.engine.disruptions.questions import Hold
from reprieve.engine.placement.filtering import PlacementScorer
from reprieve.engine.placement.filters.dynamic.device_extended import extended_requests
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.gangs.cycle import GangGroup
from reprieve.engine.scheduling.gangs.job import NO_JOBS, JobOptions
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.plugins import PostFilter
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS, Session
from reprieve.engine.scheduling.victims.hierarchy import effective_priority, members_of
from reprieve.engine.scheduling.victims.min_runtime import protected_until
from reprieve.units.ids import Uid

__all__ = ["MOST_DECISIONS", "Question", "fixes_for"]

#: How often one answer may call the engine.
MOST_DECISIONS: Final = 20
_MOST_CLASSES: Final = 3
_NOTHING_TRIED: Final = frozenset(
    {Reason.GROUP_MISSING, Reason.NOT_UNIFORM, Reason.SET_ASIDE, Reason.BACKOFF}
)


@dataclass(frozen=True, slots=True)
class Question:
    """A unit that waits, and all that its decision depends on, as for `Session`.

    `classes`: values and names of priority classes beside those of the snapshot, which has none
    where no option requests them. `imposed`: keys of node selectors that others set for its pods.
    """

    snapshot: Snapshot
    policy: Policy
    unit: Unit
    now: int = 0
    overdue: frozenset[Uid] = frozenset()
    gangs: Mapping[str, GangGroup] = field(default_factory=dict)
    jobs: JobOptions = NO_JOBS
    plugins: Mapping[str, PostFilter] = field(default_factory=lambda: GROUP_POST_FILTERS)
    scorers: Mapping[str, PlacementScorer] = field(default_factory=dict)
    holds: Mapping[Uid, Hold] = field(default_factory=dict)
    classes: tuple[tuple[int, str], ...] = ()
    imposed: frozenset[str] = frozenset()

    @property
    def group(self) -> GroupRow | None:
        """The unit's group object."""
        index = self.snapshot.group_index.get(self.unit.group, -1)
        return self.snapshot.group_rows[index] if index >= 0 else None


@dataclass(slots=True)
class _Asking:
    """Queries the engine for as long as it may."""

    left: int
    stop: Callable[[], bool]

    def victims(self, question: Question) -> int | None:
        """Return how many pods are preempted so that the unit starts, None where it does not."""
        if self.left <= 0 or self.stop():
            return None
        self.left -= 1
        session = Session(
            question.snapshot,
            question.policy,
            plugins=question.plugins,
            scorers=question.scorers,
            overdue=question.overdue,
            gangs=question.gangs,
            jobs=question.jobs,
            now=question.now,
            holds={question.unit: question.holds},
        )
        attempt = session.attempt(question.unit)
        if attempt is None:
            return None
        if attempt.code is Code.SUCCESS and any(member.bind for member in attempt.members):
            return 0
        return len(attempt.plan.victims) if attempt.plan is not None else None


def fixes_for(
    question: Question,
    found: Diagnosis,
    most: int = MOST_DECISIONS,
    *,
    stop: Callable[[], bool] = lambda: False,
    report: Callable[[tuple[Fix, ...]], None] = lambda fixes: None,
) -> tuple[Fix, ...]:
    """Return the changes that help, the smallest first; none is an answer, too.

    `stop` states that nothing more is to be tried: what was found until then is returned.
    `report` is called with all that was found so far, after each change that helps.
    """
    pods = [uid for uid in question.unit.pods if uid in question.snapshot.pending]
    if found.reason in _NOTHING_TRIED or not pods:
        return ()
    asking = _Asking(most, stop)
    if found.reason is Reason.GROUP_INCOMPLETE:
        return tuple(_fewer_pods(asking, question, len(pods)))
    fixes: list[Fix] = []
    for fix in chain(
        _waiting(asking, question, found),
        _fewer_pods(asking, question),
        _fewer_devices(asking, question, found),
        _constraints(asking, question, found),
        _priorities(asking, question),
    ):
        fixes.append(fix)
        report(tuple(fixes))
    return tuple(fixes or _pairs(asking, question, found))


def _waiting(asking: _Asking, question: Question, found: Diagnosis) -> Iterator[Fix]:
    if found.reason in (Reason.VICTIMS_LEAVING, Reason.NOMINATED_WAITING):
        later = replace(question, snapshot=without_leaving(question.snapshot))
        victims = asking.victims(later)
        if victims is not None:
            until = "" if found.earliest is None else format_instant(found.earliest)
            yield Fix(Change.WAIT, "", "", until, victims)
    ends = _ends_of_runtimes(question)
    if not ends:
        return
    place, answer = _first(len(ends), lambda n: asking.victims(replace(question, now=ends[n] + 1)))
    if answer is not None:
        instant = format_instant(Nanos(ends[place] * SECOND))
        yield Fix(Change.WAIT, "", "", instant, answer)


def _ends_of_runtimes(question: Question) -> list[int]:
    """Return when minimum runtimes end of pods below the unit, in Unix seconds."""
    snapshot, policy = question.snapshot, question.policy
    until = protected_until(snapshot, policy, question.now)
    if until is None:
        return []
    group = question.group
    first = snapshot.pending[next(u for u in question.unit.pods if u in snapshot.pending)]
    priority = first.row.priority if group is None else group.priority
    below = (until > 0) & (effective_priority(snapshot, policy) < priority)
    ends: list[int] = np.unique(until[below]).tolist()
    return ends


def _fewer_pods(asking: _Asking, question: Question, present: int | None = None) -> Iterator[Fix]:
    """Lower the minimum; `present`: to as many as there are at most."""
    key = question.unit.group
    group, gang = question.group, question.gangs.get(key)
    if gang is not None and len(gang.gangs) == 1:
        minimum, path = gang.gangs[0].minimum, "spec.minMember"
    elif group is not None and group.min_count is not None and not group.composite:
        minimum, path = group.min_count, "spec.schedulingPolicy.gang.minCount"
    else:
        return
    there = 0 if group is None else len(members_of(question.snapshot, group))
    highest = minimum - 1
    if present is not None:
        highest = min(highest, present + there)

    def changed(wanted: int) -> Question:
        if gang is not None:
            state = replace(gang.gangs[0], minimum=wanted)
            return replace(question, gangs={**question.gangs, key: replace(gang, gangs=(state,))})
        snapshot = with_group(question.snapshot, key, lambda row: replace(row, min_count=wanted))
        return replace(question, snapshot=snapshot)

    lowest = there + 1
    if highest < lowest:
        return
    place, answer = _first(highest - lowest + 1, lambda n: asking.victims(changed(highest - n)))
    if answer is not None:
        yield Fix(Change.FEWER_PODS, path, str(minimum), str(highest - place), answer)


def _fewer_devices(asking: _Asking, question: Question, found: Diagnosis) -> Iterator[Fix]:
    snapshot = question.snapshot
    classes = {
        snapshot.pending[uid].pod_class for uid in question.unit.pods if uid in snapshot.pending
    }
    entry = snapshot.classes[next(iter(classes))] if len(classes) == 1 else None
    if entry is None or extended_requests(snapshot, entry):
        return
    short = {name for _, name in found.deficit}
    short |= {*found.values.get("short", "").split(", ")} - {""}
    for name, amount in entry.requests:
        if "/" in name and amount > 1 and (not short or name in short):
            yield from _fewer_of(asking, question, name, amount)


def _fewer_of(asking: _Asking, question: Question, name: str, amount: int) -> Iterator[Fix]:
    def victims(number: int) -> int | None:
        wanted = amount - 1 - number
        fewer = with_requests(question.snapshot, question.unit, name, wanted)
        return asking.victims(replace(question, snapshot=fewer))

    place, answer = _first(amount - 1, victims)
    if answer is not None:
        path, after = f"resources.requests[{name}]", str(amount - 1 - place)
        yield Fix(Change.FEWER_DEVICES, path, str(amount), after, answer)


def _first(size: int, victims: Callable[[int], int | None]) -> tuple[int, int | None]:
    """Return the first of these numbers for which there is an answer, and that.

    The last is tried first: where it does not suffice, none does.
    """
    low, high = 0, size - 1
    best = victims(high)
    if best is None:
        return high, None
    while low < high:
        middle = (low + high) // 2
        answer = victims(middle)
        if answer is None:
            low = middle + 1
        else:
            high, best = middle, answer
    return high, best


def _ordered(question: Question, found: Diagnosis) -> list[Constraint]:
    """Return the constraints of the unit, first those whose filter refuses most nodes."""
    every = list(constraints_of(question.snapshot, question.unit, question.imposed))
    return sorted(every, key=lambda each: -found.filters.get(each.plugin, 0))


def _constraints(asking: _Asking, question: Question, found: Diagnosis) -> Iterator[Fix]:
    for each in _ordered(question, found):
        yield from _without(asking, question, (each,))


def _pairs(asking: _Asking, question: Question, found: Diagnosis) -> Iterator[Fix]:
    for pair in combinations(_ordered(question, found), 2):
        yield from _without(asking, question, pair)


def _without(
    asking: _Asking, question: Question, constraints: Iterable[Constraint]
) -> Iterator[Fix]:
    snapshot, chosen = question.snapshot, tuple(constraints)
    for each in reversed(chosen):  # places in lists count from the front
        snapshot = each.apply(snapshot, question.unit)
    victims = asking.victims(replace(question, snapshot=snapshot))
    if victims is not None:
        yield Fix(
            Change.WITHOUT_CONSTRAINT,
            " and ".join(each.field for each in chosen),
            " and ".join(each.before for each in chosen if each.before),
            " and ".join(each.after for each in chosen if each.after),
            victims,
        )


def _priorities(asking: _Asking, question: Question) -> Iterator[Fix]:
    snapshot, unit, group = question.snapshot, question.unit, question.group
    if unit.group and (group is None or group.composite):
        return
    first = snapshot.pending[next(uid for uid in unit.pods if uid in snapshot.pending)].row
    before = first.pod_class.priority_class or str(first.priority)
    for value, name in higher_classes(snapshot, first.priority, question.classes)[:_MOST_CLASSES]:
        raised = replace(question, snapshot=with_priority(snapshot, unit, name, value))
        victims = asking.victims(raised)
        if victims is not None:
            yield Fix(Change.HIGHER_PRIORITY, "priorityClassName", before, name, victims)
            return
