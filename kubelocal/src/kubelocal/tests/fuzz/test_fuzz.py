"""Malformed requests are refused: a Status object each, nothing stored, no fault of the server."""

from __future__ import annotations

import gc
import resource
from collections.abc import Mapping
from typing import Any

import pytest

from kubelocal.cluster import EmbeddedCluster
from kubelocal.tests.fuzz.malformed import requests
from kubelocal.tests.fuzz.malformed_bodies import DEFINITIONS, EXISTING
from kubelocal.tests.fuzz.wire import Answer, Request, Wire
from kubelocal.tests.server.builders import Client, definition

SEED = 20261121
MEMORY_MIB = 300


@pytest.mark.parametrize("count", [1_500, pytest.param(20_000, marks=pytest.mark.slow)])
async def test_malformed_requests_get_a_status_and_change_nothing(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedCluster() as cluster, Client(cluster) as client:
        await client.request("POST", DEFINITIONS, definition())
        for path, obj in EXISTING:
            code, created = await client.request("POST", path, obj)
            assert code == 201, created
        before = _held(cluster)
        gc.collect()
        memory = _peak_mib()
        wire = Wire(cluster.url)
        faults = []
        for request in requests(SEED, count):
            try:
                answer = await wire.send(request)
            except (OSError, EOFError, TimeoutError) as error:
                faults.append(f"{request}\n  no answer: {error!r}")
                await wire.close()
                continue
            problem = _problem(request, answer)
            if problem:
                faults.append(f"{request}\n  {problem}: {answer.code} {str(answer.body)[:300]}")
        await wire.close()
        shown = "\n".join(faults[:20])
        assert not faults, f"{len(faults)} of {count} requests, the first ones:\n{shown}"
        assert _held(cluster) == before
        assert _peak_mib() - memory < MEMORY_MIB
        # The server still does what it is for.
        code, found = await client.request("GET", EXISTING[0][0])
        assert (code, [one["metadata"]["name"] for one in found["items"]]) == (200, ["a"])
    assert "inside the server" not in caplog.text


def _problem(request: Request, answer: Answer) -> str:
    """Return what is wrong with an answer, "" for nothing."""
    if answer.code >= 500:
        return "a fault of the server"
    if request.may_be_good and answer.code < 300:
        return ""
    if answer.code < 400:
        return "not refused"
    body: Any = answer.body
    if not isinstance(body, Mapping):
        return "no Status object"
    said = (body.get("kind"), body.get("apiVersion"), body.get("status"), body.get("code"))
    if said != ("Status", "v1", "Failure", answer.code):
        return "no Status object"
    if not isinstance(body.get("message"), str) or not body["message"]:
        return "no message"
    return ""


def _held(cluster: EmbeddedCluster) -> dict[str, list[tuple[str, str, int]]]:
    """Every object with its version."""
    return {
        name: [(one.namespace, one.name, one.revision) for one in cluster.store.range(name, None)]
        for name in cluster.store.resources()
    }


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
