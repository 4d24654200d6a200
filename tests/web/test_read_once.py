"""A mirror that is read once holds what its reader may list, whatever else is refused or absent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from reprieve.api.core import Pod
from reprieve.kube.decoding import Page
from reprieve.kube.errors import Call, Forbidden, NotFound
from reprieve.kube.reader import Reader
from reprieve.kube.resource import PODS, Resource
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.watches import read_once
from tests.web.cluster import pod


class Tenant(Reader):
    """A server whose caller may list pods of one namespace, and whatever is not served there."""

    def __init__(self, allowed: str) -> None:
        self._allowed = allowed

    async def list_pages(
        self, resource: Resource, type: Any, *, namespace: str = "", **rest: Any
    ) -> AsyncIterator[Page[Any]]:
        call = Call.on("list", resource, namespace)
        if namespace != self._allowed:
            raise Forbidden("no right", code=403, call=call)
        if resource != PODS:
            raise NotFound("not served", code=404, call=call)
        yield Page([msgspec.convert(pod("mine", namespace), Pod, strict=False)], "7")


@pytest.mark.parametrize("namespaces", [["team-a"], ["team-a", "zone"], ["alpha", "team-a"]])
async def test_what_may_be_listed_is_held_though_other_namespaces_are_refused_or_kinds_absent(
    namespaces: list[str],
) -> None:
    mirror = Mirror()

    await read_once(mirror, Tenant("team-a"), namespaces)

    assert [each.unit for each in mirror.pods] == ["pod/team-a/mine"]
    assert "pods outside of team-a" in mirror.unseen
    assert "nodes" in mirror.unseen
