"""Each rule of one demand for several planes, broken once: a story, or the judge, notices.

A rule that can be left out unnoticed is held by nothing. What a table calls a break is put in the
place of the rule; the story that holds it has to fail.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from reprieve.engine.idle import choice
from reprieve.engine.idle.least import Least
from reprieve.engine.idle.model import Debt, NodeRow
from reprieve.engine.idle.search import Search
from reprieve.engine.plan import Plane
from reprieve.engine.quota import release
from reprieve.engine.scheduling.nodes.leaving import Delayed
from reprieve.planes.common import joint
from reprieve.planes.common.histories import Histories
from reprieve.planes.idle.evaluating import debts, snapshots
from reprieve.planes.idle.joint import mixtures
from reprieve.planes.quota.deciding.joint_side import IdleFirst
from reprieve.planes.scheduling.cycle import slices
from reprieve.planes.scheduling.cycle.joint_side import Deferrals, SchedulingJoint
from tests.together import test_one_demand as one
from tests.together import test_processes as processes
from tests.together import test_returns as returns
from tests.together import test_stories as stories
from tests.together.test_random_demands import several

Break: TypeAlias = Callable[[pytest.MonkeyPatch], None]
Story: TypeAlias = Callable[[Path], Awaitable[Any]]
_SEED: Final = "demands 1"


def _is(owner: Any, name: str, rule: Any) -> Break:
    return lambda patch: patch.setattr(owner, name, rule)


def _told(name: str) -> Story:
    return lambda folder: stories.test_nobody_goes_but_who_has_to(folder, name)


async def _judged(folder: Path) -> None:
    await several(_SEED, 6, folder)


def _one_node(self: snapshots.Snapshots) -> list[NodeRow]:
    """Return all nodes as one, so that what is free adds up."""
    rows = list(_ROWS(self))
    free = dict.fromkeys((name for row in rows for name in row.free), 0)
    for row in rows:
        for name, amount in row.free.items():
            free[name] += max(0, amount)
    return [NodeRow(rows[0].name, free)] if rows else []


def _nobody_spared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Search, "spare", lambda self: [])
    patch.setattr(choice, "fewest", lambda *given: None)
    patch.setattr(choice, "least", lambda *given: Least(None, None))


def _gangs_apart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshots, "joined", lambda rows, gangs: (tuple(rows), {}))
    patch.setattr(snapshots.Snapshots, "_with_gang", lambda self, row, nodes: row)
    # The scheduler knows the whole gang, and would refuse it.
    patch.setattr(SchedulingJoint, "refused_without", _all_confirmed)


async def _all_confirmed(self: SchedulingJoint, *given: Any) -> str:
    return ""


async def _no_mixture(self: SchedulingJoint, *given: Any) -> None:
    return None


_ROWS: Final = snapshots.Snapshots._node_rows
_CHECK: Final = IdleFirst.check
_OWED: Final = Debt(1_000)
_IDLE_OWNS: Final = _is(joint, "owner_of", lambda state: Plane.IDLE)

BROKEN: Final[dict[str, tuple[Break, Story]]] = {
    "one plane owns a demand": (
        _IDLE_OWNS,
        one.test_no_idle_work_is_evicted_for_a_job_that_its_quota_refuses,
    ),
    "idle work before priority": (
        _is(Deferrals, "of", lambda self, units: Delayed()),
        one.test_idle_work_is_evicted_before_busy_work_of_lower_priority,
    ),
    "idle work before the rules of quota": (
        _is(IdleFirst, "check", lambda self, inner: inner),
        one.test_idle_work_is_evicted_before_a_queue_takes_its_quota_back,
    ),
    "the scheduler places the demand": (
        _is(SchedulingJoint, "refused_without", _all_confirmed),
        one.test_idle_work_stays_where_a_filter_of_the_scheduler_refuses_the_demand,
    ),
    "idle work is enough on nodes": (_is(snapshots.Snapshots, "_node_rows", _one_node), _judged),
    "no victim can be put back": (_nobody_spared, _judged),
    "quota and nodes: nodes": (
        _is(IdleFirst, "check", lambda self, inner: _CHECK(self, None)),
        partial(
            one.test_quota_evicts_for_no_pods_that_could_not_make_the_rest_of_their_room,
            policy="Never",
            goes=False,
        ),
    ),
    "quota and nodes: nodes of who gets quota by idle work": (
        _is(release._Search, "_on_nodes", lambda *given, **more: True),
        one.test_no_idle_work_goes_for_quota_where_the_rest_of_the_room_cannot_be_made,
    ),
    "quota and nodes: whoever is first": (
        _is(release._Search, "first_served", lambda self, units: ""),
        partial(
            one.test_no_idle_work_is_evicted_for_quota_that_an_earlier_job_would_take, rival=True
        ),
    ),
    "both together where neither is enough": (
        _is(SchedulingJoint, "mixture", _no_mixture),
        one.test_idle_work_and_work_of_lower_priority_go_together_where_neither_is_enough,
    ),
    "both together where idle work is far more": (
        _is(mixtures, "costly_demands", lambda *given: []),
        _told("a small idle job and busy work where a large idle job holds twice as much"),
    ),
    "a gang is one victim": (
        _is(SchedulingJoint, "goes_whole", lambda self, group: False),
        one.test_a_gang_of_mode_all_stays_while_one_of_its_pods_works,
    ),
    "a gang is one demand": (
        _gangs_apart,
        one.test_nobody_is_evicted_for_a_gang_that_idle_work_helps_in_part,
    ),
    "pods of one job share their victims": (
        _is(slices, "needed_victims", lambda *given: {}),
        one.test_nobody_is_evicted_for_one_pod_of_a_job_whose_room_another_pod_makes,
    ),
    "an open record owns its demand": (
        _is(snapshots, "owners_by_name", lambda records: {}),
        processes.test_an_open_record_owns_its_demand_until_it_is_closed,
    ),
    "a return takes no more than was lost": (
        _is(snapshots, "debt_of", lambda *given: _OWED),
        returns.test_no_more_idle_work_goes_for_a_return_than_was_lost,
    ),
    "a second return takes nothing": (
        _is(snapshots, "debt_of", lambda *given: _OWED),
        returns.test_a_second_return_has_no_idle_work_evicted_for_it,
    ),
    "a return takes nothing that could have gone": (
        _is(debts, "_bounds", lambda record: (None, None)),
        returns.test_idle_work_of_a_lower_priority_than_the_demand_stays_for_the_return_of_its_victim,
    ),
    "a return takes nothing whose quota could have gone": (
        _is(debts, "_bounds", lambda record: (None, None)),
        partial(
            returns.test_idle_work_that_a_queue_could_preempt_stays_for_the_return_of_another_victim,
            team="b",
            idle="high",
            wanted="",
            reclaims="Any",
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("rule", BROKEN)
async def test_a_broken_rule_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    breaks, story = BROKEN[rule]
    breaks(monkeypatch)
    with pytest.raises(AssertionError):
        await story(tmp_path)


@pytest.mark.slow
async def test_nobody_waits_for_displacements_where_that_rule_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Histories, "missing", lambda self, now: "")
    with pytest.raises(AssertionError):
        await returns.test_nobody_goes_before_the_displacements_of_a_former_process_are_known(
            tmp_path, monkeypatch
        )
