"""What planes hold of the client: reads of every kind, and writes of Reprieve's own kinds.

`Client` does what stands here, and may write every other kind, too; it is for `execution` alone. A
plane that writes to another component's object by what it holds is an error of types.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from kubeworld.units.durations import SECOND
from reprieve.kube.bodies import Json, PatchType, Propagation
from reprieve.kube.reader import Reader
from reprieve.kube.resource import OwnResource
from reprieve.kube.retry import ATTEMPTS
from reprieve.kube.writes import Priority

__all__ = ["WRITE_TIMEOUT", "OwnWriter"]

T = TypeVar("T")
WRITE_TIMEOUT = 10 * SECOND


class OwnWriter(Reader):
    """Reads objects of any kind, and writes those that are Reprieve's own; see `Client`."""

    @abstractmethod
    def at(
        self,
        priority: Priority,
        fence: Callable[[], None] | None = None,
        *,
        timeout: int = WRITE_TIMEOUT,
        field_manager: str = "",
    ) -> OwnWriter:
        """Return a view whose writes have that priority."""

    @abstractmethod
    def passed_before(self, priority: Priority) -> int:
        """Return how many writes before this priority have been sent."""

    @abstractmethod
    async def create(self, resource: OwnResource, obj: Any, type: type[T]) -> T:
        """Create an object."""

    @abstractmethod
    async def replace(
        self, resource: OwnResource, obj: Any, type: type[T], *, subresource: str = ""
    ) -> T:
        """Replace an object by its whole new content."""

    @abstractmethod
    async def patch(
        self,
        resource: OwnResource,
        namespace: str,
        name: str,
        patch: Any,
        type: type[T],
        /,
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        force: bool = False,
        retry: bool = False,
    ) -> T:
        """Patch an object or its subresource."""

    @abstractmethod
    async def update_status(self, resource: OwnResource, obj: Any, type: type[T]) -> T:
        """Replace the status."""

    @abstractmethod
    async def apply(
        self, resource: OwnResource, obj: Any, type: type[T], *, force: bool = False
    ) -> T:
        """Apply an object on the server's side."""

    @abstractmethod
    async def delete(
        self,
        resource: OwnResource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
        retry: bool = False,
    ) -> None:
        """Delete an object, under the preconditions that are given."""

    @abstractmethod
    async def modify(
        self,
        resource: OwnResource,
        namespace: str,
        name: str,
        change: Callable[[Json], Json | None],
        *,
        subresource: str = "",
        attempts: int = ATTEMPTS,
    ) -> Json | None:
        """Read, change and replace an object; after a conflict read and judge again."""
