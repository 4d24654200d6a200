"""The quota plane's configuration in a ConfigMap: read at the start, and watched.

A change is reported in an event on the ConfigMap, key by key; settings of decisions apply at once,
in the process that leads and in those that stand by. A text that is not accepted changes nothing,
and is reported with what is accepted; so is a deleted ConfigMap.

Source: specification of the quota plane, section 1.6; see `settings.quota_changes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from reprieve.kube.errors import ApiError, NotFound
from reprieve.kube.reader import Reader
from reprieve.kube.retry import AWAY
from reprieve.planes.common.config_map import CONFIG_MAPS, ConfigMap, config_map_reflector
from reprieve.planes.quota.context import QuotaContext, QuotaOptions, log
from reprieve.settings.quota import QuotaSettings, QuotaSource
from reprieve.settings.quota_changes import configuration_changes
from reprieve.settings.quota_configuration import CONFIG_MAP_KEY
from reprieve.units.errors import UsageError
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording.events import EventText

__all__ = ["LiveConfiguration", "StoredSettings", "stored_settings"]

_MOST: Final = 1_000  # characters; a note of an event may have 1,024
_GONE: Final = f"it has no {CONFIG_MAP_KEY}: the configuration stays as it was read last"


@dataclass(frozen=True, slots=True)
class StoredSettings:
    """Settings, where they come from, and the text of their ConfigMap; None without one."""

    source: QuotaSource
    settings: QuotaSettings
    content: str | None = None


async def stored_settings(client: Reader, source: QuotaSource) -> StoredSettings:
    """Return the settings, with what their ConfigMap has where they name one.

    Raises:
        UsageError: the ConfigMap cannot be read, or what it has is not accepted.
        ApiError: the API server is away (`AWAY`).
    """
    settings = source.settings()
    if not settings.configuration_map:
        return StoredSettings(source, settings)
    where = f"ConfigMap {source.namespace}/{settings.configuration_map}"
    try:
        found = await client.get(
            CONFIG_MAPS, source.namespace, settings.configuration_map, ConfigMap
        )
    except NotFound:
        raise UsageError(
            f"quota.configurationMap: {where} does not exist; accepted: a ConfigMap of the "
            f"operator's namespace with the key {CONFIG_MAP_KEY}"
        ) from None
    except AWAY:
        raise
    except ApiError as failure:
        raise UsageError(f"quota.configurationMap: {where} cannot be read: {failure}") from None
    content = (found.data or {}).get(CONFIG_MAP_KEY)
    if content is None:
        raise UsageError(f"quota.configurationMap: {where} has no key {CONFIG_MAP_KEY}")
    return StoredSettings(source, source.settings(content), content)


class LiveConfiguration:
    """Follows one ConfigMap. `stored` is what was read at the start; `use` gets new options."""

    def __init__(
        self,
        context: QuotaContext,
        stored: StoredSettings,
        use: Callable[[QuotaOptions], None],
    ) -> None:
        self._context = context
        self._source = stored.source
        self._place = (stored.source.namespace, stored.settings.configuration_map)
        self._text = stored.content or ""
        self._use = use
        self._rejected = ""

    async def run(self) -> None:
        """Watch until cancelled."""
        await config_map_reflector(
            self._context.client,
            self._context.clock,
            self._place,
            self._changed,
            lambda trouble: log.warning("quota.configurationMap: %s", trouble),
        ).run()

    def _changed(self, given: ConfigMap | None) -> None:
        text = None if given is None else (given.data or {}).get(CONFIG_MAP_KEY)
        if text is None:
            self._reject(given, _GONE)
            return
        try:
            after = QuotaOptions.of(self._source.settings(text))
            changes = configuration_changes(self._text, text)
        except UsageError as error:
            self._reject(given, str(error))
            return
        self._rejected = ""
        self._text = text
        if not changes:
            return
        reported = "; ".join(map(str, changes))
        self._announce(given, EventText("Normal", "ConfigurationChanged", _cut(reported)))
        log.info("ConfigMap %s/%s: %s", *self._place, reported)
        if any(change.live for change in changes):
            self._use(_with_live(self._context.options, after))

    def _reject(self, given: ConfigMap | None, why: str) -> None:
        if why != self._rejected:
            self._rejected = why
            log.warning("ConfigMap %s/%s: %s", *self._place, why)
            self._announce(given, EventText("Warning", "InvalidConfiguration", _cut(why)))

    def _announce(self, given: ConfigMap | None, event: EventText) -> None:
        uid = "" if given is None else given.metadata.uid
        about = Reference("v1", "ConfigMap", *self._place, Uid(uid))
        if self._context.fence.open:
            self._context.announce(about, event)


def _with_live(before: QuotaOptions, after: QuotaOptions) -> QuotaOptions:
    """Return options in which what can change while a process runs is that of `after`."""
    old, new = before.settings, after.settings
    return replace(
        before,
        settings=replace(
            old,
            fair_sharing=new.fair_sharing,
            eviction_timestamp=new.eviction_timestamp,
            ignore_undeclared=new.ignore_undeclared,
            block_admission=new.block_admission,
        ),
        rules=after.rules,
        backoff=after.backoff,
        pods_ready=after.pods_ready,
        after_finished_s=after.after_finished_s,
        after_deactivated_s=after.after_deactivated_s,
        copied_labels=after.copied_labels,
    )


def _cut(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
