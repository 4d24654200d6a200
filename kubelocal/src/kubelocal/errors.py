"""The message for the user of the cluster, in one line."""

from __future__ import annotations

__all__ = ["UsageError"]


class UsageError(Exception):
    """Something the user wrote cannot be used: one line with what, where and what is accepted."""
