"""CoschedulingArgs from a ConfigMap and from files, and what is refused."""

from __future__ import annotations

import pytest

from kubeworld.units.durations import SECOND
from reprieve.engine.scheduling.gangs.job import Budgets, Placement, TriggerSpelling, VictimGangs
from reprieve.settings.coscheduling import (
    CONFIG_MAP,
    CoschedulingSettings,
    changes,
    read_config_map,
)
from reprieve.settings.scheduling import scheduling_settings
from reprieve.units.errors import UsageError


def config_map(arguments: str, name: str = "koord-scheduler") -> dict[str, str]:
    return {
        CONFIG_MAP: f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: true}}
profiles:
- schedulerName: {name}
  plugins: {{postFilter: {{enabled: [{{name: Reservation}}, {{name: Coscheduling}}]}}}}
  pluginConfig:
  - name: LoadAwareScheduling
    args: {{anything: goes}}
  - name: Coscheduling
    args: {{{arguments}}}
"""
    }


def read(arguments: str, name: str = "koord-scheduler") -> CoschedulingSettings:
    return read_config_map(config_map(arguments, name), "ConfigMap x", CoschedulingSettings())


def test_preemption_is_on_unless_somebody_says_no() -> None:
    assert CoschedulingSettings().enable_preemption
    assert read("kind: CoschedulingArgs").enable_preemption
    assert not read("enablePreemption: false").enable_preemption
    assert read_config_map({}, "x", CoschedulingSettings()) == CoschedulingSettings()


def test_all_arguments_are_read() -> None:
    found = read(
        "defaultTimeout: 30s, defaultMatchPolicy: only-waiting, controllerWorkers: 3, "
        "permitWaitingTimeSeconds: 9"
    )
    assert found.defaults.wait == 30 * SECOND
    assert found.defaults.policy == "only-waiting"
    assert found.plain_defaults.wait == 9 * SECOND
    assert found.controller_workers == 3


def test_profiles_with_the_plugin_name_the_pods_that_preempt_as_jobs_of_one() -> None:
    assert read("{}"[1:-1], "batch").options.names == {"koord-scheduler", "batch"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("enablePreemption: maybe", "args.enablePreemption: 'maybe'; accepted: true or false"),
        ("defaultTimeout: -1s", "args.defaultTimeout: '-1s'; accepted: a Go duration"),
        ("controllerWorkers: 0", "args.controllerWorkers: 0; accepted: an integer from 1"),
        ("enablePremption: true", "unknown key 'enablePremption'"),
        ("kind: OtherArgs", "args.kind: 'OtherArgs'; accepted: CoschedulingArgs"),
    ],
)
def test_a_bad_value_is_named_with_its_field(arguments: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(arguments)
    assert said in str(refused.value)


def test_what_changed_is_told_in_the_words_of_the_arguments() -> None:
    before, after = read("defaultTimeout: 600s"), read("enablePreemption: false")
    assert changes(before, after) == ["enablePreemption: true -> false"]
    assert changes(after, read("enablePreemption: false, defaultTimeout: 30s")) == [
        "defaultTimeout: 10m0s -> 30s"
    ]


def test_a_file_says_the_same_and_more() -> None:
    section = {
        "gangs": {
            "placement": "first-fit",
            "podDisruptionBudgets": "Require",
            "victimGangs": "All",
            "triggerPodSpelling": "code",
            "protectedQuotas": ["gold"],
        },
        "configuration": {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [
                {
                    "schedulerName": "koord-scheduler",
                    "plugins": {"postFilter": {"enabled": [{"name": "Coscheduling"}]}},
                    "pluginConfig": [{"name": "Coscheduling", "args": {"enablePreemption": False}}],
                }
            ],
        },
    }
    settings = scheduling_settings(section)
    found = settings.coscheduling
    assert not found.enable_preemption
    assert found.policy.placement is Placement.FIRST_FIT
    assert found.policy.budgets is Budgets.REQUIRE
    assert found.policy.victim_gangs is VictimGangs.ALL
    assert found.policy.protected_quotas == {"gold"}
    assert found.spelling is TriggerSpelling.CODE
    assert [p.scheduler_name for p in settings.policy.profiles] == ["koord-scheduler"]
    with pytest.raises(UsageError, match="placement: 'best'; accepted: search, first-fit"):
        scheduling_settings({"gangs": {"placement": "best"}})
