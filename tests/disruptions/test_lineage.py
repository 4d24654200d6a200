"""Which objects are one lineage: by owner, gang, label, and weakly once gone."""

from __future__ import annotations

from random import Random

import pytest

from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.families import Families
from reprieve.engine.disruptions.lineage import Identity, Participant, participant_of
from reprieve.engine.disruptions.rows import Rows
from tests.disruptions.builders import at, displaced, identity


class Told:
    """Families of participants; what nothing is known of is a family of its own."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.families = Families(self.rows)

        self.families.reach(100)

    def learn(self, participant: Participant, at: Nanos) -> None:
        self.families.learn(self.rows.participants.add(participant), at)

    def displaced(self, participant: Participant, seconds: float) -> None:
        self.families.displaced(self.rows.append(displaced(seconds, "p", participant)))

    def ended(self, participant: Participant, seconds: float) -> None:
        self.families.ended(self.rows.participants.lineages.find(participant.lineage), at(seconds))

    def wide(self, participant: Participant) -> int | str:
        found = self.families.of(participant)
        return participant.lineage if found < 0 else found

    def narrow(self, participant: Participant) -> int | str:
        found = self.families.narrow_of(participant)
        return participant.lineage if found < 0 else found


def families(*told: Identity) -> Told:
    found = Told()
    for each in told:
        found.learn(participant_of(each), at(0))
    return found


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (identity("1", owner="d"), identity("2", owner="d"), True),
        (identity("1", owner="d"), identity("2", owner="e"), False),
        # Independent submissions of one template, also as pods of gangs.
        (identity("1", queue="q", template="t"), identity("2", queue="q", template="t"), False),
        (identity("1", group="g"), identity("2", group="g"), True),
        (identity("1", group="g", template="t"), identity("2", group="h", template="t"), False),
        (identity("1", group="g"), identity("2", "other", group="g"), False),
        (identity("1"), identity("2"), False),
        # An owner goes before the template, which many jobs have in common.
        (identity("1", owner="d", template="t"), identity("2", owner="e", template="t"), False),
        # A label merges, within its namespace.
        (identity("1", owner="d", label="x"), identity("2", owner="e", label="x"), True),
        (identity("1", owner="d", label="x"), identity("2", "other", owner="e", label="x"), False),
        # It splits nothing.
        (identity("1", owner="d", label="x"), identity("2", owner="d", label="y"), True),
    ],
)
def test_objects_are_one_lineage_by_owner_then_gang_and_by_label(
    one: Identity, other: Identity, same: bool
) -> None:
    told = families(one, other)
    for family in (told.narrow, told.wide):
        assert (family(participant_of(one)) == family(participant_of(other))) is same


def test_labels_join_lineages_over_others_also_when_they_are_told_late() -> None:
    first, second = identity("1", owner="d"), identity("2", owner="e", label="x")
    late = identity("3", owner="d", label="x")
    told = families(first, second)
    assert told.wide(participant_of(first)) != told.wide(participant_of(second))
    told.learn(participant_of(late), at(0))
    assert (
        told.wide(participant_of(first))
        == told.wide(participant_of(second))
        == told.wide(participant_of(late))
    )


def test_what_is_submitted_again_after_it_was_displaced_is_weakly_the_same_work_once() -> None:
    gone = identity("1", owner="a", template="t", created=at(0))
    told = families(gone)
    told.displaced(participant_of(gone), 10.9)
    # It is there still, and comes back as itself.
    beside = participant_of(identity("0", owner="z", template="t", created=at(11)))
    assert told.wide(beside) != told.wide(participant_of(gone))
    told.ended(participant_of(gone), 10.9)
    before = participant_of(identity("2", owner="b", template="t", created=at(9)))
    # Instants of creation have whole seconds: this one may have come at 10.95.
    back = participant_of(identity("3", owner="c", template="t", created=at(10)))
    twin = participant_of(identity("4", owner="e", template="t", created=at(11)))
    foreign = participant_of(identity("5", "other", owner="f", template="t", created=at(11)))
    assert [
        told.wide(each) == told.wide(participant_of(gone)) for each in (before, back, foreign)
    ] == [
        False,
        True,
        False,
    ]
    told.learn(back, at(20))
    assert told.wide(back) == told.wide(participant_of(gone))
    assert told.wide(twin) != told.wide(participant_of(gone))
    # A victim is never protected by a weak link.
    assert told.narrow(back) != told.narrow(participant_of(gone))


def test_work_that_was_displaced_together_is_not_the_same_work() -> None:
    first = identity("1", owner="a", template="t", created=at(10))
    second = identity("2", owner="b", template="t", created=at(10))
    told = families()
    # All of it within the second in which both were made.
    for each in (first, second):
        told.learn(participant_of(each), at(10.5))
        told.displaced(participant_of(each), 10.5)
        told.ended(participant_of(each), 10.5)
    assert told.wide(participant_of(first)) != told.wide(participant_of(second))


def test_over_random_objects_families_are_what_shared_owners_gangs_and_labels_connect() -> None:
    random, joined, labelled = Random(3), 0, 0
    for number in range(300):
        told = [
            identity(
                f"{number}-{k}",
                random.choice("ab"),
                owner=random.choice(("", "d", "e", "f", "g", "h")),
                queue=random.choice("qp"),
                template=random.choice(("", "t", "s")),
                group=random.choice(("", "v", "w")),
                label=random.choice(("", "", "", "x", "y")),
            )
            for k in range(8)
        ]
        # Naive: the keys of an object, and what they connect until nothing changes.
        keys = [_keys(each) for each in told]
        sets = [set(each) for each in keys]
        for _ in sets:
            for k, mine in enumerate(sets):
                sets[k] = mine.union(*(each for each in sets if mine & each))
        found = families(*told)
        for k, one in enumerate(told):
            for n, other in enumerate(told):
                same = bool(sets[k] & sets[n])
                assert (
                    found.narrow(participant_of(one)) == found.narrow(participant_of(other))
                ) is same
                joined += same and k < n
                labelled += same and k < n and not set(keys[k]) & set(keys[n])
    print(f"{joined} pairs of one family, {labelled} of them over others")
    assert joined >= 1_000 and labelled >= 50, (joined, labelled)


def _keys(each: Identity) -> list[tuple[str, ...]]:
    if each.owner:
        own: tuple[str, ...] = ("owner", each.owner)
    elif each.group:
        own = ("group", each.namespace, each.group)
    else:
        own = ("uid", each.uid)
    return [own, *([("label", each.namespace, each.label)] if each.label else [])]
