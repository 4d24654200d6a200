"""Requests to the API server, counted by method and status."""

from __future__ import annotations

from reprieve.kube.errors import ApiError
from reprieve.kube.transport import Answer, Request, Wire
from reprieve.telemetry.metrics import Metrics

__all__ = ["CountedWire"]


class CountedWire:
    """A `Wire` whose requests are counted by method and status; "none" is no answer."""

    def __init__(self, wire: Wire, metrics: Metrics) -> None:
        self._wire = wire
        self._requests = metrics.api_requests

    async def send(self, request: Request, stream: bool, rejected: bool) -> Answer:
        try:
            answer = await self._wire.send(request, stream, rejected)
        except ApiError:
            self._requests.labels(request.method, "none").inc()
            raise
        self._requests.labels(request.method, str(answer.status)).inc()
        return answer

    async def close(self) -> None:
        await self._wire.close()
