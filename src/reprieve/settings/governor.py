"""Settings of the governor of disruptions, which all planes query.

    governor:
      enforce: false            # or true, or all: whether repeated displacement protects, from whom
      repeated: 3               # so often within
      repeatedWindow: 1h        # this time is reported, and protected where that is enforced
      loopLimit: 2              # a circle that turned so often within
      loopWindow: 1h            # this time is held; 0 holds none
      emergencyPriority: 1000000000   # from which on no work is held; without it none is exempt

`quota.loopLimit` and `quota.loopWindow` count where this section states nothing of them. Source:
specification of disruptions, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reprieve.engine.disruptions.questions import Enforcement, GovernorPolicy
from reprieve.settings.fields import duration, integer, refuse, section_of

__all__ = ["KEYS", "SECTION", "governor_policy", "read_governor"]

SECTION: Final = "governor"
KEYS: Final = (
    "enforce",
    "repeated",
    "repeatedWindow",
    "loopLimit",
    "loopWindow",
    "emergencyPriority",
)
_MOST: Final = 1_000
_LOWEST: Final = -(2**31)
_HIGHEST: Final = 2**31 - 1
_ENFORCED: Final[Mapping[object, Enforcement]] = {
    "false": Enforcement.TOLD,
    "true": Enforcement.EQUALS,
    "all": Enforcement.ALL,
}


def read_governor(content: str, where: str) -> Mapping[str, Any]:
    """Return the section of a `--config` file, see `section_of`."""
    return section_of(content, where, SECTION, KEYS)


def governor_policy(
    section: Mapping[str, Any], where: str, loop_limit: int, loop_window: int
) -> GovernorPolicy:
    """Return the numbers of the rules; `loop_limit` and `loop_window` where it states none.

    Raises:
        UsageError: what is wrong, where, and what is accepted.
    """
    place = f"{where}: {SECTION}"
    given = {key: value for key, value in section.items() if value is not None}
    enforce = given.get("enforce", False)
    word = str(enforce).lower() if isinstance(enforce, bool) else enforce
    if not isinstance(word, str) or word not in _ENFORCED:
        refuse(f"{place}.enforce", enforce, "false, true or all")
    emergency = given.get("emergencyPriority")
    return GovernorPolicy(
        loop_limit=integer(given.get("loopLimit", loop_limit), f"{place}.loopLimit", 0, _MOST),
        loop_window=_window(given, "loopWindow", place, loop_window),
        repeated=integer(given.get("repeated", 3), f"{place}.repeated", 1, _MOST),
        repeated_window=_window(given, "repeatedWindow", place, GovernorPolicy().repeated_window),
        enforcement=_ENFORCED[word],
        emergency_priority=None
        if emergency is None
        else integer(emergency, f"{place}.emergencyPriority", _LOWEST, _HIGHEST),
    )


def _window(given: Mapping[str, Any], key: str, place: str, otherwise: int) -> int:
    return duration(given[key], f"{place}.{key}") if key in given else otherwise
