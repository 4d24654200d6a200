"""The API server's answer where it does not do what was requested."""

from __future__ import annotations

__all__ = ["Refused", "bad_request", "conflict", "invalid"]


class Refused(Exception):
    """A request that an API server refuses, with its code, reason and message."""

    def __init__(self, code: int, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.code, self.reason, self.message = code, reason, message or reason


def bad_request(message: str) -> Refused:
    """Return the refusal of what cannot be read."""
    return Refused(400, "BadRequest", message)


def conflict(message: str) -> Refused:
    """Return the refusal of a write about another object, version or state."""
    return Refused(409, "Conflict", message)


def invalid(message: str) -> Refused:
    """Return the refusal of an object that is not valid."""
    return Refused(422, "Invalid", message)
