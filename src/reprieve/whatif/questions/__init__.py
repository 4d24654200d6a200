"""What is asked of a run: does it start, when, who is preempted, and what would change that."""
