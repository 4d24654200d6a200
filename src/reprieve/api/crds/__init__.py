"""The CustomResourceDefinitions that Reprieve installs, one YAML file each, named as the object.

- `gpuworkloads.kaiwo.silogen.ai` and `kaiwoconfigs.config.kaiwo.silogen.ai` are compatible with
  Kaiwo (specification of the idle plane, sections 2 and 3). Beyond it, a GpuWorkload has the status
  fields `policy` and `gpus`, which exist for the wide printer columns: a JSONPath can neither
  resolve a policy through its tiers nor print a map as text. KaiwoConfig keeps unknown fields of
  `spec`, since other operators have sections there, and prunes them inside `spec.gpuPreemption`.
- `preemptions.reprieve.dev` is the intent log and the record.

The chart carries copies of these files; `tests/chart` holds them equal.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

__all__ = ["NAMES", "UnknownCrd", "all_crds", "load", "text"]

NAMES: Final = (
    "gpuworkloads.kaiwo.silogen.ai",
    "kaiwoconfigs.config.kaiwo.silogen.ai",
    "preemptions.reprieve.dev",
)


class UnknownCrd(LookupError):
    """Reprieve has no CustomResourceDefinition of that name."""


def text(name: str) -> str:
    """Return the YAML text of the CustomResourceDefinition `name`.

    Raises:
        UnknownCrd: `name` is none of `NAMES`.
    """
    if name not in NAMES:
        raise UnknownCrd(f"no CustomResourceDefinition {name!r}; accepted: {', '.join(NAMES)}")
    return files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    """Return the CustomResourceDefinition `name` as a fresh JSON-like object.

    Raises:
        UnknownCrd: `name` is none of `NAMES`.
    """
    import yaml  # takes a tenth of a second of CPU, which `reprieve --help` must not pay

    loaded: dict[str, Any] = yaml.load(
        text(name), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )
    return loaded


def all_crds() -> list[dict[str, Any]]:
    """Return all CustomResourceDefinitions, in the order of `NAMES`."""
    return [load(name) for name in NAMES]
