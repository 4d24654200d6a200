"""The CustomResourceDefinitions that Reprieve installs, one YAML file each, named as the object.

- `gpuworkloads.kaiwo.silogen.ai` and `kaiwoconfigs.config.kaiwo.silogen.ai` are compatible with
  Kaiwo (specification of the idle plane, sections 2 and 3). Beyond it, a GpuWorkload has the status
  fields `policy` and `gpus`, which exist for the wide printer columns: a JSONPath can neither
  resolve a policy through its tiers nor print a map as text. KaiwoConfig keeps unknown fields of
  `spec`, since other operators have sections there, and prunes them inside `spec.gpuPreemption`.
- `preemptions.reprieve.dev` is the intent log and the record, `preemptionparts.reprieve.dev` what
  of it is too large for one object; `disruptions.reprieve.dev` informs tenants of their own work,
  `preemptionnotices.reprieve.dev` before it is evicted,
  `harmbudgets.reprieve.dev` bounds what work may lose to others; administrators write it.
- Those of `kueue.x-k8s.io` are compatible with Kueue (specification of the quota plane, section 1):
  v1beta2 is stored, v1beta1 served. They come with the quota plane only (`KUEUE_NAMES`), since a
  cluster may have Kueue's own. Who installs them names the conversion webhook (`with_webhook`).

- Those of PodGroup are compatible with Koordinator and scheduler-plugins (`GANG_NAMES`), and for
  clusters that have neither.

The chart carries copies of these files; `tests/chart` holds them equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import orjson

__all__ = [
    "GANG_NAMES",
    "KUEUE_NAMES",
    "NAMES",
    "UnknownCrd",
    "all_crds",
    "gang_crds",
    "kueue_crds",
    "load",
    "text",
    "with_webhook",
]

NAMES: Final = (
    "gpuworkloads.kaiwo.silogen.ai",
    "kaiwoconfigs.config.kaiwo.silogen.ai",
    "preemptions.reprieve.dev",
    "preemptionparts.reprieve.dev",
    "disruptions.reprieve.dev",
    "harmbudgets.reprieve.dev",
    "preemptionnotices.reprieve.dev",
)
KUEUE_NAMES: Final = (
    "admissionchecks.kueue.x-k8s.io",
    "clusterqueues.kueue.x-k8s.io",
    "cohorts.kueue.x-k8s.io",
    "localqueues.kueue.x-k8s.io",
    "resourceflavors.kueue.x-k8s.io",
    "topologies.kueue.x-k8s.io",
    "workloadpriorityclasses.kueue.x-k8s.io",
    "workloads.kueue.x-k8s.io",
)

GANG_NAMES: Final = (
    "podgroups.scheduling.sigs.k8s.io",
    "podgroups.scheduling.x-k8s.io",
)


class UnknownCrd(LookupError):
    """Reprieve has no CustomResourceDefinition of that name."""


def text(name: str) -> str:
    """Return the YAML text of the CustomResourceDefinition `name`.

    Raises:
        UnknownCrd: `name` is none of `NAMES`, `KUEUE_NAMES` and `GANG_NAMES`.
    """
    known = (*NAMES, *KUEUE_NAMES, *GANG_NAMES)
    if name not in known:
        raise UnknownCrd(f"no CustomResourceDefinition {name!r}; accepted: {', '.join(known)}")
    return files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    """Return the CustomResourceDefinition `name` as a fresh JSON-like object.

    Raises:
        UnknownCrd: `name` is none of `NAMES`, `KUEUE_NAMES` and `GANG_NAMES`.
    """
    loaded: dict[str, Any] = orjson.loads(_as_json(name))
    return loaded


@cache
def _as_json(name: str) -> bytes:
    # Costs a tenth of a second of CPU, which `reprieve --help` must not pay.
    from reprieve.units.bounded_yaml import read_yaml

    # What stands behind one anchor is one object until here.
    return orjson.dumps(read_yaml(text(name)))


def all_crds() -> list[dict[str, Any]]:
    """Return all CustomResourceDefinitions, in the order of `NAMES`."""
    return [load(name) for name in NAMES]


def gang_crds() -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of PodGroups, in the order of `GANG_NAMES`."""
    return [load(name) for name in GANG_NAMES]


def kueue_crds(client_config: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of `kueue.x-k8s.io`, in the order of `KUEUE_NAMES`.

    Args:
        client_config: how the API server reaches the conversion webhook; see `with_webhook`.
    """
    return [with_webhook(load(name), client_config) for name in KUEUE_NAMES]


def with_webhook(crd: dict[str, Any], client_config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return `crd` with the webhook at `client_config`, if versions of it are converted by one.

    None leaves the service that the file names.
    """
    conversion = crd["spec"].get("conversion") or {}
    if client_config is not None and conversion.get("strategy") == "Webhook":
        conversion["webhook"]["clientConfig"] = dict(client_config)
    return crd
