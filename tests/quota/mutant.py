"""`python -m tests.quota.mutant MODULE OLD NEW CHECK`: is a deliberate error in the engine noticed?

The module of the engine is loaded with OLD replaced by NEW before anything else imports it; then
CHECK runs until one case notices: `targets` (random scenes against the oracle), `figures` (the same
for the figures of the tree), `rebuild` (incremental state against a rebuild), `flows` and `plans`
(whole cycles against flows of quota and the oracle), `ties`, `history` (objects that came in
another order), `proof` (a plan of whole cycles is refused by its proof), `demand` (the same with
several pod sets and flavors), `slices` (a larger slice that waits for its victims) or
`vectors:FILE` (published cases). Prints how many cases were run
and whether one noticed; with OLD equal to NEW none may.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

VECTORS = Path(__file__).resolve().parents[2].parent / "shared" / "conformance" / "quota"
LIMIT = 4_000


def install(name: str, old: str, new: str) -> None:
    """Put the changed module where every other import finds it.

    Raises:
        ValueError: OLD does not stand exactly once in the module.
    """
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    if source.count(old) != 1:
        raise ValueError(f"{name} has {old!r} {source.count(old)} times, not once")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(compile(source.replace(old, new), spec.origin, "exec"), module.__dict__)


def targets() -> Iterator[bool]:
    from tests.oracle import quota as oracle
    from tests.quota.cases import plain, scene
    from tests.quota.test_targets import found

    random = Random(5)
    while True:
        case = scene(random)
        yield found(case) != oracle.targets(plain(case))


def figures() -> Iterator[bool]:
    from tests.quota import test_tree

    test = test_tree.test_every_figure_of_every_node_is_that_of_the_oracle
    yield from _fails(test)


def rebuild() -> Iterator[bool]:
    from tests.quota import test_state

    yield from _fails(test_state.test_incremental_state_equals_a_rebuild_after_random_events)
    yield from _fails(test_state.test_a_snapshot_does_not_see_what_comes_later)


def flows() -> Iterator[bool]:
    from tests.quota import test_invariants

    yield from _fails(
        test_invariants.test_nothing_is_admitted_beyond_what_flows_and_what_fits_is_not_refused
    )


def plans() -> Iterator[bool]:
    from tests.quota import test_invariants

    yield from _fails(
        test_invariants.test_targets_of_cycles_are_those_of_the_plain_search_with_their_inequality
    )


def ties() -> Iterator[bool]:
    from tests.quota import test_invariants

    yield from _fails(test_invariants.test_ties_are_broken_by_uid_whatever_the_names_are)


def history() -> Iterator[bool]:
    from tests.quota import test_invariants

    yield from _fails(
        test_invariants.test_whatever_order_built_them_the_same_objects_give_the_same_cycles
    )


def proof() -> Iterator[bool]:
    from tests.quota.cases import Size, scene

    random = Random(72)
    small, large = Size(admitted=12, pending=14), Size(queues=7, cohorts=5, admitted=25, pending=14)
    while True:
        for size in (small, large):
            yield _refused(scene(random, size=size), random)


def demand() -> Iterator[bool]:
    from tests.quota.test_second_opinion import contended, flavored

    random = Random(73)
    while True:
        yield _refused(flavored(random), random)
        yield _refused(contended(random), random)


def _refused(case: Any, random: Random) -> bool:
    """Tell whether a plan of a few cycles is refused by its proof."""
    from kubeworld.units.instants import Nanos
    from reprieve.engine.plan_faults import PlanRefused
    from reprieve.engine.quota.cycle import cycle
    from tests.quota.cases import NOW, SECOND
    from tests.quota.test_cycle import start
    from tests.quota.test_invariants import stop

    holdings, queues = start(case)
    for turn in range(3):
        now = Nanos(NOW + turn * SECOND)
        result = cycle(holdings, queues, now, turn)
        if any(isinstance(entry.failure, PlanRefused) for entry in result.entries):
            return True
        stop(holdings, queues, random, now)
    return False


def _fails(test: Callable[[], None]) -> Iterator[bool]:
    try:
        test()
    except Exception:
        yield True
    else:
        yield False


def slices() -> Iterator[bool]:
    from tests.quota import test_nominated

    yield from _fails(
        test_nominated.test_a_head_that_takes_the_place_of_a_slice_is_looked_at_anew_each_time
    )


def vectors(file: str) -> Iterator[bool]:
    from tests.conformance.quota_runners import RUNNERS

    for case in json.loads((VECTORS / file).read_text(encoding="utf-8")):
        try:
            outcome, expected = RUNNERS[case["kind"]](case)
        except Exception:
            yield True
        else:
            yield outcome != expected


def main(module: str, old: str, new: str, check: str) -> None:
    install(f"reprieve.engine.quota.{module}", old, new)
    name, _, file = check.partition(":")
    checks = (targets, figures, rebuild, flows, plans, ties, history, proof, demand, slices)
    named = {check.__name__: check for check in checks}
    cases = vectors(file) if name == "vectors" else named[name]()
    count, noticed = 0, False
    for differs in cases:
        count += 1
        noticed = differs
        if noticed or count == LIMIT:
            break
    print(json.dumps({"cases": count, "noticed": noticed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
