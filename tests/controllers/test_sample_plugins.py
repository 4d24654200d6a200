"""The package in `examples/plugins`, laid out as an installer would: found, enabled, asked."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubeworld.units.clock import SystemClock
from reprieve.engine.cluster.rows import GroupRow, NodeRow, PodRow
from reprieve.engine.placement.filtering import FeasiblePlacement, View
from reprieve.engine.placement.profile import Policy
from reprieve.engine.scheduling.outcome import Attempt, Unit
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.planes.common.plugins import Installed, installed, load, load_scorers
from reprieve.planes.scheduling.cycle.slices import decide
from reprieve.records.scheduling.record import encode_scheduling
from reprieve.records.scheduling.replay import PluginMissing, decide_scheduling_again
from reprieve.settings.scheduling import scheduling_settings
from reprieve.units.errors import UsageError
from tests.controllers.sample_package import install_metadata
from tests.engine.builders import gang, node, pod, snapshot_of

PACKAGE = Path(__file__).parents[2] / "examples" / "plugins"


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())
    (module,) = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    shutil.copy(PACKAGE / module, tmp_path)
    install_metadata(tmp_path, project["project"]["entry-points"], project["project"]["name"])
    monkeypatch.syspath_prepend(str(tmp_path))
    return installed()


def policy_of(offered: Installed, **plugins: Any) -> Policy:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}],
    }
    return scheduling_settings({"configuration": configuration}, extra=offered.points).policy


def attempt(offered: Installed, policy: Policy, *rows: Any) -> tuple[Attempt, Any]:
    """Decide about the gang `train` with the plugins that the policy names; return its record."""
    snapshot = snapshot_of(*rows)
    unit = Unit(tuple(snapshot.pending), "default/train")
    plugins, scorers = load(offered, policy), load_scorers(offered, policy)
    ((decided,), left) = decide(
        snapshot, policy, [unit], SystemClock(), plugins=plugins, scorers=scorers
    )
    assert left == [] and decided.failure is None and decided.attempt is not None
    return decided.attempt, encode_scheduling(snapshot, policy, unit, [], frozenset(), 0)


EMPTIEST = {"enabled": [{"name": "EmptiestDomain", "weight": 3}]}
URGENT = {
    "enabled": [{"name": "UrgentOnly"}, {"name": "DefaultPreemption"}],
    "disabled": [{"name": "*"}],
}


def racks() -> list[NodeRow | PodRow | GroupRow]:
    """Rack a is half full, rack b empty."""
    return [
        node("a", cpu=8000, labels={"rack": "a"}),
        node("b", cpu=8000, labels={"rack": "b"}),
        pod("there", cpu=4000, node="a"),
        *gang(2, "train", cpu=1000, topology_key="rack"),
    ]


def test_the_scorer_takes_the_emptiest_domain_where_ours_takes_the_fullest(
    offered: Installed,
) -> None:
    policy = policy_of(offered, placementScore=EMPTIEST)
    assert policy.profiles[0].placement_scorers == (("EmptiestDomain", 3),)
    with_it, _ = attempt(offered, policy, *racks())
    assert {member.bind for member in with_it.members} == {"b"}
    without, _ = attempt(offered, policy_of(offered), *racks())
    assert {member.bind for member in without.members} == {"a"}


def test_the_post_filter_lets_groups_wait_that_are_not_urgent(offered: Installed) -> None:
    policy = policy_of(offered, podGroupPostFilter=URGENT)
    for priority, victims in ((999, []), (1000, ["low"])):
        waiting = gang(1, "train", cpu=8000, priority=priority)
        rows = [node("n", cpu=8000), pod("low", cpu=8000, node="n"), *waiting]
        found, _ = attempt(offered, policy, *rows)
        planned = found.plan.victims if found.plan is not None else ()
        assert [victim.root.name for victim in planned] == victims


def test_a_decision_with_plugins_is_made_again_only_where_they_are_installed(
    offered: Installed,
) -> None:
    policy = policy_of(offered, placementScore=EMPTIEST)
    rows = [
        node("a", cpu=4000, labels={"rack": "a"}),
        node("b", cpu=8000, labels={"rack": "b"}),
        pod("low-a", cpu=4000, priority=1, node="a"),
        pod("low-b", cpu=8000, priority=1, node="b"),
        *gang(1, "train", cpu=4000, priority=10, topology_key="rack"),
    ]
    found, recorded = attempt(offered, policy, *rows)
    assert found.plan is not None
    plugins, scorers = load(offered, policy), load_scorers(offered, policy)
    assert decide_scheduling_again(recorded, plugins, scorers).plan == found.plan
    with pytest.raises(PluginMissing, match="EmptiestDomain"):
        decide_scheduling_again(recorded, plugins)


def said(answer: Any, view: View, placements: Sequence[FeasiblePlacement]) -> Any:
    """A scorer that always says the same."""
    return answer


def test_a_scorer_that_answers_with_something_else_fails_its_group_only(
    offered: Installed,
) -> None:
    policy = policy_of(offered, placementScore=EMPTIEST)
    snapshot = snapshot_of(*racks(), pod("alone", cpu=1000))
    alone = next(uid for uid in snapshot.pending if uid == "pod-alone")
    others = tuple(uid for uid in snapshot.pending if uid != alone)
    units = [Unit(others, "default/train"), Unit((alone,), "")]
    for answer in ([1], [0, 101], [0.5, 1], [-1, 0]):
        decided, left = decide(
            snapshot,
            policy,
            units,
            SystemClock(),
            plugins=GROUP_POST_FILTERS,
            scorers={"EmptiestDomain": partial(said, answer)},
        )
        assert "accepted: a whole number from 0 to 100 for each" in str(decided[0].failure)
        assert [each.unit for each in decided[1:]] + left == units[1:]


def test_a_scorer_has_no_place_among_post_filters(offered: Installed) -> None:
    with pytest.raises(UsageError, match="EmptiestDomain has no podGroupPostFilter"):
        policy_of(offered, podGroupPostFilter={"enabled": [{"name": "EmptiestDomain"}]})
