"""Manifests as strangers submit them, drawn at random: every kind that a cluster here can run.

Some are queued, some not, some in a queue that there is not; some have several documents, and a few
are refused.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from random import Random

from tests.idle.site import PREFIX
from tests.scheduling.site import NAMESPACE
from tests.whatif.playing import Drawing, Object
from tests.whatif.proof import GPU, PRIORITIES
from tests.whatif.strange_clusters import QUEUES, TAINT, base, config, nodes

__all__ = ["STRANGE", "work"]

_QUEUE, _CLASS = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
_LEAST = "kueue.x-k8s.io/job-min-parallelism"
_SELECTED = "requiredDuringSchedulingIgnoredDuringExecution"
_KOORDINATOR = "gang.scheduling.koordinator.sh"


def work(random: Random, planes: str, name: str) -> Sequence[Object]:
    """Return a submission: mostly one thing, sometimes two."""
    found = list(_Drawn(random, planes, name).thing())
    if random.random() < 0.15:
        found += _Drawn(random, planes, f"{name}b").thing()
    if random.random() < 0.04:
        _break(random, found)
    return found


def _break(random: Random, documents: Sequence[Object]) -> None:
    """Have one of the documents say what is not accepted, or name what there is not."""
    broken = random.choice(documents)
    match random.randint(0, 3):
        case 0:
            broken["metadata"]["namespace"] = "nowhere"
        case 1:
            broken["metadata"]["name"] = "Not_A_Name"
        case 2:
            broken["metadata"]["labels"] = {"a label": "-"}
        case _:
            for spec in _specs(broken):
                spec["priorityClassName"] = "hgih"


def _specs(part: object) -> Iterator[Object]:
    """Yield the specs of pods within a document."""
    if isinstance(part, dict):
        if "containers" in part:
            yield part
        for each in part.values():
            yield from _specs(each)
    elif isinstance(part, list):
        for each in part:
            yield from _specs(each)


class _Drawn:
    """One thing under a name."""

    def __init__(self, random: Random, planes: str, name: str) -> None:
        self.random = random
        self.planes = planes
        self.name = name
        self.priority = random.choice(list(PRIORITIES))
        # One for all its pods: those of a thing that have different ones are tried in an order
        # that depends on how fast its controller makes them.
        self.pods_priority = self.priority if random.random() < 0.8 else ""
        often = 0.7 if "scheduling" in planes else 0.95
        self.queue = self._queue() if "quota" in planes and random.random() < often else ""

    def thing(self) -> Sequence[Object]:
        """Return its manifests."""
        makers: list[Callable[[], Sequence[Object]]] = [
            *(self.job, self.job, self.job_set, self.pytorch_job, self.mpi_job),
            *(self.ray_cluster, self.ray_job, self.ray_service, self.app_wrapper),
            *(self.deployment, self.stateful_set, self.replica_set, self.leader_worker_set),
            *(self.pod, self.cron_job),
        ]
        if self.queue:
            makers += [self.queued_group]
        if "scheduling" in self.planes:
            makers += [self.pod_group, self.pod_group, self.koordinator_gang, self.plugins_gang]
        return self.random.choice(makers)()

    def _queue(self) -> str:
        rare = self.random.random()
        if rare < 0.04:
            return "nobody"
        if rare < 0.07:
            return "lost"
        return f"q-{self.random.randint(0, QUEUES - 1)}"

    def job(self) -> Sequence[Object]:
        pods = self.random.randint(1, 3)
        spec: Object = {"parallelism": pods, "completions": pods, "template": self._template(True)}
        if self.random.random() < 0.3:
            spec["completionMode"] = "Indexed"
        if self.random.random() < 0.2:
            spec["completions"] = pods + self.random.randint(1, 2)
        if self.queue and self.random.random() < 0.7:
            spec["suspend"] = True
        found = self._object("batch/v1", "Job", spec)
        if self.queue and pods > 1 and self.random.random() < 0.3:
            found["metadata"]["annotations"][_LEAST] = "1"
        return [found]

    def cron_job(self) -> Sequence[Object]:
        spec = {"template": self._template(True), "parallelism": 1}
        every = {"schedule": "0 3 1 1 *", "jobTemplate": {"spec": spec}}
        return [self._object("batch/v1", "CronJob", every)]

    def job_set(self) -> Sequence[Object]:
        jobs = []
        for role in ("driver", "workers")[: self.random.randint(1, 2)]:
            pods = self.random.randint(1, 2)
            inner = {"parallelism": pods, "completions": pods, "template": self._template(True)}
            replicas = self.random.randint(1, 2)
            jobs.append({"name": role, "replicas": replicas, "template": {"spec": inner}})
        return [self._object("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs})]

    def pytorch_job(self) -> Sequence[Object]:
        return [self._training("kubeflow.org/v1", "PyTorchJob", "pytorchReplicaSpecs", "Master")]

    def mpi_job(self) -> Sequence[Object]:
        found = self._training("kubeflow.org/v2beta1", "MPIJob", "mpiReplicaSpecs", "Launcher")
        return [found]

    def ray_cluster(self) -> Sequence[Object]:
        return [self._object("ray.io/v1", "RayCluster", self._ray())]

    def ray_job(self) -> Sequence[Object]:
        spec = {
            "entrypoint": "python main.py",
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": self._ray(),
        }
        if self.random.random() < 0.5:
            spec["submissionMode"] = self.random.choice(("HTTPMode", "K8sJobMode"))
        return [self._object("ray.io/v1", "RayJob", spec)]

    def ray_service(self) -> Sequence[Object]:
        spec = {"serveConfigV2": "", "rayClusterConfig": self._ray()}
        return [self._object("ray.io/v1", "RayService", spec)]

    def app_wrapper(self) -> Sequence[Object]:
        pods = self.random.randint(1, 2)
        spec = {"parallelism": pods, "completions": pods, "template": self._template(True)}
        inner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": f"{self.name}-inner"},
            "spec": spec,
        }
        whole = {"components": [{"template": inner}]}
        return [self._object("workload.codeflare.dev/v1beta2", "AppWrapper", whole)]

    def deployment(self) -> Sequence[Object]:
        return [self._object("apps/v1", "Deployment", self._replicated())]

    def replica_set(self) -> Sequence[Object]:
        self.queue = ""
        return [self._object("apps/v1", "ReplicaSet", self._replicated())]

    def stateful_set(self) -> Sequence[Object]:
        spec = {"serviceName": self.name, **self._replicated()}
        if self.random.random() < 0.5:
            spec["podManagementPolicy"] = "Parallel"
        return [self._object("apps/v1", "StatefulSet", spec)]

    def leader_worker_set(self) -> Sequence[Object]:
        template = {"size": self.random.randint(1, 3), "workerTemplate": self._template()}
        if self.random.random() < 0.5:
            template["leaderTemplate"] = self._template()
        spec = {"replicas": self.random.randint(1, 2), "leaderWorkerTemplate": template}
        return [self._object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)]

    def pod(self) -> Sequence[Object]:
        return [self._pod(self.name, self._template()["spec"])]

    def queued_group(self) -> Sequence[Object]:
        """Return pods that are queued together."""
        count = self.random.randint(2, 3)
        spec = self._template()["spec"]
        found = []
        for number in range(count):
            member = self._pod(f"{self.name}-{number}", copy.deepcopy(spec))
            member["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = self.name
            notes = {"kueue.x-k8s.io/pod-group-total-count": str(count)}
            member["metadata"]["annotations"] |= notes
            found.append(member)
        return found

    def pod_group(self) -> Sequence[Object]:
        """Return a PodGroup of Kubernetes with its pods; now and then one is missing."""
        self.queue = ""
        count = self.random.randint(2, 4)
        least = self.random.randint(1, count)
        head = {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": least}},
                "disruptionMode": {self.random.choice(("single", "all")): {}},
                **({"priorityClassName": self.pods_priority} if self.pods_priority else {}),
            },
        }
        spec = self._template()["spec"]
        spec["schedulingGroup"] = {"podGroupName": self.name}
        here = count - (self.random.random() < 0.08)
        pods = [self._pod(f"{self.name}-{i}", copy.deepcopy(spec)) for i in range(here)]
        return [head, *pods]

    def koordinator_gang(self) -> Sequence[Object]:
        """Return pods that say themselves that they are a gang of Koordinator."""
        self.queue = ""
        count = self.random.randint(2, 3)
        spec = self._template()["spec"]
        notes = {
            f"{_KOORDINATOR}/name": self.name,
            f"{_KOORDINATOR}/min-available": str(self.random.randint(1, count)),
        }
        found = []
        for number in range(count):
            member = self._pod(f"{self.name}-{number}", copy.deepcopy(spec))
            member["metadata"]["annotations"] |= notes
            found.append(member)
        return found

    def plugins_gang(self) -> Sequence[Object]:
        """Return a PodGroup of scheduler-plugins or Koordinator with its pods."""
        self.queue = ""
        count = self.random.randint(2, 3)
        group, label = self.random.choice(
            (
                ("scheduling.x-k8s.io", "scheduling.x-k8s.io/pod-group"),
                ("scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io"),
            )
        )
        head = {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {"minMember": self.random.randint(1, count), "scheduleTimeoutSeconds": 600},
        }
        spec = self._template()["spec"]
        found = []
        for number in range(count):
            member = self._pod(f"{self.name}-{number}", copy.deepcopy(spec))
            member["metadata"]["labels"][label] = self.name
            found.append(member)
        return [head, *found]

    def _training(self, version: str, kind: str, path: str, first: str) -> Object:
        roles = {
            first: {"replicas": 1, "restartPolicy": "OnFailure", "template": self._template()},
            "Worker": {
                "replicas": self.random.randint(1, 2),
                "restartPolicy": "OnFailure",
                "template": self._template(),
            },
        }
        return self._object(version, kind, {path: roles})

    def _ray(self) -> Object:
        workers = {
            "groupName": "small",
            "replicas": self.random.randint(1, 2),
            "rayStartParams": {},
            "template": self._template(),
        }
        head = {"rayStartParams": {}, "template": self._template()}
        groups = [workers] if self.random.random() < 0.7 else []
        return {"headGroupSpec": head, "workerGroupSpecs": groups}

    def _replicated(self) -> Object:
        template = self._template()
        template["metadata"]["labels"]["app"] = self.name
        return {
            "replicas": self.random.randint(1, 3),
            "selector": {"matchLabels": {"app": self.name}},
            "template": template,
        }

    def _object(self, version: str, kind: str, spec: Object) -> Object:
        return {
            "apiVersion": version,
            "kind": kind,
            "metadata": self._metadata(self.name),
            "spec": spec,
        }

    def _pod(self, name: str, spec: Object) -> Object:
        metadata = self._metadata(name)
        metadata["labels"]["app"] = self.name
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _metadata(self, name: str) -> Object:
        labels, annotations = {}, {}
        if self.queue:
            labels[_QUEUE] = self.queue
            if self.random.random() < 0.8:
                labels[_CLASS] = f"w-{self.priority}"
        if "idle" in self.planes and self.random.random() < 0.8:
            annotations[f"{PREFIX}enabled"] = "true"
        return {
            "name": name,
            "namespace": NAMESPACE,
            "labels": labels,
            "annotations": annotations,
        }

    def _template(self, of_job: bool = False) -> Object:
        """Return a pod template; a Job's does not start its containers again."""
        spec: Object = {
            "containers": [self._container("main")],
            "terminationGracePeriodSeconds": self.random.choice((1, 1, 5, 30)),
        }
        if of_job:
            spec["restartPolicy"] = "Never"
        if self.pods_priority:
            spec["priorityClassName"] = self.pods_priority
        if self.random.random() < 0.1:
            spec["containers"].append(self._container("beside", gpus=False))
        if self.random.random() < 0.1:
            spec["initContainers"] = [self._container("before", gpus=False)]
        if self.random.random() < 0.08:
            by = "resourceClaimTemplateName" if self.random.random() < 0.7 else "resourceClaimName"
            spec["resourceClaims"] = [{"name": "gpus", by: "gpus"}]
            spec["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
        self._constrain(spec)
        labels = {"tier": "guarded"} if self.random.random() < 0.2 else {}
        return {"metadata": {"labels": labels}, "spec": spec}

    def _container(self, name: str, gpus: bool = True) -> Object:
        requests: dict[str, str] = {}
        if self.random.random() < 0.95:
            requests["cpu"] = self.random.choice(("250m", "500m", "500m", "1", "1", "1500m", "2"))
        if self.random.random() < 0.3:
            requests["memory"] = self.random.choice(("1Gi", "4Gi"))
        resources: Object = {"requests": requests}
        often = 0.6 if "idle" in self.planes else 0.1
        if gpus and self.random.random() < often:
            amount = str(self.random.randint(1, 4))
            requests[GPU] = amount
            resources["limits"] = {GPU: amount}
        return {"name": name, "image": "registry.example/app:1", "resources": resources}

    def _constrain(self, spec: Object) -> None:
        """Ask for certain nodes, now and then, or to be apart from others."""
        random = self.random
        if random.random() < 0.15:
            spec["nodeSelector"] = {"disk": random.choice(("fast", "slow"))}
        if random.random() < 0.2:
            spec["tolerations"] = [{"operator": "Equal", **TAINT}]
        affinity: Object = {}
        if random.random() < 0.1:
            term = {"key": "zone", "operator": "In", "values": [random.choice("ab")]}
            terms = [{"matchExpressions": [term]}]
            affinity["nodeAffinity"] = {_SELECTED: {"nodeSelectorTerms": terms}}
        guarded = {"matchLabels": {"tier": "guarded"}}
        if random.random() < 0.06:
            apart = {"labelSelector": guarded, "topologyKey": "kubernetes.io/hostname"}
            affinity["podAntiAffinity"] = {_SELECTED: [apart]}
        if affinity:
            spec["affinity"] = affinity
        if random.random() < 0.06:
            spread = {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": random.choice(("DoNotSchedule", "ScheduleAnyway")),
                "labelSelector": guarded,
            }
            spec["topologySpreadConstraints"] = [spread]


#: Every kind, in every sort of cluster.
STRANGE = Drawing(nodes, base, work, config)
