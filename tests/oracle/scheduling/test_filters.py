"""Filters of the oracle that no vector reaches, against outcomes worked out from section 21."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.scheduling import filters, selectors
from tests.oracle.scheduling.objects import Cluster, Object, assumed
from tests.oracle.scheduling.situations import HOSTNAME, ZONE, pod

X_AFFINITY = ("InterPodAffinity", "X", "node(s) didn't match pod affinity rules")
X_CLAIMS = ("DynamicResources", "X", "cannot allocate all claims")


def node(name: str, zone: str | None = None) -> Object:
    labels = {HOSTNAME: name} | ({ZONE: zone} if zone else {})
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    metadata = {"name": name, "labels": labels}
    return {"metadata": metadata, "spec": {}, "status": {"allocatable": allocatable}}


def own(**spec: Any) -> Object:
    found = pod("own", 0, {"cpu": "1"}, {"app": "a"})
    return {**found, "spec": {**found["spec"], **spec}}


def placed(name: str, where: str, app: str = "b", **spec: Any) -> Object:
    found = assumed(pod(name, 0, {"cpu": "1"}, {"app": app}), where)
    return {**found, "spec": {**found["spec"], **spec}}


def refused(incoming: Object, where: str, **objects: Any) -> tuple[str, str, str] | None:
    cluster = Cluster.of({"nodes": [node("n", "x"), node("m", "y")], **objects})
    target = cluster.one("nodes", where)
    assert target is not None
    found = filters.refusal(incoming, target, cluster)
    return (found.plugin, found.code, ", ".join(found.texts)) if found else None


def affinity(app: str, key: str = ZONE) -> Object:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_required_affinity_wants_a_matching_pod_in_the_domain() -> None:
    wanting = own(affinity=affinity("b"))
    assert refused(wanting, "n", pods=[placed("p", "n")]) is None
    assert refused(wanting, "m", pods=[placed("p", "n")]) == X_AFFINITY
    assert refused(wanting, "m", pods=[]) == X_AFFINITY


def test_the_first_pod_that_matches_itself_may_start_anywhere() -> None:
    first = own(affinity=affinity("a"))
    assert refused(first, "m", pods=[placed("p", "n")]) is None
    assert refused(first, "m", pods=[placed("p", "n", app="a")]) == X_AFFINITY


def test_fields_in_every_term_narrow_the_nodes() -> None:
    def named(*groups: list[str]) -> Object:
        terms = [
            {
                "matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": [n]} for n in names
                ]
            }
            for names in groups
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        return own(affinity={"nodeAffinity": required})

    text = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
    assert refused(named(["n"]), "n") is None
    assert refused(named(["n"]), "m") == ("NodeAffinity", "X", text)
    assert refused(named(["n"], ["m"]), "m") is None
    conflict = ("NodeAffinity", "X", "pod affinity terms conflict")
    assert refused(named(["n", "m"]), "n") == conflict


def claim(name: str, mode: str = "ReadWriteOnce", volume: str = "", **more: Any) -> Object:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    metadata = {"name": name, "namespace": "default", "annotations": annotations}
    spec = {"accessModes": [mode], "storageClassName": "disk", **more}
    return {"metadata": metadata, "spec": spec | ({"volumeName": volume} if volume else {})}


def volume(name: str, **spec: Any) -> Object:
    whole = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **spec}
    return {"metadata": {"name": name}, "spec": whole, "status": {"phase": "Available"}}


def in_zone(zone: str) -> Object:
    expression = {"key": ZONE, "operator": "In", "values": [zone]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def mounting(*claims: str) -> list[Object]:
    return [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]


def test_a_claim_of_one_pod_is_taken_wherever_it_is_used() -> None:
    user = placed("p", "n", volumes=mounting("c"))
    claims = [claim("c", "ReadWriteOncePod", "v")]
    found = refused(
        own(volumes=mounting("c")),
        "m",
        pods=[user],
        persistentVolumeClaims=claims,
        persistentVolumes=[volume("v")],
    )
    assert found is not None
    assert found[:2] == ("VolumeRestrictions", "U")


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        ({}, 'persistentvolumeclaim "c" not found'),
        (
            {"persistentVolumeClaims": [claim("c")]},
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            {"persistentVolumeClaims": [claim("c", volume="gone")]},
            "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        ),
        (
            {
                "persistentVolumeClaims": [claim("c", volume="v")],
                "persistentVolumes": [volume("v", nodeAffinity=in_zone("y"))],
            },
            "node(s) didn't match PersistentVolume's node affinity",
        ),
    ],
)
def test_volume_binding_refuses(objects: Any, text: str) -> None:
    found = refused(own(volumes=mounting("c")), "n", **objects)
    assert found == ("VolumeBinding", "X", text)


def test_an_unbound_claim_takes_the_smallest_volume_once() -> None:
    late = {
        "metadata": {"name": "disk"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    spec = {"storageClassName": "disk", "nodeAffinity": in_zone("x")}
    objects = {
        "storageClasses": [late],
        "persistentVolumeClaims": [claim("c"), claim("d")],
        "persistentVolumes": [volume("v", **spec)],
    }
    none = "node(s) didn't find available persistent volumes to bind"
    assert refused(own(volumes=mounting("c")), "n", **objects) is None
    assert refused(own(volumes=mounting("c")), "m", **objects) == ("VolumeBinding", "X", none)
    assert refused(own(volumes=mounting("c", "d")), "n", **objects) == ("VolumeBinding", "X", none)


def test_volumes_of_a_driver_are_limited_per_node() -> None:
    csi = [volume(n, csi={"driver": "d", "volumeHandle": n}) for n in ("v", "w")]
    drivers = [{"name": "d", "allocatable": {"count": 1}}]
    objects = {
        "pods": [placed("p", "n", volumes=mounting("c"))],
        "persistentVolumeClaims": [claim("c", volume="v"), claim("d", volume="w")],
        "persistentVolumes": csi,
        "csiNodes": [{"metadata": {"name": n}, "spec": {"drivers": drivers}} for n in "nm"],
    }
    full = ("NodeVolumeLimits", "U", "node(s) exceed max volume count")
    assert refused(own(volumes=mounting("d")), "n", **objects) == full
    assert refused(own(volumes=mounting("d")), "m", **objects) is None
    assert refused(own(volumes=mounting("c")), "n", **objects) is None


def test_zone_labels_of_a_volume_bind_its_pods() -> None:
    zonal = volume("v")
    zonal["metadata"]["labels"] = {ZONE: "x__z"}
    objects = {"persistentVolumeClaims": [claim("c", volume="v")], "persistentVolumes": [zonal]}
    elsewhere = ("VolumeZone", "X", "node(s) had no available volume zone")
    assert refused(own(volumes=mounting("c")), "n", **objects) is None
    assert refused(own(volumes=mounting("c")), "m", **objects) == elsewhere


def devices(*given: Object, shared: list[Object] | None = None) -> Object:
    spec = {
        "driver": "gpu.example.com",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n",
        "devices": list(given),
        "sharedCounters": shared or [],
    }
    return {
        "deviceClasses": [{"metadata": {"name": "gpu"}, "spec": {}}],
        "resourceSlices": [{"metadata": {"name": "slice"}, "spec": spec}],
    }


def asking(**exactly: Any) -> Object:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}
    spec: Object = {"devices": {"requests": [request]}}
    return {"metadata": {"name": "c", "namespace": "default"}, "spec": spec}


def using(*claims: str) -> list[Object]:
    return [{"name": c, "resourceClaimName": c} for c in claims]


def test_devices_are_counted_and_found_on_their_node_only() -> None:
    two = devices({"name": "a"}, {"name": "b"})
    pair, three = asking(count=2), asking(count=3)
    assert refused(own(resourceClaims=using("c")), "n", resourceClaims=[pair], **two) is None
    assert refused(own(resourceClaims=using("c")), "m", resourceClaims=[pair], **two) == X_CLAIMS
    assert refused(own(resourceClaims=using("c")), "n", resourceClaims=[three], **two) == X_CLAIMS


def test_an_earlier_member_holds_its_devices_and_shares_its_claim() -> None:
    one = devices({"name": "a"})
    other = asking()
    other["metadata"] = {"name": "d", "namespace": "default"}
    objects = {"resourceClaims": [asking(), other], **one}
    earlier = [placed("p", "n", resourceClaims=using("c"))]
    assert refused(own(resourceClaims=using("d")), "n", pods=earlier, **objects) == X_CLAIMS
    assert refused(own(resourceClaims=using("c")), "n", pods=earlier, **objects) is None


def test_claims_of_removed_pods_are_free_only_when_that_is_simulated() -> None:
    held = asking()
    held["metadata"] = {"name": "d", "namespace": "default"}
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n", "device": "a"}
    held["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"name": "gone"}],
    }
    objects = {"resourceClaims": [asking(), held], **devices({"name": "a"})}
    wanting = own(resourceClaims=using("c"))
    assert refused(wanting, "n", **objects) == X_CLAIMS
    assert refused(wanting, "n", simulateClaims=True, **objects) is None


def test_parts_of_a_device_share_its_counters() -> None:
    half = [{"counterSet": "gpu", "counters": {"memory": {"value": "30Gi"}}}]
    set_of = [{"name": "gpu", "counters": {"memory": {"value": "40Gi"}}}]
    parts = [{"name": name, "consumesCounters": half} for name in "ab"]
    objects = devices(*parts, shared=set_of)
    wanting = own(resourceClaims=using("c"))
    assert refused(wanting, "n", resourceClaims=[asking(count=1)], **objects) is None
    assert refused(wanting, "n", resourceClaims=[asking(count=2)], **objects) == X_CLAIMS


def test_selectors_and_constraints_choose_among_devices() -> None:
    kinds = [
        {"name": n, "attributes": {"type": {"string": kind}, "memory": {"int": 40}}}
        for n, kind in (("a", "gpu"), ("b", "mig"), ("c", "mig"))
    ]
    expression = 'device.attributes["gpu.example.com"].type == "mig" && device.driver != "x"'
    mig = asking(count=2, selectors=[{"cel": {"expression": expression}}])
    same = asking(count=3)
    same["spec"]["devices"]["constraints"] = [{"matchAttribute": "gpu.example.com/type"}]
    wanting = own(resourceClaims=using("c"))
    assert refused(wanting, "n", resourceClaims=[mig], **devices(*kinds)) is None
    assert refused(wanting, "n", resourceClaims=[same], **devices(*kinds)) == X_CLAIMS


def test_an_unknown_attribute_is_an_error_of_the_attempt() -> None:
    expression = 'device.attributes["gpu.example.com"].speed > 3'
    broken = asking(selectors=[{"cel": {"expression": expression}}])
    known = devices({"name": "a", "attributes": {"memory": {"int": 40}}})
    with pytest.raises(selectors.SelectorFailed, match="claim default/c: selector #0 on device a"):
        refused(own(resourceClaims=using("c")), "n", resourceClaims=[broken], **known)
