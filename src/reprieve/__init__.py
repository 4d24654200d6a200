"""Reprieve decides which running work makes way so that waiting GPU work can run."""

__version__ = "1.0.0rc1"
