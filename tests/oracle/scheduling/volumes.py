"""The four volume filters, section 21.5.

VolumeBinding looks at claims and volumes only, never at pods; VolumeRestrictions and
NodeVolumeLimits look at the placed pods. In-line disks are left out.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.oracle.scheduling import objects
from tests.oracle.scheduling.filters import Refusal
from tests.oracle.scheduling.objects import Cluster, Object, labels_of, name_of, namespace_of

ZONE_LABELS = (
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
)
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode"
    " already in-use by another pod"
)
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"


def claim_names(pod: Object) -> list[str]:
    names = []
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            names.append(volume["persistentVolumeClaim"]["claimName"])
        elif "ephemeral" in volume:
            names.append(f"{name_of(pod)}-{volume['name']}")
    return names


def claims_of(pod: Object, cluster: Cluster) -> list[Object]:
    found = [
        cluster.one("persistentVolumeClaims", name, namespace_of(pod)) for name in claim_names(pod)
    ]
    return [claim for claim in found if claim is not None]


def bound(claim: Object) -> bool:
    annotations = claim["metadata"].get("annotations") or {}
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in annotations


def volume_restrictions(pod: Object, node: Object, cluster: Cluster) -> Refusal | None:
    for claim in claims_of(pod, cluster):
        if "ReadWriteOncePod" not in (claim["spec"].get("accessModes") or ()):
            continue
        for placed in cluster.live:
            if namespace_of(placed) == namespace_of(pod) and name_of(claim) in claim_names(placed):
                return Refusal("VolumeRestrictions", "U", (IN_USE,))
    return None


def csi_volume(claim: Object, cluster: Cluster) -> tuple[str, str] | None:
    """(driver, volume) that a claim uses; of an unbound claim the driver that will make one."""
    volume = cluster.one("persistentVolumes", claim["spec"].get("volumeName") or "")
    if volume is not None:
        csi = volume["spec"].get("csi")
        return (csi["driver"], csi["volumeHandle"]) if csi else None
    storage_class = cluster.one("storageClasses", claim["spec"].get("storageClassName") or "")
    if storage_class is None:
        return None
    return storage_class["provisioner"], f"claim {objects.key_of(claim)}"


def node_volume_limits(pod: Object, node: Object, cluster: Cluster) -> Refusal | None:
    wanted = {v for claim in claims_of(pod, cluster) if (v := csi_volume(claim, cluster))}
    if not wanted:
        return None
    drivers: dict[str, int | None] = {
        d["name"]: (d.get("allocatable") or {}).get("count")
        for d in (cluster.one("csiNodes", name_of(node)) or {"spec": {}})["spec"].get("drivers")
        or ()
    }
    used = {
        v
        for placed in cluster.on(node)
        for claim in claims_of(placed, cluster)
        if (v := csi_volume(claim, cluster))
    }
    for attachment in cluster.every("volumeAttachments"):
        name = attachment["spec"]["source"].get("persistentVolumeName")
        if attachment["spec"]["nodeName"] == name_of(node) and name:
            volume = cluster.one("persistentVolumes", name)
            if volume and volume["spec"].get("csi"):
                found = (attachment["spec"]["attacher"], volume["spec"]["csi"]["volumeHandle"])
                if not _left_by_all(found, cluster):
                    used.add(found)
    for driver in sorted({d for d, _ in wanted}):
        if driver not in drivers:
            installed = cluster.one("csiDrivers", driver)
            if installed and installed["spec"].get("preventPodSchedulingIfMissing"):
                text = f"{driver} CSI driver is not installed on the node"
                return Refusal("NodeVolumeLimits", "U", (text,))
            continue
        together = {v for v in used | wanted if v[0] == driver}
        new = {v for v in wanted - used if v[0] == driver}
        if new and (limit := drivers[driver]) is not None and len(together) > limit:
            return Refusal("NodeVolumeLimits", "U", ("node(s) exceed max volume count",))
    return None


def _left_by_all(volume: tuple[str, str], cluster: Cluster) -> bool:
    """With `simulateClaims`: pods use the volume, but none of those that are there now."""

    def uses(pods: Iterable[Object]) -> bool:
        return any(csi_volume(c, cluster) == volume for p in pods for c in claims_of(p, cluster))

    simulated = bool(cluster.objects.get("simulateClaims"))
    return simulated and uses(cluster.every("pods")) and not uses(cluster.live)


def claims_refusal(pod: Object, cluster: Cluster) -> Refusal | None:
    """What VolumeBinding says about the claims themselves, for all nodes."""

    def everywhere(text: str) -> Refusal:
        return Refusal("VolumeBinding", "X", (text,), everywhere=True)

    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            name, missing = volume["persistentVolumeClaim"]["claimName"], "{0} not found"
        elif "ephemeral" in volume:
            name = f"{name_of(pod)}-{volume['name']}"
            missing = "waiting for ephemeral volume controller to create the {0}"
        else:
            continue
        quoted = f'persistentvolumeclaim "{name}"'
        claim = cluster.one("persistentVolumeClaims", name, namespace_of(pod))
        if claim is None:
            return everywhere(missing.format(quoted))
        if (claim.get("status") or {}).get("phase") == "Lost":
            gone = claim["spec"].get("volumeName", "")
            return everywhere(f'{quoted} bound to non-existent persistentvolume "{gone}"')
        if objects.terminating(claim):
            return everywhere(f"{quoted} is being deleted")
    for claim in claims_of(pod, cluster):
        if not bound(claim) and (claim["spec"].get("volumeName") or not _waits(claim, cluster)):
            return everywhere("pod has unbound immediate PersistentVolumeClaims")
    return None


def _waits(claim: Object, cluster: Cluster) -> bool:
    storage_class = cluster.one("storageClasses", claim["spec"].get("storageClassName") or "")
    return (
        storage_class is not None
        and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    )


def volume_binding(pod: Object, node: Object, cluster: Cluster) -> Refusal | None:
    found = claims_refusal(pod, cluster)
    if found:
        return found
    texts = []
    claims = claims_of(pod, cluster)
    volumes = [
        cluster.one("persistentVolumes", c["spec"]["volumeName"]) for c in claims if bound(c)
    ]
    if any(v is not None and not _volume_reaches(v, node) for v in volumes):
        texts.append("node(s) didn't match PersistentVolume's node affinity")
    texts += _unbound(sorted((c for c in claims if not bound(c)), key=_size), node, cluster)
    if any(v is None for v in volumes):
        texts.append("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
    return Refusal("VolumeBinding", "X", tuple(texts)) if texts else None


def _volume_reaches(volume: Object, node: Object) -> bool:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return required is None or objects.selector_holds(required, node)


def _size(claim: Object) -> int:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return objects.amount("storage", requests.get("storage", 0))


def storage_score(pod: Object, node: Object, cluster: Cluster) -> list[tuple[str, int, int]]:
    """(class, requested, capacity) of what the unbound claims would get on the node.

    Static volumes if there is one for any claim, otherwise the capacities found for new ones.
    """
    static, new, taken = [], [], list[str]()
    for claim in sorted((c for c in claims_of(pod, cluster) if not bound(c)), key=_size):
        name = claim["spec"].get("storageClassName") or ""
        volume = _smallest(claim, node, cluster, taken)
        if volume is not None:
            taken.append(name_of(volume))
            static.append((name, _size(claim), _capacity(volume)))
            continue
        found = [
            objects.amount("storage", c.get("capacity") or 0)
            for c in cluster.every("csiStorageCapacities")
            if c["storageClassName"] == name
            and objects.selects(c.get("nodeTopology"), labels_of(node))
        ]
        new += [(name, _size(claim), found[0])] if found else []
    return static or new


def _smallest(claim: Object, node: Object, cluster: Cluster, taken: list[str]) -> Object | None:
    fitting = [
        v
        for v in cluster.every("persistentVolumes")
        if name_of(v) not in taken and _serves(v, claim, node)
    ]
    return min(fitting, key=lambda v: (_capacity(v), name_of(v)), default=None)


def _unbound(claims: list[Object], node: Object, cluster: Cluster) -> list[str]:
    taken: list[str] = []
    for claim in claims:
        selected = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        if selected and selected != name_of(node):
            return ["node(s) didn't find available persistent volumes to bind"]
        volume = None if selected else _smallest(claim, node, cluster, taken)
        if volume is not None:
            taken.append(name_of(volume))
            continue
        storage_class = cluster.one("storageClasses", claim["spec"]["storageClassName"])
        assert storage_class is not None
        if storage_class["provisioner"] in ("", "kubernetes.io/no-provisioner") or not _allowed(
            storage_class, node
        ):
            return ["node(s) didn't find available persistent volumes to bind"]
        driver = cluster.one("csiDrivers", storage_class["provisioner"])
        if (
            driver
            and driver["spec"].get("storageCapacity")
            and not any(
                c["storageClassName"] == name_of(storage_class)
                and objects.selects(c.get("nodeTopology"), labels_of(node))
                and objects.amount("storage", c.get("maximumVolumeSize") or c.get("capacity") or 0)
                >= _size(claim)
                for c in cluster.every("csiStorageCapacities")
            )
        ):
            return ["node(s) did not have enough free storage"]
    return []


def _capacity(volume: Object) -> int:
    return objects.amount("storage", volume["spec"]["capacity"]["storage"])


def _serves(volume: Object, claim: Object, node: Object) -> bool:
    spec, wanted = volume["spec"], claim["spec"]
    reserved = spec.get("claimRef")
    mine = reserved and (reserved["namespace"], reserved["name"]) == (
        namespace_of(claim),
        name_of(claim),
    )
    return bool(
        (spec.get("storageClassName") or "") == (wanted.get("storageClassName") or "")
        and (mine or (not reserved and volume.get("status", {}).get("phase") == "Available"))
        and not objects.terminating(volume)
        and _capacity(volume) >= _size(claim)
        and (spec.get("volumeMode") or "Filesystem") == (wanted.get("volumeMode") or "Filesystem")
        and set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ())
        and (not wanted.get("selector") or objects.selects(wanted["selector"], labels_of(volume)))
        and _volume_reaches(volume, node)
    )


def _allowed(storage_class: Object, node: Object) -> bool:
    terms = storage_class.get("allowedTopologies") or []
    return not terms or any(
        all(
            labels_of(node).get(e["key"]) in e["values"]
            for e in term.get("matchLabelExpressions") or ()
        )
        for term in terms
    )


def volume_zone(pod: Object, node: Object, cluster: Cluster) -> Refusal | None:
    every_label = [label for pair in ZONE_LABELS for label in pair]
    if not any(label in labels_of(node) for label in every_label):
        return None
    for claim in claims_of(pod, cluster):
        volume = cluster.one("persistentVolumes", claim["spec"].get("volumeName") or "")
        if volume is None:
            continue
        for pair in ZONE_LABELS:
            for label in pair:
                if label not in labels_of(volume):
                    continue
                there = next(
                    (labels_of(node)[k] for k in (label, *pair) if k in labels_of(node)), None
                )
                if there not in labels_of(volume)[label].split("__"):
                    return Refusal("VolumeZone", "X", ("node(s) had no available volume zone",))
    return None
