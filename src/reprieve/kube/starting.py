"""What a refusal is worth while an API server starts.

An API server that has just started has not read its roles yet, and refuses every client with 403
for some seconds. A caller that treats that as final gives victims up, and looks for others. So for
`STARTS_WITHIN` after the API server had no answer, a refusal by an authorizer states that the
server is away: it is a `ServerError`. What admission refuses is none of this.
"""

from __future__ import annotations

from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.kube.errors import ApiError, Forbidden, ServerError, Unreachable

__all__ = ["STARTS_WITHIN", "Starting"]

STARTS_WITHIN: Final = 30 * SECOND


class Starting:
    """Knows when the API server had no answer the last time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: int | None = None

    def __enter__(self) -> None:
        """Watch whether there is an answer."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Unreachable):
            self._last = self._clock.monotonic()

    def judged(self, error: ApiError) -> ApiError:
        """Return an error, or what it stands for while the API server starts."""
        if not isinstance(error, Forbidden) or error.rule is None or self._last is None:
            return error
        if self._clock.monotonic() - self._last >= STARTS_WITHIN:
            return error
        text = f"the API server has just started, and refuses for now: {error.message}"
        return ServerError(text, code=503, reason="ServiceUnavailable", call=error.call)
