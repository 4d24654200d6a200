"""Each filter of the default profile, with a gang that needs victims (specification 7 and 16).

Four cases per filter: it blocks before preemption, evicting helps, a reprieve is refused, a
reprieve is granted. `docs/filters.md` is made from the same cases.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import FilterName, Policy, Profile
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import Session
from reprieve.wording.kube_scheduler import fit_text
from tests.engine.builders import snapshot_of
from tests.scheduling.filters.case import HIGH, Case, Promise
from tests.scheduling.filters.documentation import CASES


@dataclass(frozen=True)
class Outcome:
    """What an attempt came to, by names."""

    code: Code
    says: str
    victims: tuple[str, ...]
    kept: tuple[str, ...]
    refused: dict[str, str]
    nodes: tuple[str, ...]


def run(case: Case, *, second_pass: bool, without: FilterName | None = None) -> Outcome:
    """Attempt the gang of a case once, with a filter disabled if `without` names one."""
    snapshot = snapshot_of(case.changes())
    profile = Profile(filters=tuple(name for name in FilterName if name is not without))
    policy = Policy(profiles=(profile,), second_reprieve_pass=second_pass)
    members = sorted(
        (pending.row for pending in snapshot.pending.values()), key=lambda row: row.name
    )
    unit = Unit(tuple(row.uid for row in members), "default/g")
    attempt = Session(snapshot, policy).attempt(unit)
    assert attempt is not None
    return _outcome(snapshot, attempt)


def _outcome(snapshot: Snapshot, attempt: Attempt) -> Outcome:
    def name(slot: int) -> str:
        return snapshot.pod_keys[slot].partition("/")[2]

    found = attempt.preemption
    going = [] if found is None else [slot for unit in found.victims for slot in unit.pods]
    lower = {
        slot
        for slot in (snapshot.pod_node >= 0).nonzero()[0].tolist()
        if snapshot.pod_priority[slot] < HIGH
    }
    assert set(going) <= lower
    failed = [m.diagnosis for m in attempt.members if m.diagnosis is not None]
    nominated = {} if found is None else dict(found.nominated)
    return Outcome(
        attempt.code,
        fit_text(failed[0]) if failed else "",
        tuple(sorted(name(slot) for slot in going)),
        tuple(sorted(name(slot) for slot in lower - set(going))),
        {} if found is None else {name(slot): filter_ for slot, filter_ in found.refused},
        tuple(nominated[m.uid] for m in attempt.members if m.uid in nominated),
    )


@pytest.mark.parametrize("second_pass", [False, True], ids=["one-pass", "second-pass"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.filter}-{case.promise}")
def test_the_gang_preempts_as_the_filter_says(case: Case, second_pass: bool) -> None:
    assert run(case, second_pass=second_pass) == Outcome(
        Code.UNSCHEDULABLE,
        case.says,
        tuple(sorted(case.victims)),
        tuple(sorted(case.kept)),
        dict(case.refused),
        case.nodes,
    )


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.promise is not Promise.GRANTED],
    ids=lambda case: f"{case.filter}-{case.promise}",
)
def test_it_is_this_filter_that_decides(case: Case) -> None:
    with_it = run(case, second_pass=False)
    assert run(case, second_pass=False, without=case.filter) != with_it


def test_every_filter_of_the_default_profile_has_its_four_cases() -> None:
    found = Counter((case.filter, case.promise) for case in CASES)
    assert found == {(name, promise): 1 for name in FilterName for promise in Promise}


def test_a_reprieve_is_refused_by_the_filter_that_pods_can_change() -> None:
    independent = {
        case.filter
        for case in CASES
        if case.promise is Promise.REFUSED and case.filter not in case.refused.values()
    }
    assert independent == {
        FilterName.NODE_NAME,
        FilterName.NODE_UNSCHEDULABLE,
        FilterName.TAINT_TOLERATION,
        FilterName.NODE_AFFINITY,
        FilterName.VOLUME_BINDING,
        FilterName.VOLUME_ZONE,
        FilterName.DYNAMIC_RESOURCES,
        FilterName.NODE_DECLARED_FEATURES,
    }
