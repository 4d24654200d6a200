"""The questions to a run: does it start, when, what is preempted, and what would change that."""
