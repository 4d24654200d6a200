"""Chooses the victims of a preemption by quota."""
