"""In which namespace the operator of a cluster runs, for commands that read what it keeps there."""

from __future__ import annotations

import os

import msgspec

from reprieve.cli.options.operator_option import OPERATOR_VARIABLE
from reprieve.cli.sessions.published_settings import published_settings
from reprieve.kube.errors import ApiError
from reprieve.kube.own_objects import operator_deployments
from reprieve.kube.reader import Reader
from reprieve.settings.start_up import DEFAULT_NAMESPACE

__all__ = ["operator_home"]


async def operator_home(reader: Reader) -> str:
    """Return the operator's namespace: that of the variable, else where an operator is found.

    Where none is found, or may be read, the default of `reprieve run`.
    """
    named = os.environ.get(OPERATOR_VARIABLE, "").strip()
    if named:
        return named
    try:
        found = await operator_deployments(reader)
        if found:
            return str(min(each["metadata"]["namespace"] for each in found))
        published = await published_settings(reader)
        return DEFAULT_NAMESPACE if published is None else published.namespace
    except (ApiError, msgspec.ValidationError, msgspec.DecodeError):
        return DEFAULT_NAMESPACE
