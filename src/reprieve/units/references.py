"""The reference to an object: what names one in a decision, in an event and in every map.

This is the one value for it, pure, so that the engine can use it. Records have it as an
`api.reprieve.ObjectRef`, which is made of this one and back by its own methods: the form on the
wire names its fields in camel case and refuses what lacks one, and the engine knows no msgspec.
"""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.units.ids import Uid

__all__ = ["Reference"]


@dataclass(frozen=True, slots=True)
class Reference:
    """One API object, by identity.

    Empty are the namespace of what is cluster-wide, the uid where any object of the name will do,
    and the version where it does not matter or is not known.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: Uid
    resource_version: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"
