"""Random clusters with options on: what the engine says, held against the oracle.

Where the rules leave one choice the engine has to make it, word for word. Where it may search for a
better one (`harmOrder` for groups, `maxPlacements` beyond the domains of a constraint, halving over
priorities that more room does not always help) what it found is judged by what is promised, and may
do no more harm than what the rules come to without that search. With `harmOrder` a plan may break
no more budgets than without it, and take nobody of a higher priority.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from random import Random

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.plan import Plan
from reprieve.engine.scheduling.proofs.proof import faults_of
from tests.engine.api_objects import Json, cluster_of, policy_of
from tests.engine.scheduling import engine_cycle
from tests.engine.scheduling.agreement import judged, kinds, plain, sound
from tests.oracle.scheduling import optional, promises, reach
from tests.oracle.scheduling.group import Outcome
from tests.oracle.scheduling.optional import OPTIONS, random_optional
from tests.oracle.scheduling.preemption import Choice

NO_OUTCOME = Outcome({}, None, {}, None)


@dataclass(frozen=True)
class Compared:
    """What came of a case: what is wrong, and what it shows."""

    wrong: str
    kinds: frozenset[str]


def decided(
    case: Json, policy: Policy | None = None, state: Snapshot | None = None
) -> tuple[Outcome, Plan | None]:
    """The engine's outcome and its plan, which is proven."""
    asked = policy_of(case) if policy is None else policy
    snapshot = cluster_of(case).snapshot() if state is None else state
    attempt = engine_cycle.attempt_of(case, snapshot, asked)
    if attempt is None:
        return NO_OUTCOME, None
    plan = attempt.plan
    if plan is not None:
        assert faults_of(snapshot, asked, attempt) == (), case["seed"]
        plan = replace(plan, revision=0)
    return engine_cycle.told(case, snapshot, asked, attempt), plan


def some_options(seed: int) -> tuple[str, ...]:
    """Two options or more; of every fourth seed all of them."""
    random = Random(f"options {seed}")
    count = len(OPTIONS) if seed % 4 == 0 else random.choice((2, 2, 3, 4, 6))
    return tuple(random.sample(OPTIONS, count))


def compared(seed: int, options: Collection[str], switched: str = "") -> Compared:
    """Hold the engine against the oracle; `switched`: the option whose effect is looked for."""
    case = random_optional(seed, options)
    expected = judged(case)
    got, _ = decided(case)
    found = {"settled" if settled(case, expected) else "searched", *kinds(case, got)}
    if "searched" in found and got.choice is not None and expected.choice is not None:
        better = promises.harm_of(case, got.choice) < promises.harm_of(case, expected.choice)
        found |= {"better"} if better else set()
    by_kep = decided(optional.without(case, "harmOrder"))[0] if "harmOrder" in case else None
    if switched:
        off, _ = decided(optional.without(case, switched))
        found |= {"changed"} if plain(case, off) != plain(case, got) else set()
    return Compared(_wrong(case, expected, got, by_kep), frozenset(found))


def settled(case: Json, expected: Outcome) -> bool:
    """Whether the rules leave the engine one choice."""
    searching = case.get("harmOrder") and "podGroup" in case["preemptor"]
    choice = expected.choice
    return choice is None or choice.code != "Success" or (choice.settled and not searching)


def _wrong(case: Json, expected: Outcome, got: Outcome, by_kep: Outcome | None) -> str:
    """What is wrong with an outcome, empty for nothing; `by_kep`: without `harmOrder`."""
    where = f"seed {case['seed']} ({[o for o in OPTIONS if o in case]}, {case['situations']}): "
    if got.choice is not None and got.choice.victims:
        judging = sound(case)
        if found := promises.faults(judging, got.choice):
            return f"{where}{found}"
        monotone = not promises.NOT_MONOTONE & set(case["situations"])
        if monotone and (back := promises.returnable(judging, got.choice)):
            return f"{where}{back} could stay"
    without_harm = by_kep.choice if by_kep is not None else None
    if got.choice is not None and got.choice.victims and without_harm is not None:
        far, most = promises.reach_of(case, got.choice), promises.reach_of(case, without_harm)
        if not reach.within(far, most):
            return f"{where}goes as far as {far}, without harmOrder {most}"
    said, wanted = plain(case, got), plain(case, expected)
    if said == wanted:
        return ""
    if settled(case, expected) or got.choice is None or expected.choice is None:
        return f"{where}\n expected {wanted}\n got      {said}"
    if got.choice.code != expected.choice.code:
        halved = case.get("binarySearchPriority") and not expected.choice.settled
        return "" if halved else f"{where}{got.choice.code}, expected {expected.choice.code}"
    done = promises.harm_of(case, got.choice)
    without: Choice | None = expected.choice
    if case.get("harmOrder"):
        # In other domains it only looks where least is lost.
        without = judged({key: case[key] for key in case if key not in optional.ZONAL}).choice
    assert without is not None
    least = promises.harm_of(case, without)
    if without_harm is not None:
        # What is less harmful by the rules alone may go further than what is found without harm.
        least = max(least, promises.harm_of(case, without_harm))
    if done > least:
        return f"{where}harm {done}, without search {least}"
    if without_harm is not None and set(without_harm.victims) == set(got.choice.victims):
        return ""
    there = promises.around_its_nodes(sound(case), got.choice)
    least = promises.harm_of(case, there)
    same = set(there.victims) == set(got.choice.victims)
    if without_harm is not None and not reach.within(
        promises.reach_of(case, there), promises.reach_of(case, without_harm)
    ):
        return ""
    # Who is spared for others to be cheaper is not asked about budgets, nor about torn groups.
    worse = done[0] == least[0] and done > least and not case.get("nonUniformGroups")
    return f"{where}harm {done} instead of {least}" if worse and not same else ""


def assert_enough(found: Iterable[Compared], **least: int) -> None:
    """Fail when something was wrong, or too few cases are of a kind; `_` stands for a space."""
    every = list(found)
    assert [each.wrong for each in every if each.wrong] == []
    counts = Counter(kind for each in every for kind in each.kinds)
    enough = {kind.replace("_", " "): number for kind, number in least.items()}
    lacking = {kind: counts[kind] for kind, number in enough.items() if counts[kind] < number}
    assert lacking == {}, f"of {len(every)} cases: {dict(counts)}"


def with_second_pass(case: Json) -> Policy:
    """The policy of a case with the second reprieve pass, as it is by default."""
    return replace(policy_of(case), second_reprieve_pass=True)
