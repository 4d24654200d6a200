"""What differs in two texts of Kueue's `Configuration`, and what of it is effective at once.

Kueue itself reads its configuration at its start and never again. Here, what decisions are made by
is applied while the operator runs: `fairSharing`, `waitForPodsReady`, `resources`,
`objectRetentionPolicies` and `integrations.labelKeysToCopy`. Which kinds and namespaces are
watched, feature gates, webhooks and metrics are laid down when a process starts.

Source: specification of the quota plane, section 1.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from reprieve.settings.fields import read_yaml

__all__ = ["ConfigurationChange", "configuration_changes"]

_LIVE: Final = (
    "apiVersion",
    "fairSharing",
    "waitForPodsReady",
    "resources",
    "objectRetentionPolicies",
    "integrations.labelKeysToCopy",
)


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """One key that differs; `before` and `after` as JSON, empty where it is absent."""

    path: str
    before: str
    after: str

    @property
    def live(self) -> bool:
        """Whether it is effective at once."""
        return any(self.path == each or self.path.startswith(f"{each}.") for each in _LIVE)

    def __str__(self) -> str:
        when = "" if self.live else " (when the operator restarts)"
        return f"{self.path}: {self.before or 'unset'} -> {self.after or 'unset'}{when}"


def configuration_changes(before: str, after: str) -> tuple[ConfigurationChange, ...]:
    """Return what differs in two texts, in the order of the keys' names.

    Raises:
        UsageError: one of them is not YAML.
    """
    old, new = (read_yaml(each, "configuration") for each in (before, after))
    return tuple(sorted(_changes(old, new, ""), key=lambda each: each.path))


def _changes(old: Any, new: Any, path: str) -> Iterator[ConfigurationChange]:
    if old == new:
        return
    both = [each if isinstance(each, Mapping) else {} for each in (old, new)]
    if any(both) and all(each is None or isinstance(each, Mapping) for each in (old, new)):
        for key in {**both[0], **both[1]}:
            at = f"{path}.{key}" if path else str(key)
            yield from _changes(both[0].get(key), both[1].get(key), at)
        return
    yield ConfigurationChange(path, _shown(old), _shown(new))


def _shown(value: Any) -> str:
    return "" if value is None else orjson.dumps(value, default=str).decode()
