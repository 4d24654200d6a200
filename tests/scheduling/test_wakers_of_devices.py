"""What a fresh decision would bind or preempt for is done within 5 s: devices, disks and trees.

Played as in `test_wakers`, with changes of ResourceSlices, claims, device classes, CSINodes and
CompositePodGroups.
"""

from __future__ import annotations

import random
from typing import Any, Final

import pytest

from tests.scheduling.memory import Memory
from tests.scheduling.site import NAMESPACE, Object, composite, group, pod
from tests.scheduling.test_wakers import Tenants, play

_CLAIMS: Final = "resourceclaims.resource.k8s.io"
_SLICES: Final = "resourceslices.resource.k8s.io"
_CLASSES: Final = "deviceclasses.resource.k8s.io"
_CSI_NODES: Final = "csinodes.storage.k8s.io"
_COMPOSITES: Final = "compositepodgroups.scheduling.k8s.io"
_GROUPS: Final = "podgroups.scheduling.k8s.io"
_DRIVER: Final = "gpu.example.com"
_DISKS: Final = "disks.example.com"
_TREES: Final = {"featureGates": {"CompositePodGroup": True}}


class Owners(Tenants):
    """Who changes devices, disks and trees of groups, at random."""

    def __init__(self, cluster: Memory, chance: random.Random) -> None:
        super().__init__(cluster, chance)
        self.steps = (
            self.submit,
            self.submit_with_device,
            self.submit_with_device,
            self.submit_with_device,
            self.submit_with_disk,
            self.submit_with_disk,
            self.end_a_pod,
            self.end_a_pod,
            self.change_devices,
            self.change_devices,
            self.remove_devices,
            self.change_the_class,
            self.limit_disks,
            self.enlarge,
            self.cordon,
        )
        self.change_the_class()
        for node in range(3):
            self.devices_of(f"node-{node}", 1)

    def tidy(self) -> None:
        """Give back the claims of pods that are gone, as their controller does."""
        uids = {each["metadata"]["uid"] for each in self.cluster.pods.values()}
        for claim in list(self.api.objects[_CLAIMS].values()):
            reserved = (claim.get("status") or {}).get("reservedFor") or ()
            if reserved and not any(each["uid"] in uids for each in reserved):
                self.api.put(_CLAIMS, {**claim, "status": {}})

    def submit_with_device(self) -> None:
        name = self.name("device")
        exactly = {"deviceClassName": "gpu", "count": self.chance.choice((1, 1, 2))}
        requests = [{"name": "gpu", "exactly": exactly}]
        self.api.put(
            _CLAIMS,
            {
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"devices": {"requests": requests}},
            },
        )
        claims = [{"name": "gpu", "resourceClaimName": name}]
        self.cluster.create(pod(name, 1, resourceClaims=claims, **self.facts()))

    def devices_of(self, node: str, count: int) -> None:
        spec = {
            "driver": _DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(count)],
        }
        self.api.put(_SLICES, {"metadata": {"name": f"{node}-gpus"}, "spec": spec})

    def change_devices(self) -> None:
        self.devices_of(f"node-{self.chance.randrange(3)}", self.chance.choice((0, 1, 2)))

    def remove_devices(self) -> None:
        found = self.any_of(_SLICES)
        if found is not None:
            self.api.remove(_SLICES, "", found["metadata"]["name"])

    def change_the_class(self) -> None:
        driver = self.chance.choice((_DRIVER, _DRIVER, "other.example.com"))
        selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
        self.api.put(_CLASSES, {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}})

    def submit_with_disk(self) -> None:
        name = self.name("disk")
        self.api.put(
            "persistentvolumes",
            {
                "metadata": {"name": name},
                "spec": {
                    "csi": {"driver": _DISKS, "volumeHandle": name},
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": "1Gi"},
                    "claimRef": {"namespace": NAMESPACE, "name": name},
                },
                "status": {"phase": "Bound"},
            },
        )
        bound = {"pv.kubernetes.io/bind-completed": "yes"}
        self.api.put(
            "persistentvolumeclaims",
            {
                "metadata": {"name": name, "namespace": NAMESPACE, "annotations": bound},
                "spec": {
                    "volumeName": name,
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
                "status": {"phase": "Bound"},
            },
        )
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": name}}
        self.cluster.create(pod(name, 1, **self.facts(), volumes=[volume]))

    def limit_disks(self) -> None:
        node = f"node-{self.chance.randrange(3)}"
        count = {"count": self.chance.choice((0, 1, 2))}
        driver = {"name": _DISKS, "nodeID": node, "allocatable": count}
        self.api.put(_CSI_NODES, {"metadata": {"name": node}, "spec": {"drivers": [driver]}})


class Foresters(Tenants):
    """Who changes trees of groups, at random."""

    def __init__(self, cluster: Memory, chance: random.Random) -> None:
        super().__init__(cluster, chance)
        self.steps = (
            self.submit,
            self.submit_tree,
            self.submit_tree,
            self.submit_tree,
            self.end_a_pod,
            self.end_a_pod,
            self.change_the_minimum_of_a_tree,
            self.change_minimum,
            self.remove_a_root,
            self.enlarge,
            self.cordon,
        )

    def submit_tree(self) -> None:
        name, facts = self.name("tree"), self.facts()
        members: list[Object] = []
        parts: list[Any] = [composite(name, min_count=self.chance.choice((1, 2)), **facts)]
        for part in ("a", "b"):
            size = self.chance.choice((1, 2))
            own = f"{name}-{part}"
            parts.append(group(own, min_count=size, parent=name, **facts))
            members += [
                pod(f"{own}-{n}", self.chance.choice((1, 2)), group=own, **facts)
                for n in range(size)
            ]
        parts += members
        if self.chance.random() < 0.3:
            self.chance.shuffle(parts)
        self.cluster.create(*parts)

    def change_the_minimum_of_a_tree(self) -> None:
        least = {"minGroupCount": self.chance.choice((1, 2))}
        found = self.any_of(_COMPOSITES)
        if found is not None:
            policy = {"gang": {**found["spec"]["schedulingPolicy"]["gang"], **least}}
            self.change(_COMPOSITES, found, spec={"schedulingPolicy": policy})

    def remove_a_root(self) -> None:
        found = self.any_of(_COMPOSITES)
        if found is not None and self.chance.random() < 0.3:
            self.api.remove(_COMPOSITES, NAMESPACE, found["metadata"]["name"])


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
async def test_a_plane_that_decides_about_devices_anew_finds_nothing_to_do(seed: int) -> None:
    await play(seed, 25, Owners)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
async def test_a_plane_that_decides_about_trees_anew_finds_nothing_to_do(seed: int) -> None:
    await play(seed, 25, Foresters, **_TREES)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
async def test_it_finds_nothing_in_many_more_plays_of_devices(seed: int) -> None:
    await play(seed, 40, Owners)
