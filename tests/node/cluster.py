"""A control plane and two nodes with real kubelets, in namespaces of their own.

Each part runs below an `unshare` that the kernel ends with the tests, and with it all that it has
started, containers too: `unshare --kill-child` ends the first process of a process namespace, and
the kernel the rest. What stays then are empty network namespaces, control groups and files, which
`sweeper` removes.

What makes a kubelet run beside others on one machine: a mount namespace of its own with a `/run`
and a `/var/lib/kubelet` of its own, a root of cgroups of its own, and files in place of the kernel
settings that it writes.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from tests import with_parent
from tests.integration.control_plane import binaries_folder
from tests.node import network
from tests.node.credentials import Authority
from tests.node.groups import make_groups
from tests.node.machine import ENFORCER, FOLDER, IMAGE, NODES
from tests.node.small_image import small_image
from tests.node.sweeper import Sweeper

__all__ = ["EXPORTER", "GPU", "GPUS", "OPERATOR", "SMALL", "Cluster"]

GPU: Final = "amd.com/gpu"
GPUS: Final = 8  # of each node
EXPORTER: Final = f"http://{network.SERVER}:5000/metrics"
SMALL: Final = "docker.io/local/busybox:1"
_PAUSE: Final = "docker.io/local/pause:1"
_GATES: Final = ",".join(
    f"{gate}=true"
    for gate in (
        "GenericWorkload",
        "PodGroupPreemptionPolicy",
        "TopologyAwareWorkloadScheduling",
    )
)
# What the kubelet writes for the whole machine, and what it reads there in its place.
_HIDDEN: Final = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
# Where programs have their files on any node; each node here mounts its own over them.
_PLACES: Final = (Path("/var/lib/kubelet"), Path("/var/lib/cni"))
_WRITES: Final = ["create", "update", "patch", "delete", "deletecollection"]
# The log of what the operator's release requests.
OPERATOR: Final = "system:serviceaccount:reprieve:reprieve"
_AUDIT: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Request", "users": [OPERATOR], "verbs": _WRITES}, {"level": "None"}],
}
_PATIENCE_S: Final = 240


@dataclass
class Cluster:
    """A running cluster; `kubeconfig` is the administrator's."""

    folder: Path
    kubectl_program: Path
    #: Archives that each node has, beside the small images.
    images: Sequence[Path] = (IMAGE,)
    #: Whether each node enforces NetworkPolicies.
    enforces: bool = False
    kubeconfig: Path = field(init=False)
    _parts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _authority: Authority = field(init=False)
    _sweeper: Sweeper | None = None

    def start(self) -> None:
        """Bring everything up; return when both nodes are ready and have their GPUs."""
        made = [place for place in _PLACES if not place.exists()]
        self._sweeper = Sweeper(self.folder, made)
        network.up()
        server = f"https://{network.SERVER}:6443"
        self._authority = Authority(self.folder / "certificates", server)
        self.kubeconfig = self._authority.client("admin", "admin", "system:masters")
        self._start_control_plane(self._authority)
        self.until("the API server answers", lambda: self.kubectl("get", "--raw", "/readyz"))
        for program in ("names", "exporter"):
            self._start_program(program)
        images = self.folder / "images"
        images.mkdir()
        small_image(images / "small.tar", SMALL, ["sh"])
        small_image(images / "pause.tar", _PAUSE, ["sleep", "1000000"])
        for number, archive in enumerate(self.images):
            os.link(archive, images / f"{number}.tar")
        for place in made:
            place.mkdir(parents=True)
        for number, _ in enumerate(NODES, 1):
            self._start_node(self._authority, number)
        for name in NODES:
            self._await_node(name)

    def stop(self) -> None:
        """End everything and remove what it made of this machine."""
        for name in reversed([*self._parts]):
            self._end(name)
        if self._sweeper is not None:
            self._sweeper.finish()

    def end_node(self, name: str) -> None:
        """End a node with all that runs on it, as a machine that loses its power."""
        self._end(name)

    def start_node(self, name: str) -> None:
        """Start a node that was ended; return when it is ready and has its GPUs."""
        self._start_node(self._authority, NODES.index(name) + 1)
        self._await_node(name)

    def ready(self, name: str) -> bool:
        """Return whether the control plane holds a node for ready."""
        conditions = self.get("node", name)["status"]["conditions"]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def kubectl(self, *arguments: str, given: str = "") -> str:
        """Return what kubectl prints.

        Raises:
            RuntimeError: it failed; the text is its own.
        """
        done = subprocess.run(
            [str(self.kubectl_program), "--kubeconfig", str(self.kubeconfig), *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip() or done.stdout.strip())
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """Return what `kubectl get` finds, as JSON has it."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or change objects."""
        self.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(objects))

    def requests(self) -> list[dict[str, Any]]:
        """Return what the operator of the release wrote, in the order of the audit log."""
        log = self.folder / "audit.log"
        return [json.loads(line) for line in log.read_bytes().splitlines()]

    def until(self, what: str, holds: Callable[[], object]) -> Any:
        """Wait until it returns something; a command that fails has not yet."""
        deadline, failure = time.monotonic() + _PATIENCE_S, ""
        while time.monotonic() < deadline:
            try:
                if found := holds():
                    return found
            except RuntimeError as error:
                failure = str(error)
            time.sleep(0.3)
        raise AssertionError(f"{what} never held; {failure}\n{self._all()}")

    def _all(self) -> str:
        with contextlib.suppress(RuntimeError):
            events = self.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp")
            return self.kubectl("get", "pods", "-A", "-o", "wide") + events[-4000:]
        return ""

    def _await_node(self, name: str) -> None:
        self.until(f"{name} is ready", partial(self.ready, name))
        amounts = {"capacity": {GPU: str(GPUS)}, "allocatable": {GPU: str(GPUS)}}
        change = json.dumps({"status": amounts})
        self.kubectl(*("patch", "node", name, "--subresource=status", "--type=merge", "-p", change))

    def _end(self, name: str) -> None:
        part = self._parts.pop(name)
        part.kill()
        part.wait()

    def _start(self, name: str, namespace: str, script: str, *flags: str) -> None:
        """Run a script as the first process of its own process namespace."""
        place = self.folder / name
        (place / "log").mkdir(parents=True, exist_ok=True)
        file = place / "init.sh"
        file.write_text(script)
        enter, *rest = network.inside(namespace)
        unshare = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *flags)
        with (place / "log" / "init.log").open("wb") as log:
            self._parts[name] = subprocess.Popen(
                with_parent.program(enter, *rest, *unshare, "sh", str(file)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=place,
            )

    def _start_program(self, name: str) -> None:
        """Run one of our own programs in the control plane's network."""
        enter, *rest = network.inside(network.CONTROL)
        program = Path(__file__).with_name(f"{name}.py")
        ends = ("5000",) if name == "exporter" else ()
        with (self.folder / f"{name}.log").open("wb") as log:
            self._parts[name] = subprocess.Popen(
                [
                    *with_parent.program(enter, *rest, sys.executable),
                    *(str(program), str(self.kubeconfig), network.SERVER, *ends),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _start_control_plane(self, authority: Authority) -> None:
        names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
        authority.server("apiserver", (*names, "10.96.0.1", network.SERVER, "127.0.0.1"))
        authority.client("kubelets", "kube-apiserver-kubelet-client", "system:masters")
        managers = {
            name: authority.client(name, f"system:{name}")
            for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy")
        }
        private, public = authority.accounts()
        at, keys = binaries_folder()[0], authority.folder
        audit = self.folder / "audit.yaml"
        audit.write_text(yaml.safe_dump(_AUDIT))
        lines = [
            (
                f"{at}/etcd --data-dir {self.folder}/etcd --log-level error --unsafe-no-fsync "
                "--listen-client-urls http://127.0.0.1:2379 "
                "--listen-peer-urls http://127.0.0.1:2380 "
                "--advertise-client-urls http://127.0.0.1:2379 > log/etcd.log 2>&1 &"
            ),
            (
                f"{at}/kube-apiserver --etcd-servers http://127.0.0.1:2379 --secure-port 6443 "
                f"--bind-address 0.0.0.0 --advertise-address {network.SERVER} "
                f"--tls-cert-file {keys}/apiserver.crt --tls-private-key-file {keys}/apiserver.key "
                f"--client-ca-file {authority.certificate} "
                f"--kubelet-client-certificate {keys}/kubelets.crt "
                f"--kubelet-client-key {keys}/kubelets.key "
                f"--kubelet-certificate-authority {authority.certificate} "
                "--kubelet-preferred-address-types InternalIP --authorization-mode Node,RBAC "
                "--enable-admission-plugins NodeRestriction "
                "--service-account-issuer https://kubernetes.default.svc.cluster.local "
                f"--service-account-key-file {public} --service-account-signing-key-file {private} "
                "--service-cluster-ip-range 10.96.0.0/16 --enable-aggregator-routing=true "
                f"--audit-policy-file {audit} --audit-log-path {self.folder}/audit.log "
                "--audit-log-mode blocking "
                f"--allow-privileged --runtime-config api/all=true --feature-gates {_GATES} "
                "> log/api.log 2>&1 &"
            ),
            *(
                f"{at}/{name} --kubeconfig {managers[name]} "
                f"--authentication-kubeconfig {managers[name]} "
                f"--authorization-kubeconfig {managers[name]} --leader-elect=false "
                f"--feature-gates {_GATES} {flags} > log/{name}.log 2>&1 &"
                for name, flags in (
                    (
                        "kube-controller-manager",
                        (
                            f"--service-account-private-key-file {private} "
                            f"--root-ca-file {authority.certificate} "
                            "--use-service-account-credentials"
                        ),
                    ),
                    ("kube-scheduler", ""),
                )
            ),
            "wait",
        ]
        # Managers that come too early end, and are started again.
        waits = f"until {self.kubectl_program} --kubeconfig {self.kubeconfig} get --raw /readyz"
        lines.insert(2, f"{waits} > /dev/null 2>&1; do sleep 1; done")
        self._start("control", network.CONTROL, "\n".join(lines))

    def _start_node(self, authority: Authority, number: int) -> None:
        name, place = NODES[number - 1], self.folder / NODES[number - 1]
        client = authority.client(name, f"system:node:{name}", "system:nodes")
        authority.server(f"{name}-serving", (name, network.address_of(number)))
        for each in ("cni", "containerd", "kubelet", "log", "names", "state", "static"):
            (place / each).mkdir(parents=True, exist_ok=True)
        make_groups(name)
        (place / "resolv.conf").write_text(f"nameserver {network.SERVER}\n")
        (place / "cni" / "10-bridge.conflist").write_text(json.dumps(_bridge(number)))
        (place / "containerd.toml").write_text(_containerd(place))
        kubelet = _kubelet(authority, name, place)
        (place / "kubelet.yaml").write_text(yaml.safe_dump(kubelet))
        proxy = _proxy(authority.folder / "kube-proxy.kubeconfig", name)
        (place / "proxy.yaml").write_text(yaml.safe_dump(proxy))
        hidden = []
        for at, value in _HIDDEN.items():
            file = place / "names" / at.replace("/", "-")
            file.write_text(f"{value}\n")
            hidden.append(f"mount --bind {file} /proc/sys/{at}")
        socket = "/run/containerd/containerd.sock"
        self._start(
            name,
            network.node_namespace(number),
            "\n".join(
                [
                    "mount --make-rshared /",
                    "mount -t tmpfs tmpfs /run",
                    # Many small files: in memory they cost nothing, and go by themselves.
                    f"mount -t tmpfs tmpfs {place}/containerd",
                    f"mount --bind {place}/kubelet /var/lib/kubelet",
                    f"mount --bind {place}/state /var/lib/cni",
                    f"mount --bind {place}/log /var/log",
                    *hidden,
                    f"export PATH={FOLDER}:$PATH",
                    f"containerd -c {place}/containerd.toml > {place}/log/containerd.log 2>&1 &",
                    f"until [ -S {socket} ]; do sleep 0.2; done",
                    f"for image in {self.folder}/images/*.tar; do",
                    f"  ctr -a {socket} -n k8s.io images import $image",
                    "done",
                    (
                        f"kubelet --config {place}/kubelet.yaml --kubeconfig {client} "
                        f"--hostname-override {name} --node-ip {network.address_of(number)} "
                        f"--root-dir /var/lib/kubelet > {place}/log/kubelet.log 2>&1 &"
                    ),
                    f"kube-proxy --config {place}/proxy.yaml > {place}/log/proxy.log 2>&1 &",
                    *(self._enforcer(name) if self.enforces else ()),
                    "wait",
                ]
            ),
            "--mount",
            "--propagation",
            "private",
        )

    def _enforcer(self, name: str) -> tuple[str, ...]:
        """Return the commands that enforce NetworkPolicies on a node, its bridge included."""
        log = self.folder / name / "log" / "enforcer.log"
        return (
            "sysctl -qw net.bridge.bridge-nf-call-iptables=1",
            (
                # It ends where the node is not known yet.
                f"(while sleep 1; do {ENFORCER} --kubeconfig {self.kubeconfig} "
                f"--hostname-override {name} --run-router=false --run-service-proxy=false "
                f"--run-firewall=true --service-cluster-ip-range 10.96.0.0/16; done) > {log} 2>&1 &"
            ),
        )


def _bridge(number: int) -> dict[str, Any]:
    pods = {"subnet": network.pods_of(number)}
    plugin = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": {"type": "host-local", "ranges": [[pods]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]}


def _containerd(place: Path) -> str:
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    return f"""version = 3
root = "{place}/containerd"
state = "/run/containerd"
[grpc]
address = "/run/containerd/containerd.sock"
[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{_PAUSE}"
[{runtime}]
restrict_oom_score_adj = true
[{runtime}.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{place}/cni"
[{runtime}.containerd]
default_runtime_name = "runc"
[{runtime}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{runtime}.containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def _kubelet(authority: Authority, name: str, place: Path) -> dict[str, Any]:
    disks = (f"{fs}.{what}" for fs in ("nodefs", "imagefs") for what in _DISK)
    signals = ("memory.available", "pid.available", *disks)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{network.PREFIX}{name}",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(authority.certificate)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "tlsCertFile": str(authority.folder / f"{name}-serving.crt"),
        "tlsPrivateKeyFile": str(authority.folder / f"{name}-serving.key"),
        "clusterDNS": [network.SERVER],
        "clusterDomain": "cluster.local",
        "resolvConf": str(place / "resolv.conf"),
        "staticPodPath": str(place / "static"),
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": dict.fromkeys(signals, "0%"),
        "syncFrequency": "10s",
    }


_DISK: Final = ("available", "inodesFree")


def _proxy(kubeconfig: Path, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": network.every_pod(),
        "hostnameOverride": name,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        # Else it would change settings of the whole machine.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s"},
    }
