"""How much one more victim may lose for sure, by kind of victim, for one preemptor and plane.

Computed once for all candidates that are alike for selectors, so that a decision with thousands of
candidates and budgets checks few. What is found holds until something is counted: as time
passes it may be more, never less. What is counted in accounts of one tenant alone makes the others
no different.

`lasting` keeps single candidates that fit for a minute to come, so that the decisions of that
minute read nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubeworld.units.durations import MINUTE
from kubeworld.units.instants import Nanos
from reprieve.engine.harm_budgets.budget import Harm

__all__ = ["EACH", "ENDLESS", "UNKNOWN", "Rooms"]

#: No budget counts what such a victim loses.
ENDLESS: Final = 2**62
#: Each candidate has to be checked, until an account is free again.
UNKNOWN: Final = -1
#: Each candidate has to be checked, since candidates of a kind have several accounts.
EACH: Final = -2
_MOST: Final = 50_000
_NOT_YET: Final = Nanos(0)


class Rooms(dict[object, int]):
    """Device seconds by kind. The caller makes the kinds, compared by equality or identity."""

    def __init__(self, find: Callable[[Harm], int]) -> None:
        self._find = find
        self._kinds: dict[str, list[object]] = {}  # by tenant
        # Tenants whose kinds were forgotten since the last query; None for all.
        self._forgotten: set[str] | None = None
        self._lasting: dict[Any, str] = {}
        self._outdated: set[str] = set()  # tenants of which candidates may fit no more
        self._lasts = _NOT_YET, _NOT_YET  # from the one instant to before the other

    def lasting(self, now: Nanos) -> tuple[dict[Any, str], Nanos]:
        """Return the tenants of candidates that fit until an instant, and the instant.

        Callers add to them. They are other ones once something is counted, so that a decision that
        is still being made adds nothing to what others read.
        """
        begin, end = self._lasts
        if not begin <= now < end or len(self._lasting) >= _MOST:
            self._lasting, self._lasts = {}, (now, Nanos(now + MINUTE))
        elif self._outdated:
            gone, known = self._outdated, list(self._lasting.items())
            self._lasting = {each: tenant for each, tenant in known if tenant not in gone}
        self._outdated = set()
        return self._lasting, self._lasts[1]

    def ask(self, kind: object, harm: Harm) -> int:
        """Return the device seconds that a victim of this kind may lose; `harm` is one of them."""
        known = self.get(kind)
        if known is None:
            if len(self) >= _MOST:
                self.clear()
                self._kinds.clear()
            known = self[kind] = self._find(harm)
            self._kinds.setdefault(harm.victim.tenant, []).append(kind)
        return known

    def forget(self, tenant: str) -> None:
        """Forget the kinds of a tenant: something was counted in its accounts alone."""
        for kind in self._kinds.pop(tenant, ()):
            self.pop(kind, None)
        if self._forgotten is not None:
            self._forgotten.add(tenant)
        self._outdated.add(tenant)

    def forget_all(self) -> None:
        """Forget all kinds."""
        self.clear()
        self._kinds.clear()
        self._forgotten = None
        self._lasts = _NOT_YET, _NOT_YET

    def forgotten(self) -> set[str] | None:
        """Return the tenants whose kinds were forgotten since the last call; None for all."""
        found, self._forgotten = self._forgotten, set()
        return found
