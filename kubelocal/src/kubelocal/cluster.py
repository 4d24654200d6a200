"""The embedded cluster: an API server in this process, with its switches for tests.

`EmbeddedCluster` is what tests, scenarios and the command line use. Everything it serves passes
through `api`, over HTTP or in process; the machines that imitate nodes and controllers are apart
(`kubelocal.machines`).
"""

from __future__ import annotations

import base64
import secrets
import ssl
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from aiohttp import web

from kubelocal.server.api import Api
from kubelocal.server.clock import JumpingClock, TimeSource
from kubelocal.server.rights.access import Access
from kubelocal.server.rights.identity import ADMINISTRATOR, ANONYMOUS
from kubelocal.server.rights.rbac import Roles
from kubelocal.server.selectors import SELECTABLE, field_values
from kubelocal.server.start import start_cluster
from kubelocal.server.types.gates import STRICT_DISRUPTION_MODE, enabled
from kubelocal.server.types.registry import Registry
from kubelocal.server.wire.connection import Server
from kubelocal.server.wire.faults import Faults
from kubelocal.server.wire.hosts import Hosts
from kubelocal.server.wire.http import HttpServer, Stage, Write
from kubelocal.store import Store
from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import MINUTE

__all__ = ["EmbeddedCluster", "Faults", "Stage", "Write"]


class EmbeddedCluster:
    """An API server on 127.0.0.1; use as an async context manager or with `start` and `stop`.

    Plain HTTP is the default: it starts faster, and every client can be used without a file. Then
    requests without a token are the administrator's, since kubectl sends no token over it. With
    `tls` the cluster has a certificate authority of its own, kubeconfig files name it, tokens
    travel as in production, and a request without a token is anonymous: refused, or with `rbac`
    `system:anonymous`. Without it the server answers to loopback names, and to `hosts`, only.

    `port` 0 chooses a free one; `data` is a folder in which objects outlive the process (created
    when missing), None keeps them in memory. With `rbac` a user may do what the stored roles allow
    and no more, without it everything. The server itself empties deleted namespaces and counts for
    ResourceQuotas; without `controllers` it leaves that, like a bare API server, to other programs.
    `feature_gates` differ from `gates.DEFAULTS`; one that does not exist is a `UsageError`. With
    `strict_disruption_mode` new pod groups of disruption mode `all` must have the gang policy.
    Built-in API versions in `without` are not served.
    """

    def __init__(
        self,
        *,
        clock: TimeSource | None = None,
        port: int = 0,
        data: Path | None = None,
        rbac: bool = False,
        tls: bool = False,
        controllers: bool = True,
        feature_gates: Mapping[str, bool] | None = None,
        strict_disruption_mode: bool = False,
        without: Collection[str] = (),
        hosts: Collection[str] = (),
    ) -> None:
        self.clock = JumpingClock(clock or SystemClock())
        self._port, self._data, self._tls = port, data, tls
        self.certificate_authority: bytes | None = None
        """The certificate that clients are to trust, PEM; None over plain HTTP."""
        self._runner: web.ServerRunner | None = None
        self.url = ""
        strict = {STRICT_DISRUPTION_MODE} if strict_disruption_mode else frozenset()
        self.registry = Registry(features=enabled(feature_gates) | strict, without=without)
        if data is not None:
            data.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._access = Access(_secret(data))
        self.store = Store(self._fields, None if data is None else data / "objects.sqlite")
        self.api = Api(self.store, self.registry, self.clock, controllers=controllers)
        if tls:
            self._access.tokenless = ANONYMOUS
        if rbac:
            self.api.roles = self._access.roles = Roles(self.store)
        self._http = HttpServer(self.api, self._access, None if tls else Hosts(hosts))

    async def start(self) -> None:
        """Open the port; `url` is known afterwards.

        Raises:
            OSError: the port is in use.
        """
        start_cluster(self.api, roles=self._access.roles is not None)
        server = Server(self._http.handle)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        context = self._secure() if self._tls else None
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=context)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"{'https' if self._tls else 'http'}://{host}:{port}"

    async def stop(self) -> None:
        """End all watches, close the port and the file."""
        self.store.end_watches()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self.store.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    # Clients

    def token(
        self,
        user: str = ADMINISTRATOR,
        audiences: Sequence[str] = (),
        pod_uid: str = "",
        pod_name: str = "",
    ) -> str:
        """Return a bearer token for a user name; without audiences it is for this server.

        `pod_uid` and `pod_name`: the pod that it is bound to, as reviews of it state.
        """
        return self._access.token(user, audiences, pod_uid, pod_name)

    def revoke(self, token: str) -> None:
        """Revoke a token."""
        self._access.revoke(token)

    def write_kubeconfig(
        self,
        path: Path,
        user: str = ADMINISTRATOR,
        namespace: str = "default",
        *,
        name: str = "kubelocal",
    ) -> None:
        """Write a kubeconfig file for `user`, readable by its owner only; `name` is its context.

        kubectl keeps tokens back over plain HTTP; there it names the user by `as` instead.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)
        context = {"cluster": name, "user": user, "namespace": namespace}
        credentials = {"token": self.token(user)}
        cluster = {"server": self.url}
        if self.certificate_authority is not None:
            encoded = base64.b64encode(self.certificate_authority).decode()
            cluster["certificate-authority-data"] = encoded
        elif user != ADMINISTRATOR:
            credentials["as"] = user
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": name, "cluster": cluster}],
                    "users": [{"name": user, "user": credentials}],
                    "contexts": [{"name": name, "context": context}],
                    "current-context": name,
                },
                sort_keys=False,
            ),
            encoding="utf-8",
        )

    # Switches

    def deny(self, user: str, verb: str, group: str, resource: str) -> None:
        """Answer 403 from now on; `*` stands for any; subresources are named `pods/eviction`."""
        self._access.deny(user, verb, group, resource)

    def allow(self, user: str, verb: str, group: str, resource: str) -> None:
        """Undo the `deny` with the same words."""
        self._access.allow(user, verb, group, resource)

    @property
    def faults(self) -> Faults:
        return self._http.faults

    @property
    def requests(self) -> Counter[tuple[str, str, str, str]]:
        """How often (user, verb, group, resource) was requested over HTTP."""
        return self._http.requests

    @property
    def refused(self) -> Counter[tuple[str, str, str, str]]:
        """How often (user, verb, group, resource) was answered 403 for want of a right."""
        return self._http.refused

    @property
    def on_write(self) -> Callable[[Write, Stage], Awaitable[None]] | None:
        """Called at each stage of each HTTP write."""
        return self._http.on_write

    @on_write.setter
    def on_write(self, hook: Callable[[Write, Stage], Awaitable[None]] | None) -> None:
        self._http.on_write = hook

    def jump_clock(self, nanoseconds: int) -> None:
        """Move the server's wall clock, forwards or back; no other's."""
        self.clock.offset += nanoseconds

    def compact(self) -> None:
        """Forget history: watches from earlier versions get 410."""
        self.store.compact()

    async def keep_history(self, nanoseconds: int) -> None:
        """Forget, once a minute, the history that is older than that, until cancelled.

        An API server has etcd do so with what is older than five minutes.
        """
        seen: deque[tuple[int, int]] = deque()
        while True:
            now = self.clock.monotonic()
            seen.append((now, self.store.published))
            while len(seen) > 1 and now - seen[1][0] >= nanoseconds:
                seen.popleft()
            if now - seen[0][0] >= nanoseconds:
                self.store.compact_to(seen[0][1])
            await self.clock.sleep(min(nanoseconds, MINUTE))

    def _secure(self) -> ssl.SSLContext:
        from kubelocal.server.wire import tls

        authority = tls.authority_in(self._data)
        self.certificate_authority = authority.certificate
        names = ("127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc")
        return tls.server_context(tls.issue(authority, names))

    def _fields(self, resource: str, obj: dict[str, Any]) -> dict[str, str]:
        plural, _, group = resource.partition(".")
        if not group or resource in SELECTABLE:
            return field_values(resource, obj)
        kind = self.registry.stored(group, plural)
        custom = () if kind is None or kind.custom is None else kind.custom.selectable
        return field_values(resource, obj, custom)


def _secret(data: Path | None) -> bytes:
    """Return the key that signs tokens; with a data folder the same at every start."""
    if data is None:
        return secrets.token_bytes(32)
    path = data / "tokens.key"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_bytes(secrets.token_bytes(32))
    return path.read_bytes()
