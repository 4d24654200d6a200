"""A naive judge of quota in one cohort: plays reservations by hand and adds up who holds what.

Each tenant has a ClusterQueue with its part of the devices; what one does not use others borrow.
Within a queue lower priorities are preempted, and a tenant takes back from any work what it lent;
for a job that asks for more than its tenant's own nothing is preempted. Nothing here comes from the
engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Claim:
    """A job: who submits it, devices and priority."""

    tenant: str
    devices: int
    priority: int


@dataclass
class Ledger:
    """Who holds quota; `evicted` are those of them that are to give it back."""

    own: Mapping[str, int]  # by tenant
    jobs: Mapping[str, Claim]
    held: set[str] = field(default_factory=set)
    evicted: set[str] = field(default_factory=set)
    told: Counter[str] = field(default_factory=Counter)

    def used(self, tenant: str = "", without: Collection[str] = ()) -> int:
        """Return what a tenant uses, or all of them together."""
        return sum(
            self.jobs[name].devices
            for name in self.held
            if name not in without and tenant in ("", self.jobs[name].tenant)
        )

    def has_room(self, name: str, without: Collection[str] = ()) -> bool:
        """Whether a job fits in, borrowing what others do not use."""
        return self.used("", without) + self.jobs[name].devices <= sum(self.own.values())

    def within(self, name: str, without: Collection[str] = ()) -> bool:
        """Whether its tenant would use no more than its own."""
        job = self.jobs[name]
        return self.used(job.tenant, without) + job.devices <= self.own[job.tenant]

    def reserves(self, name: str, borrows: bool) -> None:
        """Give a job quota."""
        assert name not in self.held
        assert self.has_room(name), f"{name} gets more than there is"
        assert borrows is not self.within(name), (name, borrows)
        self.held.add(name)
        self.told["reserved"] += 1

    def takes(self, preemptor: str, victims: Sequence[str]) -> None:
        """Judge victims: needed, enough, each of them allowed, and, of one plan, none in vain."""
        assert preemptor not in self.held
        assert not self.has_room(preemptor), "there was room without"
        assert self.held.issuperset(victims) and not self.evicted.intersection(victims)
        job, alone = self.jobs[preemptor], not self.evicted
        assert job.devices <= self.own[job.tenant], "it requests more than its own"
        gone = self.evicted.union(victims)
        assert self.has_room(preemptor, gone), "they do not suffice"
        others = [name for name in victims if self.jobs[name].tenant != job.tenant]
        if others:
            assert self.within(preemptor, gone), "it reclaims more than its own"
        for name in victims:
            victim = self.jobs[name]
            if victim.tenant == job.tenant:
                assert victim.priority < job.priority, f"{name} is not lower"
            else:
                assert self.used(victim.tenant) > self.own[victim.tenant], f"{name} borrows nothing"
            fewer = gone.difference([name])
            spared = self.has_room(preemptor, fewer) and (
                not others or self.within(preemptor, fewer)
            )
            assert not (alone and spared), f"{name} goes in vain"
        self.evicted.update(victims)
        self.told["preempted"] += 1

    def releases(self, name: str) -> None:
        """Take quota back."""
        self.held.remove(name)
        self.evicted.discard(name)

    def waits_rightly(self, waiting: Sequence[str], for_saves: bool = False) -> None:
        """Nobody waits who fits, whose tenant has its own left, or beside lower ones of its own.

        Unless work waits for others' saves, and with it those behind it.
        """
        for name in [] if for_saves else waiting:
            job = self.jobs[name]
            assert not self.has_room(name), f"{name} waits, and there is quota"
            assert not self.within(name), f"{name} waits for what is its own"
            lower = [
                each
                for each in self.held
                if self.jobs[each].tenant == job.tenant and self.jobs[each].priority < job.priority
            ]
            if job.devices <= self.own[job.tenant]:
                assert not self.has_room(name, lower), f"{name} waits beside lower ones"
            self.told["refused"] += 1
