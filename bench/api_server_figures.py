"""What an API server says of itself: CPU time, and requests by verb, kind and status code.

Both are sums since its start, read from its /metrics; a case reads them before and after. Whoever
reads them costs the server some CPU time as well, some 0.1 s each time.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError
from reprieve.kube.transport import Request

__all__ = ["Figures", "read_figures", "samples"]

_VERBS: Final = ("POST", "PATCH", "PUT", "DELETE", "APPLY", "GET", "LIST")


@dataclass(frozen=True)
class Figures:
    """`cpu_ms` is None of a server without metrics; requests by `VERB kind/subresource code`."""

    cpu_ms: float | None = None
    requests: Counter[str] = field(default_factory=Counter)

    def since(self, before: Figures, most: int = 14) -> dict[str, Any]:
        """Return what came on top, as a result prints it; empty of a server without metrics."""
        if self.cpu_ms is None or before.cpu_ms is None:
            return {}
        return {
            "api_server_cpu_s": round((self.cpu_ms - before.cpu_ms) / 1e3, 1),
            "requests": dict((self.requests - before.requests).most_common(most)),
        }

    def writes(self) -> int:
        """Return how many requests were no reads."""
        return sum(n for what, n in self.requests.items() if not what.startswith(("GET", "LIST")))


async def read_figures(client: Client) -> Figures:
    """Return the sums so far."""
    try:
        body = await client.transport.request(Request("GET", "/metrics", accept="text/plain"))
    except ApiError:
        return Figures()
    text = body.decode()
    requests: Counter[str] = Counter()
    for labels, value in samples(text, "apiserver_request_total").items():
        known = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        what = "/".join(filter(None, (known.get("resource"), known.get("subresource"))))
        if known.get("verb") in _VERBS:
            requests[f"{known['verb']} {what} {known['code']}"] += int(value)
    cpu = sum(samples(text, "process_cpu_seconds_total").values()) * 1e3
    return Figures(cpu, requests) if requests else Figures()


def samples(text: str, name: str) -> dict[str, float]:
    """Return the series of one metric by their labels, as they stand there."""
    lines = (line for line in text.splitlines() if line.startswith(name))
    pairs = (line[len(name) :].rpartition(" ") for line in lines)
    return {labels: float(value) for labels, _, value in pairs if not labels or labels[0] == "{"}
