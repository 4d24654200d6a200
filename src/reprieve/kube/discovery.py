"""From an object's `apiVersion` and `kind` to the resource under which the API serves it.

Owner references name a kind, requests need its plural and scope: the discovery documents of the
group version state both. They are kept; a kind that is not in them is requested again, since CRDs
are added and removed, but not more often than every ten seconds per group version.

The author of an owner reference chooses its `apiVersion`. What the server does not serve is
remembered for a few hundred group versions, the oldest forgotten first, and text that is no group
version is not requested at all.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.untrusted import Form
from reprieve.kube.decoding import decode_object
from reprieve.kube.errors import Call, NotFound
from reprieve.kube.reader import Reader
from reprieve.kube.resource import Resource
from reprieve.kube.transport import Request
from reprieve.units.errors import ClusterError

__all__ = ["MAXIMUM_UNSERVED", "NotServed", "RestMapper"]

_ASK_AGAIN: Final = 10 * SECOND
#: Group versions that are not served and remembered as such.
MAXIMUM_UNSERVED: Final = 256
_LONGEST_SHOWN: Final = 100
_GROUP_VERSION: Final = Form(r"(?:[a-z0-9][a-z0-9.-]{0,252}+/)?+[a-z0-9][a-z0-9-]{0,62}+", 320)


class NotServed(ClusterError):
    """The API server serves no such kind."""

    def __init__(self, api_version: str, kind: str) -> None:
        self.api_version = api_version
        self.kind = kind
        super().__init__(f"the API server does not serve {kind} of {api_version}")


class _ApiResource(msgspec.Struct, gc=False):
    name: str
    kind: str
    namespaced: bool


class _ApiResourceList(msgspec.Struct, gc=False):
    resources: list[_ApiResource] | None = None


class RestMapper:
    """Knows the served kinds of the group versions that were requested.

    Args:
        client: for the API server.
        clock: for the age of what is known.
        ask_again: nanoseconds before a group version is queried again for a kind that it lacks.
    """

    def __init__(self, client: Reader, clock: Clock, *, ask_again: int = _ASK_AGAIN) -> None:
        self._client = client
        self._clock = clock
        self._ask_again = ask_again
        # By apiVersion: kinds with their resources, empty where it is not served.
        self._known: dict[str, dict[str, Resource]] = {}
        self._asked: dict[str, int] = {}  # by apiVersion, monotonic
        # Of all and only group versions that are being requested: the lock and who wants it.
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        # All and only group versions in `_known` that are not served, the oldest first.
        self._unserved: dict[str, None] = {}

    async def resource_for(self, api_version: str, kind: str) -> Resource:
        """Return the resource of a kind such as `batch/v1`, `Job`.

        Raises:
            NotServed: neither the cache nor the server knows the kind.
            ApiError: the server did not answer the question.
        """
        found = self.cached(api_version, kind)
        if found is not None:
            return found
        if _GROUP_VERSION.fullmatch(api_version) is None:
            raise NotServed(api_version[:_LONGEST_SHOWN], kind[:_LONGEST_SHOWN])
        lock, waiting = self._locks.get(api_version, (asyncio.Lock(), 0))
        self._locks[api_version] = lock, waiting + 1
        try:
            async with lock:
                # Others may have queried it while this call waited for the lock.
                if self.cached(api_version, kind) is None and self._due(api_version):
                    self._learn(api_version, await self._ask(api_version))
        finally:
            lock, waiting = self._locks.pop(api_version)
            if waiting > 1:
                self._locks[api_version] = lock, waiting - 1
        found = self.cached(api_version, kind)
        if found is None:
            raise NotServed(api_version, kind)
        return found

    def cached(self, api_version: str, kind: str) -> Resource | None:
        """Return what is known without a query."""
        return self._known.get(api_version, {}).get(kind)

    @property
    def remembered(self) -> int:
        """The number of group versions of which something is held, a lock included."""
        return len({*self._known, *self._asked, *self._locks, *self._unserved})

    def forget(self, api_version: str) -> None:
        """Query again at the next need, for when a request to a known kind got a 404."""
        self._known.pop(api_version, None)
        self._asked.pop(api_version, None)
        self._unserved.pop(api_version, None)

    def _learn(self, api_version: str, kinds: dict[str, Resource]) -> None:
        self.forget(api_version)
        self._known[api_version] = kinds
        self._asked[api_version] = self._clock.monotonic()
        if not kinds:
            self._unserved[api_version] = None
            if len(self._unserved) > MAXIMUM_UNSERVED:
                self.forget(next(iter(self._unserved)))

    def _due(self, api_version: str) -> bool:
        asked = self._asked.get(api_version)
        return asked is None or self._clock.monotonic() - asked >= self._ask_again

    async def _ask(self, api_version: str) -> dict[str, Resource]:
        group, _, version = api_version.rpartition("/")
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        call = Call("get", path)
        try:
            body = await self._client.transport.request(Request("GET", path), call)
        except NotFound:
            return {}
        listed = decode_object(body, _ApiResourceList, call).resources or []
        return {
            each.kind: Resource(group, version, each.name, each.kind, each.namespaced)
            for each in listed
            # Subresources come in the same list as `pods/status`.
            if "/" not in each.name
        }
