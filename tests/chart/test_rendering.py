"""What the chart makes of its values. Nothing here talks to a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubelocal.server.types.cel import condition_holds
from kubeworld.units.durations import SECOND
from reprieve import __version__
from reprieve.api.crds import NAMES, all_crds, text
from reprieve.settings.scheduling import read_scheduling, scheduling_settings
from tests.chart.helm import CHART, ROOT, RenderingFailed, render, run_helm

ENDPOINT = "http://exporter.gpu-operator.svc:5000/metrics"
ENABLED = {"enabled": True, "metricsEndpoint": ENDPOINT}

# Value under gpuPreemption, variable, default, another value and how it is written then.
MAPPING = [
    ("pollingInterval", "GPU_PREEMPTION_POLLING_INTERVAL", "15s", "1m", "1m"),
    ("defaultThreshold", "GPU_PREEMPTION_DEFAULT_THRESHOLD", "5", 0, "0"),
    ("defaultThreshold", "GPU_PREEMPTION_DEFAULT_THRESHOLD", "5", 10.5, "10.5"),
    ("defaultGracePeriod", "GPU_PREEMPTION_DEFAULT_GRACE_PERIOD", "10m", "1h30m", "1h30m"),
    ("defaultPolicy", "GPU_PREEMPTION_DEFAULT_POLICY", "OnPressure", "Always", "Always"),
    ("defaultAggregation", "GPU_PREEMPTION_DEFAULT_AGGREGATION", "Max", "Min", "Min"),
    ("defaultTTL", "GPU_PREEMPTION_DEFAULT_TTL", "24h", "0", "0"),
]


def test_the_chart_passes_helms_lint() -> None:
    assert "0 chart(s) failed" in run_helm("lint", "--strict", str(CHART))


def test_the_version_of_the_chart_is_that_of_the_package() -> None:
    import reprieve

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    # Candidates of a release are written with a dash in charts, and without one in packages.
    versions = {chart[key].replace("-rc", "rc") for key in ("version", "appVersion")}
    assert versions == {reprieve.__version__}


def test_by_default_nothing_is_enabled_and_nothing_runs(tmp_path: Path) -> None:
    rendered = render(tmp_path)
    assert rendered.one("Deployment")["spec"]["replicas"] == 0
    assert "env" not in rendered.container
    assert rendered.all("KaiwoConfig") == []
    assert rendered.all("PodDisruptionBudget") == []


@pytest.mark.parametrize(("value", "variable", "default", "other", "written"), MAPPING)
def test_each_value_becomes_its_variable(
    tmp_path: Path, value: str, variable: str, default: str, other: Any, written: str
) -> None:
    assert render(tmp_path, {"gpuPreemption": ENABLED}).environment[variable] == default
    changed = render(tmp_path, {"gpuPreemption": {**ENABLED, value: other}})
    assert changed.environment[variable] == written


def test_enabled_sets_the_switch_the_endpoint_and_the_namespace(tmp_path: Path) -> None:
    rendered = render(tmp_path, {"gpuPreemption": ENABLED})
    assert rendered.environment["GPU_PREEMPTION_ENABLED"] == "true"
    assert rendered.environment["GPU_PREEMPTION_METRICS_ENDPOINT"] == ENDPOINT
    assert rendered.container["env"][-1] == {
        "name": "GPU_PREEMPTION_OPERATOR_NAMESPACE",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
    }
    assert rendered.one("Deployment")["spec"]["replicas"] == 1


def test_the_variables_are_exactly_those_of_the_guide(tmp_path: Path) -> None:
    names = [v["name"] for v in render(tmp_path, {"gpuPreemption": ENABLED}).container["env"]]
    assert sorted(names) == sorted(
        {variable for _, variable, *_ in MAPPING}
        | {
            "GPU_PREEMPTION_ENABLED",
            "GPU_PREEMPTION_METRICS_ENDPOINT",
            "GPU_PREEMPTION_OPERATOR_NAMESPACE",
        }
    )


def test_the_guides_values_render_as_the_guide_says(tmp_path: Path) -> None:
    values = ROOT.parent / "shared" / "guides" / "manifests" / "idle-values.yaml"
    if not values.exists():
        pytest.skip("needs the guide's manifests")
    guide = yaml.safe_load(values.read_text())["gpuPreemption"]
    rendered = render(tmp_path, None, values)
    assert {name: rendered.environment[variable] for name, variable, *_ in MAPPING} == {
        name: guide[name] for name, *_ in MAPPING
    }
    assert rendered.environment["GPU_PREEMPTION_METRICS_ENDPOINT"] == guide["metricsEndpoint"]


@pytest.mark.parametrize("endpoint", ["", "  "])
def test_enabled_without_an_endpoint_does_not_render(tmp_path: Path, endpoint: str) -> None:
    with pytest.raises(RenderingFailed, match="metricsEndpoint is required"):
        render(tmp_path, {"gpuPreemption": {"enabled": True, "metricsEndpoint": endpoint}})


def test_values_beyond_the_guide_go_into_the_configuration_file(tmp_path: Path) -> None:
    extra = {
        "fit": "Node",
        "irreducible": True,
        "profile": "best",
        "victimOrder": "YoungestIdle",
        "vendors": ["amd", {"name": "acme", "resources": ["acme.example/gpu"], "metrics": ["use"]}],
        "notice": {
            "max": "5m",
            "extension": "1m",
            "keep": "1h",
            "patience": {"default": "5m", "emergency": "0s"},
        },
        "preemptionDelay": "60s",
        "literal": {"deleteWithoutUid": True},
    }
    rendered = render(tmp_path, {"gpuPreemption": {**ENABLED, **extra}})
    assert rendered.configuration == {"gpuPreemption": extra}
    arguments = rendered.container["args"]
    assert arguments == ["run", "--controllers", "idle", "--config", "/etc/reprieve/config.yaml"]
    (mount,) = [m for m in rendered.container["volumeMounts"] if m["name"] == "config"]
    assert (mount["mountPath"], mount["readOnly"]) == ("/etc/reprieve", True)


def test_the_scheduling_plane_runs_without_gpu_preemption(tmp_path: Path) -> None:
    rendered = render(tmp_path, {"controllers": ["scheduling"], "verbosity": 6})
    assert rendered.one("Deployment")["spec"]["replicas"] == 1
    assert rendered.container["args"] == [
        *("run", "--controllers", "scheduling", "--config", "/etc/reprieve/config.yaml"),
        *("--scheduler-name", "reprieve-scheduler", "--verbosity", "6"),
    ]
    assert "env" not in rendered.container


def test_both_planes_are_one_process(tmp_path: Path) -> None:
    values = {"controllers": ["idle", "scheduling"], "gpuPreemption": ENABLED}
    assert render(tmp_path, values).container["args"][2] == "idle,scheduling"
    idle_is_off = render(tmp_path, {"controllers": ["idle", "scheduling"]})
    assert idle_is_off.container["args"][2] == "scheduling"
    assert idle_is_off.one("Deployment")["spec"]["replicas"] == 1


def test_what_the_scheduling_plane_is_told_is_what_it_reads(tmp_path: Path) -> None:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "packing", "percentageOfNodesToScore": 50}],
    }
    scheduling = {
        "schedulerNames": [],
        "configuration": configuration,
        "featureGates": {"PodGroupPreemptionPolicy": True},
        "secondReprievePass": False,
        "victimDeadline": "90s",
    }
    rendered = render(tmp_path, {"controllers": ["scheduling"], "scheduling": scheduling})
    assert "--scheduler-name" not in rendered.container["args"]
    written = rendered.one("ConfigMap")["data"]["config.yaml"]
    settings = scheduling_settings(read_scheduling(written, "config.yaml"))
    (profile,) = settings.policy.profiles
    assert (profile.scheduler_name, profile.percentage_of_nodes) == ("packing", 50)
    assert settings.policy.gates.pod_group_preemption_policy
    assert not settings.policy.second_reprieve_pass
    assert settings.victim_deadline == 90 * SECOND


def test_shared_nodes_are_an_option_of_the_scheduling_plane_alone(tmp_path: Path) -> None:
    shared = {"sharedNodes": True}
    both = {"controllers": ["idle", "scheduling"], "scheduling": shared}
    rendered = render(tmp_path, both)
    assert "--shared-nodes" in rendered.container["args"]
    assert "sharedNodes" not in rendered.configuration["scheduling"]
    without = {"controllers": ["scheduling"]}
    assert "--shared-nodes" not in render(tmp_path, without).container["args"]
    idle = {"controllers": ["idle"], "gpuPreemption": ENABLED, "scheduling": shared}
    assert "--shared-nodes" not in render(tmp_path, idle).container["args"]


def test_strict_disruption_mode_is_a_policy_of_the_api_server(tmp_path: Path) -> None:
    strict = {"controllers": ["scheduling"], "scheduling": {"strictDisruptionMode": True}}
    rendered = render(tmp_path, strict)
    assert "strictDisruptionMode" not in rendered.configuration["scheduling"]
    (policy,) = [
        each
        for each in rendered.all("ValidatingAdmissionPolicy")
        if each["metadata"]["name"].endswith("disruption-mode")
    ]
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert rule["resources"] == ["podgroups", "workloads"]
    assert rule["operations"] == ["CREATE"]
    (validation,) = policy["spec"]["validations"]
    assert validation["message"] == "disruption mode all requires the gang scheduling policy"

    def accepted(kind: str, spec: dict[str, Any]) -> bool:
        return condition_holds(validation["expression"], {"object": {"kind": kind, "spec": spec}})

    everyone: dict[str, Any] = {"disruptionMode": {"all": {}}}
    basic: dict[str, Any] = {"schedulingPolicy": {"basic": {}}}
    gang = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    for spec, fine in [
        ({**everyone, **basic}, False),
        ({**everyone, **gang}, True),
        ({"disruptionMode": {"single": {}}, **basic}, True),
        (basic, True),
    ]:
        assert accepted("PodGroup", spec) is fine
        assert accepted("Workload", {"podGroupTemplates": [gang, spec]}) is fine
    assert accepted("Workload", {})
    off = render(tmp_path, {"controllers": ["scheduling"]})
    names = {each["metadata"]["name"] for each in off.all("ValidatingAdmissionPolicy")}
    assert not {name for name in names if name.endswith("disruption-mode")}


def test_without_the_scheduling_plane_the_file_says_nothing_of_it(tmp_path: Path) -> None:
    assert set(render(tmp_path).configuration) == {"gpuPreemption"}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"controllers": ["scheduling"], "gpuPreemption": ENABLED}, "controllers does not name"),
        (
            {
                "controllers": ["scheduling"],
                "scheduling": {
                    "configuration": {
                        "apiVersion": "kubescheduler.config.k8s.io/v1",
                        "kind": "KubeSchedulerConfiguration",
                    }
                },
            },
            "schedulerNames must be empty",
        ),
    ],
)
def test_values_that_contradict_each_other_do_not_render(
    tmp_path: Path, values: dict[str, Any], why: str
) -> None:
    with pytest.raises(RenderingFailed, match=why):
        render(tmp_path, values)


def test_a_changed_configuration_restarts_the_operator(tmp_path: Path) -> None:
    def checksum(fit: str) -> str:
        template = render(tmp_path, {"gpuPreemption": {"fit": fit}}).one("Deployment")
        return str(template["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum("Sum") != checksum("Node")


def test_dry_run_is_an_argument(tmp_path: Path) -> None:
    assert render(tmp_path, {"dryRun": True}).container["args"][-1] == "--dry-run"


def test_the_decision_log_goes_to_a_volume_or_to_standard_output(tmp_path: Path) -> None:
    rendered = render(tmp_path, {"decisionLog": {"enabled": True}})
    arguments = rendered.container["args"]
    assert arguments[-2:] == ["--decision-log", "/var/log/reprieve/decisions.log"]
    mounts = {each["name"]: each["mountPath"] for each in rendered.container["volumeMounts"]}
    assert mounts["decision-log"] == "/var/log/reprieve"
    there = {"decisionLog": {"enabled": True, "standardOutput": True}}
    rendered = render(tmp_path, there)
    assert rendered.container["args"][-2:] == ["--decision-log", "-"]
    assert all(each["name"] != "decision-log" for each in rendered.container["volumeMounts"])


def test_a_threshold_of_zero_reaches_the_kaiwo_config(tmp_path: Path) -> None:
    spec = {"gpuPreemption": {"defaultThreshold": 0, "defaultTTL": "0"}, "ray": {"image": "x"}}
    config = render(tmp_path, {"kaiwoConfig": {"enabled": True, "spec": spec}}).one("KaiwoConfig")
    assert config["metadata"]["name"] == "kaiwo"
    assert config["spec"] == spec


def test_a_kaiwo_config_comes_after_the_kind_that_the_same_release_brings(tmp_path: Path) -> None:
    with_crds = render(tmp_path, {"kaiwoConfig": {"enabled": True}}).one("KaiwoConfig")
    assert with_crds["metadata"]["annotations"] == {
        "helm.sh/hook": "post-install,post-upgrade",
        "helm.sh/hook-delete-policy": "before-hook-creation",
    }
    values = {"kaiwoConfig": {"enabled": True}, "crds": {"install": "Never"}}
    assert "annotations" not in render(tmp_path, values).one("KaiwoConfig")["metadata"]


def test_the_chart_carries_the_packages_crds() -> None:
    copies = {path.stem: path.read_text() for path in (CHART / "files" / "crds").iterdir()}
    assert copies == {name: text(name) for name in NAMES}, (
        "copy the files that differ from src/reprieve/api/crds to charts/reprieve/files/crds"
    )


def test_crds_are_rendered_whole_and_kept_when_the_release_goes(tmp_path: Path) -> None:
    rendered = render(tmp_path).all("CustomResourceDefinition")
    assert {crd["metadata"]["name"]: crd["spec"] for crd in rendered} == {
        crd["metadata"]["name"]: crd["spec"] for crd in all_crds()
    }
    for crd in rendered:
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_crds_can_be_left_out(tmp_path: Path) -> None:
    assert render(tmp_path, {"crds": {"install": "Never"}}).all("CustomResourceDefinition") == []


def test_the_container_can_do_nothing_that_it_need_not(tmp_path: Path) -> None:
    rendered = render(tmp_path)
    assert rendered.container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    pod = rendered.one("Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["serviceAccountName"] == rendered.one("ServiceAccount")["metadata"]["name"]


def test_probes_and_service_meet_on_the_operators_port(tmp_path: Path) -> None:
    rendered = render(tmp_path)
    container = rendered.container
    assert container["ports"] == [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    (port,) = rendered.one("Service")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (8080, "http")


@pytest.mark.parametrize(("replicas", "budgets"), [(1, 0), (2, 1)])
def test_several_replicas_have_a_disruption_budget(
    tmp_path: Path, replicas: int, budgets: int
) -> None:
    rendered = render(tmp_path, {"replicas": replicas, "gpuPreemption": ENABLED})
    assert rendered.one("Deployment")["spec"]["replicas"] == replicas
    assert len(rendered.all("PodDisruptionBudget")) == budgets


def test_only_the_operator_may_write_preemptions_in_its_namespace(tmp_path: Path) -> None:
    values = {"serviceAccount": {"name": "operator"}}
    rendered = render(tmp_path, values)
    policy, told = rendered.all("ValidatingAdmissionPolicy")
    constraints = policy["spec"]["matchConstraints"]
    assert constraints["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "ops"}
    (rule,) = constraints["resourceRules"]
    assert rule["resources"] == ["preemptions", "preemptions/status", "preemptionparts"]
    assert rule["operations"] == ["CREATE", "UPDATE"]
    (validation,) = policy["spec"]["validations"]
    assert validation["expression"] == (
        'request.userInfo.username in ["system:serviceaccount:ops:operator"]'
    )
    bindings = [each["spec"] for each in rendered.all("ValidatingAdmissionPolicyBinding")]
    assert bindings == [
        {"policyName": each["metadata"]["name"], "validationActions": ["Deny"]}
        for each in (policy, told)
    ]
    # What tenants are told is nobody else's to say, in whatever namespace.
    assert "namespaceSelector" not in told["spec"]["matchConstraints"]
    (rule,) = told["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (
        ["disruptions", "preemptionnotices"],
        ["CREATE", "UPDATE"],
    )
    assert told["spec"]["validations"][0]["expression"] == validation["expression"]


def test_no_image_comes_from_a_registry_that_the_user_did_not_name(tmp_path: Path) -> None:
    assert render(tmp_path).container["image"] == f"reprieve:{__version__.replace('rc', '-rc')}"


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"gpuPreemption": {"enabled": "yes"}}, "/gpuPreemption/enabled"),
        ({"gpuPreemption": {"defaultPolicy": "Sometimes"}}, "/gpuPreemption/defaultPolicy"),
        ({"gpuPreemption": {"defaultAggregation": "Sum"}}, "/gpuPreemption/defaultAggregation"),
        ({"gpuPreemption": {"defaultThreshold": "5%"}}, "/gpuPreemption/defaultThreshold"),
        ({"gpuPreemption": {"defaultThreshold": 101}}, "/gpuPreemption/defaultThreshold"),
        ({"gpuPreemption": {"defaultGracePeriod": "1d"}}, "/gpuPreemption/defaultGracePeriod"),
        ({"gpuPreemption": {"pollingInterval": "15"}}, "/gpuPreemption/pollingInterval"),
        ({"gpuPreemption": {"metricsEndpoint": "exporter:5000"}}, "/gpuPreemption/metricsEndpoint"),
        ({"gpuPreemption": {"fit": "Rack"}}, "/gpuPreemption/fit"),
        ({"gpuPreemption": {"vendors": ["acme"]}}, "/gpuPreemption/vendors/0"),
        ({"gpuPreemption": {"literal": {"H3": True}}}, "H3"),
        ({"gpuPreemption": {"gracePeriod": "5m"}}, "gracePeriod"),
        (
            {"kaiwoConfig": {"spec": {"gpuPreemption": {"defaultThreshold": "10"}}}},
            "/kaiwoConfig/spec/gpuPreemption/defaultThreshold",
        ),
        ({"kaiwoConfig": {"spec": {"gpuPreemption": {"enabled": True}}}}, "enabled"),
        ({"controllers": ["quotas"]}, "/controllers/0"),
        ({"scheduling": {"featureGates": {"Gangs": True}}}, "Gangs"),
        ({"scheduling": {"featureGates": {"GenericWorkload": "on"}}}, "/featureGates/Generic"),
        ({"scheduling": {"victimDeadline": "5"}}, "/scheduling/victimDeadline"),
        ({"scheduling": {"secondPass": True}}, "secondPass"),
        ({"scheduling": {"configuration": {"kind": "Policy"}}}, "/scheduling/configuration/kind"),
        ({"verbosity": 11}, "/verbosity"),
        ({"crds": {"install": "Always"}}, "/crds/install"),
        ({"replicas": -1}, "/replicas"),
        ({"rbac": {"extraOwnerRules": [{"resources": ["cronjobs"]}]}}, "/rbac/extraOwnerRules/0"),
        ({"gpuPremption": {"enabled": True}}, "gpuPremption"),
    ],
)
def test_a_value_that_is_not_accepted_is_named(
    tmp_path: Path, values: dict[str, Any], where: str
) -> None:
    with pytest.raises(RenderingFailed) as failed:
        render(tmp_path, values)
    assert where in str(failed.value)
