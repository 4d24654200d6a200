"""Stories of kinds whose pods are gated: those that ran are lost, and others come for them."""

from __future__ import annotations

import copy

from kubeworld.objects.paths import first
from reprieve.api.kueue import Workload
from reprieve.kube.resource import PODS
from tests.quota_plane.gated_site import CLASS, QUEUE
from tests.quota_plane.kind_stories import (
    GROUP,
    NOTEBOOKS,
    ROWS,
    STATEFUL_SETS,
    TOTAL,
    Story,
    is_gated,
    leaving,
    make_again,
    manifest,
    pods_labelled,
    succeed,
)
from tests.quota_plane.site import NAMESPACE, Object, Site


class Gated(Story):
    """Kinds whose pods are gated; `selector` tells the pods of one object."""

    count, remade = 1, 1
    selector = "app={name}"

    async def started(self, name: str) -> None:
        pass

    async def released(self, name: str) -> None:
        pass

    async def pods(self, name: str) -> list[Object]:
        return await pods_labelled(self.cluster, self.selector.format(name=name))

    async def runs(self, name: str) -> bool:
        pods = [each for each in await self.pods(name) if not leaving(each)]
        return len(pods) == self.count and all(
            first(each, "status.phase") == "Running" for each in pods
        )

    async def stopped(self, name: str) -> bool:
        """Those that ran are gone, or on their way; what came in their place is gated."""
        return all(leaving(each) or is_gated(each) for each in await self.pods(name))

    async def waits(self, name: str) -> bool:
        pods = await self.pods(name)
        gated = len(pods) >= self.remade and all(is_gated(each) for each in pods)
        return gated and await super().waits(name)

    async def check_marks(self, victim: Workload) -> None:
        assert (await self.conditions(victim))["Evicted"] == ("True", "Preempted")


class LonePods(Gated):
    """Each pod is a workload of its own, which ends with it; another pod is another workload."""

    def is_of(self, name: str, workload: Workload) -> bool:
        return workload.metadata.name.startswith(f"pod-{name}-")

    async def check_requeued(self, name: str, victim: Workload) -> None:
        said = await self.conditions(victim)
        assert said.get("Requeued", ("False", "Preempted")) == ("False", "Preempted")

    async def waits(self, name: str) -> bool:
        """Another pod is gated, and has a Workload of its own."""
        assert self.cluster.plane is not None
        uids = {each["metadata"]["uid"] for each in await self.pods(name) if is_gated(each)}
        return any(
            owner.uid in uids and each.status.admission is None
            for each in self.cluster.plane.state.workloads()
            for owner in each.metadata.owner_references or ()
        )


class OnePod(LonePods):
    """A bare pod is lost: the test makes it again, as whoever made it would."""

    selector = "pod={name}"

    def manifest(self, name: str, priority: str) -> Object:
        obj = super().manifest(name, priority)
        obj["metadata"]["labels"]["pod"] = name
        return obj

    async def released(self, name: str) -> None:
        await make_again(self.cluster, self.manifest(name, "low"))

    async def over(self, name: str) -> None:
        for each in await self.pods(name):
            await succeed(self.cluster, each)


class Deployed(LonePods):
    """A Deployment; its ReplicaSet makes another pod for one that is lost."""

    finishes = False

    async def over(self, name: str) -> None:
        await self.cluster.client.delete(self.resource, NAMESPACE, name)


class Notebook(LonePods):
    """Its controller, which the test plays, hands its labels to the pods of a StatefulSet."""

    def __init__(self, cluster: Site) -> None:
        super().__init__(cluster, ROWS["Pod"])
        self.queue = "q-notebook"

    async def create(self, name: str, priority: str) -> None:
        notebook = manifest("Notebook", name)
        labels = {QUEUE: self.queue, CLASS: priority}
        notebook["metadata"]["labels"] = labels
        await self.cluster.client.create(NOTEBOOKS, notebook, dict)
        template = {
            "metadata": {"labels": {**labels, "app": name}},
            "spec": notebook["spec"]["template"]["spec"],
        }
        spec = {
            "serviceName": name,
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        }
        await self.cluster.client.create(
            STATEFUL_SETS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}, dict
        )

    async def over(self, name: str) -> None:
        await self.cluster.client.delete(STATEFUL_SETS, NAMESPACE, name)

    async def tell(self) -> None:
        await self._told("notebook-low", "notebook-high")

    async def _told(self, low: str, high: str) -> None:
        await self.create(low, "low")
        await self.until(f"{low} runs", lambda: self.runs(low))
        victim = self.victim(low)
        assert victim is not None
        await self.create(high, "high")
        await self.until(f"{high} runs", lambda: self.runs(high))
        await self.until(f"{low} waits", lambda: self.waits(low))
        await self.check_requeued(low, victim)
        await self.over(high)
        await self.until(f"{low} runs again", lambda: self.runs(low))


class Group(Gated):
    """Two pods that are one workload; who made them makes them again."""

    count = remade = 2
    selector = GROUP + "={name}"

    def __init__(self, cluster: Site) -> None:
        super().__init__(cluster, ROWS["Pod"])
        self.queue = "q-group"

    def is_of(self, name: str, workload: Workload) -> bool:
        return workload.metadata.name == name

    def members(self, name: str, priority: str) -> list[Object]:
        found = []
        for index in range(self.count):
            obj = super().manifest(f"{name}-{index}", priority)
            obj["metadata"]["labels"][GROUP] = name
            obj["metadata"]["annotations"] = {TOTAL: str(self.count)}
            obj["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
            found.append(obj)
        return found

    async def create(self, name: str, priority: str) -> None:
        for obj in self.members(name, priority):
            await self.cluster.client.create(PODS, obj, dict)

    async def stopped(self, name: str) -> bool:
        """Their containers have ended: until then others would be more than the group may have."""
        pods = await self.pods(name)
        return all(leaving(each) and first(each, "status.phase") == "Failed" for each in pods)

    async def released(self, name: str) -> None:
        # Deleted members stay until others of their role are there, under other names.
        for obj in self.members(name, "low"):
            obj["metadata"]["name"] += "-again"
            await make_again(self.cluster, obj)

    async def over(self, name: str) -> None:
        for each in await self.pods(name):
            await succeed(self.cluster, each)

    async def check_requeued(self, name: str, victim: Workload) -> None:
        await super().check_requeued(name, victim)

        async def complete() -> bool:
            said = await self.conditions(victim)
            return said["WaitingForReplacementPods"] == ("False", "PodsReady")

        await self.until(f"{name} is complete again", complete)


class Replicas(Gated):
    """A StatefulSet; its pods are a group that never ends, and are made one after the other."""

    count = 2

    async def over(self, name: str) -> None:
        await self.cluster.client.delete(self.resource, NAMESPACE, name)


class LeaderAndWorkers(Gated):
    """The test makes the pods of the groups, as their StatefulSets would."""

    count = remade = 2
    selector = "leaderworkerset.sigs.k8s.io/name={name}"

    async def create(self, name: str, priority: str) -> None:
        await super().create(name, priority)
        await self.make_pods(name)

    async def make_pods(self, name: str) -> None:
        made = await self.read(name)
        whole = made["spec"]["leaderWorkerTemplate"]
        for role, template in (("leader", "leaderTemplate"), ("worker", "workerTemplate")):
            obj: Object = {
                "apiVersion": "v1",
                "kind": "Pod",
                **copy.deepcopy(whole[template]),
            }
            metadata = obj.setdefault("metadata", {})
            metadata |= {"name": f"{name}-0" + ("-1" if role == "worker" else "")}
            metadata["namespace"] = NAMESPACE
            metadata["labels"] = {
                **metadata.get("labels", {}),
                "leaderworkerset.sigs.k8s.io/name": name,
                "leaderworkerset.sigs.k8s.io/group-index": "0",
            }
            if role == "worker":
                notes = {"leaderworkerset.sigs.k8s.io/leader-name": f"{name}-0"}
                metadata["annotations"] = {**metadata["annotations"], **notes}
            await make_again(self.cluster, obj)

    async def released(self, name: str) -> None:
        await self.make_pods(name)

    async def over(self, name: str) -> None:
        await self.cluster.client.delete(self.resource, NAMESPACE, name)

    def is_of(self, name: str, workload: Workload) -> bool:
        return workload.metadata.name.startswith(f"leaderworkerset-{name}-0-")
