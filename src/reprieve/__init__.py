"""Reprieve decides which running work is preempted so that waiting GPU work can run."""

__version__ = "1.0.0rc1"
