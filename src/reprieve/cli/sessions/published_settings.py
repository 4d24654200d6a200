"""The settings of an operator process, published for users who query why work waits.

`reprieve up` runs the operator without a Deployment. What it was started with stands in a ConfigMap
of its namespace, so that `explain`, `plan` and the page decide as it does. Flags that name files
are left out: the only file is the one whose text is published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from reprieve.kube.reader import Reader
from reprieve.kube.resource import Resource

__all__ = ["CONFIG_MAPS", "PublishedSettings", "published_settings"]

CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
_NAME: Final = "reprieve-operator-settings"
_LABEL: Final = "reprieve.dev/operator-settings"


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    """What stands in the ConfigMap."""

    arguments: str = "[]"
    environment: str = "{}"
    config: str = ""


@dataclass(frozen=True, slots=True)
class PublishedSettings:
    """What an operator was started with.

    Attributes:
        namespace: the operator's.
        arguments: the flags of `reprieve run`, those that name files left out.
        environment: its variables.
        config: the text of its `--config` file, empty without one.
    """

    namespace: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    config: str

    def config_map(self) -> dict[str, Any]:
        """Return the ConfigMap in which they stand."""
        metadata = {"name": _NAME, "namespace": self.namespace, "labels": {_LABEL: "true"}}
        data = {
            "arguments": json.dumps(list(self.arguments)),
            "environment": json.dumps(dict(self.environment)),
            "config": self.config,
        }
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def published_settings(reader: Reader) -> PublishedSettings | None:
    """Return what an operator of the cluster was started with; None where that is not known.

    Raises:
        ApiError: ConfigMaps may not be listed, or the server does not answer.
        msgspec.ValidationError: what stands there are no settings.
    """
    found = await reader.list(CONFIG_MAPS, dict, label_selector=f"{_LABEL}=true")
    for each in found.items:
        data = msgspec.convert(each.get("data") or {}, _Data)
        return PublishedSettings(
            str(each["metadata"]["namespace"]),
            msgspec.json.decode(data.arguments, type=tuple[str, ...]),
            msgspec.json.decode(data.environment, type=dict[str, str]),
            data.config,
        )
    return None
