"""The reference to an object that events are about, as the API writes it."""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.kube.bodies import Json

__all__ = ["Reference"]


@dataclass(frozen=True, slots=True)
class Reference:
    """An object in an event; empty: no namespace, and a version that is not known."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""

    @property
    def home(self) -> str:
        """The namespace of its events; those of cluster-wide kinds stand in `default`."""
        return self.namespace or "default"

    def as_json(self) -> Json:
        """Return the reference as the API writes it, without what is empty."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
        }
        return {key: value for key, value in fields.items() if value}
