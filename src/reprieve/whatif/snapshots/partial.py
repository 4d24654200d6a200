"""What is read of any object of a snapshot without the rest of it: a tenth of the work."""

from __future__ import annotations

import msgspec

__all__ = ["Condition", "Metadata", "Owned", "Owner", "Partial"]


class Partial(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Common settings: camel case in JSON, unknown fields are passed over."""


class Owner(Partial, frozen=True):
    """One of `metadata.ownerReferences`."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Partial, frozen=True):
    """What names an object, how old it is, and who owns it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str = ""
    resource_version: str = ""
    owner_references: list[Owner] | None = None


class Condition(Partial, frozen=True):
    """A condition of a status."""

    type: str = ""
    status: str = ""
    last_transition_time: str = ""


class Owned(Partial, frozen=True):
    """An object without all but its metadata."""

    metadata: Metadata
