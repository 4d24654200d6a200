"""The web page in the chart: off unless asked for, with rights to read, apart from the operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprieve.api.disruption import KEY_SECRET
from reprieve.cli.web import web
from reprieve.web.mirror import watches
from reprieve.web.mirror.leading import LEASE_NAME
from reprieve.web.mirror.mirror import Mirror
from tests.chart.helm import Rendered, RenderingFailed, render
from tests.chart.test_roles import Rights, rights
from tests.integration.roles import harm_ledger

_REVIEWS = {
    ("authentication.k8s.io", "tokenreviews"): {"create"},
    ("authorization.k8s.io", "subjectaccessreviews"): {"create"},
}
_LABELS = {"app.kubernetes.io/component": "web"}


def _rendered(tmp_path: Path, web: dict[str, Any] | None = None, **values: Any) -> Rendered:
    return render(tmp_path, {**values, "web": {"enabled": True, **(web or {})}})


def _of_page(rendered: Rendered, kind: str) -> dict[str, Any]:
    (found,) = (
        each for each in rendered.all(kind) if _LABELS.items() <= each["metadata"]["labels"].items()
    )
    return found


def _granted(rendered: Rendered, kind: str, name: str | None = None) -> Rights:
    return rights(_of_page(rendered, kind)["rules"], name)


def test_without_being_asked_for_there_is_no_page(tmp_path: Path) -> None:
    names = [each["metadata"]["name"] for each in render(tmp_path).objects]

    assert not [name for name in names if name.endswith("-web")]


def test_its_rights_are_to_read_what_it_shows_and_to_ask_two_questions(tmp_path: Path) -> None:
    rendered = _rendered(tmp_path)
    shown: dict[str | None, Rights] = {}
    for kind in watches._kinds(Mirror()):
        # A list by name is granted by name.
        field, _, name = kind.field_selector.partition("=")
        rule = shown.setdefault(name if field == "metadata.name" else None, {})
        rule[kind.resource.group, kind.resource.plural] = {"list", "watch"}

    budgets = {("reprieve.dev", "harmbudgets"): {"list"}}
    assert _granted(rendered, "ClusterRole") == {**shown.pop(None), **budgets, **_REVIEWS}
    assert list(shown) == [LEASE_NAME]
    assert _granted(rendered, "ClusterRole", LEASE_NAME) == shown[LEASE_NAME]
    assert _granted(rendered, "Role") == {
        ("reprieve.dev", "preemptions"): {"get", "list"},
        ("reprieve.dev", "preemptionparts"): {"get", "list"},
    }
    assert _granted(rendered, "Role", KEY_SECRET) == {("", "secrets"): {"get"}}
    (ledger,) = [rule for rule in _of_page(rendered, "Role")["rules"] if _reads(rule, "configmaps")]
    assert (ledger["verbs"], ledger["resourceNames"]) == (["get"], harm_ledger())


def _reads(rule: dict[str, Any], plural: str) -> bool:
    return plural in rule["resources"]


def test_none_of_its_rights_changes_anything(tmp_path: Path) -> None:
    rendered = _rendered(tmp_path, controllers=["idle", "scheduling", "quota"])
    for kind in ("ClusterRole", "Role"):
        for rule in _of_page(rendered, kind)["rules"]:
            asked = {(group, each) for group in rule["apiGroups"] for each in rule["resources"]}
            allowed = {"create"} if asked <= set(_REVIEWS) else {"get", "list", "watch"}
            assert set(rule["verbs"]) <= allowed, rule


def test_its_account_has_these_rights_and_no_others(tmp_path: Path) -> None:
    rendered = _rendered(tmp_path)
    account = _of_page(rendered, "ServiceAccount")["metadata"]
    subject = {
        "kind": "ServiceAccount",
        "name": account["name"],
        "namespace": account["namespace"],
    }
    bindings = [*rendered.all("ClusterRoleBinding"), *rendered.all("RoleBinding")]
    bound = [each["roleRef"]["name"] for each in bindings if subject in each["subjects"]]
    pod = _of_page(rendered, "Deployment")["spec"]["template"]["spec"]

    assert bound == [
        _of_page(rendered, kind)["metadata"]["name"] for kind in ("ClusterRole", "Role")
    ]
    assert pod["serviceAccountName"] == account["name"]
    operator = next(each for each in rendered.all("ServiceAccount") if each["metadata"] != account)
    assert operator["metadata"]["name"] != account["name"]


def test_no_selector_of_one_takes_the_pods_of_the_other(tmp_path: Path) -> None:
    rendered = _rendered(tmp_path, networkPolicy={"enabled": True})
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in rendered.all("Deployment")
    }
    assert len(pods) == 2
    for kind in ("Service", "NetworkPolicy", "Deployment"):
        found = rendered.all(kind)
        assert len(found) == 2
        for each in found:
            spec = each["spec"]
            selector = spec.get("podSelector", spec.get("selector"))
            wanted = selector.get("matchLabels", selector)
            taken = [name for name, labels in pods.items() if wanted.items() <= labels.items()]
            assert taken == [each["metadata"]["name"]], kind


def test_its_arguments_are_ones_that_the_command_takes(tmp_path: Path) -> None:
    given = {
        "clusterName": "gpus",
        "audiences": ["reprieve-web", "https://issuer.example"],
        "hosts": ["page.example"],
        "trustedProxies": ["10.0.0.0/8"],
        "tls": {"secretName": "page-tls"},
    }
    pod = _of_page(_rendered(tmp_path, given), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command, *arguments = container["args"]
    taken = web.make_context("web", list(arguments)).params

    assert command == "web"
    assert taken["cluster_name"] == "gpus"
    assert taken["audiences"] == ("reprieve-web", "https://issuer.example")
    assert taken["names"] == ("page.example",)
    assert taken["proxies"] == ("10.0.0.0/8",)
    assert taken["tls_cert"] == Path("/etc/reprieve-web/tls.crt")
    assert taken["operator_namespace"] == "ops"
    assert not taken["open_to_all"]
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_viewers_come_from_where_it_is_said_alone(tmp_path: Path) -> None:
    closed = {"enabled": True, "web": {"namespaces": ["ingress"]}}
    spec = _of_page(_rendered(tmp_path, networkPolicy=closed), "NetworkPolicy")["spec"]
    named = {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}
    assert spec["ingress"] == [
        {
            "from": [{"namespaceSelector": named}],
            "ports": [{"port": "http", "protocol": "TCP"}],
        }
    ]
    nobody = _of_page(_rendered(tmp_path, networkPolicy={"enabled": True}), "NetworkPolicy")
    assert not nobody["spec"]["ingress"]


def test_an_ingress_has_a_host_and_its_certificate(tmp_path: Path) -> None:
    ingress = {"enabled": True, "host": "page.example", "tlsSecretName": "page"}
    spec = _of_page(_rendered(tmp_path, {"ingress": ingress}), "Ingress")["spec"]
    assert spec["tls"] == [{"hosts": ["page.example"], "secretName": "page"}]
    assert [rule["host"] for rule in spec["rules"]] == ["page.example"]
    for missing in ("host", "tlsSecretName"):
        with pytest.raises(RenderingFailed, match="give both"):
            _rendered(tmp_path, {"ingress": {**ingress, missing: ""}})
