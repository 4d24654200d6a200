"""The chart with the quota plane: its kinds, its settings, its webhooks and their certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from reprieve.api.crds import KUEUE_NAMES, NAMES, load, text
from reprieve.engine.quota.model import Strategy
from reprieve.planes.quota.webhooks.server import webhook_options
from reprieve.settings.quota import QuotaSettings, quota_settings, read_quota
from reprieve.settings.start_up import read_config
from tests.chart.helm import CHART, RenderingFailed, render

BOTH = (Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, Strategy.LESS_THAN_INITIAL_SHARE)
FAIR_OLD = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta1",
    "kind": "Configuration",
    "fairSharing": {"enable": True},
}
FAIR_NEW = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]},
}
OFF_OLD = {**FAIR_OLD, "fairSharing": {"enable": False}}


def quota(**values: Any) -> dict[str, Any]:
    return {"controllers": ["quota"], "quota": values}


def settings_of(tmp_path: Path, **values: Any) -> QuotaSettings:
    (content,) = render(tmp_path, quota(**values)).one("ConfigMap")["data"].values()
    read_config(content, "chart")
    return quota_settings(read_quota(content, "chart"), "chart", "ns")


def test_the_chart_carries_the_packages_kinds_of_kueue() -> None:
    copies = {path.stem: path.read_text() for path in (CHART / "files" / "crds-kueue").iterdir()}
    assert copies == {name: text(name) for name in KUEUE_NAMES}, (
        "run: cp src/reprieve/api/crds/*.kueue.x-k8s.io.yaml charts/reprieve/files/crds-kueue/"
    )


def test_kinds_of_kueue_come_with_the_quota_plane_alone(tmp_path: Path) -> None:
    without = render(tmp_path).all("CustomResourceDefinition")
    assert {each["metadata"]["name"] for each in without} == set(NAMES)
    rendered = render(tmp_path, quota()).all("CustomResourceDefinition")
    found = {each["metadata"]["name"]: each for each in rendered}
    assert set(found) == {*NAMES, *KUEUE_NAMES}
    service = render(tmp_path, quota()).all("Service")
    (webhook,) = (each for each in service if each["metadata"]["name"].endswith("-webhook"))
    for name in KUEUE_NAMES:
        expected = load(name)["spec"]
        if "conversion" in expected:
            expected["conversion"]["webhook"]["clientConfig"]["service"] |= {
                "name": webhook["metadata"]["name"],
                "namespace": webhook["metadata"]["namespace"],
            }
        assert found[name]["spec"] == expected
        assert found[name]["metadata"]["labels"]["app.kubernetes.io/part-of"] == "reprieve"


def test_the_values_become_the_operators_settings(tmp_path: Path) -> None:
    plain = settings_of(tmp_path)
    assert plain.serves_webhooks
    assert plain.configuration.settings.fair_sharing is None
    assert settings_of(tmp_path, preemptionPolicy="FairSharing").configuration.settings == (
        quota_settings({"preemptionPolicy": "FairSharing"}).configuration.settings
    )
    said = settings_of(
        tmp_path,
        proveNodes=True,
        idleFirst=True,
        harmOrder=True,
        loopLimit=0,
        webhooks={"jobFailurePolicy": "Fail", "namespaceSelector": {"matchLabels": {"a": "b"}}},
    )
    assert (said.prove_nodes, said.configuration.settings.idle_first) == (True, True)
    assert said.configuration.settings.harm_order
    assert not said.configuration.settings.best
    best = settings_of(tmp_path, profile="best").configuration.settings
    assert (best.best, best.idle_first, best.harm_order) == (True, True, True)
    assert (said.loop_limit, said.job_failure_policy) == (0, "Fail")
    assert said.webhook_selector == {"matchLabels": {"a": "b"}}


@pytest.mark.parametrize(
    ("document", "policy", "strategies"),
    [
        (FAIR_OLD, "FairSharing", BOTH),
        (FAIR_NEW, "FairSharing", BOTH[1:]),
        (OFF_OLD, "Classical", None),
        (FAIR_NEW, "", BOTH[1:]),
    ],
)
def test_a_whole_configuration_is_carried(
    tmp_path: Path, document: dict[str, Any], policy: str, strategies: Any
) -> None:
    found = settings_of(tmp_path, preemptionPolicy=policy, configuration=document)
    assert found.configuration.settings.fair_sharing == strategies


@pytest.mark.parametrize(
    ("document", "policy", "said"),
    [
        (FAIR_OLD, "Classical", "FairSharing"),
        (FAIR_NEW, "Classical", "FairSharing"),
        (OFF_OLD, "FairSharing", "Classical"),
    ],
)
def test_a_policy_and_a_configuration_that_differ_are_not_rendered(
    tmp_path: Path, document: dict[str, Any], policy: str, said: str
) -> None:
    why = f"quota.preemptionPolicy is {policy}, but quota.configuration says {said}"
    with pytest.raises(RenderingFailed, match=why):
        render(tmp_path, quota(preemptionPolicy=policy, configuration=document))


def test_webhooks_are_found_by_the_service_that_the_operator_is_told(tmp_path: Path) -> None:
    rendered = render(tmp_path, quota())
    options = webhook_options(settings_of(tmp_path), "ns")
    (service,) = (
        each
        for each in rendered.all("Service")
        if each["metadata"]["name"] == options.place.service
    )
    (port,) = service["spec"]["ports"]
    ports = {each["containerPort"] for each in rendered.container["ports"]}
    assert (port["port"], port["targetPort"]) == (options.place.port, options.port)
    assert options.port in ports
    (role,) = (
        each for each in rendered.all("Role") if each["metadata"]["name"] == options.place.service
    )
    names = [name for rule in role["rules"] for name in rule.get("resourceNames", [])]
    assert names == [options.secret]


def test_cert_manager_keeps_the_certificate_where_it_is_chosen(tmp_path: Path) -> None:
    values = quota(webhooks={"certManager": {"enabled": True}})
    rendered = render(tmp_path, values)
    (content,) = rendered.one("ConfigMap")["data"].values()
    options = webhook_options(quota_settings(yaml.safe_load(content)["quota"]), "ns")
    certificate = rendered.one("Certificate")
    namespace, name = (certificate["metadata"][key] for key in ("namespace", "name"))
    injected = {"cert-manager.io/inject-ca-from": f"{namespace}/{name}"}
    assert options.place.annotations == injected
    mounts = {each["name"]: each["mountPath"] for each in rendered.container["volumeMounts"]}
    assert str(options.folder) == mounts["webhook"]
    assert certificate["spec"]["dnsNames"][0] == f"{options.place.service}.{namespace}.svc"
    assert certificate["spec"]["issuerRef"]["name"] == rendered.one("Issuer")["metadata"]["name"]
    crds = rendered.all("CustomResourceDefinition")
    marked = {
        each["metadata"]["name"]
        for each in crds
        if injected.items() <= each["metadata"]["annotations"].items()
    }
    assert marked == {name for name in KUEUE_NAMES if "conversion" in load(name)["spec"]}


def test_a_config_map_is_named_and_may_be_read(tmp_path: Path) -> None:
    named = settings_of(tmp_path, configurationMap="kueue-manager-config")
    assert named.configuration_map == "kueue-manager-config"
    rendered = render(tmp_path, quota(configurationMap="kueue-manager-config"))
    granted = [
        (rule.get("resourceNames"), rule["verbs"])
        for role in rendered.all("Role")
        for rule in role["rules"]
        if rule["resources"] == ["configmaps"] and "watch" in rule["verbs"]
    ]
    assert granted == [(["kueue-manager-config"], ["get", "list", "watch"])]
    with pytest.raises(RenderingFailed, match="give one of them"):
        render(tmp_path, quota(configurationMap="a", configuration=FAIR_NEW))


def test_certificates_of_nobody_are_not_rendered(tmp_path: Path) -> None:
    off = {**OFF_OLD, "internalCertManagement": {"enable": False}}
    with pytest.raises(RenderingFailed, match=r"say with quota\.webhooks\.certManager\.enabled"):
        render(tmp_path, quota(configuration=off))
    values = quota(configuration=off, webhooks={"certManager": {"enabled": True}})
    assert render(tmp_path, values).all("Certificate")


def test_the_secret_of_the_certificates_is_the_one_that_the_operator_may_write(
    tmp_path: Path,
) -> None:
    named = {**OFF_OLD, "internalCertManagement": {"webhookSecretName": "certs"}}
    options = webhook_options(settings_of(tmp_path, configuration=named), "ns")
    rendered = render(tmp_path, quota(configuration=named))
    (role,) = (
        each for each in rendered.all("Role") if each["metadata"]["name"] == options.place.service
    )
    names = [name for rule in role["rules"] for name in rule.get("resourceNames", [])]
    assert names == [options.secret] == ["certs"]


def test_an_unknown_value_of_the_quota_plane_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RenderingFailed, match="preemptionPolicy"):
        render(tmp_path, quota(preemptionPolicy="Fair"))
