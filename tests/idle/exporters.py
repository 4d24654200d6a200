"""Metric endpoints that say what a test wants, or fail as it wants."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiohttp import web

from tests.idle.site import NAMESPACE


@dataclass
class FakeExporter:
    """An exposition that a test writes; `asked` counts the polls that it answered."""

    text: str = ""
    status: int = 200
    asked: int = 0
    paths: set[str] = field(default_factory=set)

    async def answer(self, request: web.Request) -> web.Response:
        """Return the text with the status."""
        self.asked += 1
        self.paths.add(request.path)
        return web.Response(text=self.text, status=self.status)

    def report(self, pod: str, value: float | str, gpus: int = 1) -> None:
        """Add AMD samples of a pod."""
        for gpu in range(gpus):
            labels = f'gpu_id="{gpu}",namespace="{NAMESPACE}",pod="{pod}"'
            self.text += f"gpu_gfx_activity{{{labels}}} {value}\n"
