"""Objects of storage.k8s.io and resource.k8s.io as manifests, and the rows they become."""

from __future__ import annotations

from typing import Any

import msgspec

from reprieve.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from reprieve.api.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from reprieve.engine.cluster.devices import (
    AllocatedDevice,
    Allocation,
    AllocationMode,
    Attribute,
    AttributeType,
    CapacityPolicy,
    Constraint,
    Consumer,
    Device,
    DeviceCapacity,
    DeviceClassRow,
    DeviceConfiguration,
    DeviceRequest,
    Reach,
    Request,
    ResourceClaimRow,
    ResourceSliceRow,
)
from reprieve.engine.cluster.rows import (
    Entry,
    Kind,
    NodeTerm,
    Operator,
    Requirement,
    Taint,
    Toleration,
)
from reprieve.engine.cluster.storage import (
    AttachmentRow,
    CapacityRow,
    ClaimRow,
    CsiDriverRow,
    CsiNodeRow,
    StorageClassRow,
    VolumeRow,
)
from reprieve.intake.cluster.devices import (
    device_class_entry,
    resource_claim_entry,
    resource_slice_entry,
)
from reprieve.intake.cluster.storage import (
    attachment_entry,
    capacity_entry,
    claim_entry,
    csi_driver_entry,
    csi_node_entry,
    storage_class_entry,
    volume_entry,
)
from reprieve.units.ids import Uid

GIB = 2**30
ZONE = "topology.kubernetes.io/zone"


def read(kind: Any, metadata: dict[str, Any] | None = None, **fields: Any) -> Any:
    own = {"name": "x", "uid": "u", "resourceVersion": "7", **(metadata or {})}
    return msgspec.json.decode(msgspec.json.encode({"metadata": own, **fields}), type=kind)


def entry(kind: Kind, row: Any, namespace: str = "") -> Entry:
    return Entry(kind, Uid("u"), namespace, "x", 7, row)


def on(name: str) -> tuple[NodeTerm, ...]:
    return (NodeTerm(fields=(Requirement("metadata.name", Operator.IN, (name,)),)),)


NODE_SELECTOR = {
    "nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    ]
}


def test_a_claim_to_a_volume() -> None:
    found = read(
        PersistentVolumeClaim,
        {
            "namespace": "ns",
            "annotations": {
                "pv.kubernetes.io/bind-completed": "yes",
                "volume.kubernetes.io/selected-node": "n1",
            },
            "deletionTimestamp": "2030-01-01T00:00:00Z",
            "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "pu", "controller": True}],
        },
        spec={
            "accessModes": ["ReadWriteOncePod"],
            "resources": {"requests": {"storage": "1.5Gi"}},
            "selector": {"matchLabels": {"a": "b"}},
            "storageClassName": "fast",
            "volumeAttributesClassName": "gold",
            "volumeMode": "Block",
            "volumeName": "v",
        },
        status={"phase": "Lost"},
    )
    assert claim_entry(found) == entry(
        Kind.CLAIM,
        ClaimRow(
            Uid("u"),
            "ns",
            "x",
            7,
            volume="v",
            bind_completed=True,
            lost=True,
            deleting=True,
            owner=Uid("pu"),
            storage_class="fast",
            request=3 * GIB // 2,
            block=True,
            access_modes=("ReadWriteOncePod",),
            attributes_class="gold",
            selector=(Requirement("a", Operator.IN, ("b",)),),
            selected_node="n1",
        ),
        "ns",
    )
    bare = claim_entry(read(PersistentVolumeClaim, {"namespace": "ns"})).row
    assert bare == ClaimRow(Uid("u"), "ns", "x", 7)


def test_a_volume_of_a_driver_and_a_migrated_one() -> None:
    found = read(
        PersistentVolume,
        {"labels": {ZONE: "a"}},
        spec={
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "10Gi"},
            "claimRef": {"namespace": "ns", "name": "c", "uid": "cu"},
            "csi": {"driver": "d", "volumeHandle": "h"},
            "nodeAffinity": {"required": NODE_SELECTOR},
            "storageClassName": "fast",
        },
        status={"phase": "Available"},
    )
    assert volume_entry(found) == entry(
        Kind.VOLUME,
        VolumeRow(
            Uid("u"),
            "x",
            7,
            storage_class="fast",
            available=True,
            claim=("ns", "c", "cu"),
            capacity=10 * GIB,
            access_modes=("ReadWriteOnce",),
            labels=((ZONE, "a"),),
            node_affinity=on("n1"),
            driver="d",
            handle="h",
        ),
    )
    for field, source, identity in (
        ("awsElasticBlockStore", {"volumeID": "i"}, ("ebs.csi.aws.com", "i")),
        ("gcePersistentDisk", {"pdName": "i"}, ("pd.csi.storage.gke.io", "i")),
        ("azureDisk", {"diskURI": "i"}, ("disk.csi.azure.com", "i")),
        ("azureFile", {"shareName": "i"}, ("file.csi.azure.com", "i")),
        ("cinder", {"volumeID": "i"}, ("cinder.csi.openstack.org", "i")),
        ("portworxVolume", {"volumeID": "i"}, ("pxd.portworx.com", "i")),
        ("vsphereVolume", {"volumePath": "i"}, ("csi.vsphere.vmware.com", "i")),
        ("nfs", {"path": "i"}, ("", "")),
    ):
        row = volume_entry(read(PersistentVolume, spec={field: source})).row
        assert (row.driver, row.handle) == identity


def test_the_objects_of_storage() -> None:
    found = read(
        StorageClass,
        provisioner="kubernetes.io/aws-ebs",
        volumeBindingMode="WaitForFirstConsumer",
        allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["b", "a"]}]}],
    )
    zones = NodeTerm((Requirement(ZONE, Operator.IN, ("a", "b")),))
    assert storage_class_entry(found) == entry(
        Kind.STORAGE_CLASS, StorageClassRow(Uid("u"), "x", 7, "ebs.csi.aws.com", True, (zones,))
    )
    drivers = [{"name": "b", "allocatable": {"count": 3}}, {"name": "a"}]
    assert csi_node_entry(read(CsiNode, spec={"drivers": drivers})) == entry(
        Kind.CSI_NODE, CsiNodeRow(Uid("u"), "x", 7, (("a", None), ("b", 3)))
    )
    spec = {"storageCapacity": True, "preventPodSchedulingIfMissing": True}
    assert csi_driver_entry(read(CsiDriver, spec=spec)) == entry(
        Kind.CSI_DRIVER, CsiDriverRow(Uid("u"), "x", 7, True, True)
    )
    found = read(
        CsiStorageCapacity,
        {"namespace": "ns"},
        storageClassName="fast",
        nodeTopology={"matchLabels": {ZONE: "a"}},
        capacity="1Gi",
    )
    assert capacity_entry(found) == entry(
        Kind.CSI_CAPACITY,
        CapacityRow(Uid("u"), "ns", "x", 7, "fast", (Requirement(ZONE, Operator.IN, ("a",)),), GIB),
        "ns",
    )
    assert capacity_entry(read(CsiStorageCapacity, storageClassName="f")).row.nodes is None
    source = {"persistentVolumeName": "v"}
    attached: dict[str, Any] = {"attacher": "d", "nodeName": "n1", "source": source}
    assert attachment_entry(read(VolumeAttachment, spec=attached)) == entry(
        Kind.ATTACHMENT, AttachmentRow(Uid("u"), "x", 7, "d", "n1", "v")
    )
    inline = {"inlineVolumeSpec": {"csi": {"driver": "d", "volumeHandle": "h"}}}
    attached["source"] = inline
    assert attachment_entry(read(VolumeAttachment, spec=attached)).row.inline == ("d", "h")


def test_a_claim_to_devices() -> None:
    toleration = {"key": "k", "operator": "Exists", "effect": "NoSchedule"}
    exactly = {
        "deviceClassName": "gpu",
        "selectors": [{"cel": {"expression": "true"}}],
        "allocationMode": "All",
        "adminAccess": True,
        "tolerations": [toleration],
        "capacity": {"requests": {"memory": "1500m"}},
    }
    found = read(
        ResourceClaim,
        {
            "namespace": "ns",
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        },
        spec={
            "devices": {
                "requests": [
                    {"name": "a", "exactly": exactly},
                    {
                        "name": "b",
                        "firstAvailable": [
                            {"name": "x", "deviceClassName": "gpu", "count": 2},
                            {"name": "y", "deviceClassName": "mig", "allocationMode": "Some"},
                        ],
                    },
                ],
                "constraints": [
                    {"matchAttribute": "d/numa", "requests": ["a"]},
                    {"distinctAttribute": "d/uuid"},
                ],
                "config": [{"requests": ["a"], "opaque": {"driver": "d", "parameters": {"k": 1}}}],
            }
        },
        status={
            "allocation": {
                "nodeSelector": NODE_SELECTOR,
                "devices": {
                    "results": [
                        {
                            "request": "a",
                            "driver": "d",
                            "pool": "p",
                            "device": "g",
                            "adminAccess": True,
                            "shareID": "s",
                            "consumedCapacity": {"memory": "2"},
                        }
                    ]
                },
            },
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "pu"}],
        },
    )
    wanted = DeviceRequest(
        "a",
        "gpu",
        ("true",),
        AllocationMode.ALL,
        admin=True,
        tolerations=(Toleration("k", "Exists", "", "NoSchedule"),),
        capacity=(("memory", 1500),),
    )
    forms = (
        DeviceRequest("x", "gpu", count=2),
        DeviceRequest("y", "mig", unsupported="allocationMode Some"),
    )
    device = AllocatedDevice(
        "a", ("d", "p", "g"), admin=True, share="s", consumed=(("memory", 2000),)
    )
    assert resource_claim_entry(found) == entry(
        Kind.RESOURCE_CLAIM,
        ResourceClaimRow(
            Uid("u"),
            "ns",
            "x",
            7,
            (Request("a", (wanted,)), Request("b", forms, first_available=True)),
            (Constraint("d/numa", requests=("a",)), Constraint("d/uuid", distinct=True)),
            (DeviceConfiguration("d", '{"k":1}', ("a",)),),
            Allocation((device,), on("n1")),
            (Consumer("pods", "p", Uid("pu")),),
            extended=True,
        ),
        "ns",
    )


def test_a_claim_of_the_first_beta_has_its_request_inside() -> None:
    request = {"name": "a", "deviceClassName": "gpu", "count": 3}
    found = read(ResourceClaim, spec={"devices": {"requests": [request]}})
    (read_request,) = resource_claim_entry(found).row.requests
    assert read_request == Request("a", (DeviceRequest("a", "gpu", count=3),))


def test_a_slice_of_devices() -> None:
    device = {
        "attributes": {
            "b": {"bool": True},
            "i": {"int": 3},
            "s": {"string": "t"},
            "d/v": {"version": "1.2.3"},
        },
        "capacity": {
            "memory": {
                "value": "40Gi",
                "requestPolicy": {
                    "default": "1Gi",
                    "validRange": {"min": "1Gi", "max": "20Gi", "step": "1Gi"},
                },
            }
        },
        "taints": [{"key": "k", "effect": "NoExecute"}],
        "allowMultipleAllocations": True,
        "consumesCounters": [
            {"counterSet": "c", "counters": {"n": {"value": "2"}}, "compatibilityGroups": ["g"]}
        ],
        "bindsToNode": True,
        "bindingConditions": ["Ready"],
    }
    gib = 1000 * GIB
    row = Device(
        "dev",
        (
            ("b", Attribute(AttributeType.BOOL, True)),
            ("d/v", Attribute(AttributeType.VERSION, "1.2.3")),
            ("i", Attribute(AttributeType.INT, 3)),
            ("s", Attribute(AttributeType.STRING, "t")),
        ),
        (
            (
                "memory",
                DeviceCapacity(
                    40 * gib, CapacityPolicy(gib, minimum=gib, maximum=20 * gib, step=gib)
                ),
            ),
        ),
        (Taint("k", "", "NoExecute"),),
        shareable=True,
        consumes=(("c", (("n", 2000),)),),
        compatibility=(("c", frozenset(("g",))),),
        binds_to_node=True,
        binding_conditions=("Ready",),
    )
    pool = {"name": "p", "generation": 3, "resourceSliceCount": 2}
    for published in ({"name": "dev", **device}, {"name": "dev", "basic": device}):
        found = read(
            ResourceSlice,
            spec={"driver": "d", "pool": pool, "nodeName": "n1", "devices": [published]},
        )
        assert resource_slice_entry(found) == entry(
            Kind.RESOURCE_SLICE,
            ResourceSliceRow(Uid("u"), "x", 7, "d", "p", 3, 2, Reach(node="n1"), (row,)),
        )
    counters = {"name": "c", "counters": {"n": {"value": "7"}}}
    found = read(
        ResourceSlice,
        spec={
            "driver": "d",
            "pool": pool,
            "perDeviceNodeSelection": True,
            "devices": [
                {"name": "dev", "nodeSelector": NODE_SELECTOR},
                {"name": "e", "allNodes": True},
            ],
            "sharedCounters": [counters],
        },
    )
    own = resource_slice_entry(found).row
    assert own.reach is None and own.counters == (("c", (("n", 7000),)),)
    assert [each.reach for each in own.devices] == [Reach(terms=on("n1")), Reach(everywhere=True)]


def test_a_device_class() -> None:
    found = read(
        DeviceClass,
        {"creationTimestamp": "1970-01-01T00:01:00Z"},
        spec={
            "selectors": [{"cel": {"expression": "true"}}],
            "config": [{"opaque": {"driver": "d", "parameters": {}}}],
            "extendedResourceName": "e.com/gpu",
        },
    )
    assert device_class_entry(found) == entry(
        Kind.DEVICE_CLASS,
        DeviceClassRow(
            Uid("u"),
            "x",
            7,
            ("true",),
            (DeviceConfiguration("d", "{}"),),
            extended_resource="e.com/gpu",
            created=60,
        ),
    )
