"""Checks a preemption by quota independently of the search that made it."""
