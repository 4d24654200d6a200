"""Reprieve decides which running work makes way so that waiting GPU work can run."""

__version__ = "0.1.0"
