"""What the chart closes: ports to the network, metrics to strangers, pods to the operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprieve.planes.quota.webhooks.server import webhook_options
from reprieve.settings.quota import quota_settings, read_quota
from tests.chart.helm import RenderingFailed, render

OPEN: dict[str, Any] = {"controllers": ["quota"]}


def policy(tmp_path: Path, **values: Any) -> dict[str, Any]:
    found: dict[str, Any] = render(tmp_path, values).one("NetworkPolicy")["spec"]
    return found


def test_ports_are_open_to_those_who_are_named_alone(tmp_path: Path) -> None:
    assert render(tmp_path, OPEN).all("NetworkPolicy") == []
    webhooks = {"cidrs": ["10.0.0.1/32", "10.0.0.2/32"]}
    metrics = {"cidrs": ["192.0.2.0/24"], "namespaces": ["monitoring"]}
    closed = {"enabled": True, "webhooks": webhooks, "metrics": metrics}
    rendered = render(tmp_path, {**OPEN, "networkPolicy": closed})
    spec = rendered.one("NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    labels = rendered.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert spec["podSelector"]["matchLabels"].items() <= labels.items()
    named = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    assert spec["ingress"] == [
        {
            "from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}, {"namespaceSelector": named}],
            "ports": [{"port": "http", "protocol": "TCP"}],
        },
        {
            "from": [{"ipBlock": {"cidr": each}} for each in webhooks["cidrs"]],
            "ports": [{"port": "webhook", "protocol": "TCP"}],
        },
    ]
    ports = {each["name"] for each in rendered.container["ports"]}
    assert {rule["ports"][0]["port"] for rule in spec["ingress"]} == ports


def test_without_anybody_named_all_is_closed_but_never_the_webhooks(tmp_path: Path) -> None:
    assert not policy(tmp_path, networkPolicy={"enabled": True})["ingress"]
    with pytest.raises(RenderingFailed, match=r"give the CIDRs .* that the API server calls from"):
        render(tmp_path, {**OPEN, "networkPolicy": {"enabled": True}})


def test_requests_for_the_lease_go_first_where_that_is_asked_for(tmp_path: Path) -> None:
    assert render(tmp_path).all("FlowSchema") == []
    rendered = render(tmp_path, {"flowSchema": {"enabled": True}})
    schema, account = rendered.one("FlowSchema"), rendered.one("ServiceAccount")["metadata"]
    (role,) = rendered.all("Role")
    (allowed,) = (rule for rule in role["rules"] if rule["resources"] == ["leases"])
    (rule,) = schema["spec"]["rules"]
    (asked,) = rule["resourceRules"]
    assert schema["spec"]["priorityLevelConfiguration"] == {"name": "leader-election"}
    assert rule["subjects"] == [
        {
            "kind": "ServiceAccount",
            "serviceAccount": {"name": account["name"], "namespace": account["namespace"]},
        }
    ]
    assert asked["namespaces"] == [role["metadata"]["namespace"]]
    assert (asked["apiGroups"], asked["resources"]) == (allowed["apiGroups"], ["leases"])
    assert set(asked["verbs"]) <= set(allowed["verbs"])


def test_metrics_are_asked_for_over_tls_where_they_are_protected(tmp_path: Path) -> None:
    for protected in (False, True):
        container = render(tmp_path, {"metrics": {"authentication": protected}}).container
        arguments = container["args"]
        assert ("--metrics-auth" in arguments) is protected
        schemes = {
            container[f"{probe}Probe"]["httpGet"].get("scheme", "HTTP")
            for probe in ("liveness", "readiness")
        }
        assert schemes == {"HTTPS" if protected else "HTTP"}


def test_the_authority_of_the_api_servers_certificate_is_mounted(tmp_path: Path) -> None:
    chosen = {"configMap": "clients", "key": "authority.pem", "names": ["kube-apiserver"]}
    values = {**OPEN, "quota": {"webhooks": {"clientCertificate": chosen}}}
    rendered = render(tmp_path, values)
    content = rendered.one("ConfigMap")["data"]["config.yaml"]
    options = webhook_options(quota_settings(read_quota(content, "chart")), "ns")
    mounts = {each["name"]: each["mountPath"] for each in rendered.container["volumeMounts"]}
    assert options.client_authority == Path(mounts["webhook-clients"]) / "authority.pem"
    assert options.client_names == ("kube-apiserver",)
    volumes = rendered.one("Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "webhook-clients", "configMap": {"name": "clients"}} in volumes
    assert "webhook-clients" not in str(render(tmp_path, OPEN).one("Deployment"))


def test_what_pods_run_is_out_of_the_operators_reach_with_the_quota_plane(tmp_path: Path) -> None:
    def policies(values: dict[str, Any]) -> dict[str, Any]:
        found = render(tmp_path, values).all("ValidatingAdmissionPolicy")
        return {each["metadata"]["name"].rpartition("-")[2]: each["spec"] for each in found}

    assert "pods" not in policies({})
    assert policies({**OPEN, "admissionPolicy": {"enabled": False}}) == {}
    spec = policies(OPEN)["pods"]
    (condition,) = spec["matchConditions"]
    operator = "system:serviceaccount:ops:r-reprieve"
    assert condition["expression"] == f'request.userInfo.username == "{operator}"'
    said = [each["message"] for each in spec["validations"]]
    assert said == ["Reprieve changes no images of pods", "Reprieve changes no owners of pods"]


def test_the_way_out_leads_to_the_api_server_names_and_metrics_alone(tmp_path: Path) -> None:
    egress = {
        "enabled": True,
        "apiServer": {"cidrs": ["10.0.0.1/32"], "ports": [6443]},
        "metricSources": {"namespaces": ["monitoring"], "ports": [5000]},
    }
    spec = policy(tmp_path, networkPolicy={"enabled": True, "egress": egress})
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    names = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
    sources = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    assert spec["egress"] == [
        {
            "to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
            "ports": [{"port": 6443, "protocol": "TCP"}],
        },
        {
            "to": [{"namespaceSelector": names}],
            "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}],
        },
        {
            "to": [{"namespaceSelector": sources}],
            "ports": [{"port": 5000, "protocol": "TCP"}],
        },
    ]


def test_a_way_out_that_would_stop_the_operator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RenderingFailed, match="give the addresses of the API server"):
        policy(tmp_path, networkPolicy={"enabled": True, "egress": {"enabled": True}})
    known = {"enabled": True, "apiServer": {"cidrs": ["10.0.0.1/32"]}}
    closed = {"networkPolicy": {"enabled": True, "egress": known}}
    idle = {"enabled": True, "metricsEndpoint": "http://exporter:5000/metrics"}
    with pytest.raises(RenderingFailed, match="nothing is ever seen to be idle"):
        policy(tmp_path, **closed, gpuPreemption=idle)
    hosts = {"hosts": ["hooks.example.com"]}
    with pytest.raises(RenderingFailed, match="or no message gets there"):
        policy(tmp_path, **closed, notifications=hosts)
    assert len(policy(tmp_path, **closed)["egress"]) == 2
    rendered = render(tmp_path, {**closed, "notice": {"enabled": True}})
    (peers,) = rendered.one("NetworkPolicy")["spec"]["egress"][2:]
    assert peers["ports"] == [{"port": "notice", "protocol": "TCP"}]
    labels = rendered.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    (leader,) = peers["to"]
    assert leader["podSelector"]["matchLabels"].items() <= labels.items()


def test_messages_to_webhooks_have_their_way_out_and_their_key(tmp_path: Path) -> None:
    hosts = {"hosts": ["hooks.example.com"], "keySecret": {"name": "webhooks", "key": "signing"}}
    egress = {
        "enabled": True,
        "apiServer": {"cidrs": ["10.0.0.1/32"]},
        "notifications": {"cidrs": ["192.0.2.0/24"]},
    }
    values = {"notifications": hosts, "networkPolicy": {"enabled": True, "egress": egress}}
    rendered = render(tmp_path, values)
    assert rendered.one("NetworkPolicy")["spec"]["egress"][2:] == [
        {
            "to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
            "ports": [{"port": 443, "protocol": "TCP"}],
        }
    ]
    arguments = " ".join(rendered.container["args"])
    assert "--notify hooks.example.com" in arguments
    assert "--notify-key /etc/reprieve-notifications/signing" in arguments
    mounts = {each["name"]: each["mountPath"] for each in rendered.container["volumeMounts"]}
    assert mounts["notifications"] == "/etc/reprieve-notifications"
    volumes = rendered.one("Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "notifications", "secret": {"secretName": "webhooks"}} in volumes
    assert "notifications" not in str(render(tmp_path).one("Deployment"))


def test_pods_reach_the_port_of_notices_through_a_service_where_that_is_wanted(
    tmp_path: Path,
) -> None:
    closed = {"networkPolicy": {"enabled": True}}
    without = render(tmp_path, closed)
    rendered = render(tmp_path, {**closed, "notice": {"enabled": True}})
    assert "--notice-port" not in without.container["args"]
    assert len(without.all("Service")) + 1 == len(rendered.all("Service"))
    (service,) = (
        each for each in rendered.all("Service") if each["metadata"]["name"].endswith("-notice")
    )
    args, ports = rendered.container["args"], rendered.container["ports"]
    (port,) = (each["containerPort"] for each in ports if each["name"] == "notice")
    assert args[args.index("--notice-port") + 1] == str(port)
    assert service["spec"]["ports"][0]["targetPort"] == "notice"
    assert rendered.one("NetworkPolicy")["spec"]["ingress"] == [
        {
            "from": [{"namespaceSelector": {}}],
            "ports": [{"port": "notice", "protocol": "TCP"}],
        }
    ]


def test_notices_over_tls_have_a_certificate_of_the_operator_or_one_that_is_mounted(
    tmp_path: Path,
) -> None:
    rendered = render(tmp_path, {"notice": {"enabled": True, "tls": {"enabled": True}}})
    (service,) = (
        each for each in rendered.all("Service") if each["metadata"]["name"].endswith("-notice")
    )
    name, args = service["metadata"]["name"], rendered.container["args"]
    assert (service["spec"]["ports"][0]["port"], service["spec"]["ports"][0]["name"]) == (
        443,
        "notice",
    )
    assert args[args.index("--notice-tls") + 1] == name
    assert {f"{name}-tls"} < {each["metadata"]["name"] for each in rendered.all("Secret")}
    assert f"{name}-ca" in {each["metadata"]["name"] for each in rendered.all("ConfigMap")}
    roles = {each["metadata"]["name"]: each["rules"] for each in rendered.all("Role")}
    assert roles[f"{name}-ca"] == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [f"{name}-ca"],
            "verbs": ["get"],
        }
    ], "every user may read the authority, and nothing else"

    mounted = {"enabled": True, "tls": {"enabled": True, "secretName": "from-cert-manager"}}
    rendered = render(tmp_path, {"notice": mounted})
    args = rendered.container["args"]
    folder = args[args.index("--notice-certificate") + 1]
    assert "--notice-tls" not in args
    mounts = {each["name"]: each["mountPath"] for each in rendered.container["volumeMounts"]}
    assert mounts["notice"] == folder
    volumes = rendered.one("Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "notice", "secret": {"secretName": "from-cert-manager"}} in volumes
    assert not [each for each in rendered.all("Role") if "notice" in each["metadata"]["name"]]
