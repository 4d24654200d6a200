"""A real control plane, on free ports of 127.0.0.1.

etcd and kube-apiserver, and kube-controller-manager where it is there, in a temporary folder. The
API server makes its own certificate, people and the operator have static tokens, RBAC decides. The
binaries are those in `$KUBEBUILDER_ASSETS`, or else in the user's cache folder; run as a module it
says which, and ends with 1 where there are none.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests import with_parent

ADMINISTRATOR = "admin"
ASSETS = "KUBEBUILDER_ASSETS"
# API servers refuse to advertise an address of the loopback range since 1.37. Nobody asks for this
# one: it is of TEST-NET-1 (RFC 5737), and without a reconciler it goes into no Endpoints.
ADVERTISED = "192.0.2.1"
STARTUP_S = 180.0
# Nobody fills service accounts with tokens here, and no node controller lifts the taint of nodes
# that are new.
WITHOUT_ADMISSION = "ServiceAccount,TaintNodesByCondition"
CONTROLLERS = (
    "job-controller",
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "garbage-collector-controller",
    "clusterrole-aggregation-controller",
    "resourcequota-controller",
)


class NoBinaries(Exception):
    """There is no control plane to run; the text says what is missing."""


class StartFailed(Exception):
    """A process did not come up; the text ends with what it said last."""


@dataclass(frozen=True)
class Binaries:
    etcd: Path
    apiserver: Path
    controller_manager: Path | None

    @property
    def version(self) -> str:
        """What the API server says, as `Kubernetes v1.37.1`."""
        return _version(self.apiserver)

    @property
    def release(self) -> tuple[int, int]:
        """The API server's minor release, as 1, 37."""
        major, minor, *_ = self.version.split()[-1].removeprefix("v").split(".")
        return int(major), int(minor)


def binaries_folder() -> tuple[Path, str]:
    """Return the folder where binaries are looked for, and what names it."""
    named = os.environ.get(ASSETS)
    if named:
        return Path(named), ASSETS
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "reprieve" / "control-plane", "the user's cache folder"


def find_binaries() -> Binaries:
    """Return the binaries.

    Raises:
        NoBinaries: the folder lacks one.
    """
    folder, by = binaries_folder()
    missing = [name for name in ("etcd", "kube-apiserver") if not (folder / name).is_file()]
    if missing:
        raise NoBinaries(
            f"no real API server: {folder} ({by}) has no {' and no '.join(missing)}; accepted: a "
            f"folder with etcd and kube-apiserver, named by {ASSETS}"
        )
    if shutil.which("openssl") is None:
        raise NoBinaries("no real API server: openssl, which makes its key, is not on PATH")
    manager = folder / "kube-controller-manager"
    return Binaries(
        folder / "etcd", folder / "kube-apiserver", manager if manager.is_file() else None
    )


@dataclass
class ControlPlane:
    """Running processes. `restart_api_server` keeps what etcd holds.

    `flags`: more of them, by program; the last of several alike counts.
    """

    binaries: Binaries
    folder: Path
    users: dict[str, str]  # user -> group
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    # One thread starts all of them and lives as long as they do, whoever asks for it: the kernel
    # ends them with it, and so with this process.
    _starter: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.ports['api']}"

    @property
    def has_controllers(self) -> bool:
        return self.binaries.controller_manager is not None

    def start(self) -> None:
        for name, port in zip(("etcd", "peer", "api", "manager"), _free_ports(4), strict=True):
            self.ports[name] = port
        self._write_credentials()
        self._start_etcd()
        self.start_api_server()
        if self.binaries.controller_manager is not None:
            self._start_controllers(self.binaries.controller_manager)

    def stop(self) -> None:
        for name in reversed(list(self._running)):
            self._stop(name)

    def restart_api_server(self) -> None:
        self.kill_api_server()
        self.start_api_server()

    def kill_api_server(self) -> None:
        """End it as SIGKILL does; `start_api_server` starts it again, with the flags of then."""
        self._stop("kube-apiserver")

    def pid(self, program: str) -> int:
        """Return the process id of a program that runs."""
        return self._running[program].pid

    def write_kubeconfig(self, path: Path, user: str) -> None:
        certificate = self.folder / "certificates" / "apiserver.crt"
        context = {"cluster": "real", "user": user}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "real",
                    "cluster": {"server": self.url, "certificate-authority": str(certificate)},
                }
            ],
            "users": [{"name": user, "user": {"token": _token(user)}}],
            "contexts": [{"name": "real", "context": context}],
            "current-context": "real",
        }
        path.write_text(yaml.safe_dump(content), encoding="utf-8")

    def _write_credentials(self) -> None:
        tokens = [f'{_token(user)},{user},{user},"{group}"' for user, group in self.users.items()]
        (self.folder / "tokens.csv").write_text("\n".join(tokens) + "\n", encoding="utf-8")
        key = self.folder / "service-accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{self.ports[name]}" for name in ("etcd", "peer"))
        self._run(
            "etcd",
            self.binaries.etcd,
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )

    def start_api_server(self) -> None:
        """Start it and wait until it is ready."""
        key = self.folder / "service-accounts.key"
        self._run(
            "kube-apiserver",
            self.binaries.apiserver,
            f"--etcd-servers=http://127.0.0.1:{self.ports['etcd']}",
            "--bind-address=127.0.0.1",
            f"--advertise-address={ADVERTISED}",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self.ports['api']}",
            f"--cert-dir={self.folder / 'certificates'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            f"--disable-admission-plugins={WITHOUT_ADMISSION}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--allow-privileged=true",
        )
        self._until_ready()

    def _start_controllers(self, binary: Path) -> None:
        kubeconfig = self.folder / "controllers.kubeconfig"
        self.write_kubeconfig(kubeconfig, ADMINISTRATOR)
        self._run(
            "kube-controller-manager",
            binary,
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.ports['manager']}",
            f"--cert-dir={self.folder / 'manager'}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        )

    def _until_ready(self) -> None:
        deadline = time.monotonic() + STARTUP_S
        process = self._running["kube-apiserver"]
        request = urllib.request.Request(
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {_token(ADMINISTRATOR)}"}
        )
        certificate = self.folder / "certificates" / "apiserver.crt"
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError, urllib.error.URLError, ssl.SSLError):
                trust = ssl.create_default_context(cafile=certificate)
                trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
                with urllib.request.urlopen(request, context=trust, timeout=5) as answer:
                    if answer.status == 200:
                        return
            time.sleep(0.2)
        raise StartFailed(f"kube-apiserver did not become ready: {self._said('kube-apiserver')}")

    def _run(self, name: str, binary: Path, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = self._starter.submit(
                subprocess.Popen[bytes],
                with_parent.program(binary, *arguments, *self.flags.get(name, ())),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            ).result()

    def _stop(self, name: str) -> None:
        # Killed, since kube-apiserver would wait for watches to end; etcd keeps what it stored.
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def _said(self, name: str) -> str:
        return "\n".join((self.folder / f"{name}.log").read_text().splitlines()[-15:])


@contextlib.contextmanager
def control_plane(
    binaries: Binaries,
    folder: Path,
    users: dict[str, str],
    flags: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[ControlPlane]:
    """Run it; `users` maps user names to their group, `flags` are as `ControlPlane` has them."""
    running = ControlPlane(binaries, folder, users, flags or {})
    try:
        running.start()
        yield running
    finally:
        running.stop()


def _token(user: str) -> str:
    return f"token-of-{user}"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in found]


def describe() -> str:
    """Return which control plane the tests run, with its versions.

    Raises:
        NoBinaries: none.
    """
    found = find_binaries()
    folder, by = binaries_folder()
    programs = (found.etcd, found.apiserver, found.controller_manager)
    versions = [_version(program) for program in programs if program is not None]
    return f"{folder} ({by}): {', '.join(versions)}"


def _version(program: Path) -> str:
    command = [str(program), "--version"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return said.splitlines()[0].strip()


if __name__ == "__main__":
    try:
        print(describe())
    except NoBinaries as absent:
        print(absent)
        sys.exit(1)
