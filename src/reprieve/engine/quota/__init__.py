"""Whose share it is: quotas, cohorts, preemption and fair sharing, as Kueue decides them."""
