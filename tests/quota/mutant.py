"""`python -m tests.quota.mutant MODULE OLD NEW CHECK`: is a deliberate error in the engine noticed?

The module of the engine is loaded with OLD replaced by NEW before anything else imports it; then
CHECK runs until one case notices: `targets` (random scenes against the oracle), `figures` (the same
for the figures of the tree), `rebuild` (incremental state against a rebuild) or `vectors:FILE`
(published cases). Prints how many cases were run and whether one noticed; with OLD equal to NEW
none may.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

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


def _fails(test: Callable[[], None]) -> Iterator[bool]:
    try:
        test()
    except Exception:
        yield True
    else:
        yield False


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
    checks = {"targets": targets, "figures": figures, "rebuild": rebuild}
    cases = vectors(file) if name == "vectors" else checks[name]()
    count, noticed = 0, False
    for differs in cases:
        count += 1
        noticed = differs
        if noticed or count == LIMIT:
            break
    print(json.dumps({"cases": count, "noticed": noticed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
