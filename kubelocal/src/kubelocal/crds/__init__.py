"""Definitions of the other kinds that own GPU pods, loose enough to accept any manifest of them.

The real definitions belong to their projects; the embedded cluster only has to keep such objects,
print them and allow the machines to write their status.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

from kubelocal.bounded_yaml import FastLoader

__all__ = ["permissive_definitions"]


def permissive_definitions() -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of every file beside this module, by file name."""
    found: list[dict[str, Any]] = []
    for file in sorted(files(__package__).iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".yaml"):
            found.extend(yaml.load_all(file.read_text(encoding="utf-8"), Loader=FastLoader))
    return found
