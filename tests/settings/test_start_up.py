"""What the operator is told at its start: exit 2 with what, where and what is accepted."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from kubeworld.units.durations import SECOND
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.engine.idle.model import Fit
from reprieve.settings.start_up import read_config, start_up
from reprieve.units.errors import UsageError

ENVIRON = {
    "GPU_PREEMPTION_ENABLED": "true",
    "GPU_PREEMPTION_METRICS_ENDPOINT": "http://exporter:5000/metrics",
}
URL = "http://exporter:5000/metrics"


@pytest.mark.parametrize("value", ["True", "1", "yes", "TRUE", " true"])
def test_only_true_enables_the_plane(value: str) -> None:
    found = start_up({**ENVIRON, "GPU_PREEMPTION_ENABLED": value}, {"enabled": True})
    assert not found.enabled
    assert "only `true`" in found.notices[0].text


def test_the_plane_is_off_by_default_and_then_needs_nothing() -> None:
    found = start_up({"GPU_PREEMPTION_POLLING_INTERVAL": "0s"})
    assert (found.enabled, found.endpoints, found.notices) == (False, (), ())


def test_a_variable_beats_the_file() -> None:
    section = {"enabled": True, "metricsEndpoint": "http://other/", "pollingInterval": "30s"}
    found = start_up({"GPU_PREEMPTION_METRICS_ENDPOINT": URL}, section)
    assert (found.enabled, found.endpoints) == (True, (URL,))
    assert found.policy.polling_interval == 30 * SECOND


def test_several_endpoints_are_separated_by_commas() -> None:
    text = (
        f"{URL}, service://gpu/exporter:5000/metrics,"
        "prometheus+https://prom:9090?query=sum(a,b) by (pod),"
    )
    found = start_up({**ENVIRON, "GPU_PREEMPTION_METRICS_ENDPOINT": text})
    assert found.endpoints == (
        URL,
        "service://gpu/exporter:5000/metrics",
        "prometheus+https://prom:9090?query=sum(a,b) by (pod)",
    )


@pytest.mark.parametrize(
    "url",
    [
        "",
        "exporter:5000/metrics",
        "ftp://exporter/metrics",
        "http://",
        "http://exporter:port/",
        "service://gpu/exporter/metrics",
        "service://exporter:5000",
        "prometheus+http://prom:9090/",
    ],
)
def test_a_bad_endpoint_stops_the_start(url: str) -> None:
    with pytest.raises(UsageError, match=r"METRICS_ENDPOINT.*accepted: URLs"):
        start_up({**ENVIRON, "GPU_PREEMPTION_METRICS_ENDPOINT": url})


@pytest.mark.parametrize("interval", ["0", "0s", "-1s", "15", "soon"])
def test_a_bad_interval_stops_the_start(interval: str) -> None:
    with pytest.raises(UsageError, match=r"POLLING_INTERVAL: .*accepted: a Go duration above zero"):
        start_up({**ENVIRON, "GPU_PREEMPTION_POLLING_INTERVAL": interval})


def test_the_namespace_is_the_variable_then_the_service_account_then_the_default() -> None:
    variable = {"GPU_PREEMPTION_OPERATOR_NAMESPACE": "ops"}
    assert start_up(variable, service_account_namespace="sa\n").operator_namespace == "ops"
    assert start_up({}, service_account_namespace="sa\n").operator_namespace == "sa"
    assert start_up({}).operator_namespace == "kaiwo-system"


def test_options_and_switches_come_from_the_file() -> None:
    section = read_config(
        """
        gpuPreemption:
          fit: Node
          irreducible: true
          profile: best
          literal: {podlessIdleStays: true, alwaysNotCredited: false}
          vendors: [amd, nvidia]
        """,
        "values.yaml",
    )
    found = start_up({}, section, "values.yaml")
    assert (found.policy.fit, found.policy.irreducible) == (Fit.NODE, True)
    assert found.policy.best and not start_up({}).policy.best
    assert found.policy.literal == LiteralSwitches(podless_idle_stays=True)
    assert [vendor.name for vendor in found.vendors] == ["amd", "nvidia"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpuPreemption: {fits: Node}", r"v.yaml: unknown key gpuPreemption.fits; accepted: en"),
        ("gpuPremption: {}", r"v.yaml: unknown key 'gpuPremption'; accepted: gpuPreemption"),
        ("gpuPreemption: [1]", "a mapping with enabled"),
        ("- 1", "a mapping with the section gpuPreemption"),
        ("a: b: c", "not YAML"),
        ("gpuPreemption: {fit: Nodes}", "gpuPreemption.fit: 'Nodes'; accepted: Sum or Node"),
        ("gpuPreemption: {irreducible: 2}", "irreducible: 2; accepted: true or false"),
        ("gpuPreemption: {profile: 2}", "profile: 2; accepted: compatible, best"),
        ("gpuPreemption: {literal: {H1: true}}", "unknown switch 'H1'; accepted: podlessIdleStays"),
        ("gpuPreemption: {literal: [H1]}", "accepted: a mapping with podlessIdleStays"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        start_up({}, read_config(text, "v.yaml"), "v.yaml")


def test_an_empty_file_changes_nothing() -> None:
    for text in ("", "gpuPreemption:", "kaiwoConfig: {enabled: true}"):
        assert start_up({}, read_config(text, "v.yaml")) == start_up({})


def test_a_default_that_is_not_accepted_is_named_and_not_in_force() -> None:
    found = start_up({"GPU_PREEMPTION_DEFAULT_TTL": "1d"}, {"defaultThreshold": "many"}, "v.yaml")
    assert [each.where for each in found.rejected] == [
        "variable GPU_PREEMPTION_DEFAULT_TTL",
        "v.yaml: gpuPreemption.defaultThreshold",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "gpuPreemption: {pollingInterval: 2026-13-45}",
        "gpuPreemption: {pollingInterval: 2026-1-1 99:99:99}",
        "gpuPreemption: {enabled: !!bool perhaps}",
        "gpuPreemption: !!int many",
        "gpuPreemption: {defaultThreshold: !!float x}",
        "gpuPreemption: {pollingInterval: !!timestamp soon}",
        "gpuPreemption: {defaultThreshold: 0x_}",
        "[" * 5_000,
        "gpuPreemption: {enabled: true, enabled: false}",
    ],
)
def test_text_that_no_yaml_reader_understands_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_config(text, "v.yaml")
    assert str(refused.value).startswith("v.yaml: not YAML: ")
    assert "\n" not in str(refused.value)


PINNED = "prometheus+http://p:9090?query="


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("gpu_gfx_activity", True),
        ('gpu_gfx_activity{job="exporter"}', False),
        ('max_over_time(gpu_gfx_activity{namespace=~"gpu.*"}[30m])', False),
        ('gpu_gfx_activity{job="exporter"} or gpu_gfx_activity', True),
        ('gpu_gfx_activity{exported_job="exporter"}', True),
        ('gpu_gfx_activity{job!="exporter"}', True),
        ('gpu_gfx_activity{pod="job=x"}', True),
        ('gpu_gfx_activity{pod="x,job=y"}', True),
        ('{__name__=~"gpu_.*"}', True),
        ('{__name__=~"gpu_.*", job="exporter"}', False),
        ("max by (namespace, pod) (gpu_gfx_activity)", True),
        ("cluster:gpu_busy", True),
        ('cluster:gpu_busy{job="rules"}', False),
    ],
)
def test_a_query_that_takes_anybodys_series_is_told(query: str, told: bool) -> None:
    environ = {
        "GPU_PREEMPTION_ENABLED": "true",
        "GPU_PREEMPTION_METRICS_ENDPOINT": PINNED + quote(query),
    }
    notices = start_up(environ).notices
    assert [notice.value for notice in notices] == [query] * told
    assert all("neither job nor namespace" in notice.text for notice in notices)


def test_an_exporter_that_is_asked_directly_needs_no_query() -> None:
    environ = {
        "GPU_PREEMPTION_ENABLED": "true",
        "GPU_PREEMPTION_METRICS_ENDPOINT": "http://exporter:5000/metrics?query=x",
    }
    assert start_up(environ).notices == ()
