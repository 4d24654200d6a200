"""One ConfigMap, read once or watched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from kubeworld.units.clock import Clock
from reprieve.api.core import ObjectMeta
from reprieve.kube.reader import Reader
from reprieve.kube.reflector import Reflector
from reprieve.kube.resource import Resource

__all__ = ["CONFIG_MAPS", "ConfigMap", "config_map_reflector"]

CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")


class ConfigMap(msgspec.Struct, frozen=True):
    """Its data, and who it is."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


def config_map_reflector(
    client: Reader,
    clock: Clock,
    place: tuple[str, str],
    reported: Callable[[ConfigMap | None], None],
    report: Callable[[Exception], None],
) -> Reflector[ConfigMap]:
    """Return what hands one ConfigMap on at every change; None when it is deleted."""
    namespace, name = place
    return Reflector(
        client,
        CONFIG_MAPS,
        ConfigMap,
        _Reported(reported),
        clock,
        namespace=namespace,
        field_selector=f"metadata.name={name}",
        report=report,
    )


@dataclass(slots=True)
class _Reported:
    reported: Callable[[ConfigMap | None], None]

    def received(self, objects: list[ConfigMap]) -> list[ConfigMap]:
        return objects

    def replaced(self, objects: list[ConfigMap], resource_version: str) -> None:
        del resource_version
        self.reported(objects[0] if objects else None)

    def applied(self, obj: ConfigMap) -> None:
        self.reported(obj)

    def deleted(self, obj: ConfigMap) -> None:
        del obj
        self.reported(None)
