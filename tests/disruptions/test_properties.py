"""What the governor promises, over random histories: the bound on cycles, and that holds end.

What was displaced is judged from a list of its own, by names that no lineage was made from
(`tests.oracle.disruptions`), not from the ledger.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.governor import LONGEST_PAUSE, Governor
from reprieve.engine.disruptions.ledger import Actor, Displacement
from reprieve.engine.disruptions.lineage import Lineage, Participant, participant_of
from reprieve.engine.disruptions.questions import (
    Enforcement,
    GovernorPolicy,
    Hold,
    Question,
    Rule,
)
from tests.disruptions.builders import at, displaced, identity, participant, question
from tests.oracle import disruptions as oracle

LIMITS: Final = (1, 2, 3)
WINDOW: Final = 3_600


def plain(row: Displacement) -> oracle.Row:
    assert row.preemptor is not None
    pair = row.preemptor.lineage, row.victim.lineage
    return (row.at // SECOND, *pair, row.above, row.lost_device_seconds, row.cause)


def history(random: Random) -> list[Displacement]:
    """Return what a few lineages did to each other, in no sense at all."""
    names = "abcdef"[: random.randint(2, 5)]
    causes = random.choice((("",), ("one",), ("one", "", "two")))
    order = [(one, other) for one in names for other in names if one != other]
    favourites = random.sample(order, min(len(order), random.randint(2, 7)))
    seconds, rows = 0, []
    for number in range(random.randint(5, 40)):
        seconds += random.choice((0, 1, 30, 300, 1_500))
        rows.append(
            displaced(
                seconds,
                *random.choice(favourites),
                number=number,
                above=random.choice((0, 0, 0, 1, -1)),
                lost_device_seconds=random.choice((0, 5)),
                cause=random.choice(causes),
            )
        )
    return rows


def test_over_random_histories_a_naive_reading_holds_the_same() -> None:
    random, seen = Random(13), Counter[str]()
    for number in range(600):
        limit = random.choice(LIMITS)
        rows = history(random)
        governor = Governor(GovernorPolicy(loop_limit=limit))
        for row in rows:
            governor.record(row)
            # Each got what it displaced for.
            assert row.preemptor is not None
            governor.admitted(row.preemptor, row.at)
            # Who is found to hold nobody may do so by the next rows.
            for each in (row.preemptor, row.victim):
                assert governor.known_by(each, row.at) is not None
        told = [plain(row) for row in rows]
        expected = oracle.holds(told, limit, WINDOW)
        names = sorted({name for row in rows for name in plain(row)[1:3]})
        last = rows[-1].at
        for later in (0, 600 * SECOND, 2 * WINDOW * SECOND):
            now = Nanos(last + later)
            for one in names:
                for other in names:
                    asked = replace(question(0, one, other), now=now)
                    found = governor.hold(asked)
                    pair, second = (one, other), now // SECOND
                    lost = oracle.without_gain(told, pair, limit, WINDOW, second)
                    end = max(expected.get(pair, 0), lost) * SECOND
                    seen["without gain"] += lost > max(second, expected.get(pair, 0))
                    assert (found.until if found else None) == (end if end > now else None), number
                    seen["held"] += found is not None
                    known = governor.known_by(asked.preemptor, now)
                    assert known is not None
                    named = not known.isdisjoint(asked.victim.names)
                    assert named or found is None
                    # Asked with no lower priority, as all of these are.
                    fewer = governor.known_by(asked.preemptor, now, below=False)
                    assert fewer is not None and fewer <= known
                    assert not fewer.isdisjoint(asked.victim.names) or found is None
                    seen["not asked about with no lower priority"] += len(fewer) < len(known)
                    seen["not asked about"] += not named
                    seen["longer than a window"] += end - now > WINDOW * SECOND
        members = [len(loop.members) for loop in governor.loops(last)]
        seen["loops"] += len(members)
        seen["loops of three or more"] += sum(count >= 3 for count in members)
        seen["some cause is another"] += bool(members) and len({r.cause for r in rows}) > 2
    print(dict(seen))
    assert seen["held"] >= 500 and seen["loops"] >= 200, seen
    assert seen["loops of three or more"] >= 50 and seen["longer than a window"] >= 40, seen
    assert seen["not asked about"] >= 5 * seen["held"], seen
    assert seen["not asked about with no lower priority"] >= 100, seen
    assert seen["some cause is another"] >= 20 and seen["without gain"] >= 50, seen


def test_a_strictly_higher_priority_is_never_held_but_paused_whatever_happened() -> None:
    """Unless the operator has everybody held, and in no circle even then."""
    random, seen = Random(31), Counter[str]()
    for _ in range(300):
        enforcement = random.choice(list(Enforcement))
        limit = random.choice(LIMITS)
        governor = Governor(GovernorPolicy(limit, crashes=2, enforcement=enforcement))
        names = set[Lineage]()
        for row in history(random):
            governor.record(row)
            assert row.preemptor is not None
            names |= {row.preemptor.lineage, row.victim.lineage}
            match random.random():
                case chance if chance < 0.3:
                    governor.admitted(row.preemptor, row.at)
                case chance if chance < 0.6:
                    governor.failed(row.preemptor, row.at)
        for one in names:
            for other in names - {one}:
                cause = random.choice(("", "one", "two"))
                asked = replace(question(0, one, other, cause=cause), now=row.at)
                held = governor.hold(asked)
                strict = governor.hold(replace(asked, above=random.choice((1, 1_000))))
                seen[f"{enforcement}: {held and held.rule}"] += 1
                if strict is None:
                    continue
                kind = "held" if enforcement is Enforcement.ALL else "paused"
                seen[f"strictly higher: {kind}"] += 1
                assert strict.rule in (Rule.WITHOUT_GAIN, Rule.CRASH_LOOP, Rule.REPEATED)
                if kind == "paused":
                    assert strict.rule is not Rule.REPEATED
                    assert strict.until - row.at <= LONGEST_PAUSE
    print(dict(seen))
    for enforcement in Enforcement:
        for rule in (Rule.CYCLE, Rule.WITHOUT_GAIN, Rule.CRASH_LOOP):
            assert seen[f"{enforcement}: {rule}"] >= 5, seen
    assert seen["strictly higher: held"] >= 100 <= seen["strictly higher: paused"], seen


def test_a_history_that_is_told_in_any_order_or_at_once_holds_the_same() -> None:
    random, held = Random(29), 0
    for _ in range(300):
        rows = history(random)
        ordered, shuffled, folded = Governor(), Governor(), Governor()
        for row in rows:
            ordered.record(row)
        mixed = [*rows, *rows[::5]]
        random.shuffle(mixed)
        for row in mixed:
            shuffled.record(row)
        folded.fold(mixed)
        now = rows[-1].at
        assert ordered.loops(now) == shuffled.loops(now) == folded.loops(now)
        assert ordered.repeated(now) == folded.repeated(now)
        names = sorted({name for row in rows for name in plain(row)[1:3]})
        for one in names:
            for other in names:
                asked = replace(question(0, one, other), now=now)
                holds = [each.hold(asked) for each in (ordered, shuffled, folded)]
                assert holds[0] == holds[1] == holds[2]
                held += holds[0] is not None
    print(f"{held} holds")
    assert held >= 500, held


# The bound


@dataclass
class Work:
    """One lineage in truth; `link` is how its new objects are known again."""

    name: str
    link: str
    priority: int = 0
    version: int = 0
    objects: int = 0
    participant: Participant = field(init=False)

    def __post_init__(self) -> None:
        self.come(0)

    def come(self, seconds: int) -> None:
        """Come back as a new object."""
        self.objects += 1
        uid = f"{self.name}-{self.objects}"
        self.participant = participant_of(
            identity(
                uid,
                self.name if self.link == "template" else "ns",
                owner={"owner": self.name, "weak": uid, "label": uid}.get(self.link, ""),
                template=f"shape of {self.name}" if self.link in ("template", "weak") else "",
                label=self.name if self.link == "label" else "",
                created=at(seconds),
            )
        )

    @property
    def node(self) -> str:
        """Another one after its priority was changed: what it did before does not count."""
        return f"{self.name}#{self.version}"


@dataclass
class Play:
    """Work that displaces whatever it may, in steps of up to some minutes."""

    random: Random
    policy: GovernorPolicy
    governed: bool = True
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        links = ["owner", "template", "label", "weak"]
        self.works = [Work(f"w{k}", self.random.choice(links)) for k in range(5)]
        self.governor = Governor(self.policy)
        self.rows: list[Displacement] = []
        self.others: list[Displacement] = []
        self.audit: list[oracle.Row] = []
        self.seconds = 0
        self.told: dict[tuple[str, str], tuple[Hold, int]] = {}
        self.last: tuple[Work, Participant]

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.seconds += self.random.choice((1, 5, 30, 200))
            match self.random.random():
                case chance if chance < 0.01:
                    self.relabel()
                case chance if chance < 0.02:
                    self.restart()
                case chance if chance < 0.04:
                    self.somebody_else()
                case chance if chance < 0.05 and self.rows:
                    self.take_back()
                case _:
                    self.displace(*self.random.sample(self.works, 2))

    def displace(self, one: Work, other: Work) -> None:
        above = one.priority - other.priority
        first, second = sorted((one, other), key=lambda work: work.name)
        cause = f"{first.name} {first.priority}, {second.name} {second.priority}"
        asked = Question(
            one.participant, other.participant, at(self.seconds), above=above, cause=cause
        )
        hold = self.governor.hold(asked) if self.governed else None
        pair = (one.name, other.name)
        if hold is not None:
            self.look_at(hold, asked, pair)
            return
        self.told.pop(pair, None)
        row = Displacement(
            asked.now,
            Actor.QUOTA,
            one.participant,
            other.participant,
            other.participant.lineage,
            len(self.rows),
            above=above,
            cause=cause,
        )
        self.seen["displaced"] += 1
        self.seen["new objects"] += other.link != "owner"
        self.rows.append(row)
        self.governor.record(row)
        self.governor.admitted(one.participant, asked.now)
        if above <= 0:
            self.audit.append((self.seconds, one.node, other.node, above, 0, ""))
        self.last = other, other.participant
        self.governor.ended(other.participant, asked.now)
        other.come(self.seconds + 1)

    def look_at(self, hold: Hold, asked: Question, pair: tuple[str, str]) -> None:
        """See that a hold ends when it was said to: then at the latest it may be done."""
        self.seen["held"] += 1
        assert asked.above <= 0
        assert hold.until > asked.now
        assert self.governor.hold(replace(asked, now=hold.until)) is None
        known = self.told.get(pair)
        if known is not None and known[1] == len(self.rows) + len(self.others):
            # Nothing has happened in between that could have made it longer.
            assert hold.until <= known[0].until
        self.told[pair] = hold, len(self.rows) + len(self.others)

    def relabel(self) -> None:
        work = self.random.choice(self.works)
        work.priority = 1 - work.priority
        work.version += 1
        self.seen["priorities changed"] += 1

    def restart(self) -> None:
        """Begin with the records alone: the same loops are held."""
        now = at(self.seconds)
        before = self.governor.loops(now)
        self.governor = Governor(self.policy)
        records = [*self.rows, *self.others]
        self.governor.fold(self.random.sample(records, len(records)))
        for row in records:
            if row.victim not in {work.participant for work in self.works}:
                self.governor.ended(row.victim, row.at)
        assert self.governor.loops(now) == before
        for row in self.rows:
            assert row.preemptor is not None
            self.governor.admitted(row.preemptor, row.at)
        self.seen["restarts"] += 1

    def somebody_else(self) -> None:
        victim = self.random.choice(self.works)
        row = Displacement(at(self.seconds), Actor.OTHER, None, victim.participant)
        self.governor.record(row)
        self.others.append(row)
        self.last = victim, replace(victim.participant, lineage=Lineage("gone"))
        self.governor.ended(victim.participant, row.at)
        victim.come(self.seconds + 1)
        self.seen["other actors"] += 1

    def take_back(self) -> None:
        """Take the last displacement back: it did not happen, so nothing came back either."""
        row, (work, before) = self.rows[-1], self.last
        if row.victim != before or row.above > 0:
            return
        assert row.preemptor is not None
        work.participant = before
        self.governor.undo(row.preemptor.lineage, row.uid)
        self.rows.pop()
        self.audit.pop()
        self.seen["taken back"] += 1


@pytest.mark.parametrize("limit", LIMITS)
def test_no_cycle_of_equals_turns_more_than_the_limit_and_every_hold_ends(limit: int) -> None:
    seen, loops, turned, free = Counter[str](), Counter[int](), 0, 0
    policy = GovernorPolicy(loop_limit=limit, loop_window=60 * MINUTE)
    for seed in range(9):
        play = Play(Random(seed), policy)
        play.steps(400)
        seen.update(play.seen)
        for loop in play.governor.loops(at(play.seconds)):
            loops[len(loop.members)] += 1
        turned += bool(oracle.turned(play.audit, limit, WINDOW))
        if seed < 3:
            lawless = Play(Random(seed), policy, governed=False)
            lawless.steps(400)
            free += bool(oracle.turned(lawless.audit, limit, WINDOW))
    print(dict(seen), "loops in the end by members", dict(loops))
    assert turned == 0
    assert free == 3, "nothing would have turned anyway"
    assert seen["held"] >= 300 and seen["displaced"] >= 1_000, seen
    assert seen["new objects"] >= 500 and sum(loops.values()) >= 9, (seen, loops)
    for kind in ("priorities changed", "restarts", "other actors", "taken back"):
        assert seen[kind] >= 10, seen


def test_no_loop_is_named_where_there_is_none() -> None:
    """Work displaces what is below it, and new work of the same template comes all the time."""
    random, displacements, several = Random(41), 0, 0
    for number in range(1_000):
        governor, studies = Governor(), 2 + number % 4
        seconds = 0
        for k in range(random.randint(5, 30)):
            seconds += random.choice((1, 60, 400))
            above, below = sorted(random.sample(range(studies), 2))
            # Trials of a study: an owner each, all of one template, all made before any had to go.
            trials = [
                participant(
                    f"owner/{study}-{random.randint(0, 8)}",
                    weak=f"tenant{study}/template",
                    created=at(-1),
                )
                for study in (above, below)
            ]
            if random.random() < 0.1:
                trials.reverse()
            governor.record(displaced(seconds, trials[0], trials[1], number=k))
            assert governor.loops(at(seconds)) == (), number
            displacements += 1
        several += len(governor.repeated(at(seconds))) > 0
    print(f"{displacements} displacements, repeated ones in {several} studies")
    assert displacements >= 10_000 and several >= 100, (displacements, several)
