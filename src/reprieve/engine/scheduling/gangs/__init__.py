"""Gangs of pods as Koordinator and scheduler-plugins know them, and preemption for whole jobs."""
