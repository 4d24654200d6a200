"""What the steps of a write share: the store, the served kinds, the clock, who may do what."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from kubelocal.server.errors import not_found
from kubelocal.server.rights.rbac import Roles
from kubelocal.server.types import conversion
from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.registry import Registry
from kubelocal.server.writing.options import DeleteOptions
from kubelocal.store import Store, Stored
from kubeworld.units.clock import Clock

__all__ = ["State"]


class State(ABC):
    """The state of an API server.

    Attributes:
        controllers: whether deleted namespaces are emptied and quotas counted, as controllers do.
        roles: who may do what, where access is checked.
    """

    def __init__(
        self, store: Store, registry: Registry, clock: Clock, *, controllers: bool = True
    ) -> None:
        self.controllers = controllers
        self.roles: Roles | None = None
        self.store = store
        self.registry = registry
        self.clock = clock

    def stored(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Return the object as it is kept.

        Raises:
            StatusError: 404.
        """
        stored = self.store.get(conversion.shelf(kind), namespace, name)
        if stored is None:
            raise not_found(kind, name)
        return stored

    def read(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        """Return the object in the version of its kind.

        Raises:
            StatusError: 404.
        """
        return conversion.from_storage(kind, self.stored(kind, namespace, name).decode())

    @abstractmethod
    def delete_now(self, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> None:
        """Delete without waiting for the disk and without webhooks; one already deleted is fine."""
