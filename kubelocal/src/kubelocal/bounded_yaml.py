"""Reads YAML whose aliases stand for no more than a reader can hold."""

from __future__ import annotations

import yaml
from yaml.composer import ComposerError

from kubeworld.units.aliases import Bounded

__all__ = ["FastLoader"]


class FastLoader(Bounded, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads plain data, in C where PyYAML has it."""

    error = ComposerError
