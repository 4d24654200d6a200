"""How often work was displaced, as tenants are told: the same in whatever order it is told."""

from __future__ import annotations

from random import Random

from reprieve.engine.disruptions.counts import DisplacementCounts
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import Exemption
from reprieve.engine.disruptions.questions import GovernorPolicy
from tests.disruptions.builders import at, displaced, participant


def test_over_random_histories_told_in_any_order_it_counts_what_the_governor_counts() -> None:
    random, counted = Random(5), 0
    for _ in range(200):
        exempt = (Exemption.NONE, Exemption.NONE, Exemption.DRAIN)
        rows = [
            displaced(
                random.randrange(9_000),
                "p",
                random.choice("abc"),
                number=n,
                exempt=random.choice(exempt),
            )
            for n in range(30)
        ]
        governor, counts = Governor(), DisplacementCounts(GovernorPolicy())
        governor.fold(rows)
        random.shuffle(rows)
        counts.fold(rows)
        now = at(9_000)
        assert counts.repeated(now) == governor.repeated(now)
        for name in "abc":
            assert counts.displaced(participant(name), now) == governor.displaced(
                participant(name), now
            )
            counted += counts.displaced(participant(name), now)
    assert counted > 1_000


def test_work_with_a_label_is_called_by_it_and_what_comes_later_does_not_count() -> None:
    counts = DisplacementCounts(GovernorPolicy())
    counts.record(displaced(10, "p", participant("label/ns/x")))
    counts.record(displaced(20, "p", participant("owner/b", merged="label/ns/x")))
    counts.record(displaced(30, "p", participant("owner/b", merged="label/ns/x")))
    assert [counts.displaced(participant("label/ns/x"), at(s)) for s in (9, 10, 25, 30)] == [
        0,
        1,
        2,
        3,
    ]
    assert counts.displaced(participant("owner/b"), at(30)) == 0
