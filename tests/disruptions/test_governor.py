"""The governor's rules one by one: who is held from whom, by which rule and until when."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random
from typing import Any

import pytest

from kubeworld.units.durations import HOUR, SECOND
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import Actor, Displacement, Exemption
from reprieve.engine.disruptions.lineage import Lineage, Participant
from reprieve.engine.disruptions.loops import Edge, find_loops
from reprieve.engine.disruptions.questions import (
    Enforcement,
    GovernorPolicy,
    Hold,
    Loop,
    Rule,
)
from tests.disruptions.builders import at, displaced, participant, question
from tests.oracle.disruptions import is_turn

TOLD = GovernorPolicy()
ALL = GovernorPolicy(enforcement=Enforcement.ALL)


def governor(*rows: Displacement, policy: GovernorPolicy = TOLD) -> Governor:
    found = Governor(policy)
    for row in rows:
        found.record(row)
        # Each has got what it displaced for, so that nothing is in vain.
        if row.preemptor is not None:
            found.admitted(row.preemptor, row.at)
    return found


def turns(members: str, times: int, **facts: Any) -> list[Displacement]:
    """Return turns of a cycle, one displacement after the other, ten seconds apart."""
    steps = [*zip(members, members[1:] + members[0], strict=True)] * times
    return [displaced(10 * k, *step, number=k, **facts) for k, step in enumerate(steps)]


# Cycles


@pytest.mark.parametrize("members", ["ab", "abc", "abcde"])
def test_a_cycle_is_named_with_its_members_within_two_turns_and_held_in_one_place(
    members: str,
) -> None:
    rows = turns(members, 2)
    assert governor(*rows[:-1]).loops(rows[-1].at) == ()
    found = governor(*rows)
    (loop,) = found.loops(rows[-1].at)
    assert sorted(loop.members) == list(members)
    plain = [(r.at, r.preemptor.lineage, r.victim.lineage, 0, 0, "") for r in rows if r.preemptor]
    assert is_turn(loop.members, plain)  # type: ignore[arg-type]
    assert loop.displacements == 2 * len(members)
    assert (loop.began, loop.found) == (at(0), rows[-1].at)
    held = [
        (one, other)
        for one in members
        for other in members
        if found.hold(question(10 * len(rows), one, other)) is not None
    ]
    assert held == list(loop.held) and len(held) == 1


def test_a_hold_ends_when_the_window_has_passed_and_not_before() -> None:
    found = governor(*turns("ab", 2))
    # a displaced b at 0 and 20, b displaced a at 10 and 30.
    assert found.hold(question(40, "a", "b")) == Hold(at(3_600), Rule.CYCLE)
    assert found.hold(question(3_599, "a", "b")) == Hold(at(3_600), Rule.CYCLE)
    assert found.hold(question(3_600, "a", "b")) is None
    assert found.hold(question(40, "b", "a")) is None
    assert found.loops(at(3_600)) == ()


def test_the_least_gain_is_held_and_never_what_a_strictly_higher_priority_justifies() -> None:
    def held(one: dict[str, Any], other: dict[str, Any]) -> tuple[str, str]:
        rows = [
            displaced(10 * k, pair[0], pair[1], number=k, **facts)
            for k, (pair, facts) in enumerate([("ab", one), ("ba", other)] * 2)
        ]
        ((pair,),) = (loop.held for loop in governor(*rows).loops(at(40)))
        return pair

    assert held({}, {}) == ("a", "b")
    assert held({"lost_device_seconds": 1}, {"lost_device_seconds": 9}) == ("b", "a")
    assert held({"above": 0}, {"above": -3}) == ("b", "a")
    assert held({"above": 5}, {"above": -5}) == ("b", "a")
    # The higher one is not asked to wait, whatever it did.
    found = governor(
        *(
            displaced(10 * k, *pair, number=k, above=above)
            for k, (pair, above) in enumerate([("ab", 5), ("ba", -5)] * 2)
        )
    )
    assert found.hold(question(40, "a", "b", above=5)) is None
    assert found.hold(question(40, "b", "a", above=-5)) == Hold(at(3_610), Rule.CYCLE)


def test_a_higher_priority_that_gets_what_it_wanted_is_not_held_however_often_others_take_it() -> (
    None
):
    """A pair may turn more often than the limit where others close the circle, each of them once.

    `h` has `l` evicted, gets its room, and loses it to another tenant's work, a new one each time.
    None of those does so twice, and `h` gained something each time: nobody is held.
    """
    found = Governor(TOLD)
    for turn in range(40):
        found.record(displaced(20 * turn, "h", "l", number=2 * turn, above=100))
        found.admitted(participant("h"), at(20 * turn + 5))
        found.record(displaced(20 * turn + 10, f"x{turn}", "h", number=2 * turn + 1, above=-100))
        assert found.hold(question(20 * turn + 15, "h", "l", above=100)) is None
        assert found.hold(question(20 * turn + 15, f"x{turn + 1}", "h", above=-100)) is None
    # By the same one it is a circle, which is held; the lower priority is, after a turn less.
    found = Governor(TOLD)
    found.record(displaced(0, "h", "l", number=0, above=100))
    found.admitted(participant("h"), at(5))
    found.record(displaced(10, "x", "h", number=1, above=-100))
    assert found.hold(question(15, "x", "h", above=-100)) == Hold(at(3_610), Rule.WITHOUT_GAIN)


def test_a_cycle_is_held_beside_displacements_that_happened_once() -> None:
    chord = displaced(1, "a", "c", number=99)
    (loop,) = governor(chord, *turns("abc", 2)).loops(at(60))
    assert sorted(loop.members) == ["a", "b", "c"]
    assert loop.displacements == 6


def test_cycles_that_share_members_are_each_held() -> None:
    rows = turns("ab", 2)
    rows += [displaced(100 + 10 * k, *pair, number=k) for k, pair in enumerate(["bc", "cb"] * 2)]
    found = governor(*rows)
    held = {pair for loop in found.loops(at(140)) for pair in loop.held}
    assert held == {("a", "b"), ("b", "c")}


def test_two_begin_anew_when_what_let_them_was_changed() -> None:
    found = governor(*turns("ab", 2, cause="before"))
    assert found.hold(question(40, "a", "b", cause="before")) is not None
    assert found.hold(question(40, "a", "b", cause="after")) is None
    swapped = [
        displaced(10 * k, *pair, number=k, above=5, cause=cause)
        for k, (pair, cause) in enumerate([("ab", "one"), ("ba", "other")] * 4)
    ]
    found = governor(*swapped)
    assert found.loops(at(80)) == ()


def test_two_victims_that_are_taken_for_one_line_of_work_are_held_each_for_its_own_cause() -> None:
    """One was made in the second in which the other was displaced, of one template."""
    found = Governor(ALL)
    one = participant("object/b", weak="t", created=at(-1))
    two = participant("object/c", weak="t", created=at(0))
    for k in range(2):
        found.record(displaced(k + 0.5, "a", one, number=2 * k, above=9, cause="queue b"))
        found.record(displaced(k + 0.6, "a", two, number=2 * k + 1, above=9, cause="queue c"))
    assert found.family(one) == found.family(two)
    for victim, cause in ((one, "queue b"), (two, "queue c")):
        asked = question(3, "a", victim, above=9, cause=cause)
        assert found.hold(asked) == Hold(
            at(3_600.5 if victim is one else 3_600.6), Rule.WITHOUT_GAIN
        )
        assert found.hold(question(3, "a", victim, above=9, cause="changed")) is None


def test_a_loop_that_is_found_again_is_held_twice_as_long_and_later_ones_from_anew() -> None:
    found, start, lasted = governor(), 0.0, []
    for pause in (0, 0, 0, 0, 3_601):
        start += pause
        for k, pair in enumerate(["ab", "ba"] * 2):
            found.record(displaced(start + 10 * k, *pair, number=k))
            found.admitted(participant(pair[0]), at(start + 10 * k))
            if found.loops(at(start + 10 * k)):
                break
        (loop,) = found.loops(at(start + 10 * k))
        lasted.append((loop.until - loop.found) // SECOND)
        start = (loop.until - at(0)) / SECOND
    # The first and the last from the first displacement on, 30 seconds before they were found.
    assert lasted == [3_570, 7_200, 14_400, 28_800, 3_570]


def test_ones_own_quota_is_reclaimed_after_an_hour_at_most() -> None:
    policy = GovernorPolicy(loop_window=5 * HOUR)
    found = governor(*turns("ab", 2), policy=policy)
    assert found.hold(question(40, "a", "b")) == Hold(at(5 * 3_600), Rule.CYCLE)
    reclaiming = question(40, "a", "b", reclaims=True)
    assert found.hold(reclaiming) == Hold(at(30 + 3_600), Rule.CYCLE)
    assert found.hold(question(3_630, "a", "b", reclaims=True)) is None


def test_without_a_limit_or_a_window_nobody_is_held() -> None:
    for policy in (GovernorPolicy(loop_limit=0), GovernorPolicy(loop_window=0)):
        found = governor(*turns("ab", 5), policy=policy)
        assert found.hold(question(100, "a", "b")) is None
        assert found.loops(at(100)) == ()


def returning(times: int, **links: str) -> list[Displacement]:
    """Return a loop of two tenants' jobs, each of which comes back under a new name."""
    rows, made = [], {"a": 0, "b": 0}

    def job(name: str, seconds: float) -> Participant:
        weak = {"weak": f"{name}/template"} if "weak" in links else {}
        merged = {"merged": f"label/ns/{name}"} if "merged" in links else {}
        return participant(f"object/{name}{made[name]}", created=at(seconds), **weak, **merged)

    born = {"a": 0.0, "b": 0.0}
    for k in range(times):
        one, other = ("a", "b") if k % 2 == 0 else ("b", "a")
        seconds = 10.0 * (k + 1)
        rows.append(displaced(seconds, job(one, born[one]), job(other, born[other]), number=k))
        made[other] += 1
        born[other] = seconds + 1
    return rows


@pytest.mark.parametrize("link", ["weak", "merged"])
def test_victims_that_come_back_as_new_objects_are_held_as_those_that_stay(link: str) -> None:
    rows = returning(4, **{link: "yes"})
    assert len({r.preemptor for r in rows} | {r.victim for r in rows}) == 5
    (loop,) = governor(*rows).loops(at(50))
    assert loop.displacements == 4
    assert governor(*returning(4)).loops(at(50)) == ()
    # So is who comes back once more, and was in no displacement yet.
    found = governor(*rows)
    links = {
        name: {"weak": f"{name}/template"} if link == "weak" else {"merged": f"label/ns/{name}"}
        for name in "ab"
    }
    new, kept = participant("object/new", created=at(45), **links["a"]), rows[-1].preemptor
    assert kept is not None
    held = [found.hold(question(50, new, kept)), found.hold(question(50, kept, new))]
    assert [hold for hold in held if hold] == [Hold(loop.until, Rule.CYCLE)]


def test_who_bears_a_label_that_is_known_comes_in_the_place_of_nobody_else() -> None:
    """Other work of its template was displaced as well, and did not come back yet."""
    found = Governor()

    def etl(number: int) -> Participant:
        made = at(10 * number)
        return participant(f"owner/etl-{number}", merged="label/ns/etl", weak="t", created=made)

    for number in (1, 2):
        found.record(displaced(10 * number + 1, etl(number), "b", number=number))
        found.record(displaced(10 * number + 5, "c", etl(number), number=number, above=9))
        found.ended(etl(number), at(10 * number + 6))
        other = participant(f"owner/other-{number}", weak="t", created=at(-9))
        found.record(displaced(10 * number + 6, "x", other))
        found.ended(other, at(10 * number + 7))
    new = etl(9)
    assert found.family(new) == found.family(etl(1))
    assert found.family(new) not in {found.family(participant(f"owner/other-{k}")) for k in (1, 2)}
    assert found.hold(question(91, new, "b")) == Hold(at(3_611), Rule.WITHOUT_GAIN)


# Repeated displacement


def test_repeated_displacement_is_told_and_holds_nobody_unless_that_is_asked_for() -> None:
    rows = [displaced(10 * k, f"p{k}", "v") for k in range(3)]
    found = governor(*rows)
    assert governor(*rows[:2]).repeated(at(30)) == {}
    assert found.repeated(at(30)) == {Lineage("v"): 3}
    assert found.repeated(at(3_600)) == {}
    assert found.hold(question(30, "p9", "v")) is None


@pytest.mark.parametrize(
    ("times", "start_cost_s", "minutes"),
    [(2, 0, 0), (3, 0, 2), (4, 0, 4), (5, 300, 20), (9, 0, 60)],
)
def test_the_protected_running_time_doubles_up_to_an_hour(
    times: int, start_cost_s: int, minutes: int
) -> None:
    policy = GovernorPolicy(enforcement=Enforcement.EQUALS)
    found = governor(*(displaced(k, f"p{k}", "v") for k in range(times)), policy=policy)
    asked = question(
        20, "p99", "v", running_since=at(20), start_cost=start_cost_s * SECOND, above=0
    )
    expected = Hold(at(20 + 60 * minutes), Rule.REPEATED) if minutes else None
    assert found.hold(asked) == expected


def test_enforcement_spares_from_equals_or_from_all_but_emergencies() -> None:
    rows = [displaced(k, f"p{k}", "v") for k in range(3)]

    def held(enforcement: Enforcement, above: int, priority: int = 0) -> bool:
        policy = GovernorPolicy(enforcement=enforcement, emergency_priority=1_000)
        asked = question(5, "p9", "v", above=above, priority=priority, running_since=at(4))
        return governor(*rows, policy=policy).hold(asked) is not None

    assert held(Enforcement.EQUALS, 0) and held(Enforcement.EQUALS, -1)
    assert not held(Enforcement.EQUALS, 1)
    assert held(Enforcement.ALL, 1) and not held(Enforcement.ALL, 1, priority=1_000)


def test_other_actors_count_for_the_victim_and_are_nobodys_fault() -> None:
    rows = [
        Displacement(at(0), Actor.OTHER, None, participant("v"), uid="1"),
        Displacement(at(1), Actor.OTHER, participant("p"), participant("v"), uid="2"),
        displaced(2, "p", "v"),
    ]
    found = governor(*rows)
    assert found.repeated(at(3)) == {Lineage("v"): 3}
    assert found.hold(question(3, "p", "v")) is None
    exempt = [displaced(k, "p", "v", exempt=kind) for k, kind in enumerate(Exemption) if kind]
    found = Governor()
    for row in exempt:
        found.record(row)
    assert found.repeated(at(9)) == {}
    assert found.hold(question(9, "p", "v")) is None


def test_a_weak_link_protects_no_victim() -> None:
    policy = GovernorPolicy(enforcement=Enforcement.ALL)
    rows = [
        displaced(10 * k, f"p{k}", participant(f"v{k}", weak="t", created=at(10 * k - 1)))
        for k in range(5)
    ]
    found = governor(*rows, policy=policy)
    again = participant("v9", weak="t", created=at(50))
    assert found.hold(question(51, "p9", again, running_since=at(50))) is None


# Crash loops


def test_who_fails_soon_after_displacing_others_three_times_displaces_nobody_for_a_window() -> None:
    found = Governor()
    for k in range(3):
        found.record(displaced(600 * k, "p", f"v{k}", number=k))
        assert found.hold(question(600 * k + 299, "p", "x")) is None
        found.failed(participant("p"), at(600 * k + 299))
    assert found.hold(question(1_600, "p", "x")) == Hold(at(299 + 3_600), Rule.CRASH_LOOP)
    # With a strictly higher priority it tries again after 10 s.
    assert found.hold(question(1_508, "p", "x", above=1)) == Hold(at(1_509), Rule.CRASH_LOOP)
    assert found.hold(question(1_509, "p", "x", above=1)) is None
    found.adopt(ALL)
    assert found.hold(question(1_600, "p", "x", above=1)) == Hold(at(299 + 3_600), Rule.CRASH_LOOP)
    assert found.hold(question(3_899, "p", "x")) is None
    assert found.hold(question(1_600, "q", "x")) is None


def test_late_failures_and_several_of_one_displacement_are_no_crash_loop() -> None:
    found = Governor()
    for k in range(3):
        found.record(displaced(600 * k, "p", f"v{k}", number=k))
        found.failed(participant("p"), at(600 * k + 301))
    assert found.hold(question(1_600, "p", "x")) is None
    found = Governor()
    found.record(displaced(0, "p", "v"))
    for seconds in (1, 2, 3):
        found.failed(participant("p"), at(seconds))
    assert found.hold(question(4, "p", "x")) is None


# Without gain


def test_what_was_done_in_vain_is_held_with_a_higher_priority_where_all_are_until_it_was_not() -> (
    None
):
    found = Governor(ALL)
    for k in range(2):
        found.record(displaced(10 * k, "high", "low", number=k, above=5))
    assert found.hold(question(20, "high", "low", above=5)) == Hold(at(3_600), Rule.WITHOUT_GAIN)
    assert found.hold(question(20, "high", "other", above=5)) is None
    found.admitted(participant("high"), at(15))
    assert found.hold(question(20, "high", "low", above=5)) is None


def test_what_a_strictly_higher_priority_does_in_vain_is_spaced_out_up_to_five_minutes() -> None:
    found, pauses = Governor(), []
    for k in range(9):
        found.record(displaced(300 * k, "high", "low", number=k, above=5))
        hold = found.hold(question(300 * k, "high", "low", above=5))
        pauses.append(0 if hold is None else (hold.until - at(300 * k)) // SECOND)
        assert found.hold(question(300 * k + 300, "high", "low", above=5)) is None
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300, 300]
    found.admitted(participant("high"), at(2_401))
    assert found.hold(question(2_402, "high", "low", above=5)) is None


def test_who_loses_what_it_gained_to_others_is_held_and_the_lower_one_a_turn_earlier() -> None:
    def held(times: int, above: int) -> bool:
        found = Governor()
        for k in range(times):
            found.record(displaced(20 * k, "small", "large", number=k))
            found.admitted(participant("small"), at(20 * k + 1))
            found.record(displaced(20 * k + 10, "third", "small", number=k, above=5))
        return found.hold(question(100, "small", "large", above=above)) is not None

    assert held(2, 0) and not held(1, 0)
    assert held(1, -1)
    # A strictly higher priority got what it wanted, whoever took it from it.
    assert not held(5, 1)


def test_an_emergency_is_never_held() -> None:
    policy = GovernorPolicy(emergency_priority=1_000)
    found = governor(*turns("ab", 2), policy=policy)
    assert found.hold(question(40, "a", "b", priority=999)) is not None
    assert found.hold(question(40, "a", "b", priority=1_000)) is None


# The fold


def test_what_did_not_happen_holds_nobody() -> None:
    rows = turns("ab", 2, uid="u")
    found = governor(*rows)
    assert found.loops(at(40))
    found.undo(Lineage("b"), "u")
    assert found.loops(at(40)) == ()
    found.record(rows[-1])
    assert found.loops(at(40)) == governor(*rows).loops(at(40)) != ()


def labelled(name: str) -> Participant:
    return participant(name, merged="label/ns/b")


def test_loops_are_told_with_what_they_cost() -> None:
    rows = turns("ab", 2, lost_device_seconds=900)
    assert governor(*rows).loops(at(40)) == (
        Loop(
            members=(Lineage("a"), Lineage("b")),
            found=at(30),
            until=at(3_600),
            displacements=4,
            began=at(0),
            lost_device_seconds=3_600,
            held=((Lineage("a"), Lineage("b")),),
        ),
    )


def test_a_turn_is_named_in_its_order() -> None:
    instants = (at(0), at(1))
    edges = [Edge(pair[0], pair[1], instants) for pair in ("ac", "cb", "bd", "da", "ca", "xy")]
    (loop,) = find_loops(edges, 2)
    assert loop.members == ("a", "c", "b", "d")
    # Without a -> c neither a -> c -> b -> d -> a nor a -> c -> a turns.
    assert [(edge.preemptor, edge.victim) for edge in loop.held] == [("a", "c")]
    assert find_loops(edges, 3) == []


def test_a_pair_is_held_once_also_when_its_work_comes_back_under_a_name_of_its_own() -> None:
    found = Governor()  # with nobody who got what it wanted
    for number in range(2):
        found.record(displaced(number, "a", labelled("b-1"), number=number))
    (pair,) = found.held(at(2))
    found.record(displaced(3, "a", labelled("b-2"), number=3))
    held = found.held(at(4))
    assert len(held) == 1 and pair not in held
    ((asked, hold),) = held.values()
    assert asked.victim.lineage == "b-2" and hold.until == at(3_601)


# Other numbers, and what is told late


def test_other_numbers_judge_what_is_known_anew() -> None:
    rows = [displaced(10 * k, *("ab" if k % 2 else "ba")) for k in range(4)]
    found = governor(*rows)
    assert len(found.loops(at(40))) == 1
    found.adopt(GovernorPolicy(loop_limit=3))
    assert found.loops(at(40)) == () and found.hold(question(40, "b", "a")) is None
    found.adopt(GovernorPolicy(loop_limit=2))
    assert found.loops(at(40)) == governor(*rows).loops(at(40)) != ()
    found.adopt(GovernorPolicy(loop_limit=0))
    assert found.loops(at(40)) == () and found.held(at(40)) == {}


def test_what_others_did_that_is_told_late_counts_as_if_it_were_told_in_order() -> None:
    random, late, by_itself = Random(17), 0, 0
    for _ in range(100):
        rows: list[Displacement] = []
        for number in range(30):
            one, other = (
                participant(
                    name, weak="t" if name in "cd" else "", created=at(-9 if name == "c" else 9)
                )
                for name in random.sample("abcd", 2)
            )
            if random.random() < 0.4:
                row = Displacement(at(number), Actor.OTHER, None, other, f"u{number}")
            else:
                row = displaced(number, one, other, number=number)
            rows.append(row)
        ordered, mixed = Governor(), Governor()
        for row in rows:
            ordered.record(row)
        told = sorted(rows, key=lambda row: row.at + random.choice((0, 0, 5)) * SECOND)
        for before, row in pairwise([rows[0], *told]):
            mixed.record(row)
            late += row.at < before.at
            by_itself += row.at < before.at and row.preemptor is None and not row.victim.weak
            if random.random() < 0.3:
                mixed.repeated(at(30))  # it is asked in between
        assert mixed.rows == ordered.rows
        assert mixed.loops(at(31)) == ordered.loops(at(31))
        assert mixed.repeated(at(31)) == ordered.repeated(at(31))
        for one_name, other_name in product("abcd", repeat=2):
            asked = question(31, one_name, other_name)
            assert mixed.hold(asked) == ordered.hold(asked)
    print(f"{late} late, {by_itself} of them taken in by themselves")
    assert late >= 200 and by_itself >= 50, (late, by_itself)


def test_labelled_work_displaced_at_the_same_instant_keeps_apart_from_who_went_with_it() -> None:
    gone = participant("a", weak="ns/t", created=at(0))
    # It could be the other one come back, had that not gone only now.
    beside = participant("b", weak="ns/t", merged="label/ns/x", created=at(100))
    governor = Governor()
    governor.record(displaced(100.5, "p", gone))
    governor.record(displaced(100.5, "q", beside, number=1))
    now = at(101)
    assert governor.family(gone) != governor.family(beside)
    assert [governor.times(participant("p"), each, now) for each in (gone, beside)] == [1, 0]
    assert [governor.times(participant("q"), each, now) for each in (gone, beside)] == [0, 1]
