"""What is left of a gang gets the room that its siblings have left, so that nobody goes twice."""

from __future__ import annotations

from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import Nominate, Unit
from reprieve.engine.scheduling.session import Session
from tests.engine.builders import group, node, pod, snapshot_of


def _nominations(*cpus: int, nominated: tuple[str, ...]) -> dict[str, str | Nominate]:
    """Run the cycle of a gang of two and more: `n0` is still full, `n1` and `n2` are free."""
    members = [
        pod(f"g-{i}", group="g", cpu=cpu, priority=10, nominated=name)
        for i, (cpu, name) in enumerate(zip(cpus, nominated, strict=True))
    ]
    state = snapshot_of(
        group("g", min_count=2, priority=10),
        *(node(f"n{i}", cpu=4000) for i in range(3)),
        pod("stays", node="n0", cpu=4000),
        *members,
    )
    attempt = Session(state, Policy()).attempt(Unit(tuple(m.uid for m in members), "default/g"))
    assert attempt is not None
    assert attempt.code is Code.SUCCESS
    return {
        member.uid.removeprefix("pod-"): member.nominate
        for member in attempt.members
        if not member.bind
    }


def test_a_member_whose_node_a_sibling_took_gets_that_siblings_room() -> None:
    found = _nominations(3000, 3000, 3000, nominated=("n0", "n1", "n2"))
    assert found == {"g-2": "n0"}


def test_a_member_whose_node_is_still_kept_for_it_keeps_it() -> None:
    found = _nominations(3000, 3000, 3000, nominated=("n1", "n2", "n0"))
    assert found == {"g-2": Nominate.KEEP}


def test_room_that_is_too_small_is_not_handed_on() -> None:
    found = _nominations(3000, 3000, 4000, nominated=("n0", "n1", "n2"))
    assert found == {"g-2": Nominate.KEEP}


def test_without_nominations_nothing_is_handed_on() -> None:
    found = _nominations(3000, 3000, 3000, nominated=("", "", ""))
    assert found == {"g-2": Nominate.KEEP}
