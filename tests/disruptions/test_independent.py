"""Independent submissions of one template are independent: no loop is named, and nobody is held."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.lineage import Participant, participant_of
from reprieve.engine.disruptions.questions import Rule
from tests.disruptions.builders import at, displaced, identity, question


@dataclass
class _Gang:
    participant: Participant
    runs: bool = True


def _gang(study: int, number: int, tenant: str, seconds: float, *, stays: bool) -> _Gang:
    """Return a gang, or a Workload, without an owner: all of a tenant have one template."""
    name = f"{study}-{number}"
    return _Gang(
        participant_of(
            identity(
                name,
                tenant,
                queue="q",
                template="t",
                group="" if stays else name,
                stays=stays,
                created=at(seconds),
            )
        )
    )


def test_a_thousand_studies_of_independent_gangs_name_no_loop_and_hold_nobody() -> None:
    """Each displaces a gang once at the most; who was displaced runs again, and some finish."""
    random, displacements, ended = Random(17), 0, 0
    for study in range(1_000):
        governor, seconds = Governor(), 0
        gangs: list[_Gang] = []
        pairs: set[frozenset[str]] = set()
        for number in range(random.randint(8, 25)):
            seconds += random.choice((1, 20, 90))
            tenant = random.choice("ab")
            new = _gang(study, number, tenant, seconds, stays=study % 2 == 0)
            waiting = [each for each in gangs if not each.runs]
            gangs.append(new)
            for one in (new, *waiting[:2]):
                others = [
                    each
                    for each in gangs
                    if each.runs
                    and each is not one
                    and frozenset((each.participant.lineage, one.participant.lineage)) not in pairs
                ]
                if not others:
                    continue
                other = random.choice(others)
                now = at(seconds)
                above = random.choice((0, 0, 1, -1))
                asked = question(seconds, one.participant, other.participant, above=above)
                assert governor.hold(asked) is None, (study, number)
                known = governor.known_by(one.participant, now)
                assert known is not None
                governor.record(
                    displaced(
                        seconds,
                        one.participant,
                        other.participant,
                        number=displacements,
                        above=above,
                    )
                )
                governor.admitted(one.participant, now)
                pairs.add(frozenset((one.participant.lineage, other.participant.lineage)))
                one.runs, other.runs = True, False
                displacements += 1
                assert governor.loops(now) == () and governor.held(now) == {}, (study, number)
            for each in [each for each in gangs if each.runs and random.random() < 0.1]:
                governor.ended(each.participant, at(seconds))
                gangs.remove(each)
                ended += 1
    print(f"{displacements} displacements, {ended} gangs have ended")
    assert displacements >= 20_000 and ended >= 1_500, (displacements, ended)


def test_who_comes_after_another_one_was_displaced_and_ended_is_the_same_once() -> None:
    governor = Governor()
    gone = participant_of(identity("1", template="t", group="g1", created=at(0)))
    after = participant_of(identity("2", template="t", group="g2", created=at(20)))
    twin = participant_of(identity("3", template="t", group="g3", created=at(20)))
    governor.record(displaced(10, "p", gone))
    assert governor.family(after) != governor.family(gone), "it is there still"
    governor.ended(gone, at(15))
    assert governor.family(after) == governor.family(gone)
    governor.record(displaced(30, "p", after))
    assert governor.family(after) == governor.family(gone) != governor.family(twin)


def test_who_ran_again_before_it_ended_has_nobody_come_in_its_place() -> None:
    governor = Governor()
    done = participant_of(identity("1", template="t", stays=True, created=at(0)))
    after = participant_of(identity("2", template="t", stays=True, created=at(40)))
    governor.record(displaced(10, "p", done))
    governor.admitted(done, at(20))
    governor.ended(done, at(30))
    assert governor.family(after) != governor.family(done)


@pytest.mark.parametrize("one_after_the_other", [True, False])
def test_failures_of_one_template_are_a_crash_loop_only_one_after_the_other(
    one_after_the_other: bool,
) -> None:
    governor, ends = Governor(), []
    for k in range(3):
        created = 100 * k - 1 if one_after_the_other else k
        each = participant_of(identity(f"{k}", template="t", created=at(created)))
        governor.record(displaced(100 * k, each, f"victim-{k}", number=k))
        governor.failed(each, at(100 * k + 50))
        ends.append((each, at(100 * k + 60)))
        if one_after_the_other:
            governor.ended(*ends.pop())
    for participant, instant in ends:
        governor.ended(participant, instant)
    new = participant_of(identity("9", template="t", created=at(400)))
    hold = governor.hold(question(401, new, "anybody"))
    assert (hold is not None and hold.rule is Rule.CRASH_LOOP) is one_after_the_other
