"""Over random trees: what is placed fits where it is, and what is refused no domain could take.

The second reading counts by hand over dictionaries and shares nothing with the engine.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

from reprieve.engine.topology.encoding import decoded, encoded
from reprieve.engine.topology.model import HOSTNAME, Domain, TopologyAssignment
from tests.engine.topology.build import BLOCK, LEVELS, RACK, placed, pods, tree

Case = tuple[dict[str, int], int, int, str, str, int]


def _cases(count: int) -> Iterator[Case]:
    draw = random.Random(20261)
    for _ in range(count):
        gpus = {
            f"b{b}/b{b}r{r}/b{b}r{r}h{h}": draw.choice((0, 1, 2, 4, 8))
            for b in range(draw.randint(1, 3))
            for r in range(draw.randint(1, 3))
            for h in range(draw.randint(1, 4))
        }
        size = draw.choice((1, 1, 2, 3))
        slices = draw.randint(1, 6)
        mode = draw.choice(("required", "preferred", "unconstrained"))
        level = draw.choice((BLOCK, RACK, HOSTNAME))
        yield gpus, slices * size, draw.choice((1, 2)), mode, level, size


def _room(gpus: dict[str, int], each: int, size: int) -> dict[str, Counter[str]]:
    """Return by level how many slices of hosts each domain can have."""
    found: dict[str, Counter[str]] = {level: Counter() for level in LEVELS}
    for path, free in gpus.items():
        block, rack, host = path.split("/")
        fit = free // each // size
        found[BLOCK][block] += fit
        found[RACK][rack] += fit
        found[HOSTNAME][host] += fit
    return found


def test_what_is_placed_fits_and_what_is_refused_could_not_be_placed() -> None:
    seen: Counter[str] = Counter()
    for gpus, count, each, mode, level, size in _cases(600):
        layers = ((HOSTNAME, size),) if size > 1 else ()
        wanted = pods(
            count,
            each,
            required=level if mode == "required" else "",
            preferred=level if mode == "preferred" else "",
            unconstrained=True if mode == "unconstrained" else None,
            layers=layers,
        )
        outcome = placed(tree(gpus), wanted)["main"]
        room = _room(gpus, each, size)
        need = count // size
        possible = (
            max(room[level].values()) >= need
            if mode == "required"
            else sum(room[HOSTNAME].values()) >= need
        )
        assert (outcome.assignment is not None) == possible, outcome.reason
        seen[f"{mode} {'placed' if possible else 'refused'}"] += 1
        if outcome.assignment is None:
            continue
        where = {path.split("/")[-1]: path for path in gpus}
        hosts = {e.values[-1]: e.count for e in outcome.assignment.domains}
        assert sum(hosts.values()) == count
        assert all(taken % size == 0 for taken in hosts.values())
        assert all(taken * each <= gpus[where[host]] for host, taken in hosts.items())
        if mode == "required":
            at = LEVELS.index(level)
            assert len({where[host].split("/")[at] for host in hosts}) == 1
        if mode == "preferred" and max(room[level].values()) >= need:
            at = LEVELS.index(level)
            assert len({where[host].split("/")[at] for host in hosts}) == 1
            seen["preferred in one domain"] += 1
    assert len(seen) == 7 and min(seen.values()) >= 20, seen


def test_a_required_domain_is_one_with_the_least_room_that_suffices() -> None:
    seen = 0
    for gpus, count, each, _, level, _ in _cases(600):
        outcome = placed(tree(gpus), pods(count, each, required=level))["main"]
        if outcome.assignment is None:
            continue
        where = {path.split("/")[-1]: path for path in gpus}
        at = LEVELS.index(level)
        room = _room(gpus, each, 1)[level]
        taken = where[outcome.assignment.domains[0].values[-1]].split("/")[at]
        assert room[taken] == min(r for r in room.values() if r >= count)
        seen += len({r for r in room.values() if r >= count}) > 1
    assert seen >= 60


def test_every_assignment_is_read_back_as_it_was_written() -> None:
    draw = random.Random(7)
    several = 0
    for _ in range(300):
        names = sorted({_name(draw) for _ in range(draw.randint(1, 40))})
        domains = tuple(Domain((name,), draw.choice((1, 1, 8, 3))) for name in names)
        assigned = TopologyAssignment((HOSTNAME,), domains)
        form = encoded(assigned)
        assert decoded(form) == assigned
        several += len(form["slices"]) > 1
    assert several >= 10


def _name(draw: random.Random) -> str:
    pool = draw.choice(("gke-train-pool-aaaa-", "gke-train-pool-bbbb-", "worker-", "n"))
    return f"{pool}{draw.choice('abcdef')}{draw.randint(0, 99):02d}"
