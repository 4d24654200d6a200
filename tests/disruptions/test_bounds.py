"""What is remembered of displacements is bounded by rows, however many come and whoever they are.

Entries are counted after every quarter of a history that is several times as long as the bound, of
work that comes back under a new name each time, as Jobs do.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final
from uuid import NAMESPACE_OID, uuid5

from reprieve.engine.disruptions.counts import DisplacementCounts
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import Displacement
from reprieve.engine.disruptions.lineage import Participant, participant_of
from reprieve.engine.disruptions.questions import GovernorPolicy
from reprieve.execution.accounts.crowding import MOST_IN_NAMESPACE, Crowding
from tests.disruptions.builders import at, displaced, identity, participant, question
from tests.entries import entries, packed

MOST: Final = 2_000
ROWS: Final = 8_000
#: A quarter more than the ledger has, and a row less than a thousand of small ledgers.
_WORN: Final = MOST + MOST // 2
#: Two new lineages with each row, and what they are called.
_BYTES_OF_NEW_LINES: Final = 450
#: Names that were looked up lately: of lineages, weak links and tenants, in both directions.
_RECENT: Final = 6 * 4_096


def _new(random: Random, number: int, seconds: int) -> Participant:
    template, label = f"t-{random.randrange(40)}", random.choice(("", "", f"l-{number}"))
    uid = f"{number}-{random.random()}"
    made = identity(uid, owner=f"job-{uid}", template=template, label=label, created=at(seconds))
    return participant_of(made)


def _rows(random: Random, count: int) -> Iterator[Displacement]:
    for number in range(count):
        one, other = (_new(random, number, number - random.randrange(600)) for _ in range(2))
        yield displaced(number, one, other, uid=f"{number}")


def test_the_governor_remembers_no_more_than_its_ledger_however_much_new_work_comes() -> None:
    governor, most = Governor(most=MOST), 0
    for number, row in enumerate(_rows(Random(3), ROWS)):
        governor.record(row)
        assert row.preemptor is not None
        governor.admitted(row.preemptor, row.at)
        governor.failed(row.victim, row.at)
        if number % 500 == 0:
            governor.hold(question(number, row.preemptor, row.victim))
        if number % (ROWS // 4) == ROWS // 4 - 1:
            found = entries(governor)
            assert len(governor.rows) == min(MOST, number + 1)
            # Who was admitted or failed within the hour is known apart from the ledger.
            lasting = {name: n for name, n in found.items() if "_admitted" not in name}
            lasting = {name: n for name, n in lasting.items() if "_failed" not in name}
            assert sum(lasting.values()) <= _RECENT, lasting
            columns = packed(governor)
            most = max(most, sum(columns.values()))
            assert sum(columns.values()) <= _BYTES_OF_NEW_LINES * _WORN, columns
            assert found["Governor._admitted"] <= 2 * 10_000
            assert found["Governor._failed"] <= 2 * 10_000
    assert most > 200 * MOST, "little was remembered at all"


def test_rows_that_a_full_ledger_would_forget_at_once_leave_nothing_behind() -> None:
    governor = Governor(most=10)
    for number in range(10):
        governor.record(displaced(1_000 + number, "a", "b", uid=f"new-{number}"))
    governor.concerns(participant("a"))
    held = packed(governor), governor.remembers
    for number in range(300):
        late = displaced(500, f"p-{number}", f"v-{number}", uid=f"late-{number}")
        for _ in range(3):
            governor.record(late)
        # Whoever is named there is a stranger, and may be asked about.
        assert not governor.concerns(participant(f"v-{number}"))
        assert not governor.may_hold(participant(f"p-{number}"))
    assert (packed(governor), governor.remembers) == held


def test_a_row_between_lines_of_work_that_are_known_takes_a_hundred_bytes() -> None:
    governor, participants = Governor(), [_new(Random(7), number, 0) for number in range(50)]
    for number in range(ROWS):
        one, other = participants[number % 25], participants[25 + number % 25]
        uid = str(uuid5(NAMESPACE_OID, f"{number}"))
        governor.record(displaced(10 * number, one, other, uid=uid))
    assert governor.rows[-1].uid == uid
    columns = packed(governor)
    assert 60 * ROWS < sum(columns.values()) <= 100 * ROWS, columns
    assert sum(entries(governor).values()) < 1_000


def test_counts_of_displacements_are_bounded_and_the_newest_stay() -> None:
    counts = DisplacementCounts(GovernorPolicy(), most=MOST)
    last = Participant(participant_of(identity("last", owner="last")).lineage)
    for number, row in enumerate(_rows(Random(5), ROWS)):
        counts.record(row)
        if number % 100 == 99:
            counts.record(displaced(number, "p", last))
            assert sum(entries(counts).values()) <= 2 * MOST
    window = GovernorPolicy().repeated_window
    expected = sum(at(ROWS - 1) - at(n) < window for n in range(99, ROWS, 100))
    kept = int(MOST * 0.9 / 101)
    assert kept <= counts.displaced(last, at(ROWS - 1)) <= min(expected, MOST // 100)


def test_of_any_number_of_namespaces_some_are_known_and_the_others_are_looked_at() -> None:
    crowding = Crowding(most=100)
    crowding.counted({f"old-{number}": 1 for number in range(500)} | {"full": 199})
    assert crowding.crowded == []
    crowding.written("full")
    assert crowding.crowded == []
    crowding.written("full")
    assert crowding.crowded == ["full"]
    for number in range(1_000):
        crowding.written(f"new-{number}")
        assert sum(entries(crowding).values()) <= 2 * 100
    assert len(crowding.crowded) == 100 and "new-0" in crowding.crowded
    for name in crowding.crowded:
        crowding.left(name, MOST_IN_NAMESPACE)
    assert crowding.crowded == []
