"""The user and the purpose of a request, and what a rule of access is checked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["ADMINISTRATOR", "ANONYMOUS", "MASTERS", "SERVICE_ACCOUNT", "Attributes", "User"]

ADMINISTRATOR: Final = "admin"
MASTERS: Final = "system:masters"
SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_AUTHENTICATED: Final = "system:authenticated"


@dataclass(frozen=True, slots=True)
class User:
    """Who makes a request."""

    name: str
    groups: tuple[str, ...] = ()

    @classmethod
    def named(cls, name: str, groups: tuple[str, ...] | None = None) -> User:
        """Return a user with the groups that its name, or an impersonating user, gives it."""
        if name == ANONYMOUS.name:
            return ANONYMOUS
        if groups is None:
            groups = (MASTERS,) if name == ADMINISTRATOR else ()
        if name.startswith(SERVICE_ACCOUNT):
            accounts = SERVICE_ACCOUNT.rstrip(":") + "s"
            namespace = name.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
            groups = (*groups, accounts, f"{accounts}:{namespace}")
        return cls(name, tuple(dict.fromkeys((*groups, _AUTHENTICATED))))


ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a request wants to do; `resource` includes the subresource: `pods/log`.

    `path` instead of a resource for what is none, such as `/version`.
    """

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    path: str = ""
