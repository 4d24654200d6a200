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
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from tests import with_parent
from tests.chart.helm import ROOT
from tests.integration.control_plane import binaries_folder
from tests.node import network, settings
from tests.node.credentials import Authority
from tests.node.groups import make_groups
from tests.node.machine import DEVICE_PLUGIN, ENFORCER, FOLDER, IMAGE, NODES
from tests.node.small_image import small_image
from tests.node.sweeper import Sweeper

__all__ = ["ABSENT", "EXPORTER", "GPU", "GPUS", "OPERATOR", "SMALL", "Cluster", "Machine"]

GPU: Final = "amd.com/gpu"
GPUS: Final = 8  # of each node
#: For `Cluster.set_devices`: the device plugin leaves the kubelet.
ABSENT: Final = "absent"
EXPORTER: Final = f"http://{network.SERVER}:5000/metrics"
SMALL: Final = "docker.io/local/busybox:1"
_REGISTRY: Final = 5001
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


@dataclass(frozen=True)
class Machine:
    """What each node has and does."""

    #: By resource, how many devices its device plugins give the kubelet.
    devices: Mapping[str, int] = field(default_factory=lambda: {GPU: GPUS})
    #: How many processors the kubelet sees; 0 for those of this machine.
    processors: int = 0
    #: Whether it enforces NetworkPolicies.
    enforces: bool = False


@dataclass
class Cluster:
    """A running cluster; `kubeconfig` is the administrator's."""

    folder: Path
    kubectl_program: Path
    #: Archives that each node has, beside the small images.
    images: Sequence[Path] = (IMAGE,)
    machine: Machine = field(default_factory=Machine)
    kubeconfig: Path = field(init=False)
    _parts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _authority: Authority = field(init=False)
    _sweeper: Sweeper | None = None

    def start(self) -> None:
        """Bring everything up; return when both nodes are ready and have their GPUs."""
        self._sweeper = Sweeper(self.folder)
        network.up()
        server = f"https://{network.SERVER}:6443"
        self._authority = Authority(self.folder / "certificates", server)
        self.kubeconfig = self._authority.client("admin", "admin", "system:masters")
        self._start_control_plane(self._authority)
        self.until("the API server answers", lambda: self.kubectl("get", "--raw", "/readyz"))
        self.set_idle("idle")
        self._start_program("names", str(self.kubeconfig), network.SERVER)
        self._start_program(
            *("exporter", str(self.kubeconfig), network.SERVER, "5000"), str(self._idle)
        )
        self._start_program("registry", network.SERVER, str(_REGISTRY))
        images = self.folder / "images"
        images.mkdir()
        small_image(images / "small.tar", SMALL, ["sh"])
        small_image(images / "pause.tar", settings.PAUSE, ["sleep", "1000000"])
        for number, archive in enumerate(self.images):
            (images / f"{number}.tar").symlink_to(archive)
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

    def end_kubelet(self, name: str) -> None:
        """End a node's kubelet, which is started again at once; its containers run on."""
        (found,) = _named("kubelet", self._parts[name].pid)
        os.kill(found, signal.SIGKILL)

    def set_devices(self, name: str, *words: str) -> None:
        """Name the devices of a node that are unhealthy from now on, or `ABSENT`."""
        _replace(self.folder / name / "devices", " ".join(words))

    def set_idle(self, *beginnings: str) -> None:
        """Have the exporter report 0 percent for the pods whose names begin like this."""
        _replace(self._idle, " ".join(beginnings))

    def allocatable(self, name: str, resource: str = GPU) -> int:
        """Return how many devices the control plane holds a node to have."""
        return int(self.get("node", name)["status"]["allocatable"].get(resource, 0))

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

    def until(
        self, what: str, holds: Callable[[], object], *, patience_s: float = _PATIENCE_S
    ) -> Any:
        """Wait until it returns something; a command that fails has not yet."""
        deadline, failure = time.monotonic() + patience_s, ""
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
        devices = self.machine.devices

        def has_them() -> bool:
            return devices == {each: self.allocatable(name, each) for each in devices}

        self.until(f"{name} has its devices", has_them)

    @property
    def _idle(self) -> Path:
        return self.folder / "idle"

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

    def _start_program(self, name: str, *arguments: str) -> None:
        """Run one of our own programs in the control plane's network."""
        enter, *rest = network.inside(network.CONTROL)
        program = (sys.executable, "-m", f"tests.node.{name}", *arguments)
        with (self.folder / f"{name}.log").open("wb") as log:
            self._parts[name] = subprocess.Popen(
                with_parent.program(enter, *rest, *program),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
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
        (place / "cni" / "10-bridge.conflist").write_text(json.dumps(settings.bridge(number)))
        (place / "containerd.toml").write_text(settings.containerd(place))
        settings.registries(place, f"http://{network.SERVER}:{_REGISTRY}")
        kubelet = settings.kubelet(authority, name, place)
        (place / "kubelet.yaml").write_text(yaml.safe_dump(kubelet))
        proxy = settings.proxy(authority.folder / "kube-proxy.kubeconfig", name)
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
                    # A folder of the machine would not do: who removes it ends the mounts over it.
                    "mount -t tmpfs tmpfs /var/lib",
                    "mkdir /var/lib/kubelet /var/lib/cni",
                    f"mount --bind {place}/kubelet /var/lib/kubelet",
                    f"mount --bind {place}/state /var/lib/cni",
                    f"mount --bind {place}/log /var/log",
                    *hidden,
                    *settings.processors(place, self.machine.processors),
                    f"export PATH={FOLDER}:$PATH",
                    f"containerd -c {place}/containerd.toml > {place}/log/containerd.log 2>&1 &",
                    f"until [ -S {socket} ]; do sleep 0.2; done",
                    f"for image in {self.folder}/images/*.tar; do",
                    f"  ctr -a {socket} -n k8s.io images import $image",
                    "done",
                    (
                        f"(while true; do kubelet --config {place}/kubelet.yaml "
                        f"--kubeconfig {client} --hostname-override {name} "
                        f"--node-ip {network.address_of(number)} --root-dir /var/lib/kubelet; "
                        f"sleep 1; done) > {place}/log/kubelet.log 2>&1 &"
                    ),
                    *(
                        f"{DEVICE_PLUGIN} {resource} {count} {place}/devices "
                        f"> {place}/log/devices-{order}.log 2>&1 &"
                        for order, (resource, count) in enumerate(self.machine.devices.items())
                    ),
                    f"kube-proxy --config {place}/proxy.yaml > {place}/log/proxy.log 2>&1 &",
                    *(self._enforcer(name) if self.machine.enforces else ()),
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


def _replace(file: Path, text: str) -> None:
    """Write a file that others read at any time."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def _named(name: str, ancestor: int) -> Iterator[int]:
    """Yield the processes of a name below a process."""
    children = Path(f"/proc/{ancestor}/task/{ancestor}/children").read_text().split()
    for each in map(int, children):
        if Path(f"/proc/{each}/comm").read_text().strip() == name:
            yield each
        yield from _named(name, each)
