"""Potential victims as units: who may be preempted, in which order, and who is reprieved."""
