"""Trace replay: what a policy would have cost, decided by the engine that decides in production."""
