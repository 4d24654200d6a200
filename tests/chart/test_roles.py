"""What the operator's ServiceAccount may do: what it needs, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from reprieve.api.disruption import KEY_SECRET
from reprieve.cli.webhooks import webhooks
from reprieve.execution.accounts.harm_refusals import REFUSED
from reprieve.jobs.table import job_kinds
from reprieve.planes.quota.webhooks.registration import CONFIGURATIONS
from tests.chart.helm import Rendered, render
from tests.integration.roles import harm_ledger, roles_of_the_template

READ = {"get", "list", "watch"}
OWNER = {"get", "list", "delete"}

# Owner kinds of the guide and of the specification of the idle plane, section 7.
OWNERS = {
    ("batch", "jobs"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("ray.io", "rayclusters"),
    ("ray.io", "rayjobs"),
    ("ray.io", "rayservices"),
    ("kaiwo.silogen.ai", "kaiwojobs"),
    ("kaiwo.silogen.ai", "kaiwoservices"),
    ("aim.silogen.ai", "aimservices"),
    ("aim.eai.amd.com", "aimservices"),
    ("workload.codeflare.dev", "appwrappers"),
    ("serving.kserve.io", "inferenceservices"),
}

Rights = dict[tuple[str, str], set[str]]


def rights(rules: list[dict[str, Any]], name: str | None = None) -> Rights:
    """Return (group, resource) -> verbs, of the rules for the object `name` or for all."""
    found: Rights = {}
    for rule in rules:
        if rule.get("resourceNames") != ([name] if name else None):
            continue
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def cluster_role(rendered: Rendered) -> dict[str, Any]:
    """Return the planes' own role, apart from telling about webhooks."""
    apart = ("-webhook", "-metrics", "-metrics-reader", "-disruptions-view", "-notice")
    (found,) = (
        role for role in rendered.all("ClusterRole") if not role["metadata"]["name"].endswith(apart)
    )
    return found


def cluster(rendered: Rendered) -> Rights:
    """Return what the planes may do everywhere, but for what every plane does alike."""
    granted = rights(cluster_role(rendered)["rules"])
    for kind in ("disruptions", "preemptionnotices"):
        assert granted.pop(("reprieve.dev", kind)) == {"list", "create", "patch", "delete"}
    assert granted.pop(("reprieve.dev", "harmbudgets")) == {"list", "watch"}
    assert granted.pop(("reprieve.dev", "harmbudgets/status")) == {"patch"}
    return granted


def test_every_owner_kind_can_be_found_and_deleted(tmp_path: Path) -> None:
    granted = cluster(render(tmp_path))
    assert {owner: granted[owner] for owner in OWNERS} == dict.fromkeys(OWNERS, OWNER)


def test_the_cluster_role_holds_nothing_else(tmp_path: Path) -> None:
    granted = cluster(render(tmp_path))
    assert {key: verbs for key, verbs in granted.items() if key not in OWNERS} == {
        ("", "pods"): READ | {"delete"},
        ("", "nodes"): READ,
        ("", "namespaces"): READ,
        ("events.k8s.io", "events"): {"create", "patch"},
        ("discovery.k8s.io", "endpointslices"): READ,
        ("kueue.x-k8s.io", "workloads"): READ,
        ("kueue.x-k8s.io", "clusterqueues"): {"list", "watch"},
        ("kueue.x-k8s.io", "cohorts"): {"list", "watch"},
        ("kueue.x-k8s.io", "localqueues"): {"list", "watch"},
        ("kueue.x-k8s.io", "resourceflavors"): {"list", "watch"},
        ("scheduling.k8s.io", "priorityclasses"): {"list", "watch"},
        ("reprieve.dev", "preemptions"): READ,
        ("kaiwo.silogen.ai", "gpuworkloads"): READ | {"create", "update", "patch", "delete"},
        ("kaiwo.silogen.ai", "gpuworkloads/status"): {"get", "update", "patch"},
        ("config.kaiwo.silogen.ai", "kaiwoconfigs"): READ | {"create"},
        ("resource.k8s.io", "deviceclasses"): {"list", "watch"},
        ("resource.k8s.io", "resourceclaims"): {"list", "watch"},
        ("resource.k8s.io", "resourceclaimtemplates"): {"list", "watch"},
        ("resource.k8s.io", "resourceslices"): {"list", "watch"},
    }


def test_the_scheduling_plane_alone_has_the_rights_of_a_scheduler(tmp_path: Path) -> None:
    watch, bind = {"list", "watch"}, {"get", "list", "watch", "patch"}
    assert cluster(render(tmp_path, {"controllers": ["scheduling"]})) == {
        ("", "pods"): READ | {"delete"},
        ("", "pods/binding"): {"create"},
        ("", "pods/status"): {"patch"},
        ("", "pods/finalizers"): {"update"},
        ("", "nodes"): READ,
        ("", "namespaces"): READ,
        ("", "services"): watch,
        ("", "replicationcontrollers"): watch,
        ("", "persistentvolumeclaims"): bind,
        ("", "persistentvolumes"): bind,
        ("apps", "replicasets"): watch,
        ("apps", "statefulsets"): watch,
        ("policy", "poddisruptionbudgets"): watch,
        ("events.k8s.io", "events"): {"create", "patch"},
        ("reprieve.dev", "preemptions"): watch,
        ("scheduling.k8s.io", "podgroups"): READ,
        ("scheduling.k8s.io", "podgroups/status"): {"patch"},
        ("scheduling.sigs.k8s.io", "podgroups"): READ | {"patch"},
        ("scheduling.x-k8s.io", "podgroups"): READ,
        ("scheduling.x-k8s.io", "podgroups/status"): {"patch"},
        ("scheduling.sigs.k8s.io", "elasticquotas"): watch,
        ("scheduling.x-k8s.io", "elasticquotas"): watch,
        ("storage.k8s.io", "storageclasses"): watch,
        ("storage.k8s.io", "csinodes"): watch,
        ("storage.k8s.io", "csidrivers"): watch,
        ("storage.k8s.io", "csistoragecapacities"): watch,
        ("storage.k8s.io", "volumeattachments"): watch,
        ("resource.k8s.io", "resourceclaims"): bind | {"create", "delete"},
        ("resource.k8s.io", "resourceclaims/status"): {"update"},
        ("resource.k8s.io", "resourceslices"): watch,
        ("resource.k8s.io", "deviceclasses"): watch,
    }


@pytest.mark.parametrize(
    ("option", "value", "granted"),
    [
        ("preemptionPriority", {"cap": 5}, True),
        ("maxMinRuntime", "10m", True),
        ("maxMinRuntime", "0s", False),
    ],
)
def test_priority_classes_are_read_where_they_say_who_makes_way(
    tmp_path: Path, option: str, value: object, granted: bool
) -> None:
    rendered = render(tmp_path, {"controllers": ["scheduling"], "scheduling": {option: value}})
    found = cluster(rendered).get(("scheduling.k8s.io", "priorityclasses"))
    assert found == ({"list", "watch"} if granted else None)


def test_the_quota_plane_has_the_rights_to_every_kind_of_its_table(tmp_path: Path) -> None:
    own = {"apiVersion": "science.example/v1", "kind": "Simulation", "plural": "simulations"}
    own |= {"framework": "science.example/simulation"}
    own |= {"suspend": "spec.paused", "clearStatus": "status.started"}
    row = {**own, "podSets": [{"template": "spec.template"}]}
    granted = cluster(render(tmp_path, {"controllers": ["quota"], "quota": {"jobKinds": [row]}}))
    jobs = READ | {"update", "delete"}
    queued = {
        # What makes gated pods is never written.
        (kind.group, kind.plural): READ if kind.passes_on else READ | {"update"}
        for kind in job_kinds([row])
    }
    described = {
        (version.rpartition("/")[0], plural): {"list", "watch"}
        for kind in job_kinds()
        if kind.runtime is not None
        for _, version, plural, _ in kind.runtime.kinds
    }
    assert granted == {
        **queued,
        **described,
        ("batch", "jobs/status"): {"patch"},
        ("science.example", "simulations/status"): {"patch"},
        ("", "pods"): jobs,
        ("", "pods/status"): {"patch"},
        ("", "nodes"): READ,
        ("", "namespaces"): READ,
        ("kueue.x-k8s.io", "workloads"): jobs | {"create", "patch"},
        ("kueue.x-k8s.io", "clusterqueues"): READ | {"update"},
        ("kueue.x-k8s.io", "resourceflavors"): READ | {"update"},
        ("resource.k8s.io", "resourceclaims"): {"get"},
        ("resource.k8s.io", "resourceclaimtemplates"): {"list", "watch"},
        ("reprieve.dev", "preemptions"): {"list", "watch"},
        ("kueue.x-k8s.io", "cohorts"): {"list", "watch"},
        ("kueue.x-k8s.io", "topologies"): READ | {"update"},
        ("kueue.x-k8s.io", "localqueues"): {"list", "watch"},
        ("kueue.x-k8s.io", "workloadpriorityclasses"): {"list", "watch"},
        ("kueue.x-k8s.io", "admissionchecks"): READ | {"update"},
        ("kueue.x-k8s.io", "workloads/status"): {"patch"},
        ("kueue.x-k8s.io", "clusterqueues/status"): {"patch"},
        ("kueue.x-k8s.io", "localqueues/status"): {"patch"},
        ("kueue.x-k8s.io", "cohorts/status"): {"patch"},
        ("scheduling.k8s.io", "priorityclasses"): {"list", "watch"},
        ("", "limitranges"): {"list", "watch"},
        ("node.k8s.io", "runtimeclasses"): {"list", "watch"},
        ("events.k8s.io", "events"): {"create", "patch"},
    }


def test_jobs_are_deleted_only_where_their_retention_is_configured(tmp_path: Path) -> None:
    plain = cluster(render(tmp_path, {"controllers": ["quota"]}))
    kept = {"workloads": {"afterDeactivatedByKueue": "1h"}}
    document = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    for values in (
        {"configuration": {**document, "objectRetentionPolicies": kept}},
        {"configurationMap": "kueue-manager-config"},  # it may say so
    ):
        granted = cluster(render(tmp_path, {"controllers": ["quota"], "quota": values}))
        added = {key: verbs - plain.get(key, set()) for key, verbs in granted.items()}
        assert {key: verbs for key, verbs in added.items() if verbs} == {
            (kind.group, kind.plural): {"delete"} for kind in job_kinds() if not kind.gate
        }


def test_of_webhook_configurations_the_operator_patches_its_own_two(tmp_path: Path) -> None:
    rendered = render(tmp_path, {"controllers": ["quota"]})
    (role,) = (
        each
        for each in rendered.all("ClusterRole")
        if each["metadata"]["name"].endswith("-webhook")
    )
    kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    group = "admissionregistration.k8s.io"
    assert rights(role["rules"]) == {}
    named = rights(role["rules"], CONFIGURATIONS)
    assert named == {(group, kind): {"patch"} for kind in kinds}
    # The chart makes them, without any webhook, so that they go with the release.
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        made = rendered.one(kind)
        assert made["metadata"]["name"] == CONFIGURATIONS
        assert "webhooks" not in made
    printed = list(yaml.safe_load_all(CliRunner().invoke(webhooks).stdout))
    assert [(each["kind"], each["metadata"]["name"], each["webhooks"]) for each in printed] == [
        ("MutatingWebhookConfiguration", CONFIGURATIONS, []),
        ("ValidatingWebhookConfiguration", CONFIGURATIONS, []),
    ]


def test_who_reads_metrics_is_asked_only_where_that_is_chosen(tmp_path: Path) -> None:
    names = {role["metadata"]["name"] for role in render(tmp_path).all("ClusterRole")}
    assert not {name for name in names if "-metrics" in name}
    rendered = render(tmp_path, {"metrics": {"authentication": True}})
    asking, reader = (
        next(
            role["rules"]
            for role in rendered.all("ClusterRole")
            if role["metadata"]["name"].endswith(suffix)
        )
        for suffix in ("-metrics", "-metrics-reader")
    )
    assert rights(asking) == {
        ("authentication.k8s.io", "tokenreviews"): {"create"},
        ("authorization.k8s.io", "subjectaccessreviews"): {"create"},
    }
    assert reader == [{"nonResourceURLs": ["/metrics", "/apis/v1/plugins/*"], "verbs": ["get"]}]


def test_what_is_idle_is_read_by_the_quota_plane_only_where_it_is_preferred(
    tmp_path: Path,
) -> None:
    plain = cluster(render(tmp_path, {"controllers": ["quota"]}))
    idle = cluster(render(tmp_path, {"controllers": ["quota"], "quota": {"idleFirst": True}}))
    assert idle == {**plain, ("kaiwo.silogen.ai", "gpuworkloads"): {"list", "watch"}}


def test_nodes_are_written_only_where_schedulers_share_them(tmp_path: Path) -> None:
    shared = {"scheduling": {"sharedNodes": True}}
    for planes in (["scheduling"], ["idle", "scheduling"]):
        without = cluster(render(tmp_path, {"controllers": planes}))
        granted = cluster(render(tmp_path, {"controllers": planes, **shared}))
        assert granted == {**without, ("", "nodes"): READ | {"patch"}}
    assert cluster(render(tmp_path, shared)) == cluster(render(tmp_path))


def test_composite_groups_are_read_only_behind_their_gate(tmp_path: Path) -> None:
    gates = {"scheduling": {"featureGates": {"CompositePodGroup": True}}}
    without = cluster(render(tmp_path, {"controllers": ["scheduling"]}))
    assert cluster(render(tmp_path, {"controllers": ["scheduling"], **gates})) == {
        **without,
        ("scheduling.k8s.io", "compositepodgroups"): READ,
        ("scheduling.k8s.io", "compositepodgroups/status"): {"patch"},
    }


def test_of_config_maps_only_koordinators_settings_are_read(tmp_path: Path) -> None:
    rules = cluster_role(render(tmp_path, {"controllers": ["scheduling"]}))["rules"]
    named = rights(rules, "koord-scheduler-config")
    assert named == {("", "configmaps"): {"list", "watch"}}


def test_both_planes_have_the_rights_of_each(tmp_path: Path) -> None:
    both = cluster(render(tmp_path, {"controllers": ["idle", "scheduling"]}))
    expected: Rights = {}
    for plane in ("idle", "scheduling"):
        for key, verbs in cluster(render(tmp_path, {"controllers": [plane]})).items():
            expected.setdefault(key, set()).update(verbs)
    assert both == expected


def test_of_foreign_leases_only_kaiwos_manager_lease_is_read(tmp_path: Path) -> None:
    rules = cluster_role(render(tmp_path))["rules"]
    assert rights(rules, "83fc2279.silogen.ai") == {("coordination.k8s.io", "leases"): READ}


def test_records_and_leases_are_written_in_the_operators_namespace_only(tmp_path: Path) -> None:
    role = render(tmp_path).one("Role")
    assert role["metadata"]["namespace"] == "ops"
    everything = READ | {"create", "update", "patch", "delete"}
    assert rights(role["rules"]) == {
        ("reprieve.dev", "preemptions"): everything,
        ("reprieve.dev", "preemptions/status"): {"get", "update", "patch"},
        ("reprieve.dev", "preemptionparts"): {"get", "list", "create", "delete"},
        ("coordination.k8s.io", "leases"): everything,
        ("", "configmaps"): {"create"},
    }
    assert rights(role["rules"], KEY_SECRET) == {("", "secrets"): {"get", "update"}}


def test_the_chart_makes_the_secrets_that_the_operator_fills_so_that_it_creates_none(
    tmp_path: Path,
) -> None:
    rendered = render(tmp_path, {"controllers": ["idle", "scheduling", "quota"]})
    secrets = {each["metadata"]["name"]: each for each in rendered.all("Secret")}
    assert KEY_SECRET in secrets
    assert not any(each.get("data") or each.get("stringData") for each in secrets.values())
    for role in (*rendered.all("Role"), *rendered.all("ClusterRole")):
        for rule in role.get("rules") or ():
            if "secrets" in rule.get("resources", ()):
                assert not {"create", "*"} & set(rule["verbs"]), role["metadata"]["name"]
                named = set(rule["resourceNames"])
                assert named and named <= secrets.keys(), role["metadata"]["name"]


def test_whoever_may_view_a_namespace_reads_what_became_of_work_there(tmp_path: Path) -> None:
    (role,) = (
        each
        for each in render(tmp_path).all("ClusterRole")
        if each["metadata"]["name"].endswith("-disruptions-view")
    )
    assert role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    kinds = ("disruptions", "preemptionnotices")
    assert rights(role["rules"]) == {("reprieve.dev", kind): READ for kind in kinds}


def test_scaling_and_suspending_need_their_own_consent(tmp_path: Path) -> None:
    without = cluster(render(tmp_path))
    granted = cluster(render(tmp_path, {"rbac": {"actions": True}}))
    added = {key: verbs - without.get(key, set()) for key, verbs in granted.items()}
    assert {key: verbs for key, verbs in added.items() if verbs} == {
        ("apps", "deployments/scale"): {"get", "patch"},
        ("apps", "replicasets/scale"): {"get", "patch"},
        ("apps", "statefulsets/scale"): {"get", "patch"},
        ("apps", "deployments"): {"patch"},
        ("apps", "replicasets"): {"patch"},
        ("apps", "statefulsets"): {"patch"},
        ("batch", "jobs"): {"patch"},
        ("ray.io", "rayclusters"): {"patch"},
        ("ray.io", "rayjobs"): {"patch"},
        ("workload.codeflare.dev", "appwrappers"): {"patch"},
    }


def test_extra_owner_kinds_get_the_verbs_of_owners_or_their_own(tmp_path: Path) -> None:
    rules = [
        {"apiGroups": ["batch"], "resources": ["cronjobs"]},
        {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get"]},
    ]
    granted = cluster(render(tmp_path, {"rbac": {"extraOwnerRules": rules}}))
    assert granted["batch", "cronjobs"] == OWNER
    assert granted["apps", "daemonsets"] == {"get"}


def test_the_roles_are_bound_to_the_operators_account(tmp_path: Path) -> None:
    rendered = render(tmp_path, {"serviceAccount": {"name": "operator"}})
    account = [{"kind": "ServiceAccount", "name": "operator", "namespace": "ops"}]
    roles = {"Role": rendered.one("Role"), "ClusterRole": cluster_role(rendered)}
    for kind, role in roles.items():
        binding = rendered.one(f"{kind}Binding")
        assert binding["subjects"] == account
        assert binding["roleRef"]["kind"] == kind
        assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_roles_can_be_left_to_the_user(tmp_path: Path) -> None:
    kinds = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    for planes in (["idle"], ["scheduling"], ["quota"]):
        rendered = render(tmp_path, {"rbac": {"create": False}, "controllers": planes})
        assert [rendered.all(kind) for kind in kinds] == [[], [], [], []]


def test_without_helm_the_roles_of_the_template_are_those_that_it_renders(tmp_path: Path) -> None:
    rendered = render(tmp_path, {"rbac": {"actions": True}})
    by_helm = [
        (each["kind"], each["rules"])
        for kind in ("ClusterRole", "Role")
        for each in rendered.all(kind)
        if not each["metadata"]["name"].endswith(("-view", "-edit", "-admin"))
        or each["metadata"]["name"].endswith("-disruptions-view")
    ]
    read = [(each["kind"], each["rules"]) for each in roles_of_the_template("anywhere")]
    assert sorted(read, key=str) == sorted(by_helm, key=str)


def test_tokens_of_pods_are_reviewed_only_where_they_may_ask_for_notices(tmp_path: Path) -> None:
    def reviewed(values: dict[str, Any]) -> bool:
        roles = render(tmp_path, values).all("ClusterRole")
        found = [role for role in roles if role["metadata"]["name"].endswith("-notice")]
        assert all(
            rights(role["rules"]) == {("authentication.k8s.io", "tokenreviews"): {"create"}}
            for role in found
        )
        return bool(found)

    assert not reviewed({})
    assert reviewed({"notice": {"enabled": True}})


def test_config_maps_are_written_by_name_in_the_operators_namespace_alone(tmp_path: Path) -> None:
    rendered = render(tmp_path)
    rules = [
        rule
        for role in rendered.all("Role")
        for rule in role["rules"]
        if rule["resources"] == ["configmaps"]
    ]
    made, written, refused = rules
    assert made["verbs"] == ["create"]
    assert (written["verbs"], written["resourceNames"]) == (["get", "update"], harm_ledger())
    assert (refused["verbs"], refused["resourceNames"]) == (["get", "update"], [REFUSED])


def test_pods_may_be_patched_only_where_they_are_told_in_files(tmp_path: Path) -> None:
    def told(values: dict[str, object]) -> tuple[bool, bool]:
        rendered = render(tmp_path, {"controllers": ["idle"], **values})
        rules = [rule for role in rendered.all("ClusterRole") for rule in role["rules"]]
        may = any("pods" in each["resources"] and "patch" in each["verbs"] for each in rules)
        return may, "--notice-files" in rendered.container["args"]

    assert told({}) == (False, False)
    assert told({"notice": {"enabled": True}}) == (False, False)
    assert told({"notice": {"enabled": False, "files": True}}) == (False, False)
    assert told({"notice": {"enabled": True, "files": True}}) == (True, True)


def test_requested_evictions_are_answered_only_where_the_chart_says_so(tmp_path: Path) -> None:
    def answered(values: dict[str, object]) -> tuple[set[str], list[str]]:
        rendered = render(tmp_path, {"controllers": ["idle"], **values})
        rules = [rule for role in rendered.all("ClusterRole") for rule in role["rules"]]
        named = {
            f"{verb} {resource}"
            for rule in rules
            if "lifecycle.k8s.io" in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        arguments = rendered.container["args"]
        given = arguments.index("--eviction-notice") if "--eviction-notice" in arguments else None
        return named, [] if given is None else arguments[given : given + 2]

    assert answered({"notice": {"enabled": True}}) == (set(), [])
    assert answered({"notice": {"enabled": False, "evictions": "10m"}}) == (set(), [])
    assert answered({"notice": {"enabled": True, "evictions": "10m"}}) == (
        {"list evictions", "watch evictions", "patch evictions/status"},
        ["--eviction-notice", "10m"],
    )
