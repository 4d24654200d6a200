"""The webhooks end to end: certificates, registration, and a real API's questions over TLS."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from cryptography import x509

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.crds import kueue_crds
from reprieve.api.kueue import RESOURCE_IN_USE
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, Invalid
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, SECRETS, Resource
from reprieve.planes.quota.webhooks.certificates import (
    AUTHORITY_LIFE,
    SERVING_LIFE,
    Certificates,
    certificates_in,
    kept_certificates,
    new_certificates,
    renewed,
)
from reprieve.planes.quota.webhooks.registration import (
    MUTATING,
    VALIDATING,
    Place,
    configurations,
    register_webhooks,
)
from reprieve.planes.quota.webhooks.reviews import (
    Asked,
    Hook,
    MalformedReview,
    Verdict,
    admission_review,
    conversion_review,
    json_patch,
    kueue_hooks,
)
from reprieve.planes.quota.webhooks.server import webhook_options
from reprieve.settings.quota import quota_settings
from reprieve.units.errors import UsageError
from tests.kueue.objects import Json, cluster_queue, group, kueue_object, local_queue, workload
from tests.kueue.webhooks import OPTIONS, Site, site, webhooks

NOW = Nanos(1_772_618_400_000_000_000)
DAY = 24 * HOUR
HOSTS = ("reprieve-webhook.reprieve.svc", "127.0.0.1")


def resource(kind: str, version: str = "v1beta2", namespaced: bool = False) -> Resource:
    plurals = {"ClusterQueue": "clusterqueues", "Workload": "workloads"}
    plurals |= {"ResourceFlavor": "resourceflavors", "LocalQueue": "localqueues"}
    plurals |= {"Cohort": "cohorts"}
    return Resource("kueue.x-k8s.io", version, plurals[kind], kind, namespaced)


CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
QUEUES, OLD_QUEUES = resource("ClusterQueue"), resource("ClusterQueue", "v1beta1")
WORK, OLD_WORK = (
    resource("Workload", version, namespaced=True) for version in ("v1beta2", "v1beta1")
)
DOORS, OLD_DOORS = (
    resource("LocalQueue", version, namespaced=True) for version in ("v1beta2", "v1beta1")
)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Site]:
    async with site(tmp_path) as found:
        yield found


@pytest.fixture
async def client(here: Site) -> AsyncIterator[Client]:
    async with webhooks(here.client):
        yield here.client


def old(obj: Json) -> Json:
    return {**obj, "apiVersion": "kueue.x-k8s.io/v1beta1"}


async def test_a_queue_in_use_is_held_by_its_finalizer(client: Client) -> None:
    made: Json = await client.create(QUEUES, cluster_queue(), dict)
    flavor = kueue_object("ResourceFlavor", "default-flavor", {})
    kind: Json = await client.create(resource("ResourceFlavor"), flavor, dict)
    assert made["metadata"]["finalizers"] == kind["metadata"]["finalizers"] == [RESOURCE_IN_USE]


async def test_what_breaks_a_rule_is_denied_in_the_references_words(client: Client) -> None:
    bad = cluster_queue("a", group({"cpu": "1"}, lendingLimit="2"), cohortName="all")
    with pytest.raises(ApiError) as raised:
        await client.create(QUEUES, bad, dict)
    assert raised.value.code == 403
    assert raised.value.message == (
        'admission webhook "vclusterqueue.kb.io" denied the request: '
        "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: "
        'Invalid value: "2": must be less than or equal to the nominalQuota'
    )


async def test_a_v1beta1_write_is_judged_as_v1beta2(client: Client) -> None:
    bad = old(cluster_queue("a", group({"cpu": "1"}, lendingLimit="2"), cohort="all"))
    with pytest.raises(ApiError, match="must be less than or equal to the nominalQuota"):
        await client.create(OLD_QUEUES, bad, dict)


async def test_both_versions_read_what_the_other_wrote(client: Client) -> None:
    given = old(cluster_queue("a", cohort="all", admissionChecks=["budget"]))
    await client.create(OLD_QUEUES, given, dict)
    newer: Json = await client.get(QUEUES, "", "a", dict)
    assert newer["spec"]["cohortName"] == "all"
    assert newer["spec"]["admissionChecksStrategy"] == {"admissionChecks": [{"name": "budget"}]}
    assert newer["metadata"]["finalizers"] == [RESOURCE_IN_USE]
    older: Json = await client.get(OLD_QUEUES, "", "a", dict)
    assert older["spec"]["cohort"] == "all" and "cohortName" not in older["spec"]

    await client.create(DOORS, local_queue(), dict)
    usage = [{"name": "f", "resources": [{"name": "cpu", "total": "1"}]}]
    await client.patch_status(DOORS, "default", "door", {"flavorsUsage": usage}, dict)
    door: Json = await client.get(OLD_DOORS, "default", "door", dict)
    assert door["status"] == {"flavorUsage": usage}


async def test_a_list_that_is_longer_than_a_review_is_converted_all_the_same(
    client: Client,
) -> None:
    long = {"example.com/long": "x" * 250_000}
    for number in range(14):
        one = workload(f"w-{number:02}")
        await client.create(
            WORK, {**one, "metadata": {**one["metadata"], "annotations": long}}, dict
        )
    listed = await client.list(OLD_WORK, dict, namespace="default")
    assert [each["metadata"]["name"] for each in listed.items] == [f"w-{i:02}" for i in range(14)]
    assert {each["apiVersion"] for each in listed.items} == {"kueue.x-k8s.io/v1beta1"}


async def test_a_client_of_v1beta1_that_writes_all_back_loses_nothing(client: Client) -> None:
    gates = [{"name": "wait"}]
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    spec: Json = {"preemptionGates": gates, "priorityClassRef": reference, "priority": 3}
    await client.create(WORK, workload("w", **spec), dict)
    older: Json = await client.get(OLD_WORK, "default", "w", dict)
    assert older["spec"]["priorityClassSource"] == "kueue.x-k8s.io/workloadpriorityclass"
    older["spec"]["active"] = False
    await client.replace(OLD_WORK, older, dict)
    newer: Json = await client.get(WORK, "default", "w", dict)
    assert {name: newer["spec"][name] for name in spec} == spec
    assert newer["spec"]["active"] is False
    assert "annotations" not in newer["metadata"]


async def test_old_rules_of_v1beta1_hold_there(client: Client) -> None:
    with pytest.raises(Invalid, match="priority should not be nil when priorityClassName is set"):
        await client.create(OLD_WORK, old(workload("w", priorityClassName="x")), dict)


async def test_a_status_is_judged_too(client: Client) -> None:
    await client.create(WORK, workload(), dict)
    pods = [{"name": "main", "count": 2}]
    with pytest.raises(ApiError, match="should be less or equal to 1"):
        await client.patch_status(WORK, "default", "work", {"reclaimablePods": pods}, dict)


async def test_a_cluster_without_the_operator_keeps_its_objects(here: Site) -> None:
    """The webhooks are gone: writes wait for them, and nothing is read in halves."""
    async with webhooks(here.client):
        await here.client.create(OLD_QUEUES, old(cluster_queue("a", cohort="all")), dict)
    with pytest.raises(ApiError, match='failed calling webhook "'):
        await here.client.create(QUEUES, cluster_queue("b"), dict)
    with pytest.raises(ApiError, match="conversion webhook for"):
        await here.client.get(OLD_QUEUES, "", "a", dict)
    assert (await here.client.get(QUEUES, "", "a", dict))["spec"]["cohortName"] == "all"


async def test_a_next_installation_converts_again_what_a_removal_left_without(here: Site) -> None:
    """A release of another name does not update definitions: the operator does."""
    for crd in kueue_crds():
        name = crd["metadata"]["name"]
        none = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
        await here.client.patch(CUSTOM_RESOURCE_DEFINITIONS, "", name, none, dict)
    async with webhooks(here.client):
        await here.client.create(OLD_QUEUES, old(cluster_queue("a", cohort="all")), dict)
        newer: Json = await here.client.get(QUEUES, "", "a", dict)
        assert newer["spec"]["cohortName"] == "all"
    for crd in kueue_crds():
        found: Json = await here.client.get(
            CUSTOM_RESOURCE_DEFINITIONS, "", crd["metadata"]["name"], dict
        )
        given = (crd["spec"].get("conversion") or {}).get("strategy", "None")
        assert found["spec"].get("conversion", {}).get("strategy", "None") == given


async def test_definitions_of_another_are_not_touched(here: Site) -> None:
    name = "cohorts.kueue.x-k8s.io"
    await here.client.patch(
        CUSTOM_RESOURCE_DEFINITIONS, "", name, {"metadata": {"labels": None}}, dict
    )
    place = Place(url="https://127.0.0.1:9", bundle=new_certificates(HOSTS, NOW).bundle)
    foreign = await register_webhooks(here.client, "a", kueue_hooks(), place)
    crd: Json = await here.client.get(CUSTOM_RESOURCE_DEFINITIONS, "", name, dict)
    assert foreign == (name,)
    assert "service" in crd["spec"]["conversion"]["webhook"]["clientConfig"]


async def test_registering_again_writes_nothing(here: Site) -> None:
    place = Place(url="https://127.0.0.1:9", bundle=new_certificates(HOSTS, NOW).bundle)

    async def versions() -> list[str]:
        found = []
        for kind in (MUTATING, VALIDATING, CUSTOM_RESOURCE_DEFINITIONS):
            listed = (await here.client.list(kind, dict)).items
            found += [each["metadata"]["resourceVersion"] for each in listed]
        return found

    await register_webhooks(here.client, "a", kueue_hooks(), place)
    before = await versions()
    await register_webhooks(here.client, "a", kueue_hooks(), place)
    assert await versions() == before


async def test_a_renewed_authority_is_trusted_before_it_is_served(here: Site) -> None:
    clock = VirtualClock()
    # Behind, since those who check what is made later do not share this clock.
    clock.set_wall(Nanos(here.cluster.clock.wall() - DAY))

    async def trusted() -> str:
        found: Json = await here.client.get(VALIDATING, "", OPTIONS.name, dict)
        return str(found["webhooks"][0]["clientConfig"]["caBundle"])

    async with webhooks(here.client, clock=clock):
        before = await trusted()
        lost = {"data": {"ca.key": ""}}
        await here.client.patch(SECRETS, "default", OPTIONS.secret, lost, dict)
        await clock.advance(HOUR + SECOND)
        # All the while, whichever certificate is served.
        made = 0
        while await trusted() == before or made < 20:
            await here.client.create(QUEUES, cluster_queue(f"q-{made}"), dict)
            made += 1
        after = base64.b64decode(await trusted())
        assert after.endswith(base64.b64decode(before))
        secret: Json = await here.client.get(SECRETS, "default", OPTIONS.secret, dict)
        assert base64.b64decode(secret["data"]["ca.crt"]) == after


async def test_processes_of_one_deployment_share_their_certificates(here: Site) -> None:
    first, second = await asyncio.gather(
        *(kept_certificates(here.client, "default", "certs", HOSTS, NOW) for _ in range(2))
    )
    assert first == second
    again = await kept_certificates(here.client, "default", "certs", HOSTS, NOW)
    assert again == first
    other = await kept_certificates(here.client, "default", "certs", ("b.example.com",), NOW)
    assert (other.trusted, other.certificate != first.certificate) == (first.trusted, True)


def serving_names(certificates: Certificates) -> set[str]:
    found = x509.load_pem_x509_certificate(certificates.certificate)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = names.get_values_for_type(x509.IPAddress)
    return {*names.get_values_for_type(x509.DNSName), *map(str, addresses)}


def test_certificates_are_renewed_when_a_third_of_their_life_is_left() -> None:
    made = new_certificates(HOSTS, NOW)
    assert serving_names(made) == set(HOSTS)
    serving = int(SERVING_LIFE.total_seconds()) * SECOND
    assert renewed(made, HOSTS, Nanos(NOW + serving * 6 // 10)) == made
    later = renewed(made, HOSTS, Nanos(NOW + serving * 7 // 10))
    assert later.trusted == made.trusted and later.certificate != made.certificate

    authority = int(AUTHORITY_LIFE.total_seconds()) * SECOND
    much_later = Nanos(NOW + authority * 7 // 10)
    turned = renewed(made, HOSTS, much_later)
    assert turned.trusted.endswith(made.trusted) and turned.trusted != made.trusted
    assert renewed(turned, HOSTS, much_later) == turned
    gone = Nanos(NOW + authority + DAY)
    assert made.trusted not in renewed(turned, HOSTS, gone).trusted


@pytest.mark.parametrize("field", ["certificate", "key", "trusted", "authority_key"])
def test_what_cannot_be_read_is_made_anew(field: str) -> None:
    broken = replace(new_certificates(HOSTS, NOW), **{field: b"nonsense"})
    found = renewed(broken, HOSTS, NOW)
    assert found != broken
    assert renewed(found, HOSTS, NOW) == found


async def test_files_of_another_are_served_and_its_authority_is_left_to_it(
    here: Site, tmp_path: Path
) -> None:
    made = new_certificates(("127.0.0.1",), Nanos(here.cluster.clock.wall()))
    for name, content in (("tls.crt", made.certificate), ("tls.key", made.key)):
        (tmp_path / name).write_bytes(content)
    assert certificates_in(tmp_path).bundle == ""
    annotations = {"cert-manager.io/inject-ca-from": "reprieve/reprieve-webhook"}
    place = replace(OPTIONS.place, annotations=annotations)
    async with webhooks(here.client, replace(OPTIONS, place=place, folder=tmp_path)):
        found: Json = await here.client.get(MUTATING, "", OPTIONS.name, dict)
        assert found["metadata"]["annotations"] == annotations
        assert "caBundle" not in found["webhooks"][0]["clientConfig"]
        # As its injector does.
        bundle = base64.b64encode(made.trusted).decode()
        for kind in (MUTATING, VALIDATING):
            obj: Json = await here.client.get(kind, "", OPTIONS.name, dict)
            for hook in obj["webhooks"]:
                hook["clientConfig"]["caBundle"] = bundle
            await here.client.replace(kind, obj, dict)
        await here.client.create(QUEUES, cluster_queue("a"), dict)


def test_a_folder_without_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"accepted: a folder with tls\.crt and tls\.key"):
        certificates_in(tmp_path / "none")


def test_settings_say_where_webhooks_are_found_and_whose_certificate_they_have() -> None:
    plain = webhook_options(quota_settings(), "ns")
    assert (plain.folder, plain.port, plain.place.service) == (None, 9443, "reprieve-webhook")
    assert plain.hosts[0] == "reprieve-webhook.ns.svc"
    hooks = {"service": "door", "port": 8443, "certificateFolder": "/certs"}
    said = webhook_options(quota_settings({"webhooks": {**hooks, "annotations": {"a": "b"}}}), "ns")
    assert (said.folder, said.port, said.place) == (
        Path("/certs"),
        8443,
        Place("ns", "door", annotations={"a": "b"}),
    )
    clients = {"clientAuthority": "/ca.crt", "clientNames": ["kube-apiserver"]}
    asked = webhook_options(quota_settings({"webhooks": clients}), "ns")
    assert (asked.client_authority, asked.client_names) == (Path("/ca.crt"), ("kube-apiserver",))
    with pytest.raises(UsageError, match=r"clientNames.*accepted: names, beside a clientAuthority"):
        quota_settings({"webhooks": {"clientNames": ["a"]}})
    theirs = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
    }
    assert webhook_options(quota_settings({"configuration": theirs}), "ns").folder == Path(
        "/tmp/k8s-webhook-server/serving-certs"
    )


def test_webhooks_are_served_where_it_is_said_how_they_are_found() -> None:
    assert not quota_settings().serves_webhooks
    assert quota_settings({"webhooks": {"service": "door"}}).serves_webhooks
    outside = quota_settings({"webhooks": {"url": "https://10.0.0.1:8443"}})
    options = webhook_options(outside, "ns")
    assert (outside.serves_webhooks, options.port, options.hosts[0]) == (True, 8443, "10.0.0.1")
    for bad in ("http://10.0.0.1:1", "https://10.0.0.1", "https://h:1/path", 3):
        with pytest.raises(UsageError, match=r"quota\.webhooks\.url.*accepted: https://HOST:PORT"):
            quota_settings({"webhooks": {"url": bad}})


def test_hooks_are_registered_under_the_references_names() -> None:
    place = Place("reprieve", bundle="eA==")
    mutating, validating = configurations("reprieve-quota", kueue_hooks(), place)
    assert [each["name"] for each in mutating["webhooks"]] == [
        "mclusterqueue.kb.io",
        "mresourceflavor.kb.io",
    ]
    assert [
        (each["name"], each["rules"][0]["resources"], each["clientConfig"]["service"]["path"])
        for each in validating["webhooks"]
    ] == [
        (f"v{kind}.kb.io", resources, f"/validate-kueue-x-k8s-io-v1beta2-{kind}")
        for kind, resources in (
            ("clusterqueue", ["clusterqueues"]),
            ("cohort", ["cohorts"]),
            ("resourceflavor", ["resourceflavors"]),
            ("workload", ["workloads", "workloads/status"]),
        )
    ]
    assert {each["failurePolicy"] for each in validating["webhooks"]} == {"Fail"}
    assert [each["rules"][0]["operations"] for each in mutating["webhooks"]] == [["CREATE"]] * 2


def test_min_counts_go_where_partial_admission_is_off() -> None:
    (hook,) = (each for each in kueue_hooks(partial_admission=False) if "mworkload" in each.name)
    obj = workload()
    obj["spec"]["podSets"][0]["minCount"] = 1
    changed = hook.judge(Asked("CREATE", "default", obj)).changed
    assert changed == workload()


def review(kind: str, **request: Any) -> bytes:
    return orjson.dumps({"apiVersion": "x/v1", "kind": kind, "request": {"uid": "u", **request}})


def test_an_object_that_a_judge_stumbles_over_is_let_through_with_a_warning() -> None:
    def stumble(asked: Asked) -> Verdict:
        raise KeyError("spec")

    answer = admission_review(
        review("AdmissionReview", object={"metadata": {"name": "a"}}, operation="CREATE"), stumble
    )
    assert answer["response"] == {
        "uid": "u",
        "allowed": True,
        "warnings": ["reprieve could not check this object: KeyError('spec')"],
    }


def test_an_object_that_goes_is_left_alone() -> None:
    metadata = {"name": "a", "deletionTimestamp": "2026-03-04T10:00:00Z"}
    answer = admission_review(
        review("AdmissionReview", object={"metadata": metadata}, operation="UPDATE"),
        lambda asked: Verdict(("no",)),
    )
    assert answer["response"] == {"uid": "u", "allowed": True}


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"kind":"AdmissionReview"}'])
def test_what_is_no_review_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedReview):
        admission_review(body, lambda asked: Verdict())


def test_a_version_that_is_not_served_is_a_failure_of_all() -> None:
    body = review("ConversionReview", desiredAPIVersion="kueue.x-k8s.io/v3", objects=[workload()])
    response = conversion_review(body)["response"]
    assert response["convertedObjects"] == []
    assert response["result"]["message"].startswith("kueue.x-k8s.io/v3 is not served")


def test_a_patch_says_only_what_changed() -> None:
    before = {"a": {"b/c": 1, "~": [1]}, "gone": 1, "same": {"x": [1, {"y": 2}]}}
    after = {"a": {"b/c": 2, "~": [1, 2]}, "same": {"x": [1, {"y": 2}]}, "new": None}
    assert list(json_patch(before, after)) == [
        {"op": "replace", "path": "/a/b~1c", "value": 2},
        {"op": "replace", "path": "/a/~0", "value": [1, 2]},
        {"op": "remove", "path": "/gone"},
        {"op": "add", "path": "/new", "value": None},
    ]


async def test_a_hook_of_another_kind_chooses_its_namespaces(here: Site) -> None:
    asked: list[tuple[str, str]] = []

    def judge(question: Asked) -> Verdict:
        asked.append((question.namespace, question.user))
        return Verdict(("no",))

    selector = {"matchLabels": {"team": "a"}}
    hook = Hook(
        "vconfigmap.kb.io",
        "/validate--v1-configmap",
        "",
        "v1",
        ("configmaps",),
        judge,
        failure_policy="Ignore",
        namespace_selector=selector,
    )
    async with webhooks(here.client, hooks=[*kueue_hooks(), hook]):
        for name, labels in (("mine", {"team": "a"}), ("other", {})):
            metadata = {"name": name, "labels": labels}
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            await here.client.create(NAMESPACES, namespace, dict)
        for name in ("mine", "other"):
            metadata = {"name": "a", "namespace": name}
            obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            try:
                await here.client.create(CONFIG_MAPS, obj, dict)
            except ApiError as error:
                assert (
                    error.message == 'admission webhook "vconfigmap.kb.io" denied the request: no'
                )
    assert asked == [("mine", "admin")]


def test_definitions_name_the_service_until_they_are_told() -> None:
    configs = [
        crd["spec"]["conversion"]["webhook"]["clientConfig"]
        for crd in kueue_crds()
        if "conversion" in crd["spec"]
    ]
    assert configs == [Place("reprieve").client_config("/convert")] * 4
    assert msgspec.json.encode(configs[0])
