"""Plays recorded cycles on to their end, and counts evictions that helped nobody.

Victims go all at once, or one in each cycle (`staggered`), and do not come back; fourteen cycles
are played at most. Somebody was evicted in vain if the preemptor is never admitted (`never`), or is
on none of the victim's domains although its quota did not need the victim (`elsewhere`).

Source: specification of topology-aware scheduling, section 9 (2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import Entry, Outcome
from reprieve.engine.quota.holdings.holders import Holder
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.holdings.tree import available
from reprieve.engine.victim_choice import VictimChoice
from tests.conformance.quota_runners import Scheduler
from tests.conformance.topology_cycles import grounds

Json = dict[str, Any]
_MOST_CYCLES = 14
Domains: TypeAlias = frozenset[tuple[str, tuple[str, ...]]]


@dataclass(frozen=True)
class Evicted:
    """One eviction: for whom, from which domains, and whether quota alone needed it."""

    victim: str
    preemptor: str
    domains: Domains
    for_quota: bool


@dataclass
class Story:
    """What became of one case; `vain` has the evictions that helped nobody, by how."""

    evicted: list[Evicted] = field(default_factory=list)
    vain: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def played(case: Json, profile: VictimChoice, staggered: bool) -> Story:
    """Return what becomes of a case under a profile."""
    scheduler = Scheduler(case)
    settings = replace(scheduler.configuration.settings, profile=profile)
    scheduler.configuration = replace(scheduler.configuration, settings=settings)
    scheduler.holdings.configure(scheduler.configuration)
    scheduler.queues.configure(scheduler.configuration)
    scheduler.holdings.stand_on(grounds(case))
    story, holdings = Story(), scheduler.holdings
    admitted: dict[str, Domains] = {}
    # Who is evicted already goes, too, and first.
    leaving = [key for key, holder in holdings.holders.items() if holder.evicted]
    for number in range(_MOST_CYCLES):
        result = cycle(holdings, scheduler.queues, scheduler.now, number)
        earlier: list[Entry] = []
        for entry in result.entries:
            key = entry.workload.key
            if entry.outcome is Outcome.FAULT:
                story.faults.append(f"{key}: {entry.message}")
            if entry.outcome is Outcome.ADMITTED:
                admitted[key] = domains_of(holdings.holders[key])
            needed = needed_for_quota(holdings, entry, earlier)
            if entry.outcome in (Outcome.PREEMPTING, Outcome.DEFERRED):
                earlier.append(entry)
            for target in entry.issued:
                victim = target.holder.key
                story.evicted.append(
                    Evicted(victim, key, domains_of(target.holder), victim in needed)
                )
                leaving.append(victim)
        gone = leaving[:1] if staggered else leaving[:]
        for victim in gone:
            leaving.remove(victim)
            holdings.release(victim)
        scheduler.queues.flush(list(scheduler.configuration.cluster_queues))
    for each in story.evicted:
        if each.preemptor not in admitted:
            story.vain[each.victim] = "never"
        elif not each.for_quota and not each.domains & admitted[each.preemptor]:
            story.vain[each.victim] = "elsewhere"
    return story


def domains_of(holder: Holder) -> Domains:
    """Return the domains that a holder of quota has pods in."""
    return frozenset(
        (flavor, each.values) for flavor, pods in holder.placed for each in pods.assignment.domains
    )


def needed_for_quota(holdings: Holdings, entry: Entry, earlier: Sequence[Entry]) -> set[str]:
    """Return the victims without which the preemptor had no quota, were all others gone.

    `earlier`: who waits for victims, or for those of others, and was decided about before it in the
    cycle. Their victims are gone, and what they wait for is in use.
    """
    tree = holdings.tree
    if not entry.issued or entry.assignment is None:
        return set()
    found = set()
    path = tree.path[entry.queue] or (entry.queue,)
    others = {t.holder.key: t.holder for each in earlier for t in each.targets}
    own = {t.holder.key: t.holder for t in entry.targets}
    for key in own:
        gone = {k: holder for k, holder in (others | own).items() if k != key}
        left = holdings.snapshot().without(gone.values())
        for each in earlier:
            if each.assignment is not None:
                left.add_usage(each.queue, each.assignment.usage.items())
        if any(
            available(tree, column, left.usage[column], path) < amount
            for column, amount in entry.assignment.usage.items()
        ):
            found.add(key)
    return found
