"""The error outline: every error that may reach a person derives from one of two classes.

ReprieveError
├── UsageError        the caller's fault: a flag, variable, file or manifest; exit code 2
│   └── (settings.*)  what, where, what is accepted
└── ClusterError      the cluster's answer (kube.errors); retried or named with the rule to add
"""

from __future__ import annotations

__all__ = ["ClusterError", "ReprieveError", "UsageError"]


class ReprieveError(Exception):
    """Base of all errors with a message for people."""


class UsageError(ReprieveError):
    """Something the user wrote cannot be used: one line with what, where and what is accepted."""


class ClusterError(ReprieveError):
    """The API server refused or did not answer."""
