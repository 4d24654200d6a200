"""Plugins of other packages: found as entry points, enabled by profiles, told of when one-sided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeworld.units.clock import SystemClock
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import Sentence, Unit
from reprieve.engine.scheduling.session import GROUP_POST_FILTERS
from reprieve.planes.common.plugins import Installed, installed, load, one_sided
from reprieve.planes.scheduling.cycle.slices import decide
from reprieve.settings.scheduling import SchedulingSettings, scheduling_settings
from reprieve.units.errors import UsageError
from tests.controllers.sample_package import GROUP, OFFERED, install
from tests.engine.builders import gang, node, pod, snapshot_of


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    install(tmp_path, OFFERED)
    monkeypatch.syspath_prepend(str(tmp_path))
    return installed()


def settings(offered: Installed, *names: str, pods: tuple[str, ...] = ()) -> SchedulingSettings:
    """Return what a profile says that enables these plugins instead of the default ones."""

    def only(chosen: tuple[str, ...]) -> dict[str, Any]:
        return {"enabled": [{"name": name} for name in chosen], "disabled": [{"name": "*"}]}

    plugins = {"podGroupPostFilter": only(names)}
    if pods:
        plugins["postFilter"] = only(pods)
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}],
    }
    return scheduling_settings({"configuration": configuration}, extra=offered.points)


def outcome(offered: Installed, *names: str) -> tuple[Any, list[str]]:
    """Let a gang be refused by a full node; return its attempt and the plugins that were asked."""
    import sample_plugins  # type: ignore[import-not-found]

    sample_plugins.asked.clear()
    policy = settings(offered, *names).policy
    rows = [node("n", cpu=4000), pod("low", cpu=4000, node="n"), *gang(2, cpu=2000, priority=10)]
    unit = Unit(tuple(row.uid for row in rows[3:]), "default/g")
    plugins = load(offered, policy)
    ((decided,), left) = decide(snapshot_of(*rows), policy, [unit], SystemClock(), plugins=plugins)
    assert left == []
    return decided.attempt, sample_plugins.asked


def test_plugins_run_in_the_configured_order_until_one_decides(offered: Installed) -> None:
    assert outcome(offered, "Patient", "Settled", "DefaultPreemption")[1] == ["patient", "settled"]
    assert outcome(offered, "Settled", "Patient", "DefaultPreemption")[1] == ["settled"]
    attempt, asked = outcome(offered, "Patient", "DefaultPreemption", "Settled")
    assert asked == ["patient"]
    assert attempt.plan is not None
    assert [victim.root.name for victim in attempt.plan.victims] == ["low"]


def test_an_exception_of_a_plugin_is_an_error_of_this_attempt(offered: Installed) -> None:
    attempt, _ = outcome(offered, "Broken", "DefaultPreemption")
    assert attempt.code is Code.ERROR
    (failed,) = [each for each in attempt.status if each.sentence is Sentence.PLUGIN_FAILED]
    assert failed.values == ("Broken", "out of order")
    assert attempt.plan is None


def test_only_what_a_profile_enables_is_imported(offered: Installed) -> None:
    policy = settings(offered, "Patient", "DefaultPreemption").policy
    assert set(load(offered, policy)) == {*GROUP_POST_FILTERS, "Patient"}
    assert load(offered, scheduling_settings().policy) == GROUP_POST_FILTERS


@pytest.mark.parametrize(("name", "complaint"), [("Constant", "a function"), ("Missing", "loaded")])
def test_a_plugin_that_cannot_be_used_ends_the_start(
    offered: Installed, name: str, complaint: str
) -> None:
    policy = settings(offered, name, "DefaultPreemption").policy
    with pytest.raises(UsageError, match=f"plugin {name} .*{complaint}"):
        load(offered, policy)


def test_a_plugin_that_nobody_offers_is_not_known(offered: Installed) -> None:
    with pytest.raises(UsageError, match="unknown plugin 'Absent'"):
        settings(offered, "Absent")


def test_a_plugin_without_the_side_for_groups_is_told_of(offered: Installed) -> None:
    both = settings(offered, "DefaultPreemption", pods=("PodsOnly", "DefaultPreemption"))
    assert one_sided(offered, both.policy) == [("default-scheduler", "PodsOnly")]
    without = scheduling_settings(
        {"featureGates": {"GenericWorkload": False}}, extra=offered.points
    )
    assert one_sided(offered, without.policy) == []
    assert one_sided(offered, scheduling_settings().policy) == []


@pytest.mark.parametrize("name", ["Patient", "DefaultPreemption"])
def test_a_name_that_is_taken_ends_the_start(
    offered: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    install(other, {GROUP: {name: "other_plugins:patient"}}, "other")
    monkeypatch.syspath_prepend(str(other))
    with pytest.raises(UsageError, match=name):
        installed()
