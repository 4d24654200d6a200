"""A process that begins while the API server is away, as one does that lost its lease by that."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from reprieve.kube.errors import ServerError, TooManyRequests, Unreachable
from reprieve.kube.transport import Answer, HttpWire, Request
from reprieve.operator import process
from reprieve.operator.process import End
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from reprieve.settings.quota_configuration import CONFIG_MAP_KEY
from tests.idle.site import Site
from tests.operator_in_process import OperatorInProcess

NAME = "kueue-manager-config"
STORED = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": NAME, "namespace": OPERATOR_NAMESPACE},
    "data": {
        CONFIG_MAP_KEY: "{apiVersion: config.kueue.x-k8s.io/v1beta2, kind: Configuration}",
    },
}
QUOTA = f"quota: {{configurationMap: {NAME}}}\n"
FAILURES = [
    Unreachable("connection refused"),
    ServerError("no endpoint", code=503),
    TooManyRequests("too many requests", code=429),
]
PLANES = {"idle": ("idle", ""), "quota": ("quota", QUOTA)}


class Away(HttpWire):
    """A wire to an API server that is away as long as it has a `failure`."""

    failure: Exception | None = None

    async def send(self, request: Request, stream: bool, rejected: bool) -> Answer:
        if Away.failure is not None:
            raise Away.failure
        return await super().send(request, stream, rejected)


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception | None], None]:
    monkeypatch.setattr(process, "HttpWire", Away)
    monkeypatch.setattr(Away, "failure", None)
    return lambda failure: monkeypatch.setattr(Away, "failure", failure)


@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("failure", FAILURES, ids=lambda each: type(each).__name__)
async def test_a_process_that_begins_waits_for_the_api_server(
    site: Site, fails: Callable[[Exception | None], None], failure: Exception, plane: str
) -> None:
    await site.create(STORED)
    name, config = PLANES[plane]
    fails(failure)
    operator = await site.run(None, "--controllers", name, config=config)
    await site.until(lambda: operator.said("waiting for the API server", str(failure)))
    fails(None)
    await site.until(lambda: operator.said("leading, epoch"))
    # It was asked for many times, and told once.
    assert len(operator.said("waiting for the API server")) == 1


@pytest.mark.parametrize("plane", PLANES)
async def test_a_process_that_waits_for_the_api_server_stops_when_asked(
    site: Site, fails: Callable[[Exception | None], None], plane: str
) -> None:
    name, config = PLANES[plane]
    fails(Unreachable("connection refused"))
    operator = await site.run(None, "--controllers", name, config=config)
    await site.until(lambda: operator.said("waiting for the API server"))
    assert isinstance(operator.processes, OperatorInProcess)
    signal.raise_signal(signal.SIGTERM)
    assert await operator.processes.end() is End.STOPPED
